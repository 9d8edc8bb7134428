//! Texts by place.

use std::fmt;

/// Texts by place, each of which may be missing. They are in one piece of memory: a record has many.
#[derive(Clone, Default)]
pub struct Texts {
    all: String,
    /// Where each text begins, and its length.
    places: Vec<Option<(u32, u32)>>,
}

impl Texts {
    /// With room for so many, which have so many bytes.
    pub(crate) fn with_capacity(count: usize, bytes: usize) -> Self {
        Self {
            all: String::with_capacity(bytes),
            places: Vec::with_capacity(count),
        }
    }

    /// How many places there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// Bytes of all texts.
    pub(crate) fn bytes(&self) -> usize {
        self.all.len()
    }

    /// The text at place `at`.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<&str> {
        let (first, length) = (*self.places.get(at)?)?;
        self.all.get(first as usize..)?.get(..length as usize)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Option<&str>> {
        (0..self.places.len()).map(|at| self.get(at))
    }

    /// Append a text, at a place of its own.
    pub fn push(&mut self, text: Option<&str>) {
        let place = self.add(text);
        self.places.push(place);
    }

    /// Put `text` at place `at`, where there is one.
    pub fn set(&mut self, at: usize, text: Option<&str>) {
        if at < self.places.len() {
            let place = self.add(text);
            self.places[at] = place;
        }
    }

    /// Whether a text has this character.
    pub(crate) fn contains(&self, character: char) -> bool {
        self.all.contains(character)
    }

    fn add(&mut self, text: Option<&str>) -> Option<(u32, u32)> {
        let text = text?;
        let place = (self.all.len().try_into().ok()?, text.len().try_into().ok()?);
        self.all.push_str(text);
        Some(place)
    }
}

impl<T: AsRef<str>> FromIterator<Option<T>> for Texts {
    fn from_iter<I: IntoIterator<Item = Option<T>>>(texts: I) -> Self {
        let mut made = Self::default();
        for text in texts {
            made.push(text.as_ref().map(AsRef::as_ref));
        }
        made
    }
}

impl PartialEq for Texts {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Texts {}

impl fmt::Debug for Texts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_where_they_were_put() {
        let mut texts: Texts = [Some("a"), None, Some(""), Some("äb")]
            .into_iter()
            .collect();
        texts.push(Some("last"));
        texts.set(1, Some("new"));
        texts.set(3, None);
        texts.set(0, Some("other"));
        texts.set(9, Some("nowhere"));
        let expected = [Some("other"), Some("new"), Some(""), None, Some("last")];
        assert!(texts.iter().eq(expected));
        assert_eq!(texts, expected.into_iter().collect());
        assert_ne!(texts, Texts::default());
        assert_eq!((texts.count(), texts.get(9)), (5, None));
    }
}
