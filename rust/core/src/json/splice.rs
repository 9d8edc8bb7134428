//! Editing a text in place: a few replacements, every other byte as it was.

use std::ops::Range;

use bytes::{BufMut, Bytes};

/// Replacements in one text, in any order; those at the same place keep the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct Splice {
    edits: Vec<(Range<usize>, Bytes)>,
}

impl Splice {
    /// No replacement yet.
    #[must_use]
    pub fn new() -> Self {
        Splice::default()
    }

    /// Puts `with` where `range` was. Ranges must not overlap.
    pub fn replace(&mut self, range: Range<usize>, with: impl Into<Bytes>) {
        self.edits.push((range, with.into()));
    }

    /// Puts `with` in front of the byte at `at`.
    pub fn insert(&mut self, at: usize, with: impl Into<Bytes>) {
        self.replace(at..at, with);
    }

    /// Takes back the last `count` replacements.
    pub fn withdraw(&mut self, count: usize) {
        let kept = self.edits.len().saturating_sub(count);
        self.edits.truncate(kept);
    }

    /// Forgets all replacements, keeps the memory.
    pub fn clear(&mut self) {
        self.edits.clear();
    }

    /// Whether the text would stay as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// The replacements so far: where, and with what.
    pub fn edits(&self) -> impl Iterator<Item = (&Range<usize>, &Bytes)> {
        self.edits.iter().map(|(range, with)| (range, with))
    }

    /// The replacements so far, in the order in which they were made until they are applied.
    #[must_use]
    pub fn as_slice(&self) -> &[(Range<usize>, Bytes)] {
        &self.edits
    }

    /// Moves every place by `map`, which must keep their order.
    pub fn relocate(&mut self, map: impl Fn(usize) -> usize) {
        for (range, _) in &mut self.edits {
            // An end is where its last byte is: behind it another line may begin.
            let len = range.len();
            range.start = map(range.start);
            range.end = range.start + len;
        }
    }

    /// Appends `text` to `out`, edited. A range that reaches outside of `text`, or back into an earlier one, is cut to what is left.
    pub fn apply(&mut self, text: &[u8], out: &mut impl BufMut) {
        self.edits.sort_by_key(|(range, _)| range.start);
        let mut done = 0;
        for (range, with) in &self.edits {
            out.put_slice(text.get(done..range.start).unwrap_or_default());
            out.put_slice(with);
            done = done.max(range.end.min(text.len()));
        }
        out.put_slice(text.get(done..).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn apply(splice: &mut Splice, text: &str) -> String {
        let mut out = Vec::new();
        splice.apply(text.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn edits_are_made_in_place_whatever_their_order() {
        let mut splice = Splice::new();
        splice.insert(5, "!");
        splice.replace(0..1, "J");
        splice.insert(5, "?");
        assert_eq!(apply(&mut splice, "hello"), "Jello!?");
        splice.clear();
        assert!(splice.is_empty());
        assert_eq!(apply(&mut splice, "hello"), "hello");
    }

    #[test]
    fn an_insertion_where_a_replacement_begins_comes_first_if_made_first() {
        let mut splice = Splice::new();
        splice.insert(1, "a");
        splice.replace(1..2, "b");
        assert_eq!(apply(&mut splice, "xyz"), "xabz");
    }

    #[test]
    fn places_outside_lose_nothing_of_the_text() {
        let mut splice = Splice::new();
        splice.replace(3..90, "+");
        assert_eq!(apply(&mut splice, "abcd"), "abc+");
    }

    proptest! {
        #[test]
        fn removing_what_was_inserted_gives_the_text_back(text in "[a-z]{0,20}", places in proptest::collection::vec(any::<prop::sample::Index>(), 0..6)) {
            let mut splice = Splice::new();
            for place in &places {
                splice.insert(place.index(text.len() + 1), "#");
            }
            let edited = apply(&mut splice, &text);
            prop_assert_eq!(edited.len(), text.len() + places.len());
            prop_assert_eq!(edited.replace('#', ""), text);
        }
    }
}
