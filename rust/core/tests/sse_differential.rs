//! Our reading of event streams against another's (the crate `sseer`), where both follow the standard.
//!
//! Left out, since that reader differs from the standard there: an `event` line without a colon, and text that is not
//! UTF-8.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use bytes::Bytes;
use futures::{StreamExt, executor::block_on, stream};
use proptest::prelude::*;
use sluicegate_core::limits::Limits;
use sluicegate_core::sse::event::Interpreter;
use sluicegate_core::sse::splitter::Splitter;

/// Name, data and id.
type Event = (Vec<u8>, Vec<u8>, Vec<u8>);

fn ours(reads: &[Bytes]) -> Vec<Event> {
    let mut splitter = Splitter::new(&Limits::default());
    let mut interpreter = Interpreter::default();
    let mut events = Vec::new();
    for read in reads {
        let (batch, fed) = splitter.feed(read.clone());
        fed.unwrap();
        for raw in batch.events() {
            if let Some(event) = interpreter.dispatch(&raw) {
                events.push((event.name.to_vec(), event.data.to_vec(), event.id.to_vec()));
            }
        }
    }
    events
}

fn theirs(reads: &[Bytes]) -> Vec<Event> {
    let reads = reads.iter().cloned().map(Ok::<_, std::convert::Infallible>);
    let events = sseer::EventStream::new(stream::iter(reads));
    block_on(events.map(Result::unwrap).collect::<Vec<_>>())
        .into_iter()
        .map(|event| {
            let bytes = |text: &str| text.as_bytes().to_vec();
            (bytes(&event.event), bytes(&event.data), bytes(&event.id))
        })
        .collect()
}

fn line() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "data", "data", "data", "event", "id", "retry", "other", "Data", "",
    ]);
    let value = "[ -~\u{e9}\u{2028}\u{1F600}\u{0}]{0,12}";
    prop_oneof![
        8 => (name, prop::sample::select(vec!["", " ", "  "]), value).prop_map(|(name, space, value)| format!("{name}:{space}{value}")),
        1 => prop::sample::select(vec!["data", "id", "retry", "other"]).prop_map(str::to_owned),
        5 => Just(String::new()),
    ]
}

fn event_stream() -> impl Strategy<Value = String> {
    let end = prop::sample::select(vec!["\n", "\n", "\r\n", "\r"]);
    let lines = proptest::collection::vec((line(), end), 0..20);
    (prop::bool::weighted(0.2), lines).prop_map(|(has_bom, lines)| {
        let lines = lines.into_iter().map(|(line, end)| line + end);
        let bom = if has_bom { "\u{feff}" } else { "" };
        std::iter::once(bom.to_owned()).chain(lines).collect()
    })
}

proptest! {
    #[test]
    fn both_readers_see_the_same_events(
        stream in event_stream(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let stream = Bytes::from(stream);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(stream.len());
        let mut start = 0;
        let reads: Vec<Bytes> = cuts.into_iter().map(|end| stream.slice(std::mem::replace(&mut start, end)..end)).collect();
        prop_assert_eq!(ours(&reads), theirs(&reads));
    }
}
