//! A cost is all that is added to a usage object: every other byte stays in its place, and no name of ours is the
//! upstream's too.

use sluicegate_core::cost::{Members as Added, UPSTREAM_PREFIX, splice};
use sluicegate_core::json::scan::{self, Kind, Members};
use sluicegate_core::json::splice::Splice;

const MAX_DEPTH: usize = 127;

const COSTS: [&[u8]; 4] = [
    b"\"cost\":0.1,\"cost_details\":{\"input_cost\":0.04,\"output_cost\":0.06}",
    b"\"prompt_total_cost\":1,\"completion_total_cost\":2,\"total_cost\":3",
    b"\"cost\":null,\n\"cost_details\":null",
    b"\"cost\":1,\"upstream_cost\":0.5",
];

/// Keys and values as they are written.
fn members(text: &[u8]) -> Vec<(&[u8], &[u8])> {
    Members::document(text, MAX_DEPTH)
        .expect("it is an object")
        .map(|member| member.expect("it is valid"))
        .map(|member| (member.raw_key(text), member.value.bytes(text)))
        .collect()
}

/// Checks the property on one input.
pub fn check(input: &[u8]) {
    let Some((&choice, text)) = input.split_first() else {
        return;
    };
    let Ok(object) = scan::document(text, MAX_DEPTH) else {
        return;
    };
    let cost = COSTS[usize::from(choice) % COSTS.len()];
    let mut plan = Splice::new();
    let added = Added::parse(cost).expect("they are members");
    let done = splice(text, object, &added, MAX_DEPTH, &mut plan);
    assert_eq!(done, object.kind == Kind::Object);
    assert!(plan.edits().all(|(place, _)| place.is_empty()));
    let mut out = Vec::new();
    plan.apply(text, &mut out);
    if !done {
        assert_eq!(out, text);
        return;
    }
    let wrapped = [b"{", cost, b"}"].concat();
    let (before, ours, after) = (members(text), members(&wrapped), members(&out));
    let (theirs, last) = after.split_at(before.len());
    assert_eq!(last, ours);
    for ((key, value), (shown, shown_value)) in before.iter().zip(theirs) {
        assert_eq!(value, shown_value);
        let prefix = shown.strip_suffix(*key).expect("its own name is kept");
        let prefixes = prefix.len() / UPSTREAM_PREFIX.len();
        assert_eq!(prefix, UPSTREAM_PREFIX.repeat(prefixes).as_bytes());
        assert!(!ours.iter().any(|(ours, _)| ours == shown));
    }
}
