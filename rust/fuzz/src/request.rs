//! An edited request says what the edit says, and all that the edit does not name is there, byte for byte and in its
//! order.

use arbitrary::Arbitrary;
use bytes::Bytes;
use sluicegate_core::json::scan::{Kind, Members};
use sluicegate_core::limits::Limits;
use sluicegate_core::request::{MemberEdits, Request, RequestEdit, UsageAsk};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    model: Option<&'a str>,
    ask: u8,
    stream: Option<bool>,
    body: &'a [u8],
}

const EDITED: [&str; 3] = ["model", "stream", "stream_options"];

fn others(body: &[u8]) -> Vec<(&[u8], &[u8])> {
    Members::document(body, 512)
        .expect("a parsed request is an object")
        .map(|member| member.expect("a parsed request is valid"))
        .filter(|member| !EDITED.iter().any(|name| member.key_is(body, name)))
        .map(|member| (member.key.bytes(body), member.value.bytes(body)))
        .collect()
}

/// The members of `body` once `user` is left out, `seed` is called `random_seed`, and `added` is there.
fn with_edits(body: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let members: Vec<_> = Members::document(body, 512)
        .expect("a parsed request is an object")
        .map(|member| member.expect("a parsed request is valid"))
        .collect();
    let has = |name: &str| members.iter().any(|member| member.key_is(body, name));
    let mut edited = Vec::new();
    for member in &members {
        let is_old = member.key_is(body, "seed");
        if member.key_is(body, "user") || is_old && has("random_seed") {
            continue;
        }
        let key = if is_old {
            b"\"random_seed\""
        } else {
            member.key.bytes(body)
        };
        edited.push((key.to_vec(), member.value.bytes(body).to_vec()));
    }
    if !has("added") {
        edited.push((b"\"added\"".to_vec(), b"[1]".to_vec()));
    }
    edited
}

/// Whether the last `stream_options` is of a kind that has no options: the upstream is to refuse it.
fn cannot_ask(body: &[u8]) -> bool {
    Members::document(body, 512)
        .expect("a parsed request is an object")
        .map(|member| member.expect("a parsed request is valid"))
        .filter(|member| member.key_is(body, "stream_options"))
        .last()
        .is_some_and(|options| options.value.kind != Kind::Object)
}

/// Checks the property on one input.
pub fn check(input: &[u8]) {
    let Some(input) = super::read::<Input<'_>>(input) else {
        return;
    };
    let limits = Limits::default();
    let Ok(before) = Request::parse(Bytes::copy_from_slice(input.body), &limits) else {
        return;
    };
    let usage = [UsageAsk::Leave, UsageAsk::Ask, UsageAsk::Remove][usize::from(input.ask % 3)];
    let edit = RequestEdit {
        model: input.model,
        usage,
        stream: input.stream,
        ..RequestEdit::default()
    };
    let edited = before.edit(&edit);
    let after = Request::parse(edited.clone(), &limits).expect("an edited request is valid");
    assert_eq!(others(&edited), others(input.body));
    assert_eq!(after.model(), input.model.or(before.model()));
    assert_eq!(after.stream(), input.stream.unwrap_or(before.stream()));
    match usage {
        UsageAsk::Leave => assert_eq!(after.include_usage(), before.include_usage()),
        UsageAsk::Remove => assert!(!after.include_usage()),
        UsageAsk::Ask => assert!(after.include_usage() || !after.stream() || cannot_ask(&edited)),
    }
    assert_eq!(after.edit(&edit), edited);
    let edits = MemberEdits {
        omit: vec!["user".into()],
        rename: vec![("seed".into(), "random_seed".into())],
        add: vec![("added".into(), "[1]".into())],
    };
    let made = edits.apply(&edited);
    let members: Vec<_> = Members::document(&made, 512)
        .expect("an edited request is an object")
        .map(|member| member.expect("an edited request is valid"))
        .map(|member| {
            (
                member.key.bytes(&made).to_vec(),
                member.value.bytes(&made).to_vec(),
            )
        })
        .collect();
    assert_eq!(members, with_edits(&edited));
    assert_eq!(edits.apply(&made), made);
}
