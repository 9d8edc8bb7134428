//! Splitting event streams: our two views, other readers, and what searching for line feeds alone costs.

#![allow(
    missing_docs,
    reason = "criterion's macros make public items without documentation"
)]

use std::convert::Infallible;
use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures::{Stream, StreamExt, executor::block_on, stream};
use sluicegate_bench_core::cpu::{CpuTime, criterion};
use sluicegate_bench_core::{
    READ, chat_chunks, chat_chunks_crlf, large_event, named_events, reads,
};
use sluicegate_core::limits::Limits;
use sluicegate_core::sse::event::{Events, Interpreter};
use sluicegate_core::sse::splitter::Splitter;

fn split(reads: &[Bytes], mut each: impl FnMut(&Bytes)) -> usize {
    let mut splitter = Splitter::new(&Limits::default());
    for read in reads {
        let (batch, fed) = splitter.feed(read.clone());
        if fed.is_err() {
            break;
        }
        batch.slices().for_each(&mut each);
    }
    splitter.held()
}

fn source(reads: &[Bytes]) -> impl Stream<Item = Result<Bytes, Infallible>> + Unpin {
    stream::iter(reads.iter().cloned().map(Ok))
}

fn count<S: Stream>(events: S) -> usize {
    block_on(events.fold(0, async |count, event| {
        black_box(&event);
        count + 1
    }))
}

fn views(criterion: &mut Criterion<CpuTime>) {
    const SIZE: usize = 1 << 20;
    for (name, stream) in [
        ("chat chunks", chat_chunks(SIZE)),
        ("chat chunks, CRLF", chat_chunks_crlf(SIZE)),
        ("named events", named_events(SIZE)),
        ("one large event", large_event(SIZE)),
    ] {
        let reads = reads(&stream, READ);
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(stream.len() as u64));
        group.bench_function("slices", |bencher| {
            bencher.iter(|| split(black_box(&reads), |slice| _ = black_box(slice)));
        });
        group.bench_function("walk over events", |bencher| {
            bencher.iter(|| {
                split(black_box(&reads), |slice| {
                    Events::new(slice).for_each(|event| _ = black_box(event.bytes()));
                })
            });
        });
        group.bench_function("data of each event", |bencher| {
            bencher.iter(|| {
                split(black_box(&reads), |slice| {
                    Events::new(slice).for_each(|event| _ = black_box(event.data()));
                })
            });
        });
        group.bench_function("dispatched events", |bencher| {
            let mut interpreter = Interpreter::default();
            bencher.iter(|| {
                split(black_box(&reads), |slice| {
                    Events::new(slice)
                        .for_each(|event| _ = black_box(interpreter.dispatch(&event)));
                })
            });
        });
        group.bench_function("bare memchr loop", |bencher| {
            bencher.iter(|| {
                reads
                    .iter()
                    .map(|read| {
                        memchr::memchr_iter(b'\n', black_box(read))
                            .fold(0, |sum, at| sum ^ black_box(at))
                    })
                    .max()
            });
        });
        group.bench_function("sseer", |bencher| {
            bencher.iter(|| count(sseer::EventStream::new(source(black_box(&reads)))));
        });
        group.bench_function("sse-stream", |bencher| {
            bencher.iter(|| count(sse_stream::SseByteStream::new(source(black_box(&reads)))));
        });
        group.bench_function("eventsource-stream", |bencher| {
            bencher.iter(|| {
                count(eventsource_stream::EventStream::new(source(black_box(
                    &reads,
                ))))
            });
        });
        group.finish();
    }
}

fn paces(criterion: &mut Criterion<CpuTime>) {
    let stream = chat_chunks(256 << 10);
    let mut group = criterion.benchmark_group("chat chunks by size of reads");
    group.throughput(Throughput::Bytes(stream.len() as u64));
    for size in [1, 16, 256, 1 << 10, 64 << 10] {
        let reads = reads(&stream, size);
        group.bench_function(format!("{size} bytes"), |bencher| {
            bencher.iter(|| split(black_box(&reads), |slice| _ = black_box(slice)));
        });
    }
    let large = large_event(256 << 10);
    let single_bytes = reads(&large, 1);
    group.bench_function("one large event, 1 byte", |bencher| {
        bencher.iter(|| split(black_box(&single_bytes), |slice| _ = black_box(slice)));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = criterion();
    targets = views, paces
}
criterion_main!(benches);
