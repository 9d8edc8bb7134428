//! The workloads are what their names say.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use bytes::Bytes;
use sluicegate_bench_core::{
    READ, Random, agent_request, chat_chunks, chat_chunks_crlf, chat_chunks_with_usage, embeddings,
    image_request, large_event, named_events, reads, usage_chunks,
};
use sluicegate_core::limits::Limits;
use sluicegate_core::request::Request;
use sluicegate_core::sse::event::Events;

#[test]
fn the_numbers_of_a_seed_are_those_of_the_published_generator() {
    let mut random = Random::new(1_234_567);
    assert_eq!(
        [random.number(), random.number()],
        [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
    );
}

#[test]
fn chat_chunks_are_events_of_150_to_300_bytes_with_json() {
    for stream in [chat_chunks(64 << 10), chat_chunks_crlf(64 << 10)] {
        let mut events = Events::new(&stream);
        for event in events.by_ref() {
            assert!(
                (150..=300).contains(&event.bytes().len()),
                "{}",
                event.bytes().len()
            );
            let chunk: serde_json::Value = serde_json::from_slice(&event.data().unwrap()).unwrap();
            assert!(chunk["choices"][0]["delta"]["content"].is_string());
        }
        assert!(events.rest().is_empty());
    }
    assert!(memchr::memchr(b'\r', &chat_chunks(64 << 10)).is_none());
}

#[test]
fn usage_is_in_each_chunk_where_it_is_to_be() {
    for stream in [chat_chunks_with_usage(64 << 10), usage_chunks(64 << 10)] {
        for event in Events::new(&stream) {
            let chunk: serde_json::Value = serde_json::from_slice(&event.data().unwrap()).unwrap();
            let count = |name: &str| chunk["usage"][name].as_u64().unwrap();
            assert_eq!(
                count("total_tokens"),
                count("prompt_tokens") + count("completion_tokens")
            );
        }
    }
    let usage_only = usage_chunks(64 << 10);
    assert!(Events::new(&usage_only).all(|event| {
        event
            .bytes()
            .windows(12)
            .any(|part| part == b"\"choices\":[]")
    }));
}

#[test]
fn named_events_have_names_and_now_and_then_a_comment() {
    let stream = named_events(64 << 10);
    let (comments, named): (Vec<_>, Vec<_>) =
        Events::new(&stream).partition(|event| event.is_comment_only());
    assert!(
        named
            .iter()
            .all(|event| event.name() == b"response.output_text.delta" && event.has_data())
    );
    assert!(comments.len() * 10 < named.len() && !comments.is_empty());
}

#[test]
fn a_large_event_is_one() {
    assert_eq!(Events::new(&large_event(100_000)).count(), 1);
}

#[test]
fn requests_and_replies_are_json() {
    for body in [agent_request(10_000), image_request(10_000)] {
        assert!(body.len() > 10_000 && body.len() < 20_000);
        assert!(
            Request::parse(body.clone(), &Limits::default())
                .unwrap()
                .stream()
        );
    }
    let reply: serde_json::Value = serde_json::from_slice(&embeddings(2)).unwrap();
    assert_eq!(
        reply["data"][1]["embedding"].as_array().unwrap().len(),
        1536
    );
}

#[test]
fn reads_are_the_stream_in_pieces() {
    let stream = chat_chunks(100_000);
    let reads = reads(&stream, READ);
    assert!(reads.iter().rev().skip(1).all(|read| read.len() == READ));
    assert_eq!(Bytes::from(reads.concat()), stream);
}
