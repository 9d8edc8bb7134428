//! Reasoning that a chat upstream has signed or encrypted comes back to it from clients of the other protocols.

use serde_json::{Value as Json, json};
use sluicegate_core::api::Api;
use sluicegate_core::limits::Limits;
use sluicegate_core::pipeline::Unpriced;
use sluicegate_core::protocols::chat::request::{ChatTarget, ReasoningField};
use sluicegate_core::protocols::{chat, messages, responses};
use sluicegate_core::request::Request;

use crate::recordings::{list, streams, word};
use crate::said::{Said, plan, translated};

fn chunk(delta: Json) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": null});
    format!(
        "data: {}\n\n",
        json!({"id": "gen-1", "model": "m", "choices": [choice]})
    )
}

/// As OpenRouter streams the reply of a model: its text is in both members, its signature in a part without text.
fn stream(deltas: &[Json]) -> Vec<u8> {
    let end = json!({"index": 0, "delta": {"content": ""}, "finish_reason": "stop"});
    let end = json!({"id": "gen-1", "choices": [end]});
    let deltas: String = deltas.iter().cloned().map(chunk).collect();
    format!("{deltas}data: {end}\n\ndata: [DONE]\n\n").into_bytes()
}

fn thought(text: &str, index: u64) -> Json {
    let detail = json!({"type": "reasoning.text", "text": text, "format": "anthropic-claude-v1", "index": index});
    json!({"role": "assistant", "content": "", "reasoning": text, "reasoning_details": [detail]})
}

fn signature(signature: &str, index: u64) -> Json {
    json!({"type": "reasoning.text", "signature": signature, "format": "anthropic-claude-v1", "index": index})
}

fn hidden(detail: &Json) -> Json {
    json!({"role": "assistant", "content": "", "reasoning": null, "reasoning_details": [detail]})
}

/// The assistant's message in the next request, as an upstream of Chat Completions gets it.
fn returned(client: Api, reply: &Json, target: &ChatTarget) -> Json {
    let asked = json!({"role": "user", "content": "Hi"});
    let mut turns = vec![asked.clone()];
    match client {
        Api::Messages => turns.push(json!({"role": "assistant", "content": reply["content"]})),
        _ => turns.extend(list(&reply["output"]).cloned()),
    }
    turns.push(asked);
    let body = match client {
        Api::Messages => json!({"model": "m", "max_tokens": 9, "messages": turns}),
        _ => json!({"model": "m", "input": turns}),
    };
    let request = Request::parse(body.to_string().into(), &Limits::default()).unwrap();
    let conversation = match client {
        Api::Messages => messages::request::read_request(&request),
        _ => responses::request::read_request(&request),
    };
    let written = chat::request::write_request(&conversation.unwrap(), target).unwrap();
    let body: Json = serde_json::from_slice(&written.body).unwrap();
    let message = list(&body["messages"]).find(|message| message["role"] == "assistant");
    message.cloned().unwrap_or_default()
}

/// The same of a client that streams and of one that does not.
fn round_trip(client: Api, stream: &[u8]) -> Json {
    let [first, second] = [true, false].map(|streams| {
        let sent = translated(&plan(Api::Chat, client, streams), &[stream], &mut Unpriced).0;
        let said = Said::read(client, streams, &sent);
        assert!(said.error.is_null(), "{}", said.error);
        returned(client, &said.reply, &ChatTarget::default())
    });
    assert_eq!(first, second);
    first
}

#[test]
fn signatures_come_back_with_the_texts_that_they_sign() {
    let reply = stream(&[
        thought("Where ", 0),
        thought("\"is\" it?\n", 0),
        hidden(&signature("s0", 0)),
        thought("There.", 1),
        hidden(&signature("s1", 1)),
        json!({"content": "Here."}),
    ]);
    for client in [Api::Messages, Api::Responses] {
        let message = round_trip(client, &reply);
        let mut details = [signature("s0", 0), signature("s1", 1)];
        details[0]["text"] = "Where \"is\" it?\n".into();
        details[1]["text"] = "There.".into();
        assert_eq!(message["reasoning_details"], json!(details));
        assert_eq!(message["content"], "Here.");
    }
}

#[test]
fn what_is_encrypted_comes_back_as_it_was() {
    let encrypted = |id: &str| json!({"type": "reasoning.encrypted", "data": "gAAA", "id": id, "format": "openai-responses-v1", "index": 0});
    let reply = stream(&[
        json!({"reasoning": "A plan."}),
        hidden(&encrypted("rs_1")),
        hidden(&encrypted("rs_2")),
        json!({"content": "Here."}),
    ]);
    for client in [Api::Messages, Api::Responses] {
        let message = round_trip(client, &reply);
        let both = [encrypted("rs_1"), encrypted("rs_2")];
        assert_eq!(message["reasoning_details"], json!(both));
        assert_eq!(message["reasoning_content"], "A plan.");
    }
}

#[test]
fn a_signature_of_a_text_that_was_not_shown_comes_back() {
    let reply = stream(&[hidden(&signature("s", 0)), json!({"content": "Here."})]);
    for client in [Api::Messages, Api::Responses] {
        let mut detail = signature("s", 0);
        detail["text"] = "".into();
        assert_eq!(
            round_trip(client, &reply)["reasoning_details"],
            json!([detail])
        );
    }
}

#[test]
fn nothing_comes_back_where_reasoning_is_not_sent() {
    let reply = stream(&[
        thought("So.", 0),
        hidden(&signature("s", 0)),
        json!({"content": "Here."}),
    ]);
    let target = ChatTarget {
        reasoning: ReasoningField::None,
        ..ChatTarget::default()
    };
    let sent = translated(
        &plan(Api::Chat, Api::Messages, true),
        &[&reply],
        &mut Unpriced,
    )
    .0;
    let said = Said::read(Api::Messages, true, &sent);
    assert_eq!(
        returned(Api::Messages, &said.reply, &target),
        json!({"role": "assistant", "content": "Here."})
    );
}

/// Recorded streams: those of OpenRouter, and of who has taken over its form.
#[test]
fn what_recorded_replies_have_encrypted_comes_back_as_it_was() {
    let mut seen = 0;
    for (file, api, stream, _) in streams() {
        if api != Api::Chat {
            continue;
        }
        let text = String::from_utf8_lossy(&stream);
        let payloads = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let chunks = payloads.filter_map(|payload| serde_json::from_str::<Json>(payload).ok());
        let details: Vec<Json> = chunks
            .flat_map(|chunk| {
                list(&chunk["choices"][0]["delta"]["reasoning_details"])
                    .cloned()
                    .collect::<Vec<_>>()
            })
            .filter(|detail| {
                detail["type"] == "reasoning.encrypted" && !word(&detail["data"]).is_empty()
            })
            .collect();
        if details.is_empty() {
            continue;
        }
        seen += 1;
        for client in [Api::Messages, Api::Responses] {
            assert_eq!(
                round_trip(client, &stream)["reasoning_details"],
                json!(details),
                "{file}"
            );
        }
    }
    assert!(seen > 2 || std::env::var_os("SLUICEGATE_CORPUS").is_none());
}
