//! Looking into a text that has been checked, without a tree.

use std::borrow::Cow;

use super::scan::{Elements, Kind, MAX_DEPTH, Members, Value};
use super::string;

/// A value and the text that it stands in. Each look goes over the value's own text once more; what was not checked gives nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    text: &'a [u8],
    value: Value,
}

impl<'a> View<'a> {
    pub(crate) fn new(text: &'a [u8], value: Value) -> Self {
        View { text, value }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.value.kind
    }

    /// The value's own bytes.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.value.bytes(self.text)
    }

    /// A string's content as it is spelled; empty of anything else.
    pub(crate) fn content(&self) -> &'a [u8] {
        self.value.content(self.text)
    }

    /// An unsigned integer.
    pub(crate) fn as_u64(&self) -> Option<u64> {
        self.value.as_u64(self.text)
    }

    /// An object's members, keys with their escapes decoded.
    pub(crate) fn members(&self) -> impl Iterator<Item = (Cow<'a, [u8]>, View<'a>)> + use<'a> {
        let text = self.text;
        let found = (self.value.kind == Kind::Object)
            .then(|| Members::at(text, self.value.start, MAX_DEPTH).ok())
            .flatten();
        let members = found.into_iter().flatten().map_while(Result::ok);
        members.map(move |member| {
            let key = string::plain(member.raw_key(text));
            (key, View::new(text, member.value))
        })
    }

    /// An object's member.
    pub(crate) fn member(&self, name: &str) -> Option<View<'a>> {
        self.members()
            .find(|(key, _)| **key == *name.as_bytes())
            .map(|(_, value)| value)
    }

    /// The content of a member that is a string, and not an empty one.
    pub(crate) fn filled(&self, name: &str) -> Option<&'a [u8]> {
        let content = self.member(name)?.content();
        (!content.is_empty()).then_some(content)
    }

    /// Whether a member is this string.
    pub(crate) fn says(&self, name: &str, value: &str) -> bool {
        self.member(name)
            .is_some_and(|member| string::equals(member.content(), value))
    }

    /// An array's values.
    pub(crate) fn items(&self) -> impl Iterator<Item = View<'a>> + use<'a> {
        let text = self.text;
        let found = (self.value.kind == Kind::Array)
            .then(|| Elements::at(text, self.value.start, MAX_DEPTH).ok())
            .flatten();
        let items = found.into_iter().flatten().map_while(Result::ok);
        items.map(move |value| View::new(text, value))
    }
}

#[cfg(test)]
mod tests {
    use super::super::scan::document;
    use super::*;

    #[test]
    fn a_look_finds_what_is_there_and_nothing_else() {
        let text = br#"{"a":[1,{"b":"x"}],"\u0062":"","c":null}"#;
        let view = View::new(text, document(text, 8).unwrap());
        let keys: Vec<_> = view.members().map(|(key, _)| key.into_owned()).collect();
        assert_eq!(keys, [b"a", b"b", b"c"]);
        let items: Vec<_> = view.member("a").unwrap().items().collect();
        assert_eq!(items[0].as_u64(), Some(1));
        assert_eq!(items[1].filled("b"), Some(&b"x"[..]));
        assert!(items[1].says("b", "x") && !items[1].says("c", ""));
        assert_eq!(items[0].members().count() + items[1].items().count(), 0);
        assert_eq!(view.filled("b"), None);
        assert_eq!(view.member("c").unwrap().kind(), Kind::Null);
        assert_eq!(items[1].bytes(), br#"{"b":"x"}"#);
    }
}
