//! However a JSON body is cut, the same documents come out, and all of its bytes; what is valid is found whole.

use bytes::Bytes;
use sluicegate_core::error::Error;
use sluicegate_core::json::documents::{BodyPart, Documents};
use sluicegate_core::limits::Limits;

use super::Cut;

#[derive(Debug, Default, PartialEq)]
struct Outcome {
    documents: Vec<Bytes>,
    bytes: Vec<u8>,
    rest: Option<Bytes>,
    error: Option<Error>,
}

fn split(reads: &[Bytes], limits: &Limits) -> Outcome {
    let mut documents = Documents::new(limits);
    let mut outcome = Outcome::default();
    let mut parts = Vec::new();
    for read in reads {
        outcome.error = documents.feed(read.clone(), &mut parts).err();
    }
    for part in parts {
        outcome.bytes.extend_from_slice(part.bytes());
        if let BodyPart::Document(document) = part {
            outcome.documents.push(document);
        }
    }
    outcome.rest = documents.finish();
    outcome
}

/// Checks the property on one input.
pub fn check(input: &[u8]) {
    let Some(input) = super::read::<(u8, Cut<'_>)>(input) else {
        return;
    };
    let (max_document, cut) = input;
    let unbounded = Limits::default();
    let bounded = Limits {
        max_document: usize::from(max_document),
        ..unbounded
    };
    for limits in [unbounded, bounded] {
        let whole = split(&cut.whole(), &limits);
        assert_eq!(split(&cut.reads(), &limits), whole);
        assert_eq!(split(&cut.bytewise(), &limits), whole);
        let mut together = whole.bytes.clone();
        together.extend(whole.rest.iter().flatten());
        assert!(cut.body().starts_with(&together));
        assert!(whole.error.is_some() || together == cut.body());
    }
    let is_container = matches!(cut.body().trim_ascii().first(), Some(b'{' | b'['));
    if is_container && serde_json::from_slice::<serde::de::IgnoredAny>(cut.body()).is_ok() {
        let whole = split(&cut.whole(), &unbounded);
        assert_eq!((whole.documents.len(), whole.rest), (1, None));
    }
}
