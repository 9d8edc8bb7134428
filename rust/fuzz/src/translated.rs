//! What holds for each reply that is made anew: whatever its bytes and however they were cut, the client gets the same,
//! it is well formed, and it is not larger than the upstream's by more than a factor.

use std::sync::Arc;

use bytes::Bytes;
use sluicegate_core::error::Error;
use sluicegate_core::json::scan;
use sluicegate_core::pipeline::{Facts, Pipeline, ReplyPlan, Unpriced};
use sluicegate_core::protocols::ClientProtocol;
use sluicegate_core::protocols::responses::echo::{Asked, Echo};
use sluicegate_core::sse::event::Events;

use super::Cut;

/// Bytes to the client for each of the upstream's: an item of a few bytes is told of in six events, each with an id of
/// up to 512 bytes.
const GROWTH: usize = 1024;

/// What a reply of nothing may have.
const BASE: usize = 16 << 10;

/// A client of the Responses interface.
pub(super) fn asked() -> ClientProtocol {
    let echo = Echo::new("resp_0a", 7, "m");
    ClientProtocol::Responses(Some(Asked::Echo(Arc::new(echo))))
}

fn pass(plan: &ReplyPlan, reads: &[Bytes]) -> (Vec<u8>, Facts, Option<Error>) {
    let mut pipeline = Pipeline::new(plan.clone());
    let mut out = Vec::new();
    let mut error = None;
    for read in reads {
        error = pipeline.feed(read.clone(), &mut Unpriced, &mut out).err();
        if error.is_some() {
            break;
        }
    }
    if error.is_none() {
        error = pipeline.finish(&mut Unpriced, &mut out).err();
    }
    if error.is_some() || pipeline.facts().truncated {
        pipeline.fail("upstream_error", "truncated", "it broke off", &mut out);
    }
    (out.concat(), pipeline.facts().clone(), error)
}

/// Checks the properties of one reply, and gives what the client is sent.
pub(super) fn check(plan: &ReplyPlan, cut: &Cut<'_>) -> Vec<u8> {
    let whole = pass(plan, &cut.whole());
    assert_eq!(pass(plan, &cut.reads()), whole);
    assert_eq!(pass(plan, &cut.bytewise()), whole);
    let (out, ..) = whole;
    assert!(
        out.len() <= BASE + GROWTH * cut.body().len(),
        "{}",
        out.len()
    );
    if !plan.client.streams {
        assert!(is_json(&out), "{}", String::from_utf8_lossy(&out));
        return out;
    }
    let mut events = Events::new(&out);
    for event in events.by_ref() {
        if let Some(data) = event.data() {
            assert!(
                *data == *b"[DONE]" || is_json(&data),
                "{}",
                String::from_utf8_lossy(&data)
            );
        }
    }
    assert!(events.rest().is_empty());
    out
}

fn is_json(text: &[u8]) -> bool {
    scan::document(text, scan::MAX_DEPTH).is_ok()
}
