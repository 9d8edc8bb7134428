//! Whose the words of a record are.

use crc32fast::Hasher;

use crate::record::UNKNOWN;

/// Bits of a number that is marked; larger ones are stored as the largest.
const VALUE_BITS: u32 = 40;
const LARGEST: u64 = (1 << VALUE_BITS) - 1;

/// The record that words belong to, by its id. A word of another record passes for one of this record's once in 16
/// million times, and a checksum once in four thousand million times.
///
/// Without an id nothing is marked, and any word passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner(Option<u64>);

impl Owner {
    pub(crate) fn of(id: Option<u128>) -> Self {
        // Half of an id of the seventh version is a time: the other half differs.
        Self(id.map(|id| ((id >> 64) ^ id) as u64))
    }

    pub(crate) fn is_known(self) -> bool {
        self.0.is_some()
    }

    fn mark_of(self, place: usize) -> u64 {
        // The upper bits of a product depend on all bits of its factors.
        let place = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (self.0.unwrap_or_default() ^ place).wrapping_mul(0xd6e8_feb8_6659_fd93) & !LARGEST
    }

    /// `number`, as this record has it at `place`.
    pub(crate) fn mark(self, place: usize, number: u64) -> u64 {
        self.mark_of(place) | number.min(LARGEST)
    }

    /// The number at `place`. `None`: there is none, or it is not this record's.
    pub(crate) fn unmark(self, place: usize, word: u64) -> Option<u64> {
        if !self.is_known() {
            return Some(word).filter(|word| *word != UNKNOWN);
        }
        (word & !LARGEST == self.mark_of(place)).then_some(word & LARGEST)
    }

    /// The checksum of bytes that are this record's.
    pub(crate) fn checksum(self, bytes: &[u8]) -> u32 {
        let begin = self.0.map_or(0, |own| own as u32);
        let mut hasher = Hasher::new_with_initial(begin);
        hasher.update(bytes);
        hasher.finalize()
    }

    /// The same of words, little endian.
    pub(crate) fn checksum_of_words<const COUNT: usize>(self, words: &[u64; COUNT]) -> u32 {
        self.checksum(words.map(u64::to_le_bytes).as_flattened())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_those_that_were_marked(id in any::<u128>(), number in any::<u64>(), place in 0_usize..8) {
            let owner = Owner::of(Some(id));
            let word = owner.mark(place, number);
            prop_assert_eq!(owner.unmark(place, word), Some(number.min(LARGEST)));
            prop_assert_eq!(owner.unmark(place + 1, word), None);
            prop_assert_eq!(Owner::of(Some(!id ^ 1)).unmark(place, word), None);
        }
    }
}
