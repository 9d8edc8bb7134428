//! Every recorded stream of chat, Responses and Messages, translated for a client of each, streamed and whole: text,
//! reasoning, calls and usage are what was read out of the stream independently. Runs only where `SLUICEGATE_CORPUS` is
//! set.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};
use sluicegate_core::api::Api;
use sluicegate_core::pipeline::Unpriced;

use crate::recordings::{letters, list, streams, word};
use crate::said::{Said, plan, translated};

/// Where something else is right than what the corpus says: a part of the file's name, what differs, and why.
const OTHERWISE: [(&str, &str, &str); 11] = [
    (
        "spliced-message-start",
        "error",
        "a second message in the first: the reply has failed",
    ),
    (
        "spliced-message-start",
        "reasoning",
        "of the second message",
    ),
    ("spliced-message-start", "calls", "of the second message"),
    ("spliced-message-start", "usage", "of the second message"),
    (
        "tool-search-bm25.1",
        "text",
        "a second message behind the first, which is not read",
    ),
    ("tool-search-bm25.1", "usage", "of the second message"),
    (
        "stream-refusal",
        "text",
        "the corpus has no refusals of responses",
    ),
    (
        "custom-tool",
        "calls",
        "the corpus has no input of custom tools",
    ),
    ("llama.cpp/", "usage", "what was cached stands in `timings`"),
    (
        "snowflake_thinking",
        "reasoning",
        "it stands in `reasoning_details` alone",
    ),
    (
        "vercel-ai-gateway",
        "usage",
        "more reasoning than output: it was not counted in it",
    ),
];

/// What a stream says, in no protocol's words. White space counts for nothing: a block of it is none.
#[derive(Debug, Default, PartialEq)]
struct Neutral {
    /// A refusal's, too.
    text: String,
    reasoning: String,
    /// Name and arguments.
    calls: Vec<(String, Json)>,
    /// What is not reported is 0: some protocols must say a number.
    usage: [u64; 3],
}

fn parsed(arguments: &str) -> Json {
    match arguments.trim() {
        "" => json!({}),
        text => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
    }
}

/// What the corpus says.
fn expected(api: Api, expected: &Json) -> Neutral {
    let mut said = match api {
        Api::Chat => of_choice(&expected["choices"]["0"]),
        Api::Responses => of_items(&expected["items"]),
        _ => of_blocks(&expected["blocks"]),
    };
    said.text = letters(&said.text);
    said.reasoning = letters(&said.reasoning);
    let usage = &expected["usage_norm"];
    let count = |name: &str| usage[name].as_u64().unwrap_or(0);
    let [input, output] = [count("input"), count("output")];
    said.usage = match api {
        Api::Messages => {
            let [read, written] = [count("cache_read"), count("cache_creation")];
            [input + read + written, output, read]
        }
        // Where a total is larger than its parts, reasoning is not counted in the output (xAI, Gemini).
        _ => [
            input,
            output.max(count("total").saturating_sub(input)),
            count("cached"),
        ],
    };
    said
}

fn of_choice(choice: &Json) -> Neutral {
    Neutral {
        text: word(&choice["text"]) + &word(&choice["refusal"]),
        reasoning: word(&choice["reasoning"]),
        calls: list(&choice["tool_calls"])
            .map(|call| (word(&call["name"]), parsed(&word(&call["arguments"]))))
            .collect(),
        ..Neutral::default()
    }
}

fn of_items(items: &Json) -> Neutral {
    let mut said = Neutral::default();
    for item in list(items) {
        match item["type"].as_str() {
            Some("message") => said.text += &word(&item["text"]),
            Some("reasoning") => {
                said.reasoning += &word(&item["reasoning"]);
                said.reasoning += &word(&item["summary"]);
            }
            Some("function_call") => {
                let arguments = parsed(&word(&item["arguments"]));
                said.calls.push((word(&item["name"]), arguments));
            }
            _ => {}
        }
    }
    said
}

fn of_blocks(blocks: &Json) -> Neutral {
    let mut said = Neutral::default();
    for block in list(blocks) {
        said.text += &word(&block["text"]);
        said.reasoning += &word(&block["thinking"]);
        if block["type"] == "tool_use" {
            said.calls
                .push((word(&block["name"]), parsed(&word(&block["json"]))));
        }
    }
    said
}

/// What a client reads.
fn heard(client: Api, said: &Said) -> Neutral {
    let usage = &said.usage;
    let count = |outer: &str, inner: &str| {
        let found = if inner.is_empty() {
            &usage[outer]
        } else {
            &usage[outer][inner]
        };
        found.as_u64().unwrap_or(0)
    };
    let refusal = match client {
        Api::Chat => word(&said.reply["choices"][0]["message"]["refusal"]),
        Api::Responses => list(&said.reply["output"])
            .flat_map(|item| list(&item["content"]))
            .map(|part| word(&part["refusal"]))
            .collect(),
        _ => String::new(),
    };
    let calls = said.parsed_calls().into_iter();
    let usage = match client {
        Api::Chat => [
            count("prompt_tokens", ""),
            count("completion_tokens", ""),
            count("prompt_tokens_details", "cached_tokens"),
        ],
        Api::Responses => [
            count("input_tokens", ""),
            count("output_tokens", ""),
            count("input_tokens_details", "cached_tokens"),
        ],
        _ => {
            let read = count("cache_read_input_tokens", "");
            let written = count("cache_creation_input_tokens", "");
            let input = count("input_tokens", "") + read + written;
            [input, count("output_tokens", ""), read]
        }
    };
    Neutral {
        text: letters(&(said.text.clone() + &refusal)),
        reasoning: letters(&said.thinking),
        calls: calls.map(|(_, name, input)| (name, input)).collect(),
        usage,
    }
}

#[test]
fn every_recording_says_the_same_to_clients_of_each_api() {
    let mut differences = Vec::new();
    let mut otherwise = BTreeSet::new();
    let mut compared = 0;
    for (file, api, stream, recorded) in streams() {
        let theirs = expected(api, &recorded);
        let reads: Vec<_> = stream.chunks(333).collect();
        for client in [Api::Chat, Api::Responses, Api::Messages] {
            // Forwarded: `chat_corpus` looks at that.
            if [client, api] == [Api::Chat, Api::Chat] {
                continue;
            }
            for streams in [true, false] {
                let mut plan = plan(api, client, streams);
                plan.upstream.repair = true;
                let (sent, _) = translated(&plan, &reads, &mut Unpriced);
                let said = Said::read(client, streams, &sent);
                let ours = heard(client, &said);
                compared += 1;
                let mut differs = |what: &str, ours: String, theirs: String| {
                    let known =
                        |(part, kind, _): &(&str, &str, &str)| file.contains(part) && *kind == what;
                    if ours != theirs
                        && let Some(place) = OTHERWISE.iter().position(known)
                    {
                        otherwise.insert(place);
                    } else if ours != theirs {
                        differences.push(format!(
                            "{file} for {client:?}, streams: {streams}: {what}\n  {ours}\n  {theirs}"
                        ));
                    }
                };
                differs("error", said.error.to_string(), "null".into());
                differs("text", ours.text, theirs.text.clone());
                differs("reasoning", ours.reasoning, theirs.reasoning.clone());
                differs(
                    "calls",
                    format!("{:?}", ours.calls),
                    format!("{:?}", theirs.calls),
                );
                differs(
                    "usage",
                    format!("{:?}", ours.usage),
                    format!("{:?}", theirs.usage),
                );
            }
        }
    }
    if compared > 0 {
        assert!(compared > 1000, "{compared}");
        assert_eq!(otherwise.len(), OTHERWISE.len(), "no longer otherwise");
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
