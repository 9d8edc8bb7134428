//! Recorded streams of real providers, folded, against what was read out of them independently. Runs only where
//! `SLUICEGATE_CORPUS` is set.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // What fails here fails the test.

use std::path::PathBuf;

use serde_json::Value;
use sluicegate_core::limits::Limits;
use sluicegate_core::protocols::chat::fold::fold_chat;
use sluicegate_core::protocols::chat::unfold::{Unfold, unfold_chat};

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter(|part| part["type"] == "text")
            .map(|part| text_of(&part["text"]))
            .collect(),
        _ => String::new(),
    }
}

/// Reasoning under its three names, or as the typed parts of a content that is an array.
fn reasoning_of(message: &Value) -> String {
    for name in ["reasoning_content", "reasoning", "thinking"] {
        let text = text_of(&message[name]);
        if !text.is_empty() {
            return text;
        }
    }
    let parts = message["content"].as_array().map_or(&[][..], Vec::as_slice);
    let thinking = parts.iter().filter(|part| part["type"] == "thinking");
    thinking.map(|part| text_of(&part["thinking"])).collect()
}

/// Id, name and arguments of each call, whether they stand in a `function` or not.
fn calls_of(calls: &Value) -> Vec<[String; 3]> {
    let calls = calls.as_array().map_or(&[][..], Vec::as_slice);
    calls
        .iter()
        .map(|call| {
            let function = call.get("function").unwrap_or(call);
            [&call["id"], &function["name"], &function["arguments"]].map(text_of)
        })
        .collect()
}

#[test]
fn folds_say_what_the_recorded_streams_say() {
    let Some(corpus) = std::env::var_os("SLUICEGATE_CORPUS").map(PathBuf::from) else {
        return;
    };
    let expected = std::fs::read_to_string(corpus.join("expected.jsonl")).unwrap();
    let mut differences = Vec::new();
    let mut streams = 0;
    for line in expected.lines() {
        let expected: Value = serde_json::from_str(line).unwrap();
        if expected["api"] != "chat.completions" && expected["api"] != "completions" {
            continue;
        }
        streams += 1;
        let file = expected["file"].as_str().unwrap();
        let stream = std::fs::read(corpus.join(file)).unwrap();
        let folded = match fold_chat(&stream, Limits::default()) {
            Ok(folded) => folded,
            Err(error) => {
                differences.push(format!("{file}: {error}"));
                continue;
            }
        };
        let asked = Unfold {
            include_usage: true,
        };
        let unfolded = unfold_chat(&folded, asked, Limits::default()).unwrap();
        let again = fold_chat(&unfolded, Limits::default()).unwrap();
        let [folded, again]: [Value; 2] =
            [folded, again].map(|json| serde_json::from_slice(&json).unwrap());
        if folded != again {
            differences.push(format!(
                "{file}: {folded}\n    unfolded and folded: {again}"
            ));
        }
        let choices = folded["choices"].as_array().unwrap();
        let expected_choices = expected["choices"].as_object().unwrap();
        if choices.len() != expected_choices.len() {
            differences.push(format!(
                "{file}: {} choices, {} expected",
                choices.len(),
                expected_choices.len()
            ));
        }
        for choice in choices {
            let expected = expected_choices
                .get(&choice["index"].to_string())
                .unwrap_or(&Value::Null);
            let message = &choice["message"];
            let text = match &message["content"] {
                Value::Null => text_of(&choice["text"]),
                content => text_of(content),
            };
            let calls = [&message["tool_calls"], &expected["tool_calls"]];
            let [our_calls, their_calls] = calls.map(|calls| format!("{:?}", calls_of(calls)));
            for (what, ours, theirs) in [
                ("text", text, text_of(&expected["text"])),
                (
                    "reasoning",
                    reasoning_of(message),
                    text_of(&expected["reasoning"]),
                ),
                (
                    "refusal",
                    text_of(&message["refusal"]),
                    text_of(&expected["refusal"]),
                ),
                (
                    "finish",
                    text_of(&choice["finish_reason"]),
                    text_of(&expected["finish_reason"]),
                ),
                ("calls", our_calls, their_calls),
            ] {
                if ours != theirs {
                    differences.push(format!(
                        "{file}: {what}\n    ours   {ours:?}\n    theirs {theirs:?}"
                    ));
                }
            }
        }
        let (ours, theirs) = (&folded["usage"], &expected["usage"]);
        if ours != theirs && expected["usage_source"] != "x_groq" {
            differences.push(format!(
                "{file}: usage\n    ours   {ours}\n    theirs {theirs}"
            ));
        }
    }
    assert!(streams > 100);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
