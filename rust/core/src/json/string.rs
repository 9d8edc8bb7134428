//! JSON strings as bytes: skip, compare, decode, encode.

use std::borrow::Cow;

use super::plain::{self, is_special};
use super::scan::{Fault, Problem};

/// Strings longer than so many blocks are searched in larger steps.
const SHORT_BLOCKS: usize = 2;

/// Length of the escape whose backslash is at `at`.
fn escape_len(text: &[u8], at: usize) -> Result<usize, Fault> {
    match text.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(2),
        Some(b'u') => {
            for i in at + 2..at + 6 {
                match text.get(i) {
                    Some(byte) if byte.is_ascii_hexdigit() => {}
                    Some(_) => return fault(Problem::UnexpectedByte, i),
                    None => return fault(Problem::UnexpectedEnd, i),
                }
            }
            Ok(6)
        }
        Some(_) => fault(Problem::UnexpectedByte, at + 1),
        None => fault(Problem::UnexpectedEnd, at + 1),
    }
}

/// Checks the string content that begins at `start`, just behind the opening quote; returns the offset of the closing
/// quote.
///
/// Whether the bytes are UTF-8 is not looked at: a byte that is not cannot hide a quote, and who decodes puts U+FFFD in
/// its place.
///
/// # Errors
/// A raw control character, a bad escape, or the text's end. A lone surrogate escape is allowed, as RFC 8259's grammar
/// allows it.
#[inline]
pub fn content_end(text: &[u8], start: usize) -> Result<usize, Fault> {
    let mut at = start;
    'blocks: for _ in 0..SHORT_BLOCKS {
        let Some(mut specials) = plain::specials(text, at) else {
            break;
        };
        while specials != 0 {
            let first = specials.trailing_zeros() as usize;
            match text.get(at + first) {
                Some(b'"') => return Ok(at + first),
                Some(b'\\') => {
                    let passed = first + escape_len(text, at + first)?;
                    if passed >= plain::BLOCK {
                        at += passed;
                        continue 'blocks;
                    }
                    specials &= u32::MAX << passed;
                }
                _ => return fault(Problem::UnexpectedByte, at + first),
            }
        }
        at += plain::BLOCK;
    }
    far_content_end(text, at)
}

/// [`content_end`] behind the blocks.
#[inline(never)]
fn far_content_end(text: &[u8], mut at: usize) -> Result<usize, Fault> {
    loop {
        at = plain::plain_end(text, at);
        match text.get(at) {
            Some(b'"') => return Ok(at),
            Some(b'\\') => at += escape_len(text, at)?,
            Some(_) => return fault(Problem::UnexpectedByte, at),
            None => return fault(Problem::UnexpectedEnd, at),
        }
    }
}

fn fault<T>(problem: Problem, offset: usize) -> Result<T, Fault> {
    Err(Fault { problem, offset })
}

/// Skips the string whose opening quote is at `start`; returns the offset behind the closing quote.
pub(super) fn skip(text: &[u8], start: usize) -> Result<usize, Fault> {
    Ok(content_end(text, start + 1)? + 1)
}

/// One character of a string's content, and the bytes it took. A lone surrogate is U+FFFD. None at the end or at a
/// broken escape.
fn next_char(content: &[u8]) -> Option<(char, usize)> {
    if content.first() != Some(&b'\\') {
        let head = content.get(..content.len().min(4))?;
        let valid = match std::str::from_utf8(head) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(head.get(..error.valid_up_to())?).ok()?,
        };
        let char = valid.chars().next()?;
        return Some((char, char.len_utf8()));
    }
    let simple = match content.get(1)? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let high = hex(content.get(2..6)?)?;
            if (0xD800..0xDC00).contains(&high) && content.get(6..8) == Some(b"\\u") {
                let low = hex(content.get(8..12)?)?;
                if (0xDC00..0xE000).contains(&low) {
                    let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                    return Some((char::from_u32(code)?, 12));
                }
            }
            return Some((
                char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER),
                6,
            ));
        }
        _ => return None,
    };
    Some((simple, 2))
}

fn hex(digits: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Whether a string's content, escapes decoded, is `name`.
#[must_use]
pub fn equals(content: &[u8], name: &str) -> bool {
    if !content.contains(&b'\\') {
        return content == name.as_bytes();
    }
    let mut rest = content;
    for expected in name.chars() {
        match next_char(rest) {
            Some((char, len)) if char == expected => rest = rest.get(len..).unwrap_or_default(),
            _ => return false,
        }
    }
    rest.is_empty()
}

/// A string's content with its escapes decoded. Lone surrogates and bytes that are not UTF-8 become U+FFFD.
#[must_use]
pub fn decode(content: &[u8]) -> Cow<'_, str> {
    if !content.contains(&b'\\') {
        return String::from_utf8_lossy(content);
    }
    let mut decoded = String::with_capacity(content.len());
    let mut rest = content;
    while !rest.is_empty() {
        let plain = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
        decoded.push_str(&String::from_utf8_lossy(
            rest.get(..plain).unwrap_or_default(),
        ));
        rest = rest.get(plain..).unwrap_or_default();
        match next_char(rest) {
            Some((char, len)) => {
                decoded.push(char);
                rest = rest.get(len..).unwrap_or_default();
            }
            None if rest.is_empty() => {}
            None => {
                decoded.push(char::REPLACEMENT_CHARACTER);
                rest = rest.get(1..).unwrap_or_default();
            }
        }
    }
    Cow::Owned(decoded)
}

/// Whether a string's content decodes to what a database takes for text: it has no lone surrogate, which no encoding of
/// Unicode can write, and no NUL, which `PostgreSQL` refuses.
#[must_use]
pub fn is_storable(content: &[u8]) -> bool {
    let mut rest = content;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        rest = rest.get(at..).unwrap_or_default();
        let Some((char, len)) = next_char(rest) else {
            return false;
        };
        let escape = rest.get(..len).unwrap_or_default();
        let stands_for_itself = char != char::REPLACEMENT_CHARACTER
            || escape.get(2..).and_then(hex) == Some(u32::from(char));
        if char == '\0' || !stands_for_itself {
            return false;
        }
        rest = rest.get(len..).unwrap_or_default();
    }
    !rest.contains(&0)
}

/// [`decode`] for keys: bytes, since most of them are compared with names.
#[must_use]
pub fn plain(content: &[u8]) -> Cow<'_, [u8]> {
    if content.contains(&b'\\') {
        Cow::Owned(decode(content).into_owned().into_bytes())
    } else {
        Cow::Borrowed(content)
    }
}

/// Appends `text` as a JSON string, quotes included. Only what RFC 8259 section 7 demands is escaped.
pub fn encode(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    spell(text, out);
    out.push(b'"');
}

/// Appends `text` as it is spelled between the quotes of a JSON string.
pub fn spell(text: &str, out: &mut Vec<u8>) {
    spell_bytes(text.as_bytes(), out);
}

/// [`spell`] for bytes that are text already, such as JSON that is to stand in a JSON string: what is spelled is
/// spelled once more, and never decoded.
pub fn spell_bytes(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(place) = rest.iter().position(|&byte| is_special(byte)) {
        let (plain, others) = rest.split_at(place);
        out.extend_from_slice(plain);
        let Some((&special, others)) = others.split_first() else {
            return;
        };
        match special {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => out.extend_from_slice(format!("\\u{control:04x}").as_bytes()),
        }
        rest = others;
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_are_compared_with_their_escapes_decoded() {
        assert!(equals(b"usage", "usage"));
        assert!(equals(b"us\\u0061ge", "usage"));
        assert!(equals(b"\\u0075\\u0073\\u0061\\u0067\\u0065", "usage"));
        assert!(!equals(b"us\\u0062ge", "usage"));
        assert!(!equals(b"usag\\u0065s", "usage"));
        assert!(!equals(b"usag", "usage"));
        assert!(equals(b"\\ud83d\\ude00", "\u{1F600}"));
    }

    #[test]
    fn what_a_database_cannot_take_for_text_is_told() {
        for content in [
            r"",
            "msg_1",
            "é\u{1f600}\u{fffd}",
            r"\ud83d\ude00",
            r"\ufffd",
            r"\uFFFD",
            r"\\u0000",
            r"a\u0001\n",
        ] {
            assert!(is_storable(content.as_bytes()), "{content}");
        }
        for content in [
            r"\ud800",
            r"\uDFFF",
            r"a\ud83d\u0041",
            r"\ude00\ud83d",
            r"\ud83d\ude00\ud83d",
            r"msg\u0000",
            "\0",
        ] {
            assert!(!is_storable(content.as_bytes()), "{content}");
        }
    }

    #[test]
    fn lone_surrogates_decode_to_the_replacement_character() {
        assert_eq!(decode(b"a\\ud800b"), "a\u{fffd}b");
        assert_eq!(decode(b"\\ud800\\u0041"), "\u{fffd}A");
        assert_eq!(decode(b"\\udc00"), "\u{fffd}");
    }

    #[test]
    fn what_ends_or_spoils_a_string_is_found_wherever_it_stands() {
        for length in (0..200).chain(4080..4200).chain([9000]) {
            let plain = vec![b'a'; length];
            let string = |middle: &[u8]| [&plain, middle, &plain, b"\""].concat();
            let end = 2 * length;
            assert_eq!(content_end(&string(b""), 0), Ok(end));
            assert_eq!(content_end(&string(b"\""), 0), Ok(length));
            assert_eq!(content_end(&string(b"\\\""), 0), Ok(end + 2));
            assert_eq!(content_end(&string("\u{e9}".as_bytes()), 0), Ok(end + 2));
            assert_eq!(content_end(&string(b"\xff\x7f"), 0), Ok(end + 2));
            assert_eq!(content_end(&string(b"\\u00e9"), 0), Ok(end + 6));
            for (spoiler, problem) in [
                (b"\n", Problem::UnexpectedByte),
                (b"\x1f", Problem::UnexpectedByte),
                (b"\0", Problem::UnexpectedByte),
            ] {
                let offset = length;
                let fault = content_end(&string(spoiler), 0).unwrap_err();
                assert_eq!(fault, Fault { problem, offset });
            }
            let fault = content_end(&plain, 0).unwrap_err();
            assert_eq!(
                (fault.problem, fault.offset),
                (Problem::UnexpectedEnd, length)
            );
        }
    }

    proptest! {
        #[test]
        fn encoding_is_undone_by_decoding(text in any::<String>()) {
            let mut out = Vec::new();
            encode(&text, &mut out);
            prop_assert_eq!(content_end(&out, 1).unwrap(), out.len() - 1);
            prop_assert_eq!(decode(&out[1..out.len() - 1]), text.clone());
            prop_assert!(equals(&out[1..out.len() - 1], &text));
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }

        #[test]
        fn json_spelled_in_a_string_is_that_json(text in any::<String>()) {
            let mut json = b"{\n\t\"text\": ".to_vec();
            encode(&text, &mut json);
            json.push(b'}');
            let mut out = b"\"".to_vec();
            spell_bytes(&json, &mut out);
            out.push(b'"');
            let inner = serde_json::from_slice::<String>(&out).unwrap();
            prop_assert_eq!(inner.as_bytes(), &json);
        }

        #[test]
        fn decoding_never_panics(content in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = decode(&content);
            let _ = equals(&content, "usage");
            let _ = content_end(&content, 0);
        }
    }
}
