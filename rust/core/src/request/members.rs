//! Members of a request's body that one upstream wants by another name, in addition, or not at all.

use bytes::Bytes;

use crate::json::scan::{MAX_DEPTH, Member, Members};
use crate::json::string;

/// How the members of a body are to differ for one upstream. The default changes nothing.
///
/// ```
/// use bytes::Bytes;
/// use sluicegate_core::request::MemberEdits;
///
/// let edits = MemberEdits {
///     omit: vec!["store".into()],
///     rename: vec![("max_completion_tokens".into(), "max_tokens".into())],
///     add: vec![("safe_prompt".into(), "true".into())],
/// };
/// let body = Bytes::from_static(br#"{"max_completion_tokens": 5, "store": false, "n": 1}"#);
/// assert_eq!(edits.apply(&body), r#"{"max_tokens": 5, "n": 1,"safe_prompt":true}"#);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberEdits {
    /// Not sent.
    pub omit: Vec<Box<str>>,
    /// Sent by the second name; not at all where the body has that one, too.
    pub rename: Vec<(Box<str>, Box<str>)>,
    /// Sent where nothing of that name is: names, and values as JSON.
    pub add: Vec<(Box<str>, Box<str>)>,
}

/// What becomes of one member.
enum Fate<'e> {
    Kept,
    Cut,
    Renamed(&'e str),
}

impl MemberEdits {
    /// Whether no body is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.omit.is_empty() && self.rename.is_empty() && self.add.is_empty()
    }

    /// `body`, a JSON object, with these edits; every other byte stays as it came. One that needs none is not copied,
    /// and neither is what is no object.
    #[must_use]
    pub fn apply(&self, body: &Bytes) -> Bytes {
        if self.is_empty() {
            return body.clone();
        }
        self.edited(body).map_or_else(|| body.clone(), Bytes::from)
    }

    /// None where nothing changes.
    fn edited(&self, body: &[u8]) -> Option<Vec<u8>> {
        let members = || {
            Some(
                Members::document(body, MAX_DEPTH)
                    .ok()?
                    .map_while(Result::ok),
            )
        };
        let is = |member: Member, name: &str| member.key_is(body, name);
        let mut has_new_name = vec![false; self.rename.len()];
        let mut has_added = vec![false; self.add.len()];
        let mut changes = false;
        for member in members()? {
            if self.omits(body, member) {
                changes = true;
                continue;
            }
            for (has, (old, new)) in has_new_name.iter_mut().zip(&self.rename) {
                *has |= is(member, new);
                changes |= is(member, old);
            }
            for (has, (name, _)) in has_added.iter_mut().zip(&self.add) {
                *has |= is(member, name);
            }
        }
        let added = || {
            let missing = self.add.iter().zip(&has_added).filter(|(_, has)| !**has);
            missing.map(|(member, _)| member)
        };
        if !changes && added().next().is_none() {
            return None;
        }
        let mut out = Vec::with_capacity(body.len() + 64);
        // Where the text begins that stands in front of the next member.
        let mut from = 0;
        let mut any = false;
        for member in members()? {
            let Member { key, value } = member;
            let fate = self.fate(body, member, &has_new_name);
            let stays = !matches!(fate, Fate::Cut);
            // The comma in front of the first that stays goes with what is cut.
            if from == 0 || stays && any {
                out.extend_from_slice(body.get(from..key.start).unwrap_or_default());
            }
            from = value.end;
            if stays {
                match fate {
                    Fate::Renamed(name) => string::encode(name, &mut out),
                    _ => out.extend_from_slice(key.bytes(body)),
                }
                out.extend_from_slice(body.get(key.end..value.end).unwrap_or_default());
                any = true;
            }
        }
        if from == 0 {
            from = body.iter().position(|byte| *byte == b'{')? + 1;
            out.extend_from_slice(body.get(..from).unwrap_or_default());
        }
        for (name, value) in added() {
            if any {
                out.push(b',');
            }
            any = true;
            string::encode(name, &mut out);
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
        }
        out.extend_from_slice(body.get(from..).unwrap_or_default());
        Some(out)
    }

    fn omits(&self, body: &[u8], member: Member) -> bool {
        self.omit.iter().any(|name| member.key_is(body, name))
    }

    fn fate(&self, body: &[u8], member: Member, has_new_name: &[bool]) -> Fate<'_> {
        if self.omits(body, member) {
            return Fate::Cut;
        }
        let renamed = self.rename.iter().zip(has_new_name);
        match renamed
            .into_iter()
            .find(|((old, _), _)| member.key_is(body, old))
        {
            None => Fate::Kept,
            Some((_, true)) => Fate::Cut,
            Some(((_, new), false)) => Fate::Renamed(new),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    fn edits(omit: &[&str], rename: &[(&str, &str)], add: &[(&str, &str)]) -> MemberEdits {
        let pairs =
            |of: &[(&str, &str)]| of.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        MemberEdits {
            omit: omit.iter().map(|name| (*name).into()).collect(),
            rename: pairs(rename),
            add: pairs(add),
        }
    }

    fn apply(edits: &MemberEdits, body: &str) -> String {
        let edited = edits.apply(&Bytes::copy_from_slice(body.as_bytes()));
        String::from_utf8(edited.to_vec()).unwrap()
    }

    #[test]
    fn what_is_cut_takes_one_comma_along() {
        let edits = edits(&["a"], &[], &[]);
        for (body, expected) in [
            ("{\"a\": 1}", "{}"),
            (" { \"a\" : 1 , \"b\": 2 } ", " { \"b\": 2 } "),
            ("{\"b\":2, \"a\":[{}]}\n", "{\"b\":2}\n"),
            ("{\"b\":2, \"a\":1, \"c\":3}", "{\"b\":2, \"c\":3}"),
            ("{\"a\":0,\"a\":1,\"c\":3,\"\\u0061\":4}", "{\"c\":3}"),
            ("{\"b\":{\"a\":1}}", "{\"b\":{\"a\":1}}"),
        ] {
            assert_eq!(apply(&edits, body), expected, "{body}");
        }
    }

    #[test]
    fn a_member_has_its_other_name_unless_that_is_there() {
        let edits = edits(&[], &[("old", "new")], &[]);
        assert_eq!(
            apply(&edits, r#"{"old" : 1, "b":2}"#),
            r#"{"new" : 1, "b":2}"#
        );
        assert_eq!(apply(&edits, r#"{"old" : 1, "new":2}"#), r#"{"new":2}"#);
        assert_eq!(apply(&edits, r#"{"new":2,"old" : 1}"#), r#"{"new":2}"#);
    }

    #[test]
    fn two_names_can_change_places() {
        let edits = edits(&[], &[("a", "b"), ("c", "d")], &[]);
        assert_eq!(apply(&edits, r#"{"a":1,"c":2}"#), r#"{"b":1,"d":2}"#);
    }

    #[test]
    fn what_is_added_stands_at_the_end_unless_it_is_there() {
        let edits = edits(&["z"], &[], &[("a", "{\"b\":[]}"), ("z", "0")]);
        assert_eq!(apply(&edits, "{ }"), "{\"a\":{\"b\":[]},\"z\":0 }");
        assert_eq!(apply(&edits, "{\"a\":1,\"z\":9}"), "{\"a\":1,\"z\":0}");
        assert_eq!(apply(&edits, "{\"z\":9 } "), "{\"a\":{\"b\":[]},\"z\":0 } ");
    }

    #[test]
    fn a_body_that_needs_no_edit_is_not_copied() {
        let body = Bytes::from_static(b"{\"b\":1}");
        for edits in [
            MemberEdits::default(),
            edits(&["a"], &[("c", "b")], &[("b", "2")]),
        ] {
            assert_eq!(edits.apply(&body).as_ptr(), body.as_ptr());
        }
    }

    #[test]
    fn what_is_no_object_stays_as_it_is() {
        let edits = edits(&["a"], &[], &[]);
        for body in ["", "[{\"a\":1}]", "3", "\"a\""] {
            assert_eq!(apply(&edits, body), body);
        }
    }

    fn name() -> impl Strategy<Value = String> {
        prop::sample::select(vec!["a", "b", "c", "d", "e"]).prop_map(str::to_owned)
    }

    proptest! {
        #[test]
        fn the_edits_are_those_of_an_object(
            members in prop::collection::btree_map(name(), 0..9u8, 0..5),
            spaces in prop::collection::vec("[ \n]{0,2}", 12),
            omit in prop::collection::vec(name(), 0..2),
            rename in prop::collection::btree_map(name(), prop::sample::select(vec!["x", "b"]), 0..2),
            add in prop::collection::btree_map(name(), 10..19u8, 0..2),
        ) {
            let mut space = spaces.iter().cycle();
            let mut between = |text: &str| format!("{}{text}", space.next().unwrap());
            let list: Vec<String> = members
                .iter()
                .map(|(name, value)| [between(&format!("\"{name}\"")), between(":"), between(&value.to_string())].concat())
                .collect();
            let body = format!("{}{}{}", between("{"), list.join(&between(",")), between("}"));
            // A chain of names would depend on their order.
            let rename: Vec<_> = rename.into_iter().filter(|(old, new)| old != new && old != "b").take(1).collect();
            let mut expected: Map<String, Value> = members.into_iter().map(|(name, value)| (name, value.into())).collect();
            expected.retain(|name, _| !omit.contains(name));
            let there: Vec<String> = expected.keys().cloned().collect();
            for (old, new) in &rename {
                if let Some(value) = expected.remove(old) {
                    expected.entry((*new).to_owned()).or_insert(value);
                }
            }
            for (name, value) in add.iter().filter(|(name, _)| !there.contains(*name)) {
                expected.insert(name.clone(), (*value).into());
            }
            // A name that is given and added at once is not what anybody configures.
            prop_assume!(add.keys().all(|name| rename.iter().all(|(old, new)| name != old && name != new)));
            let edits = MemberEdits {
                omit: omit.iter().map(|name| name.as_str().into()).collect(),
                rename: rename.iter().map(|(old, new)| (old.as_str().into(), (*new).into())).collect(),
                add: add.iter().map(|(name, value)| (name.as_str().into(), value.to_string().into())).collect(),
            };
            let edited: Value = serde_json::from_str(&apply(&edits, &body)).unwrap();
            prop_assert_eq!(edited, Value::Object(expected));
        }
    }
}
