//! What is not to allocate does not.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::hint::black_box;

use allocation_counter::measure;
use bytes::Bytes;
use sluicegate_bench_core::{READ, chat_chunks, large_event, named_events, reads};
use sluicegate_core::limits::Limits;
use sluicegate_core::sse::event::{Events, Interpreter};
use sluicegate_core::sse::splitter::Splitter;

fn split(reads: &[Bytes], mut each: impl FnMut(&Bytes)) {
    let mut splitter = Splitter::new(&Limits::default());
    for read in reads {
        let (batch, fed) = splitter.feed(read.clone());
        fed.unwrap();
        batch.slices().for_each(&mut each);
    }
}

/// `stream` cut at the ends of its events.
fn whole_events(stream: &Bytes, at_least: usize) -> Vec<Bytes> {
    let mut reads = Vec::new();
    let mut start = 0;
    for event in Events::new(stream) {
        if event.range().end - start >= at_least {
            reads.push(stream.slice(start..event.range().end));
            start = event.range().end;
        }
    }
    reads
}

#[test]
fn whole_events_are_handed_on_without_an_allocation() {
    let stream = chat_chunks(1 << 20);
    // The first clone of a slice of a vector's bytes makes its counter.
    let _shared = stream.clone();
    for at_least in [1, READ] {
        let reads = whole_events(&stream, at_least);
        let counted = measure(|| split(&reads, |slice| _ = black_box(slice)));
        assert_eq!(counted.count_total, 0, "reads of at least {at_least} bytes");
    }
}

#[test]
fn reading_events_allocates_nothing() {
    for stream in [chat_chunks(1 << 20), named_events(1 << 20)] {
        let mut interpreter = Interpreter::default();
        let counted = measure(|| {
            for event in Events::new(&stream) {
                black_box(event.data());
                black_box(interpreter.dispatch(&event));
            }
        });
        assert_eq!(counted.count_total, 0);
    }
}

#[test]
fn an_event_that_spans_two_reads_costs_two_allocations() {
    let stream = chat_chunks(1 << 20);
    let reads = reads(&stream, READ);
    let counted = measure(|| split(&reads, |slice| _ = black_box(slice)));
    let spanning = reads.len() as u64 - 1;
    assert!(
        counted.count_total <= 2 * spanning,
        "{} for {spanning}",
        counted.count_total
    );
}

#[test]
fn a_large_event_is_held_once_and_grown_by_doubling() {
    let stream = large_event(4 << 20);
    let reads = reads(&stream, 1 << 10);
    let counted = measure(|| split(&reads, |slice| _ = black_box(slice)));
    assert!(counted.count_total < 30, "{}", counted.count_total);
    assert!(
        counted.bytes_max < 3 * stream.len() as u64,
        "{}",
        counted.bytes_max
    );
}

#[test]
fn single_bytes_are_taken_in_without_copying_what_is_held() {
    // Bytes that are copied are allocated somewhere: were what is held copied for each read, this would be 4 GiB.
    let stream = large_event(90 << 10);
    let reads = reads(&stream, 1);
    let counted = measure(|| split(&reads, |slice| _ = black_box(slice)));
    assert!(counted.count_total < 30, "{}", counted.count_total);
    assert!(
        counted.bytes_total < 4 * stream.len() as u64,
        "{}",
        counted.bytes_total
    );
}
