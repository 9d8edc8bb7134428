//! A reply's whole journey: forwarded and watched, and with usage read and priced in each event.

#![allow(
    missing_docs,
    reason = "criterion's macros make public items without documentation"
)]

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sluicegate_bench_core::cpu::{CpuTime, criterion};
use sluicegate_bench_core::{
    READ, between, chat_chunks, chat_chunks_with_null_usage, chat_chunks_with_usage,
    message_events, named_events, reads, response_events, token_chunks, translated, usage_chunks,
};
use sluicegate_core::api::Api;
use sluicegate_core::cost::Members;
use sluicegate_core::pipeline::{Pipeline, Pricer, ReplyPlan};
use sluicegate_core::usage::Usage;

/// The extension's, so that Rust and Python can be compared.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Always the same price: what a price costs is not measured here.
struct Fixed(Option<Members>);

impl Pricer for Fixed {
    fn price(&mut self, usage: &Usage) -> Option<Members> {
        black_box(usage);
        self.0.clone()
    }
}

fn pass(plan: &ReplyPlan, pricer: &mut Fixed, reads: &[Bytes], out: &mut Vec<Bytes>) -> u64 {
    let mut pipeline = Pipeline::new(plan.clone());
    for read in reads {
        out.clear();
        if pipeline.feed(read.clone(), pricer, out).is_err() {
            break;
        }
        black_box(&*out);
    }
    pipeline.facts().events
}

fn journeys(criterion: &mut Criterion<CpuTime>) {
    const SIZE: usize = 1 << 20;
    let chat = ReplyPlan::new(Api::Chat, true);
    let mut renamed = chat.clone();
    renamed.client.reply_model = Some("public-name".into());
    let translated = translated(true);
    let price = "\"cost\":0.00123,\"cost_details\":{\"input_cost\":0.001,\"output_cost\":0.00023}";
    let mut pricer = Fixed(Members::parse(price));
    for (name, plan, stream) in [
        (
            "chat chunks with null usage, watched",
            &chat,
            chat_chunks_with_null_usage(SIZE),
        ),
        ("chat chunks, watched", &chat, chat_chunks(SIZE)),
        ("chat chunks, renamed", &renamed, chat_chunks(SIZE)),
        (
            "chat chunks with running totals",
            &chat,
            chat_chunks_with_usage(SIZE),
        ),
        ("usage chunks, each priced", &chat, usage_chunks(SIZE)),
        (
            "Responses events, watched",
            &ReplyPlan::new(Api::Responses, true),
            named_events(SIZE),
        ),
        (
            "chat chunks, as Responses events",
            &translated,
            chat_chunks(SIZE),
        ),
        (
            "chat chunks of one token, as Responses events",
            &translated,
            token_chunks(SIZE),
        ),
        (
            "chat chunks, as Messages events",
            &between(Api::Chat, Api::Messages),
            chat_chunks(SIZE),
        ),
        (
            "Messages events, as chat chunks",
            &between(Api::Messages, Api::Chat),
            message_events(SIZE),
        ),
        (
            "Messages events, as Responses events",
            &between(Api::Messages, Api::Responses),
            message_events(SIZE),
        ),
        (
            "Responses events, as chat chunks",
            &between(Api::Responses, Api::Chat),
            response_events(SIZE),
        ),
        (
            "Responses events, as Messages events",
            &between(Api::Responses, Api::Messages),
            response_events(SIZE),
        ),
        (
            "chat chunks of one token, watched",
            &chat,
            token_chunks(SIZE),
        ),
    ] {
        for size in [READ, 64 << 10] {
            let reads = reads(&stream, size);
            let mut group =
                criterion.benchmark_group(format!("pipeline, {} KiB reads", size >> 10));
            group.throughput(Throughput::Bytes(stream.len() as u64));
            let mut out = Vec::new();
            group.bench_function(name, |bencher| {
                bencher.iter(|| pass(plan, &mut pricer, black_box(&reads), &mut out))
            });
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = criterion();
    targets = journeys
}
criterion_main!(benches);
