//! JSON for the tests: a tree in which numbers keep their spelling and objects do not know an order.

use std::collections::BTreeMap;
use std::fmt;

use proptest::prelude::*;

use crate::json::scan::{self, Elements, Kind, Members, Value};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    /// `null`, `true`, `false`, and numbers as they are spelled.
    Plain(String),
    Text(String),
    List(Vec<Tree>),
    Object(BTreeMap<String, Tree>),
}

impl Tree {
    pub(super) fn null() -> Self {
        Tree::Plain("null".into())
    }

    pub(super) fn text(text: &str) -> Self {
        Tree::Text(text.into())
    }

    pub(super) fn object<'a>(members: impl IntoIterator<Item = (&'a str, Tree)>) -> Self {
        let members = members.into_iter();
        Tree::Object(members.map(|(key, value)| (key.into(), value)).collect())
    }

    pub(super) fn parse(text: &[u8]) -> Self {
        Self::read(text, scan::document(text, 512).unwrap())
    }

    fn read(text: &[u8], value: Value) -> Self {
        match value.kind {
            Kind::Object => {
                let members = Members::at(text, value.start, 512).unwrap();
                let members = members.map(Result::unwrap).map(|member| {
                    let key = member.key.decode(text).unwrap().into_owned();
                    (key, Self::read(text, member.value))
                });
                Tree::Object(members.collect())
            }
            Kind::Array => {
                let elements = Elements::at(text, value.start, 512).unwrap();
                Tree::List(
                    elements
                        .map(|value| Self::read(text, value.unwrap()))
                        .collect(),
                )
            }
            Kind::String => Tree::Text(value.decode(text).unwrap().into_owned()),
            _ => Tree::Plain(String::from_utf8(value.bytes(text).to_vec()).unwrap()),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Tree> {
        match self {
            Tree::Object(members) => members.get(key),
            _ => None,
        }
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Tree> {
        match self {
            Tree::Object(members) => members.get_mut(key),
            _ => None,
        }
    }

    pub(super) fn list_mut(&mut self) -> &mut [Tree] {
        match self {
            Tree::List(values) => values,
            _ => &mut [],
        }
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tree::Plain(spelled) => f.write_str(spelled),
            Tree::Text(text) => f.write_str(&serde_json::to_string(text).unwrap()),
            Tree::List(values) => {
                f.write_str("[")?;
                for (i, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if i > 0 { " ,\n" } else { "" })?;
                }
                f.write_str("]")
            }
            Tree::Object(members) => {
                f.write_str("{ ")?;
                for (i, (key, value)) in members.iter().enumerate() {
                    let comma = if i > 0 { ", " } else { "" };
                    write!(f, "{comma}{}: {value}", serde_json::to_string(key).unwrap())?;
                }
                f.write_str("}")
            }
        }
    }
}

/// Numbers that a float would change, and others.
pub(super) fn number() -> impl Strategy<Value = Tree> {
    prop_oneof![
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?",
        "0|1|-0|1\\.0|0\\.1000|1e400|12345678901234567890123",
    ]
    .prop_map(Tree::Plain)
}

/// Any value, up to a depth of three containers.
pub(super) fn any_tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        "null|true|false".prop_map(Tree::Plain),
        number(),
        any_text(),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Tree::List),
            prop::collection::btree_map("[a-z\"\\\\é]{0,5}", inner, 0..4).prop_map(Tree::Object),
        ]
    })
}

/// Strings with what is hard to carry: quotes, escapes, line ends of all kinds, what looks like an event stream.
pub(super) fn any_text() -> impl Strategy<Value = Tree> {
    prop_oneof![
        Just(String::new()),
        "[a-z ]{1,12}",
        any::<String>(),
        "(\r\n|\n|\r|\u{2028}|\u{2029}|\u{85}|\"|\\\\|data: |\\[DONE\\]|😀|é|\u{0}){1,6}",
    ]
    .prop_map(Tree::Text)
}
