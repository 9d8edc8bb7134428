//! Looking at text as it is spelled between the quotes of a JSON string.

use crate::limits::MAX_REPEATED;

/// Keeps what is said first of something that each event repeats: nothing that is longer than [`MAX_REPEATED`].
pub(crate) fn note_first(known: &mut Vec<u8>, said: Option<&[u8]>) {
    if known.is_empty()
        && let Some(said) = said
        && said.len() <= MAX_REPEATED
    {
        known.extend_from_slice(said);
    }
}

/// Where the escape begins that `text` ends in, if it is the first half of a surrogate pair.
#[inline]
pub(crate) fn half_pair(text: &[u8]) -> Option<usize> {
    let at = text.len().checked_sub(6)?;
    match text.get(at..)? {
        [
            b'\\',
            b'u',
            b'd' | b'D',
            b'8'..=b'9' | b'a'..=b'b' | b'A'..=b'B',
            _,
            _,
        ] => {
            let before = text.get(..at)?.iter().rev();
            let escapes = before.take_while(|byte| **byte == b'\\').count();
            escapes.is_multiple_of(2).then_some(at)
        }
        _ => None,
    }
}

/// Whether spelled text holds nothing but white space.
pub(crate) fn is_white_space(text: &[u8]) -> bool {
    let mut rest = text;
    loop {
        rest = match rest {
            [] => return true,
            [b' ', rest @ ..] | [b'\\', b'n' | b't' | b'r' | b'f', rest @ ..] => rest,
            [b'\\', b'u', b'0', b'0', b'2', b'0', rest @ ..] => rest,
            [
                b'\\',
                b'u',
                b'0',
                b'0',
                b'0',
                b'9' | b'a'..=b'd' | b'A'..=b'D',
                rest @ ..,
            ] => rest,
            _ => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_has_many_spellings() {
        for text in ["", " ", r"\n\t\r\f ", r"\u000a\u0020\u000D"] {
            assert!(is_white_space(text.as_bytes()), "{text}");
        }
        for text in ["a", r"\\n", r"\u0041", r" \u00a0", r"\nx", r"\b"] {
            assert!(!is_white_space(text.as_bytes()), "{text}");
        }
    }
}
