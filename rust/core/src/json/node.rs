//! A value in a text that is known to be JSON: what is in it, found when it is asked for.

use std::borrow::Cow;
use std::ops::Range;

use super::scan::{Elements, Kind, MAX_DEPTH, Member, Members, Value};
use super::string;

/// A value and the text it lies in. Nothing is kept but its place, so each look into it reads it anew.
///
/// Where the text turns out to be no JSON, an iterator ends early.
///
/// ```
/// use sluicegate_core::json::node::Node;
///
/// let text = br#"{"role": "user", "parts": [1, 2.50]}"#;
/// let node = Node::document(text).unwrap();
/// let [role, parts, name] = node.pick(["role", "parts", "name"]);
/// assert!(role.unwrap().is("user"));
/// assert_eq!(parts.unwrap().elements().last().unwrap().bytes(), b"2.50");
/// assert!(name.is_none());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    text: &'a [u8],
    value: Value,
}

impl<'a> Node<'a> {
    /// The value at `value` in `text`.
    #[must_use]
    pub fn new(text: &'a [u8], value: Value) -> Self {
        Node { text, value }
    }

    /// The one document that `text` holds, checked; None where it is no JSON.
    #[must_use]
    pub fn document(text: &'a [u8]) -> Option<Self> {
        let value = super::scan::document(text, MAX_DEPTH).ok()?;
        Some(Node { text, value })
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.value.kind
    }

    /// Where it is in its text.
    #[must_use]
    pub fn value(&self) -> Value {
        self.value
    }

    /// Its bytes, as they are spelled.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.value.bytes(self.text)
    }

    /// Where it lies in its text.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.value.range()
    }

    /// A string's content between the quotes, escapes untouched. None for anything else.
    #[must_use]
    pub fn spelled(&self) -> Option<&'a [u8]> {
        (self.value.kind == Kind::String).then(|| self.value.content(self.text))
    }

    /// A string, decoded. None for anything else.
    #[must_use]
    pub fn decode(&self) -> Option<Cow<'a, str>> {
        self.value.decode(self.text)
    }

    /// Whether it is the string `text`.
    #[must_use]
    pub fn is(&self, text: &str) -> bool {
        self.value.kind == Kind::String && string::equals(self.value.content(self.text), text)
    }

    /// An unsigned integer that fits 64 bits. None for anything else.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        self.value.as_u64(self.text)
    }

    /// An object's members in their order; none for anything else.
    pub fn members(&self) -> impl Iterator<Item = (Node<'a>, Node<'a>)> + use<'a> {
        let text = self.text;
        let members = (self.value.kind == Kind::Object)
            .then(|| Members::at(text, self.value.start, MAX_DEPTH).ok())
            .flatten();
        members
            .into_iter()
            .flatten()
            .map_while(Result::ok)
            .map(move |Member { key, value }| (Node { text, value: key }, Node { text, value }))
    }

    /// An array's values in their order; none for anything else.
    pub fn elements(&self) -> impl Iterator<Item = Node<'a>> + use<'a> {
        let text = self.text;
        let elements = (self.value.kind == Kind::Array)
            .then(|| Elements::at(text, self.value.start, MAX_DEPTH).ok())
            .flatten();
        elements
            .into_iter()
            .flatten()
            .map_while(Result::ok)
            .map(move |value| Node { text, value })
    }

    /// An object's members of these names, read in one pass; of several the last, and none where that is null.
    #[must_use]
    pub fn pick<const N: usize>(&self, names: [&str; N]) -> [Option<Node<'a>>; N] {
        let mut picked = [None; N];
        for (key, value) in self.members() {
            let key = string::plain(key.value.content(key.text));
            let place = names.iter().position(|name| *name.as_bytes() == *key);
            if let Some(slot) = place.and_then(|place| picked.get_mut(place)) {
                *slot = (value.kind() != Kind::Null).then_some(value);
            }
        }
        picked
    }

    /// An object's member of this name; of several the last, and none where that is null.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Node<'a>> {
        let [value] = self.pick([name]);
        value
    }

    /// The content of an object's member of this name, between the quotes and escapes untouched; None unless it is a
    /// string that is not empty.
    #[must_use]
    pub fn filled(&self, name: &str) -> Option<&'a [u8]> {
        self.get(name)?
            .spelled()
            .filter(|content| !content.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_several_members_counts_and_null_is_none() {
        let text = br#"{"a":1,"\u0061":2,"b":3,"b":null}"#;
        let [a, b] = Node::document(text).unwrap().pick(["a", "b"]);
        assert_eq!(a.unwrap().as_u64(), Some(2));
        assert!(b.is_none());
    }

    #[test]
    fn what_is_no_container_holds_nothing() {
        let node = Node::document(b"\"text\"").unwrap();
        assert_eq!(node.members().count() + node.elements().count(), 0);
        assert!(node.is("text") && node.get("text").is_none());
        assert!(Node::document(b"{\"a\":").is_none());
    }
}
