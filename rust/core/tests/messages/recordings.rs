//! Recorded streams of real providers, against what was read out of them independently. Runs only where
//! `SLUICEGATE_CORPUS` is set.

use std::path::PathBuf;

use serde_json::{Value as Json, json};
use sluicegate_core::api::Api;
use sluicegate_core::cost::Members;
use sluicegate_core::pipeline::{Pricer, Unpriced};
use sluicegate_core::usage::Usage;

use crate::said::{Said, plan, translated};

/// The file, its protocol, the stream, and what it says.
pub(crate) fn streams() -> Vec<(String, Api, Vec<u8>, Json)> {
    let Some(corpus) = std::env::var_os("SLUICEGATE_CORPUS").map(PathBuf::from) else {
        return Vec::new();
    };
    let expected = std::fs::read_to_string(corpus.join("expected.jsonl")).unwrap();
    let expected = expected
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).unwrap());
    let streams: Vec<_> = expected
        .filter_map(|expected| {
            let api = match expected["api"].as_str().unwrap() {
                "chat.completions" => Api::Chat,
                "responses" => Api::Responses,
                "anthropic.messages" => Api::Messages,
                _ => return None,
            };
            let file = expected["file"].as_str().unwrap().to_owned();
            let stream = std::fs::read(corpus.join(&file)).unwrap();
            Some((file, api, stream, expected))
        })
        .collect();
    assert!(!streams.is_empty());
    streams
}

pub(crate) fn list(value: &Json) -> impl Iterator<Item = &Json> {
    value.as_array().into_iter().flatten()
}

pub(crate) fn word(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(crate) fn letters(text: &str) -> String {
    text.split_whitespace().collect()
}

/// What the corpus says of a message.
fn message(expected: &Json) -> Said {
    let blocks = || list(&expected["blocks"]);
    let texts = |name: &str| blocks().map(|block| word(&block[name])).collect();
    let calls = blocks().filter(|block| block["type"] == "tool_use");
    Said {
        text: texts("text"),
        thinking: texts("thinking"),
        calls: calls
            .map(|block| ["id", "name", "json"].map(|name| word(&block[name])))
            .collect(),
        stop: word(&expected["stop_reason"]),
        ..Said::default()
    }
}

/// Calls without the arguments of those of which the corpus has none: some have all of them in the event that opens the
/// block.
fn comparable(said: &Said, other: &Said) -> Vec<(String, String, Json)> {
    let mut calls = said.parsed_calls();
    for (call, [_, _, arguments]) in calls.iter_mut().zip(&other.calls) {
        if arguments.is_empty() {
            call.2 = Json::Null;
        }
    }
    calls
}

#[test]
fn every_message_is_read_right_by_other_clients() {
    for (file, api, stream, expected) in streams() {
        if api != Api::Messages {
            continue;
        }
        let reads: Vec<_> = stream.chunks(333).collect();
        let theirs = message(&expected);
        for client in [Api::Chat, Api::Responses, Api::Messages] {
            let mut plan = plan(api, client, true);
            plan.upstream.repair = true;
            let (sent, facts) = translated(&plan, &reads, &mut Unpriced);
            // A second message in the middle of the first; and one behind its end, which is not read.
            if file.contains("spliced") {
                let error = String::from_utf8_lossy(&sent).into_owned();
                assert!(error.contains("it broke off"), "{file}: {error}");
                continue;
            }
            let ours = Said::read(client, true, &sent);
            assert!(ours.error.is_null(), "{file}: {}", ours.error);
            if file.contains("tool-search-bm25.1") {
                assert!(ours.text.starts_with("I'll search"), "{file}");
                assert_eq!(ours.calls.len(), 1, "{file}");
                continue;
            }
            // White space between two blocks is no block.
            match client {
                Api::Chat => assert_eq!(ours.text, theirs.text, "{file}"),
                _ => assert_eq!(letters(&ours.text), letters(&theirs.text), "{file}"),
            }
            assert_eq!(ours.thinking, theirs.thinking, "{file}");
            assert_eq!(
                comparable(&ours, &theirs),
                comparable(&theirs, &theirs),
                "{file}"
            );
            let reason = match (client, &*theirs.stop) {
                (Api::Messages, reason) => reason.to_owned(),
                (Api::Responses, "max_tokens" | "refusal") => "incomplete".to_owned(),
                (Api::Responses, _) => "completed".to_owned(),
                (_, "tool_use") => "tool_calls".to_owned(),
                (_, "max_tokens") => "length".to_owned(),
                (_, "refusal") => "content_filter".to_owned(),
                _ => "stop".to_owned(),
            };
            let calls_end_it = !theirs.calls.is_empty() && theirs.stop == "end_turn";
            assert!(
                ours.stop == reason || calls_end_it,
                "{file}: {} {reason}",
                ours.stop
            );
            let usage = facts.usage.unwrap_or_default();
            assert_eq!(input_of(client, &ours.usage), usage.input_tokens, "{file}");
            let whole = translated(&plan_whole(&plan), &reads, &mut Unpriced).0;
            let whole = Said::read(client, false, &whole);
            assert_eq!(
                (&whole.text, &whole.thinking, &whole.calls),
                (&ours.text, &ours.thinking, &ours.calls),
                "{file}"
            );
        }
    }
}

fn plan_whole(plan: &sluicegate_core::pipeline::ReplyPlan) -> sluicegate_core::pipeline::ReplyPlan {
    let mut plan = plan.clone();
    plan.client.streams = false;
    plan
}

/// All input, caches included.
fn input_of(client: Api, usage: &Json) -> Option<u64> {
    match client {
        Api::Chat => usage["prompt_tokens"].as_u64(),
        Api::Responses => usage["input_tokens"].as_u64(),
        _ => {
            let caches = ["cache_read_input_tokens", "cache_creation_input_tokens"];
            let beside: u64 = caches.iter().filter_map(|name| usage[*name].as_u64()).sum();
            usage["input_tokens"].as_u64().map(|input| input + beside)
        }
    }
}

/// A cost of one dollar.
struct Dollar;

impl Pricer for Dollar {
    fn price(&mut self, _usage: &Usage) -> Option<Members> {
        Members::parse("\"cost\":1.0")
    }
}

#[test]
fn every_reply_is_a_message_to_a_messages_client() {
    let mut seen = 0;
    for (file, api, stream, _) in streams() {
        // No client of Messages has a custom tool to be called.
        if api == Api::Messages || file.contains("custom-tool") {
            continue;
        }
        seen += 1;
        let reads: Vec<_> = stream.chunks(333).collect();
        let (sent, facts) = translated(&plan(api, Api::Messages, true), &reads, &mut Dollar);
        let ours = Said::read(Api::Messages, true, &sent);
        assert!(ours.error.is_null(), "{file}: {}", ours.error);
        if facts.usage.is_some() {
            assert_eq!(ours.usage["cost"], json!(1.0), "{file}");
        }
        let whole = translated(&plan(api, Api::Messages, false), &reads, &mut Dollar).0;
        assert_eq!(
            Said::read(Api::Messages, false, &whole).reply,
            ours.reply,
            "{file}"
        );
    }
    assert!(seen > 100 || std::env::var_os("SLUICEGATE_CORPUS").is_none());
}
