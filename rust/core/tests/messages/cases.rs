//! `tests/corpus/messages_replies.json`: what becomes of a reply.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use sluicegate_core::api::Api;
use sluicegate_core::input::Names;
use sluicegate_core::input::seal::Seal;
use sluicegate_core::pipeline::{Pipeline, ReplyPlan, Unpriced};
use sluicegate_core::protocols::ClientProtocol;

use crate::accumulator::payloads;
use crate::said::{Said, plan, translated};

fn api(name: &Json) -> Api {
    match name.as_str().unwrap() {
        "chat" => Api::Chat,
        "responses" => Api::Responses,
        "messages" => Api::Messages,
        other => panic!("{other}"),
    }
}

fn list(value: &Json) -> &[Json] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The bytes of each event that the upstream sends.
fn events(case: &Json) -> Vec<Vec<u8>> {
    if !case["document"].is_null() {
        return vec![case["document"].to_string().into_bytes()];
    }
    let is_chat = case["from"] == "chat";
    let events = list(&case["events"]).iter().map(|event| {
        let mut name = String::new();
        let data = match event {
            Json::String(word) => word.clone(),
            _ if !event["start"].is_null() => {
                name = "message_start".into();
                let message = json!({"id": event["start"], "type": "message", "role": "assistant", "model": "up", "content": [], "stop_reason": null, "stop_sequence": null, "usage": event["usage"]});
                json!({"type": "message_start", "message": message}).to_string()
            }
            _ if is_chat && event["error"].is_null() => chunk(event).to_string(),
            _ => {
                name = event["type"].as_str().unwrap_or_default().to_owned();
                event.to_string()
            }
        };
        let name = match (&*name, case["named"].as_bool()) {
            ("", _) | (_, Some(false)) => String::new(),
            (name, _) => format!("event: {name}\n"),
        };
        format!("{name}data: {data}\n\n").into_bytes()
    });
    events.collect()
}

fn chunk(event: &Json) -> Json {
    let mut chunk =
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "up"});
    let mut choice = json!({"index": 0});
    for (key, value) in event.as_object().unwrap() {
        let target = match key.as_str() {
            "choices" | "usage" => &mut chunk,
            _ => &mut choice,
        };
        target[key] = value.clone();
    }
    if chunk["choices"].is_null() {
        chunk["choices"] = json!([choice]);
    }
    chunk
}

fn plan_of(case: &Json) -> ReplyPlan {
    let streams = case["streams"] != false;
    let mut plan = plan(api(&case["from"]), api(&case["to"]), streams);
    plan.upstream.repair = case["repair"] == true;
    if let Some(told) = case["names"].as_object() {
        let mut names = Names::default();
        for (upstream, client) in told {
            names.add(upstream, client.as_str().unwrap());
        }
        plan.client.names = Some(Arc::new(names));
    }
    if case["expected"]["same_bytes_without_cost"] == true {
        plan.client.reply_model = None;
    }
    if let ClientProtocol::Messages(known) = &mut plan.client.protocol {
        let taken = list(&case["taken"]).iter();
        known.taken_ids = Arc::new(taken.map(|id| id.as_str().unwrap().into()).collect());
    }
    plan
}

/// Each member of `expected` is in `found`.
fn holds(found: &Json, expected: &Json) -> bool {
    match expected {
        Json::Object(members) => members.iter().all(|(key, value)| holds(&found[key], value)),
        Json::Array(values) => {
            let found = list(found);
            found.len() == values.len() && found.iter().zip(values).all(|(a, b)| holds(a, b))
        }
        _ => found == expected,
    }
}

/// What a seal holds that is written as `text`: the protocol of its maker, and its content.
fn unsealed(text: &Json) -> (String, Json) {
    let text = text.as_str().unwrap();
    let seal = Seal::of(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
    let content = seal
        .open()
        .map(|content| serde_json::from_slice(&content).unwrap());
    (
        format!("{:?}", seal.api()).to_lowercase(),
        content.unwrap_or_default(),
    )
}

fn check_blocks(name: &str, content: &Json, expected: &Json) {
    let (content, expected) = (list(content), list(expected));
    assert_eq!(content.len(), expected.len(), "{name}: {content:?}");
    for (block, expected) in content.iter().zip(expected) {
        for (key, wanted) in expected.as_object().unwrap() {
            let found = match key.as_str() {
                "text" | "thinking" | "signature" => &block[key],
                "redacted" => &block["data"],
                "call" => block,
                other => panic!("{other}"),
            };
            if wanted["sealed"].is_null() {
                assert!(holds(found, wanted), "{name}: {block}");
            } else {
                let (maker, content) = unsealed(found);
                assert_eq!(
                    (maker.into(), &content["id"]),
                    (wanted["sealed"].clone(), &wanted["holds"]),
                    "{name}"
                );
            }
        }
    }
}

fn check_calls(name: &str, said: &Said, expected: &Json) {
    assert_eq!(said.calls.len(), list(expected).len(), "{name}: {said:?}");
    let calls = said.calls.iter().zip(said.parsed_calls());
    for (([id, called, arguments], (_, _, parsed)), expected) in calls.zip(list(expected)) {
        for (key, wanted) in expected.as_object().unwrap() {
            let is_so = match key.as_str() {
                "index" => true,
                "id" | "call_id" => wanted == id,
                "name" => wanted == called,
                "arguments" => wanted == arguments,
                "arguments_json" | "input" => *wanted == parsed,
                "id_not" => !list(wanted).contains(&id.as_str().into()),
                "id_pattern" => id.starts_with("toolu_") && id.len() > 6,
                other => panic!("{other}"),
            };
            assert!(is_so, "{name}: {key} of {said:?}");
        }
    }
}

fn check_items(name: &str, output: &Json, expected: &Json) {
    let (output, expected) = (list(output), list(expected));
    assert_eq!(output.len(), expected.len(), "{name}: {output:?}");
    for (item, expected) in output.iter().zip(expected) {
        if let Some(call) = expected.get("call") {
            assert!(holds(item, call), "{name}: {item}");
            continue;
        }
        assert_eq!(item["content"][0]["text"], expected["reasoning"], "{name}");
        let (maker, content) = unsealed(&item["encrypted_content"]);
        assert_eq!(expected["sealed"]["api"], maker, "{name}");
        assert_eq!(expected["sealed"]["blocks"], list(&content).len(), "{name}");
    }
}

/// The types of all events, with their index and kind.
fn order(sent: &[u8]) -> Vec<String> {
    let told = payloads(sent).into_iter().map(|event| {
        let kinds = [
            &event["type"],
            &event["index"],
            &event["content_block"]["type"],
            &event["delta"]["type"],
        ];
        let kinds = kinds.into_iter().filter(|kind| !kind.is_null());
        let kinds: Vec<_> = kinds
            .map(|kind| kind.to_string().replace('"', ""))
            .collect();
        kinds.join(" ")
    });
    told.filter(|kind| kind != "ping").collect()
}

/// What must have been written by the time the first events were read.
fn check_early(case: &Json, events: &[Vec<u8>], expected: &Json) {
    for (number, wanted) in expected.as_object().unwrap() {
        let mut pipeline = Pipeline::new(plan_of(case));
        let mut out = Vec::new();
        for event in events.iter().take(number.parse().unwrap()) {
            pipeline
                .feed(event.clone().into(), &mut Unpriced, &mut out)
                .unwrap();
        }
        let order = order(&out.concat());
        for wanted in list(wanted) {
            assert!(
                order.contains(&wanted.as_str().unwrap().to_owned()),
                "{case}"
            );
        }
    }
}

fn check(case: &Json) {
    let name = case["name"].as_str().unwrap();
    let (client, streams) = (api(&case["to"]), case["streams"] != false);
    let events = events(case);
    let upstream = events.concat();
    let (sent, facts) = translated(&plan_of(case), &[&upstream], &mut Unpriced);
    let shown = String::from_utf8_lossy(&sent).into_owned();
    if case["expected"]["same_bytes_without_cost"] == true {
        assert_eq!(sent, upstream, "{name}");
    }
    let is_message = client == Api::Messages;
    let said = Said::read(client, streams, &sent);
    for (key, wanted) in case["expected"].as_object().unwrap() {
        let choice = &said.reply["choices"][0];
        let message = &choice["message"];
        match key.as_str() {
            "texts" => {
                let texts: String = list(wanted)
                    .iter()
                    .map(|text| text.as_str().unwrap())
                    .collect();
                // A chat client that was told of an error has no completion.
                if said.reply.is_null() {
                    assert!(shown.contains(&texts), "{name}: {shown}");
                } else {
                    assert_eq!(said.text, texts, "{name}");
                }
            }
            "thinking" => {
                let texts: String = list(wanted)
                    .iter()
                    .map(|text| text.as_str().unwrap())
                    .collect();
                assert_eq!(said.thinking, texts, "{name}");
            }
            "blocks" => check_blocks(name, &said.reply["content"], wanted),
            "calls" => check_calls(name, &said, wanted),
            "items" => check_items(name, &said.reply["output"], wanted),
            "stop" | "status" => assert_eq!(said.stop, wanted.as_str().unwrap(), "{name}"),
            "reason" => assert_eq!(
                said.reply["incomplete_details"]["reason"], *wanted,
                "{name}"
            ),
            "usage" => assert!(holds(&said.usage, wanted), "{name}: {}", said.usage),
            "model" | "type" | "role" | "stop_sequence" => {
                assert_eq!(said.reply[key], *wanted, "{name}")
            }
            "order" => assert_eq!(json!(order(&sent)), *wanted, "{name}"),
            "message_deltas" => assert_eq!(
                shown.matches("event: message_delta").count(),
                wanted.as_u64().unwrap() as usize,
                "{name}"
            ),
            "start_usage_has" => {
                let start = &payloads(&sent)[0]["message"]["usage"];
                assert!(
                    list(wanted)
                        .iter()
                        .all(|count| start[count.as_str().unwrap()].is_u64()),
                    "{name}"
                );
            }
            "shown_after_event" => check_early(case, &events, wanted),
            "refusal" if is_message => panic!("{name}"),
            "refusal" => {
                let parts = list(&said.reply["output"])
                    .iter()
                    .flat_map(|item| list(&item["content"]));
                let refused = parts
                    .map(|part| &part["refusal"])
                    .next()
                    .unwrap_or(&message["refusal"]);
                assert_eq!(refused, wanted, "{name}");
            }
            "reasoning_details" => assert!(
                holds(&message["reasoning_details"], wanted),
                "{name}: {message}"
            ),
            "annotations" => {
                let found: Vec<_> = list(&message["annotations"])
                    .iter()
                    .map(|noted| {
                        let mut flat = noted["url_citation"].clone();
                        flat["type"] = noted["type"].clone();
                        flat
                    })
                    .collect();
                assert!(holds(&found.into(), wanted), "{name}: {message}");
            }
            "choice_members" => assert!(holds(choice, wanted), "{name}: {choice}"),
            "error" => {
                assert!(!said.error.is_null(), "{name}: {shown}");
                assert!(holds(&said.error, wanted), "{name}: {}", said.error);
            }
            "whole" => {
                let is_whole = said.error.is_null() && !said.reply.is_null();
                assert_eq!(json!(is_whole), *wanted, "{name}: {shown}");
            }
            "never" => {
                for wanted in list(wanted).iter().filter_map(Json::as_str) {
                    let is_there = match wanted {
                        // No chunk of a stream may name a reason; `null` is none.
                        "finish_reason" => {
                            shown.replace("\"finish_reason\":null", "").contains(wanted)
                        }
                        // The accumulator looks after that.
                        _ if wanted.contains(' ') => false,
                        _ => shown.contains(wanted),
                    };
                    assert!(!is_there, "{name}: {wanted} in {shown}");
                }
            }
            "ends_with" => assert!(
                shown.trim_end().ends_with(wanted.as_str().unwrap()),
                "{name}"
            ),
            "billed" => {
                let usage = facts.usage.clone().unwrap();
                let found = json!({"input": usage.input_tokens, "cached": usage.cached_input_tokens, "output": usage.output_tokens});
                assert!(holds(&found, wanted), "{name}: {found}");
            }
            "same_bytes_without_cost" => {}
            other => panic!("{name}: {other}"),
        }
    }
    for size in [1, 7, 100] {
        let reads: Vec<_> = upstream.chunks(size).collect();
        let cut = translated(&plan_of(case), &reads, &mut Unpriced);
        assert_eq!(
            (&cut.0, &cut.1),
            (&sent, &facts),
            "{name} in reads of {size}"
        );
    }
}

#[test]
fn each_reply_becomes_what_its_client_understands() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/messages_replies.json");
    let cases: Json = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let cases = list(&cases["cases"]);
    assert!(cases.len() > 60);
    cases.iter().for_each(check);
}
