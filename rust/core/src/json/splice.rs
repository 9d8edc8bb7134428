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

    /// Cuts elements out of an array, each with one comma: of all its elements, in their order, where each lies and
    /// whether it goes.
    pub fn cut_elements(&mut self, elements: impl Iterator<Item = (Range<usize>, bool)>) {
        // The end of the element before, and whether any stays so far.
        let mut before: Option<usize> = None;
        let mut any_stays = false;
        // Where what goes in front of the first that stays begins.
        let mut front: Option<usize> = None;
        for (range, goes) in elements {
            if goes && any_stays {
                self.replace(before.unwrap_or(range.start)..range.end, Bytes::new());
            } else if goes {
                front.get_or_insert(range.start);
            } else {
                if let Some(start) = front.take() {
                    self.replace(start..range.start, Bytes::new());
                }
                any_stays = true;
            }
            before = Some(range.end);
        }
        if let (Some(start), Some(end)) = (front, before) {
            self.replace(start..end, Bytes::new());
        }
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

    /// Appends `text` to `out`, edited. A range that reaches outside of `text`, or back into an earlier one, is cut to
    /// what is left.
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
        fn what_is_cut_out_of_an_array_leaves_the_others(goes in proptest::collection::vec(any::<bool>(), 0..8)) {
            let elements: Vec<String> = (0..goes.len()).map(|place| format!("e{place}")).collect();
            let text = format!("[{}]", elements.join(" , "));
            let mut splice = Splice::new();
            splice.cut_elements(elements.iter().zip(&goes).map(|(element, goes)| {
                let start = text.find(element).unwrap();
                (start..start + element.len(), *goes)
            }));
            let kept: Vec<&str> = elements.iter().zip(&goes).filter(|(_, goes)| !**goes).map(|(element, _)| &**element).collect();
            prop_assert_eq!(apply(&mut splice, &text).replace(' ', ""), format!("[{}]", kept.join(",")));
        }

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
