//! Upstreams that pass the text of gpt-oss models on as it is.

use serde_json::{Value as Json, json};
use sluicegate_core::api::Api;
use sluicegate_core::limits::Limits;
use sluicegate_core::pipeline::{ReplyPlan, Unpriced};
use sluicegate_core::protocols::chat::fold::fold_chat;
use sluicegate_core::protocols::{ClientSide, UpstreamSide};

use super::stream::{self, Seen, chunk, events, finish, translated_by};

const TEXT: &str = concat!(
    "<|channel|>analysis<|message|>Weather: \"call\" it.<|end|>",
    "<|start|>assistant<|channel|>commentary<|message|>I look. é😀<|end|>",
    "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Oslo\"}<|call|>",
);

fn plan(client: Api, upstream: Api, client_streams: bool) -> ReplyPlan {
    let client = match client {
        Api::Responses => stream::plan(client_streams).client,
        other => ClientSide::new(other, client_streams),
    };
    let upstream = UpstreamSide {
        harmony: true,
        ..UpstreamSide::new(upstream)
    };
    ReplyPlan::between(client, upstream)
}

/// The text in chunks of so many letters.
fn chat(letters: usize) -> String {
    let text: Vec<char> = TEXT.chars().collect();
    let mut payloads: Vec<Json> = text
        .chunks(letters)
        .map(|part| chunk(&json!({"content": part.iter().collect::<String>()})))
        .collect();
    payloads.push(finish("stop"));
    payloads.push(
        json!({"id": "c1", "object": "chat.completion.chunk", "choices": [],
        "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}}),
    );
    events(&payloads) + "data: [DONE]\n\n"
}

fn completions(letters: usize) -> String {
    chat(letters)
        .replace("\"delta\":{\"content\":", "\"text\":")
        .replace("},\"finish_reason\":null", ",\"finish_reason\":null")
        .replace("chat.completion.chunk", "text_completion")
}

fn expected() -> Json {
    json!({"id": "c1", "object": "chat.completion", "created": 3, "model": "upstream-model",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant",
            "content": "I look. é😀",
            "reasoning_content": "Weather: \"call\" it.",
            "tool_calls": [{"id": "call_c1_0", "type": "function",
                "function": {"name": "get_weather", "arguments": "{\"city\":\"Oslo\"}"}}],
        }}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5},
    })
}

#[test]
fn chat_clients_get_what_it_means() {
    for (upstream, reply) in [
        (Api::Chat, chat as fn(usize) -> String),
        (Api::Completions, completions),
    ] {
        for letters in [1, 2, 5, 11, usize::MAX] {
            let reply = reply(letters);
            let shown = translated_by(
                plan(Api::Chat, upstream, true),
                &[reply.as_bytes()],
                &mut Unpriced,
            );
            assert!(shown.ends_with(b"data: [DONE]\n\n"));
            let folded: Json =
                serde_json::from_slice(&fold_chat(&shown, Limits::default()).unwrap()).unwrap();
            assert_eq!(folded, expected(), "{letters}");
            let whole = translated_by(
                plan(Api::Chat, upstream, false),
                &[reply.as_bytes()],
                &mut Unpriced,
            );
            assert_eq!(serde_json::from_slice::<Json>(&whole).unwrap(), expected());
        }
    }
}

#[test]
fn clients_of_the_responses_interface_get_items() {
    for letters in [1, 3, usize::MAX] {
        let reply = chat(letters);
        let shown = translated_by(
            plan(Api::Responses, Api::Chat, true),
            &[reply.as_bytes()],
            &mut Unpriced,
        );
        let seen = Seen::read(&shown);
        let expected = [
            "reasoning reasoning:Weather: \"call\" it.",
            "message output:I look. é😀",
            "get_weather({\"city\":\"Oslo\"})",
        ];
        assert_eq!(seen.items(), expected);
        assert_eq!(seen.response["output"][1]["phase"], "commentary");
        assert_eq!(seen.response["usage"]["total_tokens"], 5);
    }
}

#[test]
fn a_whole_completion_is_decoded_too() {
    let mut completion = expected();
    completion["choices"][0]["message"] = json!({"role": "assistant", "content": TEXT});
    completion["choices"][0]["finish_reason"] = "stop".into();
    let completion = completion.to_string();
    let reads: &[&[u8]] = &[completion.as_bytes()];
    let whole = translated_by(plan(Api::Chat, Api::Chat, false), reads, &mut Unpriced);
    assert_eq!(serde_json::from_slice::<Json>(&whole).unwrap(), expected());
    let shown = translated_by(plan(Api::Responses, Api::Chat, true), reads, &mut Unpriced);
    assert_eq!(Seen::read(&shown).items().len(), 3);
}

#[test]
fn a_reply_that_breaks_off_ends_in_an_error() {
    let reply = chat(4);
    let half = &reply[..reply.len() / 2];
    let end = half.rfind("\n\n").unwrap() + 2;
    let shown = translated_by(
        plan(Api::Chat, Api::Chat, true),
        &[&half.as_bytes()[..end]],
        &mut Unpriced,
    );
    let text = String::from_utf8(shown).unwrap();
    assert!(text.contains("\"code\":\"truncated\"") && !text.contains("[DONE]"));
}
