//! A fingerprint of the part of a text that has come so far, so that the text itself need not be kept.

/// FNV-1a's numbers for 64 bits.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The length and a hash of a text that came in pieces, both over UTF-16 code units: the pieces may use other JSON
/// escapes than the whole text does, and may be cut between the halves of a surrogate pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextSoFar {
    units: u64,
    hash: u64,
}

impl Default for TextSoFar {
    fn default() -> Self {
        TextSoFar {
            units: 0,
            hash: BASIS,
        }
    }
}

impl TextSoFar {
    pub(super) fn is_empty(self) -> bool {
        self.units == 0
    }

    fn add(&mut self, unit: u16) {
        self.units += 1;
        self.hash = (self.hash ^ u64::from(unit)).wrapping_mul(PRIME);
    }

    /// Adds the next piece, given as it stands between the quotes of a JSON string.
    pub(super) fn push(&mut self, piece: &[u8]) {
        let mut at = 0;
        while let Some((units, len)) = letter(piece, at) {
            units.into_iter().flatten().for_each(|unit| self.add(unit));
            at += len;
        }
    }

    /// The part of `whole` behind the text so far; None if `whole` does not begin with that text. Both stand as between
    /// the quotes of a JSON string.
    pub(super) fn rest_of(self, whole: &[u8]) -> Option<&[u8]> {
        let mut so_far = TextSoFar::default();
        let mut at = 0;
        while so_far.units < self.units {
            let (units, len) = letter(whole, at)?;
            units
                .into_iter()
                .flatten()
                .for_each(|unit| so_far.add(unit));
            at += len;
        }
        (so_far == self).then(|| whole.get(at..).unwrap_or_default())
    }
}

/// The character or escape at `at` of a JSON string's content: its UTF-16 code units, and its length in bytes.
fn letter(text: &[u8], at: usize) -> Option<([Option<u16>; 2], usize)> {
    let &first = text.get(at)?;
    let one = |unit: u8, len| Some(([Some(u16::from(unit)), None], len));
    match first {
        b'\\' => match *text.get(at + 1)? {
            b'u' => {
                let mut code = 0;
                for place in at + 2..at + 6 {
                    code = code << 4 | char::from(*text.get(place)?).to_digit(16)?;
                }
                Some(([u16::try_from(code).ok(), None], 6))
            }
            b'b' => one(8, 2),
            b'f' => one(12, 2),
            b'n' => one(b'\n', 2),
            b'r' => one(b'\r', 2),
            b't' => one(b'\t', 2),
            letter => one(letter, 2),
        },
        0..=0x7F => one(first, 1),
        _ => {
            let len = match first {
                0xF0.. => 4,
                0xE0.. => 3,
                _ => 2,
            };
            let letter = std::str::from_utf8(text.get(at..at + len)?).ok()?;
            let mut units = letter.encode_utf16();
            Some(([units.next(), units.next()], len))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text_of(pieces: &[&str]) -> TextSoFar {
        let mut text = TextSoFar::default();
        for piece in pieces {
            text.push(piece.as_bytes());
        }
        text
    }

    #[test]
    fn texts_are_compared_without_regard_to_their_escapes() {
        let so_far = text_of(&[r"a\u00e9\n", r"\ud83d", r"\ude00"]);
        assert_eq!(
            so_far.rest_of("aé\\u000a😀 and".as_bytes()),
            Some(&b" and"[..])
        );
        assert_eq!(so_far.rest_of("aé\\n😀".as_bytes()), Some(&b""[..]));
        assert_eq!(so_far.rest_of("aé\\n".as_bytes()), None);
        assert_eq!(so_far.rest_of("bé\\n😀".as_bytes()), None);
        assert_eq!(text_of(&[r"\ud83d"]).rest_of("😀".as_bytes()), None);
        assert_eq!(text_of(&[]).rest_of(b"x"), Some(&b"x"[..]));
        assert_eq!(text_of(&["x"]).rest_of(b""), None);
    }

    proptest! {
        #[test]
        fn the_rest_of_a_text_is_what_follows_its_beginning(beginning in "[a\"é😀\n]{0,8}", rest in "[a\"é😀\n]{0,8}") {
            let spell = |text: &str| {
                let mut spelled = Vec::new();
                crate::json::string::spell(text, &mut spelled);
                spelled
            };
            let mut so_far = TextSoFar::default();
            so_far.push(&spell(&beginning));
            let whole = spell(&format!("{beginning}{rest}"));
            prop_assert_eq!(so_far.rest_of(&whole), Some(&spell(&rest)[..]));
        }
    }
}
