//! However a stream is cut, the same bytes come out as the same events, and all of them.

use bytes::Bytes;
use sluicegate_core::error::Error;
use sluicegate_core::limits::Limits;
use sluicegate_core::sse::boundary::event_around;
use sluicegate_core::sse::splitter::{Splitter, Tail};

use super::Cut;

#[derive(Debug, Default, PartialEq)]
struct Outcome {
    bytes: Vec<u8>,
    events: Vec<Vec<u8>>,
    tail: Option<Tail>,
    error: Option<Error>,
}

fn split(reads: &[Bytes], limits: &Limits) -> Outcome {
    let mut splitter = Splitter::new(limits);
    let mut outcome = Outcome::default();
    for read in reads {
        let (batch, fed) = splitter.feed(read.clone());
        outcome.error = fed.err();
        for slice in batch.slices() {
            outcome.bytes.extend_from_slice(slice);
        }
        if !batch.late_lf.is_empty() {
            outcome
                .events
                .last_mut()
                .expect("a late line feed follows an event")
                .push(b'\n');
        }
        for event in batch.events() {
            outcome.events.push(event.bytes().to_vec());
        }
        let middle = batch.whole.len() / 2;
        if !batch.whole.is_empty() {
            let found = event_around(&batch.whole, middle).expect("every byte is in an event");
            assert!(
                batch
                    .events()
                    .any(|event| event.bytes() == &batch.whole[found.clone()])
            );
        }
    }
    outcome.tail = splitter.finish();
    outcome
}

/// Checks the property on one input.
pub fn check(input: &[u8]) {
    let Some(input) = super::read::<(u8, Cut<'_>)>(input) else {
        return;
    };
    let (max_event, cut) = input;
    let unbounded = Limits::default();
    let bounded = Limits {
        max_event: usize::from(max_event),
        ..unbounded
    };
    for limits in [unbounded, bounded] {
        let whole = split(&cut.whole(), &limits);
        assert_eq!(split(&cut.reads(), &limits), whole);
        assert_eq!(split(&cut.bytewise(), &limits), whole);
        let mut together = whole.bytes.clone();
        together.extend(whole.tail.iter().flat_map(|tail| &tail.rest));
        assert!(cut.body().starts_with(&together));
        assert!(whole.error.is_some() || together == cut.body());
        if let Some(tail) = &whole.tail {
            let ended = tail.event();
            assert_eq!(
                sluicegate_core::sse::boundary::first_end(&ended),
                Some(ended.len())
            );
        }
    }
}
