//! From deltas to items: what is opened and closed by what, and that nothing is lost between.

use serde_json::{Value as Json, json};
use sluicegate_core::api::Api;
use sluicegate_core::input::seal::Seal;

use super::stream::{Seen, chunk, events, finish, stream, translated};

fn items(deltas: &[Json]) -> Vec<String> {
    Seen::of(&stream(deltas, "stop")).items()
}

#[test]
fn a_message_is_opened_filled_and_closed() {
    let seen = Seen::of(&stream(
        &[
            json!({"role": "assistant", "content": ""}),
            json!({"content": "2 + 2"}),
            json!({"content": " equals"}),
            json!({"content": " 4."}),
        ],
        "stop",
    ));
    assert_eq!(
        seen.types(),
        [
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
        ]
    );
    assert_eq!(seen.deltas("output_text").concat(), "2 + 2 equals 4.");
    assert_eq!(seen.items(), ["message output:2 + 2 equals 4."]);
    assert_eq!(seen.response["status"], "completed");
    assert_eq!(seen.response["model"], "upstream-model");
    assert_eq!(seen.response["id"], "resp_0a");
    assert_eq!(seen.response["output"][0]["id"], "msg_0a0000");
}

#[test]
fn one_delta_may_hold_everything() {
    let seen = Seen::of(&stream(
        &[json!({
            "tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "f", "arguments": "{}"}}],
            "content": "c",
            "reasoning": "r",
        })],
        "tool_calls",
    ));
    assert_eq!(
        seen.items(),
        ["reasoning reasoning:r", "message output:c", "f({})"]
    );
    let deltas: Vec<_> = seen
        .types()
        .into_iter()
        .filter(|name| name.ends_with("delta"))
        .collect();
    assert_eq!(
        deltas,
        [
            "reasoning_text.delta",
            "output_text.delta",
            "function_call_arguments.delta"
        ]
    );
}

#[test]
fn a_read_may_cross_from_reasoning_to_an_answer() {
    let deltas = [
        json!({"reasoning": "think"}),
        json!({"reasoning": "more", "content": "answer"}),
    ];
    let seen = Seen::of(&stream(&deltas, "stop"));
    assert_eq!(
        seen.items(),
        ["reasoning reasoning:thinkmore", "message output:answer"]
    );
    assert_eq!(seen.deltas("reasoning_text"), ["think", "more"]);
}

#[test]
fn tokens_of_one_read_may_cross_from_reasoning_to_a_call() {
    let call = |arguments: &str| json!({"tool_calls": [{"index": 0, "id": "call_9", "function": {"name": "get", "arguments": arguments}}]});
    let mut crossing = call("{\"a\"");
    crossing["reasoning_content"] = "so I call.".into();
    let seen = Seen::of(&stream(
        &[
            json!({"reasoning_content": "Let me see, "}),
            crossing,
            json!({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}),
        ],
        "tool_calls",
    ));
    assert_eq!(
        seen.items(),
        [
            "reasoning reasoning:Let me see, so I call.",
            "get({\"a\":1})"
        ]
    );
}

#[test]
fn kinds_alternate_as_often_as_they_like() {
    let call = |index: u64| json!({"tool_calls": [{"index": index, "id": format!("call_{index}"), "function": {"name": "f", "arguments": "{}"}}]});
    assert_eq!(
        items(&[
            json!({"reasoning": "a"}),
            json!({"content": "b"}),
            call(0),
            call(1),
            json!({"reasoning": "c"}),
            json!({"content": "d"}),
            json!({"refusal": "e"}),
            json!({"content": "f"}),
        ]),
        [
            "reasoning reasoning:a",
            "message output:b",
            "f({})",
            "f({})",
            "reasoning reasoning:c",
            "message output:d",
            "message refusal:e",
            "message output:f",
        ]
    );
}

#[test]
fn white_space_is_text_but_between_reasoning_and_a_call() {
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]});
    let (thought, space) = (json!({"reasoning": "r"}), json!({"content": "\n\n"}));
    let more = json!({"content": " x"});
    let of = |deltas: &[&Json]| {
        items(
            &deltas
                .iter()
                .map(|delta| (*delta).clone())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        of(&[&thought, &space, &space, &call]),
        ["reasoning reasoning:r", "f({})"]
    );
    assert_eq!(
        of(&[&thought, &space, &more]),
        ["reasoning reasoning:r", "message output:\n\n x"]
    );
    assert_eq!(
        of(&[&thought, &space]),
        ["reasoning reasoning:r", "message output:\n\n"]
    );
    assert_eq!(
        of(&[&thought, &space, &thought]),
        [
            "reasoning reasoning:r",
            "message output:\n\n",
            "reasoning reasoning:r"
        ]
    );
    assert_eq!(of(&[&space, &call]), ["message output:\n\n", "f({})"]);
    assert_eq!(of(&[&more, &space, &space]), ["message output: x\n\n\n\n"]);
    assert_eq!(of(&[&call, &space]), ["f({})", "message output:\n\n"]);
}

#[test]
fn white_space_between_the_parts_of_a_call_does_not_close_it() {
    let piece = |arguments: &str| json!({"content": "\n", "tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": arguments}}]});
    assert_eq!(
        items(&[piece("{"), piece("}"), json!({"content": "!"})]),
        ["message output:\n", "f({})", "message output:\n!"]
    );
}

#[test]
fn empty_text_opens_and_closes_nothing() {
    let empty = json!({"content": "", "reasoning": "", "refusal": ""});
    let call = |arguments: &str| json!({"content": "", "tool_calls": [{"index": 0, "function": {"name": "f", "arguments": arguments}}]});
    assert_eq!(
        items(&[empty.clone(), call("{"), empty.clone(), call("}"), empty]),
        ["f({})"]
    );
}

#[test]
fn an_answer_without_words_is_a_message_without_words() {
    assert_eq!(
        items(&[json!({"role": "assistant", "content": ""})]),
        ["message output:"]
    );
    assert_eq!(
        items(&[json!({"role": "assistant", "content": null})]),
        [""; 0]
    );
}

#[test]
fn half_a_character_waits_for_the_other() {
    let reply = stream(&[json!({"content": "A"}), json!({"content": "B"})], "stop");
    let reply = reply
        .replace("\"A\"", r#""x\ud83d""#)
        .replace("\"B\"", r#""\ude00y""#);
    let seen = Seen::of(&reply);
    assert_eq!(seen.deltas("output_text"), ["x", "\u{1F600}y"]);
    assert_eq!(seen.items(), ["message output:x\u{1F600}y"]);
}

#[test]
fn a_broken_character_costs_no_token() {
    let reply = stream(
        &[json!({"content": "a"}), json!({"content": "bXc"})],
        "stop",
    );
    let mut bytes = reply.into_bytes();
    let place = bytes.iter().position(|byte| *byte == b'X').unwrap();
    bytes[place] = 0xFF;
    let out = super::stream::translated_by(
        super::stream::plan(true),
        &[&bytes],
        &mut sluicegate_core::pipeline::Unpriced,
    );
    assert_eq!(Seen::read(&out).items(), ["message output:ab\u{fffd}c"]);
}

#[test]
fn log_probabilities_go_with_their_text() {
    let mut first = chunk(&json!({"content": "a"}));
    first["choices"][0]["logprobs"] =
        json!({"content": [{"token": "a", "logprob": -0.25, "bytes": null, "top_logprobs": []}]});
    let reply = events(&[first, chunk(&json!({"content": "b"})), finish("stop")]);
    let seen = Seen::of(&reply);
    let expected = json!([{"token": "a", "bytes": [97], "logprob": -0.25, "top_logprobs": []}]);
    assert_eq!(
        seen.response["output"][0]["content"][0]["logprobs"],
        expected
    );
    assert_eq!(seen.events[4]["logprobs"], expected);
    assert_eq!(seen.events[5]["logprobs"], json!([]));
}

#[test]
fn annotations_stand_in_the_text_they_are_of() {
    let citation = json!({"type": "url_citation", "url_citation": {"url": "https://a.b", "title": "A", "start_index": 0, "end_index": 1}});
    let seen = Seen::of(&stream(
        &[
            json!({"content": "a"}),
            json!({"annotations": [citation, citation]}),
            json!({"content": "b"}),
        ],
        "stop",
    ));
    let part = &seen.response["output"][0]["content"][0];
    let flat = json!({"type": "url_citation", "start_index": 0, "end_index": 1, "title": "A", "url": "https://a.b"});
    assert_eq!(part["annotations"], json!([flat, flat]));
    assert_eq!(part["text"], "ab");
}

#[test]
fn what_nobody_can_read_is_kept_with_the_reasoning() {
    let details =
        |data: &str| json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": data}]});
    let seen = Seen::of(&stream(
        &[
            json!({"reasoning": "r"}),
            details("x"),
            details("y"),
            json!({"content": "c"}),
        ],
        "stop",
    ));
    assert_eq!(seen.items(), ["reasoning reasoning:r", "message output:c"]);
    let sealed = seen.response["output"][0]["encrypted_content"].as_str();
    let seal = Seal::of(sealed.unwrap().as_bytes()).unwrap();
    let both = [&details("x"), &details("y")].map(|it| it["reasoning_details"][0].clone());
    let held: Json = serde_json::from_slice(&seal.open().unwrap()).unwrap();
    assert_eq!((seal.api(), held), (Api::Chat, json!(both)));
}

#[test]
fn comments_stay_comments() {
    let reply =
        String::from(": OPENROUTER PROCESSING\n\n") + &stream(&[json!({"content": "a"})], "stop");
    let reply = reply.replace("data: {", ": ping\n\ndata: {");
    let out = String::from_utf8(translated(&reply, true)).unwrap();
    assert!(out.starts_with(": OPENROUTER PROCESSING\n\n: ping\n\nevent: response.created\n"));
    assert_eq!(out.matches(": ping\n\n").count(), 2);
    assert_eq!(Seen::read(out.as_bytes()).items(), ["message output:a"]);
}

#[test]
fn a_completion_gives_what_its_stream_gives() {
    let message = json!({"role": "assistant", "reasoning_content": "r", "content": "c", "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "call_2", "type": "function", "function": {"name": "shell", "arguments": "{\"input\":\"ls\"}"}},
    ]});
    let completion =
        json!({"id": "c1", "object": "chat.completion", "created": 3, "model": "upstream-model",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}})
        .to_string();
    let streamed = stream(
        &[
            json!({"role": "assistant", "content": ""}),
            json!({"reasoning_content": "r"}),
            json!({"content": "c"}),
            json!({"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "f", "arguments": "{}"}}]}),
            json!({"tool_calls": [{"index": 1, "id": "call_2", "function": {"name": "shell", "arguments": "{\"input\":"}}]}),
            json!({"tool_calls": [{"index": 1, "function": {"arguments": "\"ls\"}"}}]}),
        ],
        "tool_calls",
    );
    let streamed = streamed.replace("data: [DONE]", "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5}}\n\ndata: [DONE]");
    let expected = Seen::of(&streamed);
    assert_eq!(
        expected.items(),
        [
            "reasoning reasoning:r",
            "message output:c",
            "f({})",
            "shell<ls>"
        ]
    );
    assert_eq!(Seen::of(&completion).response, expected.response);
    for reply in [&completion, &streamed] {
        let whole: Json = serde_json::from_slice(&translated(reply, false)).unwrap();
        assert_eq!(whole, expected.response);
    }
}

#[test]
fn chunks_may_come_as_lines_of_json() {
    let reply = stream(&[json!({"content": "a"}), json!({"content": "b"})], "stop");
    let lines = reply
        .replace("data: [DONE]", "")
        .replace("data: ", "")
        .replace("\n\n", "\n");
    assert_eq!(Seen::of(&lines).items(), ["message output:ab"]);
    let whole: Json = serde_json::from_slice(&translated(&lines, false)).unwrap();
    assert_eq!(whole, Seen::of(&reply).response);
}
