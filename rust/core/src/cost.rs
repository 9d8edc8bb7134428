//! Adding the cost to a usage object. The amounts are given; this module inserts their members.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::json::cursor::Cursor;
use crate::json::scan::{self, Fault, Kind, Problem, Value, skip_space};
use crate::json::splice::Splice;
use crate::json::string;
use crate::limits::MAX_DEPTH;

/// Put in front of the upstream's own name for a member where that name is one of ours.
pub const UPSTREAM_PREFIX: &str = "upstream_";

/// Members of the upstream's that are renamed. Nobody sends two of one name; an object made of millions of them would
/// grow by a hundred times its size.
const MAX_RENAMED: usize = 64;

/// JSON members to add to a usage object, on one line: checked once, where they are made.
///
/// ```
/// use sluicegate_core::cost::Members;
///
/// let members = Members::parse("\"cost\":0.1,\n\"cost_details\":{\"input_cost\":0.1}").unwrap();
/// assert_eq!(members.as_bytes(), b"\"cost\":0.1, \"cost_details\":{\"input_cost\":0.1}");
/// assert!(Members::parse("{\"cost\":0.1}").is_none());
/// ```
#[derive(Clone, Debug)]
pub struct Members {
    text: Bytes,
    /// Where in `text` the names are, escapes untouched.
    names: Arc<[Range<usize>]>,
}

impl Members {
    /// Checks `text` (`"cost":0.1,"cost_details":{…}`, without braces); None where it is not JSON members. Line ends
    /// between them become spaces, so that an event stays one line.
    #[must_use]
    pub fn parse(text: impl Into<Bytes>) -> Option<Self> {
        let text = text.into();
        let names = names(&text).ok()?.into();
        let text = one_line(text);
        Some(Members { text, names })
    }

    /// Members that were written here, on one line; `names`: where theirs stand in `text`.
    pub(crate) fn written(text: String, names: &[Range<usize>]) -> Self {
        Members {
            text: text.into(),
            names: names.into(),
        }
    }

    /// The members as they are added.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// Whether the others have the same names in the same order, so that they can be added wherever these could.
    pub(crate) fn is_like(&self, others: &Members) -> bool {
        self.names().eq(others.names())
    }

    fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names
            .iter()
            .map(|name| self.text.get(name.clone()).unwrap_or_default())
    }
}

/// Plans the edits that add `members` to the object `usage` of `text`; false where that cannot be, because `usage` is
/// no object, or more than 64 of its members would have to be renamed.
///
/// They come last in the object. A member that the upstream wrote under one of their names is renamed in place to
/// `upstream_` and that name, so that the upstream's own cost is neither lost nor taken for ours. Where that name is
/// taken too, by a gateway like this one in front of the upstream or by `members` themselves, `upstream_` is put in
/// front as often as makes each name the only one.
pub fn splice(
    text: &[u8],
    usage: Value,
    members: &Members,
    max_depth: usize,
    plan: &mut Splice,
) -> bool {
    if usage.kind != Kind::Object {
        return false;
    }
    let object = usage.bytes(text);
    let mut families = families(members);
    let mut last_end = None;
    let read = Cursor::new(object, max_depth).members(|cursor, key| {
        let (name, bit) = family_of(key.content(object));
        if let Some(family) = families.iter_mut().find(|family| family.name == name) {
            family.theirs |= bit;
        }
        last_end = Some(cursor.skip()?.end);
        Ok(())
    });
    if read.is_err() {
        return false;
    }
    if families.iter().any(Family::collides) {
        let before = plan.as_slice().len();
        let _ = Cursor::new(object, max_depth).members(|cursor, key| {
            let (name, _) = family_of(key.content(object));
            if let Some(family) = families.iter().find(|family| family.name == name)
                && family.collides()
                && plan.as_slice().len() - before <= MAX_RENAMED
            {
                let inside_quotes = usage.start + key.start + 1;
                plan.insert(inside_quotes, UPSTREAM_PREFIX.repeat(family.shift()));
            }
            cursor.skip().map(drop)
        });
        let renamed = plan.as_slice().len() - before;
        if renamed > MAX_RENAMED {
            plan.withdraw(renamed);
            return false;
        }
    }
    let members = members.text.clone();
    match last_end {
        Some(end) => {
            plan.insert(usage.start + end, Bytes::from_static(b","));
            plan.insert(usage.start + end, members);
        }
        None => plan.insert(usage.start + 1, members),
    }
    true
}

/// Names that differ only in how often `upstream_` stands in front.
struct Family<'a> {
    /// Without any of it, escapes decoded.
    name: Cow<'a, [u8]>,
    /// How often it stands in front of our names: a bit for each number.
    ours: u64,
    /// The same for the upstream's.
    theirs: u64,
}

impl Family<'_> {
    fn collides(&self) -> bool {
        self.ours & self.theirs != 0
    }

    /// How many more of it the upstream's names need.
    fn shift(&self) -> usize {
        (1..u64::BITS)
            .find(|shift| (self.theirs << shift) & self.ours == 0)
            .unwrap_or(u64::BITS) as usize
    }
}

fn families(members: &Members) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::with_capacity(members.names.len());
    for key in members.names() {
        let (name, ours) = family_of(key);
        match families.iter_mut().find(|family| family.name == name) {
            Some(family) => family.ours |= ours,
            None => families.push(Family {
                name,
                ours,
                theirs: 0,
            }),
        }
    }
    families
}

/// The name of a key's family, and the bit for how often `upstream_` stands in front of it. More than 63 times is as
/// good as 63.
fn family_of(key: &[u8]) -> (Cow<'_, [u8]>, u64) {
    let prefix = UPSTREAM_PREFIX.as_bytes();
    let mut name = string::plain(key);
    let mut rest = &*name;
    let mut prefixes = 0;
    while let Some(shorter) = rest.strip_prefix(prefix) {
        rest = shorter;
        prefixes += 1;
    }
    let stripped = name.len() - rest.len();
    match &mut name {
        Cow::Borrowed(name) => *name = name.get(stripped..).unwrap_or_default(),
        Cow::Owned(name) => drop(name.drain(..stripped)),
    }
    (name, 1 << prefixes.min(u64::BITS - 1))
}

/// Where [`splice`] inserts `,` and `members`, if that is all it does: `usage` has members, and none that collides.
pub(crate) fn plain_addition(
    text: &[u8],
    usage: Value,
    members: &Members,
    max_depth: usize,
) -> Option<usize> {
    let mut plan = Splice::new();
    splice(text, usage, members, max_depth, &mut plan);
    match plan.as_slice() {
        [(place, comma), _] if **comma == *b"," => Some(place.start),
        _ => None,
    }
}

/// Where the names of `members` are, escapes untouched.
fn names(members: &[u8]) -> Result<Vec<Range<usize>>, Fault> {
    let mut names = Vec::with_capacity(8);
    let mut at = 0;
    loop {
        let key = scan::value(members, at, MAX_DEPTH)?;
        let colon = skip_space(members, key.end);
        if key.kind != Kind::String || members.get(colon) != Some(&b':') {
            return unexpected(colon);
        }
        names.push(key.start + 1..key.end - 1);
        at = skip_space(members, scan::value(members, colon + 1, MAX_DEPTH)?.end);
        match members.get(at) {
            None => return Ok(names),
            Some(b',') => at += 1,
            Some(_) => return unexpected(at),
        }
    }
}

fn unexpected<T>(offset: usize) -> Result<T, Fault> {
    Err(Fault {
        problem: Problem::UnexpectedByte,
        offset,
    })
}

fn one_line(members: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &members).is_none() {
        return members;
    }
    let space = |&byte: &u8| {
        if matches!(byte, b'\n' | b'\r') {
            b' '
        } else {
            byte
        }
    };
    members.iter().map(space).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    fn add(usage: &str, members: &str) -> Option<String> {
        let text = format!("{{\"usage\": {usage}}}");
        let value = scan::value(text.as_bytes(), 10, 64).unwrap();
        let mut plan = Splice::new();
        let members = Members::parse(members.to_owned())?;
        let done = splice(text.as_bytes(), value, &members, 64, &mut plan);
        assert_eq!(done, !plan.is_empty());
        let mut out = Vec::new();
        plan.apply(text.as_bytes(), &mut out);
        done.then(|| String::from_utf8(out[10..out.len() - 1].to_vec()).unwrap())
    }

    #[test]
    fn members_come_last_and_every_other_byte_stays() {
        assert_eq!(
            add("{ \"prompt_tokens\" : 14 }", "\"cost\":0.1").unwrap(),
            "{ \"prompt_tokens\" : 14,\"cost\":0.1 }"
        );
        assert_eq!(add("{}", "\"cost\":1").unwrap(), "{\"cost\":1}");
        assert_eq!(add("{ }", "\"cost\":1").unwrap(), "{\"cost\":1 }");
        assert_eq!(
            add("{\"a\":{\"b\":[]}\n}", "\"x\":null,\"y\":{}").unwrap(),
            "{\"a\":{\"b\":[]},\"x\":null,\"y\":{}\n}"
        );
    }

    #[test]
    fn the_upstreams_own_cost_keeps_its_value_under_another_name() {
        assert_eq!(
            add("{\"cost\":0.5,\"n\":1}", "\"cost\":0.1").unwrap(),
            "{\"upstream_cost\":0.5,\"n\":1,\"cost\":0.1}"
        );
        assert_eq!(
            add("{\"co\\u0073t\":0.5}", "\"cost\":0.1").unwrap(),
            "{\"upstream_co\\u0073t\":0.5,\"cost\":0.1}"
        );
    }

    #[test]
    fn a_chain_of_gateways_keeps_every_cost() {
        assert_eq!(
            add("{\"upstream_cost\":2,\"cost\":1}", "\"cost\":0").unwrap(),
            "{\"upstream_upstream_cost\":2,\"upstream_cost\":1,\"cost\":0}"
        );
        assert_eq!(
            add("{\"upstream_cost\":2}", "\"cost\":0").unwrap(),
            "{\"upstream_cost\":2,\"cost\":0}"
        );
    }

    #[test]
    fn a_price_that_says_the_upstreams_cost_itself_gives_each_name_once() {
        let both = "\"cost\":1,\"upstream_cost\":0.5";
        for (usage, added) in [
            ("{\"cost\":0.5}", "{\"upstream_upstream_cost\":0.5,"),
            ("{\"upstream_cost\":2}", "{\"upstream_upstream_cost\":2,"),
            (
                "{\"cost\":0.5,\"upstream_cost\":2}",
                "{\"upstream_upstream_cost\":0.5,\"upstream_upstream_upstream_cost\":2,",
            ),
            (
                "{\"upstream_upstream_cost\":3,\"\\u0075pstream_cost\":2}",
                "{\"upstream_upstream_upstream_cost\":3,\"upstream_\\u0075pstream_cost\":2,",
            ),
            (
                "{\"upstream_upstream_cost\":3}",
                "{\"upstream_upstream_cost\":3,",
            ),
        ] {
            assert_eq!(add(usage, both).unwrap(), format!("{added}{both}}}"));
        }
        assert_eq!(
            add("{\"cost\":1}", "\"upstream_cost\":0.5").unwrap(),
            "{\"cost\":1,\"upstream_cost\":0.5}"
        );
    }

    #[test]
    fn a_nested_member_of_the_same_name_is_left_alone() {
        assert_eq!(
            add("{\"d\":{\"cost\":3}}", "\"cost\":0").unwrap(),
            "{\"d\":{\"cost\":3},\"cost\":0}"
        );
    }

    #[test]
    fn an_event_stays_one_line() {
        assert_eq!(
            add("{\"a\":1}", "\"cost\":1,\n\"d\":\r\n2").unwrap(),
            "{\"a\":1,\"cost\":1, \"d\":  2}"
        );
    }

    #[test]
    fn what_cannot_be_added_is_not() {
        assert_eq!(add("[1]", "\"cost\":1"), None);
        assert_eq!(add("null", "\"cost\":1"), None);
        for members in [
            "",
            "cost",
            "\"cost\"",
            "\"cost\":",
            "\"cost\":1,",
            "\"a\":1}",
            "1:2",
        ] {
            assert_eq!(add("{\"cost\":1}", members), None, "{members}");
        }
    }

    proptest! {
        #[test]
        fn the_object_stays_what_it_was_but_for_the_cost(
            names in proptest::collection::btree_set(prop::sample::select(vec!["cost", "upstream_cost", "upstream_upstream_cost", "cost_details", "prompt_tokens", "", "é\"\\"]), 0..6),
            added in proptest::collection::btree_set(prop::sample::select(vec!["cost", "upstream_cost", "upstream_upstream_upstream_cost", "cost_details"]), 1..4),
            pretty in any::<bool>(),
        ) {
            let before: serde_json::Map<String, Json> = names.iter().enumerate().map(|(i, name)| ((*name).to_owned(), json!(i))).collect();
            let text = if pretty { serde_json::to_string_pretty(&before) } else { serde_json::to_string(&before) }.unwrap();
            let members: Vec<_> = added.iter().map(|name| format!("\"{name}\":\"{name}\"")).collect();
            // Of a name that stands twice, the map would have one: their number is compared below.
            let mut after: serde_json::Map<String, Json> = serde_json::from_str(&add(&text, &members.join(",")).unwrap()).unwrap();
            for name in added {
                prop_assert_eq!(after.remove(name), Some(json!(name)));
            }
            prop_assert_eq!(after.len(), before.len());
            let mut values: Vec<_> = after.values().map(Json::to_string).collect();
            values.sort();
            let mut expected: Vec<_> = before.values().map(Json::to_string).collect();
            expected.sort();
            prop_assert_eq!(values, expected);
        }
    }
}
