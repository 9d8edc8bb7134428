//! Base64 in pieces: audio comes so, and each piece may have padding of its own.

use crate::base64::{decode, encode};

/// Appends to `held` what stands for the bytes of `more` behind the bytes of `held`. What is not base64 is appended as
/// it is.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        encode(bytes, &mut text);
        text
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
