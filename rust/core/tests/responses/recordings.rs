//! Recorded streams of real providers, against what was read out of them independently. Runs only where
//! `SLUICEGATE_CORPUS` is set.

use std::path::PathBuf;

use serde_json::Value as Json;
use sluicegate_core::limits::Limits;
use sluicegate_core::pipeline::Unpriced;
use sluicegate_core::protocols::chat::fold::fold_chat;

use super::stream::{Seen, translated_by};
use super::{repair, to_chat};

/// The file, the stream, and what it says.
fn streams() -> Vec<(String, Vec<u8>, Json)> {
    let Some(corpus) = std::env::var_os("SLUICEGATE_CORPUS").map(PathBuf::from) else {
        return Vec::new();
    };
    let expected = std::fs::read_to_string(corpus.join("expected.jsonl")).unwrap();
    let expected = expected
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let streams: Vec<_> = expected
        .filter(|expected: &Json| expected["api"] == "responses")
        .map(|expected| {
            let file = expected["file"].as_str().unwrap().to_owned();
            let stream = std::fs::read(corpus.join(&file)).unwrap();
            (file, stream, expected)
        })
        .collect();
    assert!(!streams.is_empty());
    streams
}

fn list(value: &Json) -> impl Iterator<Item = &Json> {
    value.as_array().into_iter().flatten()
}

fn word<'a>(value: &'a Json, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Text and calls, put together.
fn said(expected: &Json) -> (String, Vec<[String; 3]>) {
    let items = || list(&expected["items"]);
    let text = items().filter(|item| item["type"] == "message");
    let text = text.map(|item| word(item, "text")).collect();
    let calls = items().filter(|item| item["type"] == "function_call");
    let calls = calls
        .map(|item| ["call_id", "name", "arguments"].map(|name| word(item, name).to_owned()))
        .collect();
    (text, calls)
}

#[test]
fn a_chat_client_reads_the_same() {
    for (file, stream, expected) in streams() {
        let reads: Vec<_> = stream.chunks(333).collect();
        let chat = translated_by(to_chat::plan(true), &reads, &mut Unpriced);
        let folded = fold_chat(&chat, Limits::default());
        let Ok(folded) = folded else {
            assert_eq!(expected["status"], "failed", "{file}");
            continue;
        };
        let completion: Json = serde_json::from_slice(&folded).unwrap();
        let message = &completion["choices"][0]["message"];
        let (text, calls) = said(&expected);
        assert_eq!(word(message, "content"), text, "{file}");
        let ours: Vec<_> = list(&message["tool_calls"])
            .filter(|call| call["type"] == "function")
            .map(|call| {
                let function = &call["function"];
                [
                    word(call, "id"),
                    word(function, "name"),
                    word(function, "arguments"),
                ]
                .map(str::to_owned)
            })
            .collect();
        assert_eq!(ours, calls, "{file}");
        let usage = &expected["usage_norm"];
        for (ours, theirs) in [("prompt_tokens", "input"), ("completion_tokens", "output")] {
            if usage[theirs].is_u64() {
                assert_eq!(completion["usage"][ours], usage[theirs], "{file}");
            }
        }
        let whole = translated_by(to_chat::plan(false), &reads, &mut Unpriced);
        assert_eq!(whole, folded, "{file}");
    }
}

#[test]
fn a_repaired_stream_is_right_and_says_the_same() {
    for (file, stream, expected) in streams() {
        let reads: Vec<_> = stream.chunks(333).collect();
        let repaired = translated_by(repair::plan(true, ""), &reads, &mut Unpriced);
        let seen = Seen::read(&repaired);
        let (text, calls) = said(&expected);
        let output = || list(&seen.response["output"]);
        let parts = output().filter(|item| item["type"] == "message");
        let parts = parts.flat_map(|item| list(&item["content"]));
        let ours: String = parts.map(|part| word(part, "text")).collect();
        assert_eq!(ours, text, "{file}");
        let ours: Vec<_> = output()
            .filter(|item| item["type"] == "function_call")
            .map(|item| ["call_id", "name", "arguments"].map(|name| word(item, name).to_owned()))
            .collect();
        assert_eq!(ours, calls, "{file}");
        assert_eq!(seen.response["status"], expected["status"], "{file}");
        let types = |items: &mut dyn Iterator<Item = &Json>| -> Vec<String> {
            let types = items.map(|item| word(item, "type").to_owned());
            types.collect()
        };
        let theirs = types(&mut list(&expected["items"]));
        assert_eq!(types(&mut output()), theirs, "{file}");
    }
}
