//! Text as bytes, spelled as JSON spells it.

use crate::json::string;

/// Spells text that comes in reads, cut anywhere, as between the quotes of a JSON string. Bytes that are not UTF-8
/// become U+FFFD.
#[derive(Clone, Debug, Default)]
pub struct Speller {
    /// The beginning of a character.
    held: Vec<u8>,
}

impl Speller {
    /// Appends to `out` what `read` adds. The beginning of a character that `read` ends in is kept back.
    pub fn push(&mut self, read: &[u8], out: &mut Vec<u8>) {
        if self.held.is_empty() {
            self.held = spell(read, out);
        } else {
            self.held.extend_from_slice(read);
            let joined = std::mem::take(&mut self.held);
            self.held = spell(&joined, out);
        }
    }

    /// The end of the text: what was kept back is no character.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.held.is_empty() {
            self.held.clear();
            string::spell("\u{FFFD}", out);
        }
    }
}

/// Returns what may be the beginning of a character.
fn spell(bytes: &[u8], out: &mut Vec<u8>) -> Vec<u8> {
    out.reserve(bytes.len());
    let mut rest = bytes;
    loop {
        let error = match std::str::from_utf8(rest) {
            Ok(text) => {
                string::spell(text, out);
                return Vec::new();
            }
            Err(error) => error,
        };
        let (valid, others) = rest.split_at(error.valid_up_to());
        string::spell(&String::from_utf8_lossy(valid), out);
        let Some(wrong) = error.error_len() else {
            return others.to_vec();
        };
        string::spell("\u{FFFD}", out);
        rest = others.get(wrong..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spelled<'a>(reads: impl IntoIterator<Item = &'a [u8]>) -> String {
        let (mut speller, mut out) = (Speller::default(), Vec::new());
        for read in reads {
            speller.push(read, &mut out);
        }
        speller.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_character_that_never_ends_is_replaced() {
        assert_eq!(spelled([&b"a\xe2"[..], b"\x82", b"\xac\n"]), "a€\\n");
        assert_eq!(spelled([&b"a\xe2\x82"[..], b"b\xff"]), "a\u{FFFD}b\u{FFFD}");
        assert_eq!(spelled([&b"\xf0\x9f"[..]]), "\u{FFFD}");
    }

    proptest! {
        #[test]
        fn any_cut_gives_what_the_standard_library_makes_of_it(
            bytes in proptest::collection::vec(prop_oneof![any::<u8>(), prop::sample::select("a\"é€😀".as_bytes().to_vec())], 0..40),
            size in 1usize..9,
        ) {
            let cut = spelled(bytes.chunks(size));
            let text: String = serde_json::from_str(&format!("\"{cut}\"")).unwrap();
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
