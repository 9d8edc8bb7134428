//! The workloads are what their names say.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use bytes::Bytes;
use sluicegate_bench_core::{
    READ, Random, agent_request, agent_turn, between, chat_chunks, chat_chunks_crlf,
    chat_chunks_with_usage, embeddings, image_request, large_event, message_events, named_events,
    reads, response_events, usage_chunks,
};
use sluicegate_core::api::Api;
use sluicegate_core::limits::Limits;
use sluicegate_core::pipeline::{Pipeline, Unpriced};
use sluicegate_core::protocols::{Targets, read_request};
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

const PROTOCOLS: [Api; 3] = [Api::Chat, Api::Responses, Api::Messages];

#[test]
fn turns_of_agents_are_translated_to_each_other_protocol() {
    let targets = Targets::default();
    for from in PROTOCOLS {
        let request = Request::parse(agent_turn(from, 10_000), &Limits::default()).unwrap();
        for to in PROTOCOLS.into_iter().filter(|to| *to != from) {
            let read = read_request(from, &request).unwrap().unwrap();
            let written = targets.of(to).unwrap().write_request(&read).unwrap();
            assert!(written.body.len() > 10_000 && written.left_out.is_empty());
        }
    }
}

#[test]
fn streams_are_translated_to_each_other_protocol() {
    for from in PROTOCOLS {
        let stream = match from {
            Api::Chat => chat_chunks(10_000),
            Api::Responses => response_events(10_000),
            _ => message_events(10_000),
        };
        for to in PROTOCOLS.into_iter().filter(|to| *to != from) {
            let mut pipeline = Pipeline::new(between(from, to));
            let mut out = Vec::new();
            pipeline
                .feed(stream.clone(), &mut Unpriced, &mut out)
                .unwrap();
            let facts = pipeline.facts();
            assert_eq!((facts.malformed, facts.error.is_none()), (0, true));
            let events = Events::new(&out.concat()).count() as u64;
            assert!(events >= facts.token_events && facts.token_events > 20);
        }
    }
}

#[test]
fn reads_are_the_stream_in_pieces() {
    let stream = chat_chunks(100_000);
    let reads = reads(&stream, READ);
    assert!(reads.iter().rev().skip(1).all(|read| read.len() == READ));
    assert_eq!(Bytes::from(reads.concat()), stream);
}
