//! Ids of calls as the protocol of an upstream takes them: letters, digits, `_` and `-`, not too many, and each one
//! once.
//!
//! What has to change is changed by what stands before it alone, so that what is sent of a conversation stays the same
//! from turn to turn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::names::adapted;
use crate::json::string;

/// Bytes that a number behind a repeated id may take, the `_` in front of it included.
const NUMBERED: usize = 8;

/// The ids of a request's calls. Servers that count from `call_0` in every reply repeat them.
#[derive(Debug)]
pub(crate) struct CallIds {
    bound: usize,
    given: BTreeSet<Box<str>>,
    /// Of ids that are repeated, by what stands in front of the number: the number that the next of them may get.
    numbers: BTreeMap<Box<str>, usize>,
    /// The calls of each of the client's ids, decoded.
    calls: BTreeMap<Box<str>, Calls>,
}

/// The calls of one id.
#[derive(Debug, Default)]
struct Calls {
    /// The ids of those that have no result so far, in their order.
    open: VecDeque<Box<str>>,
    /// That of the last one.
    last: Box<str>,
}

impl CallIds {
    /// No call so far. No id is longer than `bound` bytes.
    pub(crate) fn new(bound: usize) -> Self {
        CallIds {
            bound,
            given: BTreeSet::new(),
            numbers: BTreeMap::new(),
            calls: BTreeMap::new(),
        }
    }

    /// The id of the next call, whose client calls it `id`, spelled as between the quotes of a JSON string.
    pub(crate) fn call(&mut self, id: &[u8]) -> Box<str> {
        let id = string::decode(id);
        let adapted = adapted(&id, self.bound);
        let given = if self.given.contains(adapted.as_ref()) {
            self.numbered(&adapted)
        } else {
            adapted.as_ref().into()
        };
        self.given.insert(given.clone());
        let calls = self.calls.entry(id.as_ref().into()).or_default();
        calls.open.push_back(given.clone());
        calls.last.clone_from(&given);
        given
    }

    /// An id that nobody has, for one that somebody has.
    fn numbered(&mut self, adapted: &str) -> Box<str> {
        let room = self.bound.saturating_sub(NUMBERED).min(adapted.len());
        // It is ASCII.
        let front = adapted.get(..room).unwrap_or_default();
        // From where the last one got its number: a search from the start for each would cost the square of them.
        let number = self.numbers.entry(front.into()).or_insert(2);
        loop {
            let numbered = format!("{front}_{number}");
            *number += 1;
            if !self.given.contains(numbered.as_str()) {
                return numbered.into();
            }
        }
    }

    /// The id of the call that a result named `id` belongs to: of several of the same name, the first without a result.
    /// None where there is no such call.
    pub(crate) fn result(&mut self, id: &[u8]) -> Option<Box<str>> {
        let calls = self.calls.get_mut(string::decode(id).as_ref())?;
        Some(calls.open.pop_front().unwrap_or_else(|| calls.last.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn repeated_ids_are_numbered_and_their_results_follow() {
        let mut ids = CallIds::new(64);
        assert_eq!(&*ids.call(b"call_0"), "call_0");
        assert_eq!(&*ids.result(b"call_0").unwrap(), "call_0");
        assert_eq!(&*ids.call(b"call_0"), "call_0_2");
        assert_eq!(&*ids.result(b"call_0").unwrap(), "call_0_2");
        // One that looks like it.
        assert_eq!(&*ids.call(b"call_0_2"), "call_0_2_2");
        assert_eq!(&*ids.call(b"call_0"), "call_0_3");
        assert_eq!(&*ids.call(b"call_0"), "call_0_4");
        assert_eq!(&*ids.result(b"call_0").unwrap(), "call_0_3");
        assert_eq!(&*ids.result(b"call_0").unwrap(), "call_0_4");
        assert_eq!(ids.result(b"call_9"), None);
    }

    #[test]
    fn repeated_ids_stay_within_the_bound() {
        let mut ids = CallIds::new(12);
        assert_eq!(&*ids.call(b"abcdefghijkl"), "abcdefghijkl");
        assert_eq!(&*ids.call(b"abcdefghijkl"), "abcd_2");
    }

    proptest! {
        #[test]
        fn every_id_is_given_once_and_fits(names in prop::collection::vec("[ab.]{0,3}(_2)?", 0..40)) {
            let mut ids = CallIds::new(64);
            let mut given = BTreeSet::new();
            for name in &names {
                let id = ids.call(name.as_bytes());
                prop_assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)));
                prop_assert!(!id.is_empty() && id.len() <= 64);
                prop_assert!(given.insert(id));
            }
            for name in &names {
                let id = ids.result(name.as_bytes()).unwrap();
                prop_assert!(given.remove(&id));
            }
        }

        #[test]
        fn a_later_call_changes_no_earlier_id(names in prop::collection::vec("[ab.]{0,2}(_2)?", 1..20)) {
            let all = |names: &[String]| {
                let mut ids = CallIds::new(64);
                names.iter().map(|name| ids.call(name.as_bytes())).collect::<Vec<_>>()
            };
            let whole = all(&names);
            prop_assert_eq!(&all(&names[..names.len() - 1]), &whole[..names.len() - 1]);
        }
    }
}
