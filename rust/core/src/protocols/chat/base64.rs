//! Base64 (RFC 4648, section 4) in pieces: audio comes so, and each piece may have padding of its own.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends to `held` what stands for the bytes of `more` behind the bytes of `held`. What is not base64 is appended as it is.
pub(super) fn append(held: &mut Vec<u8>, more: &[u8]) {
    let last = held.len().saturating_sub(4);
    let joined = held
        .get(last..)
        .filter(|quantum| quantum.ends_with(b"="))
        .and_then(|quantum| {
            let mut bytes = decode(quantum)?;
            bytes.extend(decode(more)?);
            Some(bytes)
        });
    match joined {
        Some(bytes) => {
            held.truncate(last);
            encode(&bytes, held);
        }
        None => held.extend_from_slice(more),
    }
}

/// The bytes of a text of whole quanta, the last of which may have padding.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text
        .strip_suffix(b"==")
        .or_else(|| text.strip_suffix(b"="))
        .unwrap_or(text);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for quantum in digits.chunks(4) {
        let mut bits = 0;
        for &digit in quantum {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        let missing = 4 - quantum.len();
        let [_, decoded @ ..] = (bits << (6 * missing)).to_be_bytes();
        bytes.extend(decoded.iter().take(3 - missing));
    }
    Some(bytes)
}

fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let value = (bits >> (18 - 6 * i)) as usize % ALPHABET.len();
            let digit = ALPHABET.get(value).copied().filter(|_| i <= group.len());
            out.push(digit.unwrap_or(b'='));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        encode(bytes, &mut text);
        text
    }

    /// RFC 4648, section 10.
    #[test]
    fn test_vectors() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encoded(bytes.as_bytes()), text.as_bytes());
            assert_eq!(decode(text.as_bytes()).unwrap(), bytes.as_bytes());
        }
    }

    #[test]
    fn what_is_not_base64_is_appended_as_it_is() {
        for (held, more) in [("Zg==", "a"), ("Zg==", "ab-_"), ("=", "Zg=="), ("x", "y")] {
            let mut text = held.as_bytes().to_vec();
            append(&mut text, more.as_bytes());
            assert_eq!(text, format!("{held}{more}").as_bytes());
        }
    }

    proptest! {
        #[test]
        fn pieces_join_into_the_whole(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..8), 0..8)) {
            let mut text = Vec::new();
            for piece in &pieces {
                append(&mut text, &encoded(piece));
            }
            prop_assert_eq!(text, encoded(&pieces.concat()));
        }
    }
}
