//! Reading a request and cutting JSON replies, beside readers that build trees.

#![allow(
    missing_docs,
    reason = "criterion's macros make public items without documentation"
)]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use sluicegate_bench_core::cpu::{CpuTime, criterion};
use sluicegate_bench_core::{READ, agent_request, agent_turn, embeddings, image_request, reads};
use sluicegate_core::api::Api;
use sluicegate_core::json::documents::Documents;
use sluicegate_core::json::scan;
use sluicegate_core::limits::Limits;
use sluicegate_core::protocols::{Targets, read_request};
use sluicegate_core::request::{Request, RequestEdit, UsageAsk};

fn requests(criterion: &mut Criterion<CpuTime>) {
    let limits = Limits::default();
    let edit = RequestEdit {
        model: Some("meta-llama/Llama-3.1-8B-Instruct"),
        usage: UsageAsk::Ask,
        stream: None,
        ..RequestEdit::default()
    };
    for (name, body) in [
        ("request, 1 KiB", agent_request(1 << 10)),
        ("request, 64 KiB of text", agent_request(64 << 10)),
        ("request, 4 MiB image", image_request(4 << 20)),
    ] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function("parse", |bencher| {
            bencher.iter(|| Request::parse(black_box(body.clone()), &limits));
        });
        if let Ok(request) = Request::parse(body.clone(), &limits) {
            group.bench_function("edit", |bencher| {
                bencher.iter(|| request.edit(black_box(&edit)))
            });
        }
        group.bench_function("bare memchr loop", |bencher| {
            bencher.iter(|| memchr::memchr2_iter(b'"', b'\\', black_box(&body)).count());
        });
        group.bench_function("serde_json, ignored", |bencher| {
            bencher.iter(|| {
                serde_json::from_slice::<&serde_json::value::RawValue>(black_box(&body)).is_ok()
            });
        });
        group.bench_function("simd-json, tape", |bencher| {
            bencher.iter_batched_ref(
                || body.to_vec(),
                |body| simd_json::to_tape(black_box(body)).is_ok(),
                BatchSize::LargeInput,
            );
        });
        group.finish();
    }
}

/// Requests of each protocol, put to upstreams of the others.
fn translations(criterion: &mut Criterion<CpuTime>) {
    const PROTOCOLS: [Api; 3] = [Api::Chat, Api::Responses, Api::Messages];
    let targets = Targets::default();
    for (from, to) in PROTOCOLS
        .into_iter()
        .flat_map(|from| PROTOCOLS.map(|to| (from, to)))
    {
        let Some(target) = targets.of(to).filter(|_| from != to) else {
            continue;
        };
        for size in [1 << 10, 64 << 10] {
            let body = agent_turn(from, size);
            let Ok(request) = Request::parse(body.clone(), &Limits::default()) else {
                continue;
            };
            let mut group = criterion.benchmark_group(format!("request, {} KiB", size >> 10));
            group.throughput(Throughput::Bytes(body.len() as u64));
            let name = format!("{} to {}", from.as_str(), to.as_str());
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    let read = read_request(from, black_box(&request))?.ok()?;
                    target.write_request(&read).ok()
                });
            });
            group.finish();
        }
    }
}

fn documents(criterion: &mut Criterion<CpuTime>) {
    let reply = embeddings(32);
    let reads = reads(&reply, READ);
    let mut group = criterion.benchmark_group("embeddings reply");
    group.throughput(Throughput::Bytes(reply.len() as u64));
    group.bench_function("documents", |bencher| {
        let mut parts = Vec::new();
        bencher.iter(|| {
            let mut documents = Documents::new(&Limits::default());
            parts.clear();
            reads
                .iter()
                .all(|read| documents.feed(black_box(read.clone()), &mut parts).is_ok())
        });
    });
    group.bench_function("scan", |bencher| {
        bencher.iter(|| scan::document(black_box(&reply), 64).is_ok());
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = criterion();
    targets = requests, translations, documents
}
criterion_main!(benches);
