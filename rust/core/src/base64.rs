//! Base64 (RFC 4648): with padding and the alphabet of section 4, and without padding and with that of section 5, which
//! may stand in any JSON string, URL or header as it is.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The bytes of a text of whole quanta, the last of which may have padding. None where it is none.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text
        .strip_suffix(b"==")
        .or_else(|| text.strip_suffix(b"="))
        .unwrap_or(text);
    decode_digits(digits, [b'+', b'/'])
}

/// The bytes of a text of section 5's digits without padding. None where it is none.
pub(crate) fn decode_url(text: &[u8]) -> Option<Vec<u8>> {
    decode_digits(text, [b'-', b'_'])
}

fn decode_digits(digits: &[u8], last: [u8; 2]) -> Option<Vec<u8>> {
    let [plus, slash] = last;
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for quantum in digits.chunks(4) {
        if quantum.len() == 1 {
            return None;
        }
        let mut bits = 0;
        for &digit in quantum {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                _ if digit == plus => 62,
                _ if digit == slash => 63,
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

/// Appends what stands for `bytes`, with padding.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let digits = digits(group, STANDARD);
        let said = digits.iter().take(group.len() + 1);
        out.extend(said.chain([b'='; 2].iter().take(3 - group.len())));
    }
}

/// Appends what stands for `bytes` in section 5's alphabet, without padding.
pub(crate) fn encode_url(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let digits = digits(group, URL);
        out.extend(digits.iter().take(group.len() + 1));
    }
}

/// The digits of three bytes; of fewer, those behind the first `group.len() + 1` mean nothing.
fn digits(group: &[u8], alphabet: &[u8; 64]) -> [u8; 4] {
    let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
    let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
    [18, 12, 6, 0].map(|shift| {
        let value = (bits >> shift) as usize % alphabet.len();
        alphabet.get(value).copied().unwrap_or_default()
    })
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
    fn what_is_not_base64_is_not_decoded() {
        for text in ["Zg", "Z", "Zg=", "Zm9v\n", "Zm-v", "Z===", "===="] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
        for text in ["Z", "Zg==", "Zm+v", "Zm9vZ"] {
            assert_eq!(decode_url(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut url = Vec::new();
            encode_url(&bytes, &mut url);
            prop_assert!(url.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte)));
            prop_assert_eq!(decode_url(&url).unwrap(), bytes.clone());
            prop_assert_eq!(decode(&encoded(&bytes)).unwrap(), bytes);
        }
    }
}
