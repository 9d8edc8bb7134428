//! Finding the format's tokens in text that is spelled as JSON spells it.

/// A token of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Start,
    Channel,
    Constrain,
    Message,
    End,
    Call,
    Return,
}

const MARKERS: [(&[u8], Marker); 7] = [
    (b"<|start|>", Marker::Start),
    (b"<|channel|>", Marker::Channel),
    (b"<|constrain|>", Marker::Constrain),
    (b"<|message|>", Marker::Message),
    (b"<|end|>", Marker::End),
    (b"<|call|>", Marker::Call),
    (b"<|return|>", Marker::Return),
];

/// Letters of the longest token.
const LONGEST: usize = 13;

/// What a search came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Marker {
        start: usize,
        end: usize,
        marker: Marker,
    },
    /// From here to the end it may be the beginning of a token, or is half an escape: only what follows will tell.
    Perhaps(usize),
    Nothing,
}

/// The first token in `text`. Some servers spell `<` and `>` as escapes, to be safe in HTML (Go's `encoding/json`).
pub(super) fn find(text: &[u8]) -> Found {
    let mut at = 0;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let Some(place) = memchr::memchr2(b'<', b'\\', rest) else {
            return Found::Nothing;
        };
        at += place;
        match unit(text, at) {
            Unit::Ascii(b'<', len) => match token(text, at) {
                Found::Nothing => at += len,
                found => return found,
            },
            Unit::Ascii(_, len) | Unit::Other(len) => at += len,
            Unit::Incomplete => return Found::Perhaps(at),
            Unit::End => return Found::Nothing,
        }
    }
}

/// The token whose `<` is at `start`.
fn token(text: &[u8], start: usize) -> Found {
    let mut letters = [0; LONGEST];
    let mut count = 0;
    let mut at = start;
    loop {
        match unit(text, at) {
            Unit::Ascii(letter, len) => {
                at += len;
                let Some(place) = letters.get_mut(count) else {
                    return Found::Nothing;
                };
                *place = letter;
                count += 1;
            }
            Unit::Other(_) => return Found::Nothing,
            Unit::Incomplete | Unit::End => return Found::Perhaps(start),
        }
        let letters = letters.get(..count).unwrap_or_default();
        let mut candidates = MARKERS
            .iter()
            .filter(|(token, _)| token.starts_with(letters));
        match candidates.next() {
            None => return Found::Nothing,
            Some(&(token, marker)) if token.len() == count => {
                return Found::Marker {
                    start,
                    end: at,
                    marker,
                };
            }
            Some(_) => {}
        }
    }
}

/// One letter as it is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// An ASCII character, and the bytes that it took.
    Ascii(u8, usize),
    /// Anything else, or a byte of it.
    Other(usize),
    /// An escape that the text ends in.
    Incomplete,
    End,
}

/// The letter at `at`.
pub(super) fn unit(text: &[u8], at: usize) -> Unit {
    let Some(&byte) = text.get(at) else {
        return Unit::End;
    };
    if byte != b'\\' {
        return if byte.is_ascii() {
            Unit::Ascii(byte, 1)
        } else {
            Unit::Other(1)
        };
    }
    match text.get(at + 1) {
        None => Unit::Incomplete,
        Some(b'u') => {
            let mut code = 0;
            for place in at + 2..at + 6 {
                let Some(&digit) = text.get(place) else {
                    return Unit::Incomplete;
                };
                let Some(value) = char::from(digit).to_digit(16) else {
                    return Unit::Other(2);
                };
                code = code * 16 + value;
            }
            match u8::try_from(code) {
                Ok(letter) if letter.is_ascii() => Unit::Ascii(letter, 6),
                _ => Unit::Other(6),
            }
        }
        Some(b'b') => Unit::Ascii(8, 2),
        Some(b't') => Unit::Ascii(b'\t', 2),
        Some(b'n') => Unit::Ascii(b'\n', 2),
        Some(b'f') => Unit::Ascii(12, 2),
        Some(b'r') => Unit::Ascii(b'\r', 2),
        Some(&letter) if letter.is_ascii() => Unit::Ascii(letter, 2),
        Some(_) => Unit::Other(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(start: usize, end: usize, marker: Marker) -> Found {
        Found::Marker { start, end, marker }
    }

    #[test]
    fn every_token_is_found_where_it_stands() {
        for (token, expected) in MARKERS {
            let text = [b"a < b <| c", token, b"<|end|>"].concat();
            assert_eq!(find(&text), marker(10, 10 + token.len(), expected));
        }
        assert_eq!(
            MARKERS.iter().map(|(token, _)| token.len()).max(),
            Some(LONGEST)
        );
    }

    #[test]
    fn letters_may_be_escaped() {
        assert_eq!(find(br"\u003c|end|\u003E"), marker(0, 17, Marker::End));
        assert_eq!(find(br"\n<\u007cend|>"), marker(2, 14, Marker::End));
        // A backslash and the letters u003c are no bracket.
        assert_eq!(find(br"\\u003c|end|>"), Found::Nothing);
    }

    #[test]
    fn what_may_still_become_a_token_is_left_open() {
        let text = br"ab\u003c|message|\u003e";
        for end in 3..text.len() {
            assert_eq!(find(&text[..end]), Found::Perhaps(2), "{end}");
        }
        assert_eq!(find(b"a <|mess age|>"), Found::Nothing);
        assert_eq!(find(b"a <|fim|> <|"), Found::Perhaps(10));
        assert_eq!(find("<é".as_bytes()), Found::Nothing);
        assert_eq!(find(br"<\ud83d"), Found::Nothing);
    }
}
