//! Reading the numbers of a usage object: simd-json, which the core uses, beside the core's own cursor and serde_json.

#![allow(
    missing_docs,
    reason = "criterion's macros make public items without documentation"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::Value as Json;
use simd_json::{Buffers, Node, StaticNode};
use sluicegate_core::json::cursor::Cursor;
use sluicegate_core::json::scan::{Fault, Value};

const OBJECTS: [(&str, &str); 3] = [
    (
        "vLLM, 60 bytes",
        r#"{"prompt_tokens":14,"total_tokens":21,"completion_tokens":7}"#,
    ),
    (
        "OpenAI, 251 bytes",
        r#"{"prompt_tokens":14,"completion_tokens":7,"total_tokens":21,"prompt_tokens_details":{"cached_tokens":3,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}"#,
    ),
    (
        "OpenRouter, 403 bytes",
        r#"{"prompt_tokens":475,"completion_tokens":43,"total_tokens":518,"cost":0.00207,"is_byok":false,"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":0,"audio_tokens":0,"video_tokens":0},"cost_details":{"upstream_inference_cost":null,"upstream_inference_prompt_cost":0,"upstream_inference_completions_cost":0},"completion_tokens_details":{"reasoning_tokens":0,"image_tokens":0,"audio_tokens":0}}"#,
    ),
];

/// Adds up every unsigned integer, so that each reader has to tell all numbers from all else.
fn sum_by_cursor(text: &[u8]) -> Result<u64, Fault> {
    fn sum(cursor: &mut Cursor<'_>, text: &[u8], total: &mut u64) -> Result<Value, Fault> {
        let value = cursor.members(|cursor, _| sum(cursor, text, total).map(drop))?;
        *total += value.as_u64(text).unwrap_or(0);
        Ok(value)
    }
    let mut total = 0;
    let mut cursor = Cursor::new(text, 64);
    sum(&mut cursor, text, &mut total)?;
    cursor.end()?;
    Ok(total)
}

fn sum_by_tape(text: &[u8], copy: &mut Vec<u8>, buffers: &mut Buffers) -> u64 {
    copy.clear();
    copy.extend_from_slice(text);
    let Ok(tape) = simd_json::to_tape_with_buffers(copy, buffers) else {
        return 0;
    };
    tape.0
        .iter()
        .map(|node| match node {
            Node::Static(StaticNode::U64(number)) => *number,
            _ => 0,
        })
        .sum()
}

fn sum_by_tree(text: &[u8]) -> u64 {
    fn sum(value: &Json) -> u64 {
        match value {
            Json::Object(members) => members.values().map(sum).sum(),
            other => other.as_u64().unwrap_or(0),
        }
    }
    serde_json::from_slice(text).as_ref().map_or(0, sum)
}

fn readers(criterion: &mut Criterion) {
    for (name, object) in OBJECTS {
        let text = object.as_bytes();
        let mut group = criterion.benchmark_group(format!("usage object, {name}"));
        group.throughput(Throughput::Bytes(text.len() as u64));
        let (mut copy, mut buffers) = (Vec::new(), Buffers::default());
        group.bench_function("simd-json, tape of a copy", |bencher| {
            bencher.iter(|| sum_by_tape(black_box(text), &mut copy, &mut buffers));
        });
        group.bench_function("cursor", |bencher| {
            bencher.iter(|| sum_by_cursor(black_box(text)));
        });
        group.bench_function("serde_json, tree", |bencher| {
            bencher.iter(|| sum_by_tree(black_box(text)));
        });
        group.finish();
    }
}

criterion_group!(benches, readers);
criterion_main!(benches);
