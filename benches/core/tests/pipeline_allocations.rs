//! What a reply's journey allocates, and what it holds.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::hint::black_box;

use allocation_counter::measure;
use bytes::Bytes;
use sluicegate_bench_core::{
    READ, chat_chunks, chat_chunks_with_usage, reads, translated, usage_chunks,
};
use sluicegate_core::api::Api;
use sluicegate_core::cost::Members;
use sluicegate_core::pipeline::{Pipeline, Pricer, ReplyPlan};
use sluicegate_core::sse::event::Events;
use sluicegate_core::usage::Usage;

struct Fixed(Members);

impl Pricer for Fixed {
    fn price(&mut self, _usage: &Usage) -> Option<Members> {
        Some(self.0.clone())
    }
}

/// One chat chunk with another text each time, as they come one by one.
fn single_events(count: usize) -> Vec<Bytes> {
    (0..count)
        .map(|i| {
            let event = format!("data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"word {i}\"}},\"finish_reason\":null}}],\"usage\":null}}\n\n");
            let event = Bytes::from(event);
            // The first clone of a vector's bytes makes its counter.
            let _shared = event.clone();
            event
        })
        .collect()
}

fn feed(pipeline: &mut Pipeline, reads: &[Bytes], out: &mut Vec<Bytes>) -> u64 {
    let mut pricer = Fixed(Members::parse("\"cost\":1").unwrap());
    measure(|| {
        for read in reads {
            out.clear();
            pipeline.feed(read.clone(), &mut pricer, out).unwrap();
            black_box(&*out);
        }
    })
    .count_total
}

#[test]
fn events_that_come_whole_are_forwarded_without_an_allocation() {
    let mut pipeline = Pipeline::new(ReplyPlan::new(Api::Chat, true));
    let mut out = Vec::with_capacity(4);
    let reads = single_events(1000);
    feed(&mut pipeline, &reads[..10], &mut out);
    assert_eq!(feed(&mut pipeline, &reads[10..], &mut out), 0);
    assert_eq!(pipeline.facts().token_events, 1000);
}

#[test]
fn a_running_total_in_each_event_is_read_without_an_allocation() {
    let mut pipeline = Pipeline::new(ReplyPlan::new(Api::Chat, true));
    let mut out = Vec::with_capacity(4);
    let stream = chat_chunks_with_usage(1 << 20);
    let _shared = stream.clone();
    let reads: Vec<Bytes> = Events::new(&stream)
        .map(|event| stream.slice(event.range()))
        .collect();
    let (first, rest) = reads.split_at(100);
    feed(&mut pipeline, first, &mut out);
    assert_eq!(feed(&mut pipeline, rest, &mut out), 0);
    assert_eq!(pipeline.facts().events, reads.len() as u64);
}

#[test]
fn a_read_costs_two_allocations_for_the_event_that_spans_it_and_four_for_edits() {
    for (stream, each) in [(chat_chunks(1 << 20), 2), (usage_chunks(1 << 20), 6)] {
        let mut pipeline = Pipeline::new(ReplyPlan::new(Api::Chat, true));
        let mut out = Vec::with_capacity(4);
        let reads = reads(&stream, READ);
        let (first, rest) = reads.split_at(4);
        feed(&mut pipeline, first, &mut out);
        let count = feed(&mut pipeline, rest, &mut out);
        assert!(
            count <= each * rest.len() as u64,
            "{count} for {}",
            rest.len()
        );
    }
}

#[test]
fn what_a_stream_holds_does_not_grow_with_its_length() {
    let stream = usage_chunks(8 << 20);
    let reads = reads(&stream, READ);
    let held = |reads: &[Bytes]| {
        let mut kept = None;
        let counted = measure(|| {
            let mut pipeline = Pipeline::new(ReplyPlan::new(Api::Chat, true));
            let mut out = Vec::new();
            let mut pricer = Fixed(Members::parse("\"cost\":1").unwrap());
            for read in reads {
                out.clear();
                pipeline.feed(read.clone(), &mut pricer, &mut out).unwrap();
            }
            drop(out);
            kept = Some(pipeline);
        });
        drop(kept);
        counted.bytes_current
    };
    let (short, long) = (held(&reads[..20]), held(&reads));
    assert!(long <= short.max(8 << 10), "{short} bytes, then {long}");
}

/// A whole answer, to its end, in deltas of one byte: the bytes that are allocated for it in all.
fn allocated(count: usize, client_streams: bool) -> u64 {
    let event = Bytes::from_static(
        b"data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n",
    );
    let mut pipeline = Pipeline::new(translated(client_streams));
    let mut pricer = Fixed(Members::parse("\"cost\":1").unwrap());
    let mut out = Vec::with_capacity(4);
    measure(|| {
        for _ in 0..count {
            out.clear();
            pipeline.feed(event.clone(), &mut pricer, &mut out).unwrap();
        }
        let end = Bytes::from_static(b"data: [DONE]\n\n");
        pipeline.feed(end, &mut pricer, &mut out).unwrap();
        pipeline.finish(&mut pricer, &mut out).unwrap();
    })
    .bytes_total
}

#[test]
fn a_translated_answer_costs_in_proportion_to_its_length() {
    for (length, client_streams) in [(1 << 20, true), (1 << 18, false)] {
        let (part, whole) = (
            allocated(length / 16, client_streams),
            allocated(length, client_streams),
        );
        assert!(whole < part * 17, "{part} bytes, then {whole}");
    }
}
