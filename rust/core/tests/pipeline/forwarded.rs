//! A response that is forwarded, and breaks off.

use bytes::Bytes;
use serde_json::{Value as Json, json};
use sluicegate_core::api::Api;
use sluicegate_core::pipeline::{Pipeline, ReplyPlan, Unpriced};

fn event(number: usize, mut members: Json) -> String {
    let kind = members["type"].as_str().unwrap().to_owned();
    members["sequence_number"] = json!(number);
    format!("event: {kind}\ndata: {members}\n\n")
}

/// The events, numbered.
fn stream(events: &[Json]) -> String {
    (0..)
        .zip(events)
        .map(|(number, members)| event(number, members.clone()))
        .collect()
}

/// What is added to a stream that breaks off, however it was cut.
fn added(plan: &ReplyPlan, stream: &str) -> Vec<Json> {
    let whole = broken(plan, &[stream.as_bytes()]);
    for size in [1, 7, 100] {
        let reads: Vec<_> = stream.as_bytes().chunks(size).collect();
        assert_eq!(broken(plan, &reads), whole);
    }
    let text = whole.strip_prefix(stream).unwrap();
    let text = text.strip_suffix("data: [DONE]\n\n").unwrap();
    text.split_terminator("\n\n")
        .map(|event| {
            let (name, data) = event.split_once("\ndata: ").unwrap();
            let data: Json = serde_json::from_str(data).unwrap();
            assert_eq!(name.strip_prefix("event: ").unwrap(), data["type"]);
            data
        })
        .collect()
}

fn broken(plan: &ReplyPlan, reads: &[&[u8]]) -> String {
    let mut pipeline = Pipeline::new(plan.clone());
    let mut out = Vec::new();
    for read in reads {
        let read = Bytes::copy_from_slice(read);
        pipeline.feed(read, &mut Unpriced, &mut out).unwrap();
    }
    pipeline.finish(&mut Unpriced, &mut out).unwrap();
    if pipeline.facts().truncated {
        pipeline.fail("upstream_error", "truncated", "it broke off", &mut out);
    }
    String::from_utf8(out.concat()).unwrap()
}

fn plan() -> ReplyPlan {
    ReplyPlan::new(Api::Responses, true)
}

fn created() -> Json {
    json!({"type": "response.created", "response": {"id": "resp_1", "model": "theirs", "status": "in_progress", "error": null, "tools": [{"a": [1.50]}], "output": []}})
}

fn item(index: usize, item: &Json) -> Json {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn delta(kind: &str, id: &str, index: usize, text: &str) -> Json {
    json!({"type": format!("response.{kind}.delta"), "item_id": id, "output_index": index, "content_index": 0, "delta": text})
}

fn kinds(events: &[Json]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect()
}

#[test]
fn what_is_open_is_closed_with_all_that_was_said() {
    let part = json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
    let mut events = vec![
        created(),
        item(
            0,
            &json!({"type": "reasoning", "id": "rs_1", "summary": []}),
        ),
        json!({"type": "response.output_item.done", "output_index": 0, "item": {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}}),
        item(
            1,
            &json!({"type": "message", "id": "msg_1", "status": "in_progress", "role": "assistant", "content": []}),
        ),
        json!({"type": "response.content_part.added", "item_id": "msg_1", "output_index": 1, "content_index": 0, "part": part}),
    ];
    let words = ["Hel", "lo", " ", "\u{1f980}\n", "\"you\"", ""];
    events.extend(words.map(|word| delta("output_text", "msg_1", 1, word)));
    let said = added(&plan(), &stream(&events));
    assert_eq!(
        kinds(&said),
        [
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "error",
            "response.failed",
        ]
    );
    let numbers: Vec<_> = said.iter().map(|event| &event["sequence_number"]).collect();
    assert_eq!(numbers, [11, 12, 13, 14, 15]);
    assert_eq!(said[0]["text"], words.concat());
    assert_eq!(said[2]["item"]["content"][0], said[1]["part"]);
    assert_eq!(said[2]["item"]["status"], "incomplete");
    let response = &said[4]["response"];
    assert_eq!(
        (&response["id"], &response["status"]),
        (&json!("resp_1"), &json!("failed"))
    );
    assert_eq!(response["tools"], json!([{"a": [1.50]}]));
    assert_eq!(
        response["output"],
        json!([events[2]["item"], said[2]["item"]])
    );
    assert_eq!(
        response["error"],
        json!({"code": "server_error", "message": "it broke off"})
    );
}

#[test]
fn calls_that_take_turns_are_closed_each_with_its_own() {
    let call = |id: &str| json!({"type": "function_call", "id": id, "call_id": id, "name": "f", "arguments": ""});
    let custom =
        json!({"type": "custom_tool_call", "id": "c", "call_id": "c", "name": "g", "input": ""});
    let kind = "function_call_arguments";
    let events = [
        created(),
        item(0, &call("a")),
        item(1, &call("b")),
        item(2, &custom),
        delta(kind, "a", 0, "{\"x\""),
        delta(kind, "b", 1, "{"),
        delta(kind, "a", 0, ":1"),
        delta("custom_tool_call_input", "c", 2, "ls"),
        delta(kind, "b", 1, "}"),
        delta(kind, "a", 0, "}"),
    ];
    let said = added(&plan(), &stream(&events));
    let output = &said.last().unwrap()["response"]["output"];
    assert_eq!(output[0]["arguments"], "{\"x\":1}");
    assert_eq!(output[1]["arguments"], "{}");
    assert_eq!(output[2]["input"], "ls");
    assert_eq!(said[0]["arguments"], "{\"x\":1}");
    assert_eq!(
        kinds(&said)[4..6],
        [
            "response.custom_tool_call_input.done",
            "response.output_item.done"
        ]
    );
}

#[test]
fn token_probabilities_and_annotations_are_kept() {
    let one = json!({"token": "a", "logprob": 0.0, "bytes": [97], "top_logprobs": []});
    let mut word = delta("output_text", "m", 0, "a");
    word["logprobs"] = json!([one]);
    let note = json!({"type": "file_path", "file_id": "f", "index": 0});
    let events = [
        created(),
        item(0, &json!({"type": "message", "id": "m", "content": []})),
        word.clone(),
        word.clone(),
        word,
        json!({"type": "response.output_text.annotation.added", "item_id": "m", "output_index": 0, "content_index": 0, "annotation_index": 0, "annotation": note}),
    ];
    let said = added(&plan(), &stream(&events));
    assert_eq!(said[0]["logprobs"], json!([one, one, one]));
    let part = &said[1]["item"]["content"][0];
    assert_eq!(part["annotations"], json!([note]));
    assert_eq!(part["text"], "aaa");
}

#[test]
fn an_upstreams_error_is_followed_by_the_failure_and_not_said_twice() {
    let events = [
        created(),
        item(0, &json!({"type": "message", "id": "m", "content": []})),
        delta("output_text", "m", 0, "a"),
        json!({"type": "error", "code": "rate_limit_exceeded", "message": "Too many.", "param": null}),
    ];
    let said = added(&plan(), &stream(&events));
    assert_eq!(
        kinds(&said),
        [
            "response.output_text.done",
            "response.output_item.done",
            "response.failed"
        ]
    );
    assert_eq!(
        said[2]["response"]["error"],
        json!({"code": "rate_limit_exceeded", "message": "Too many."})
    );
    let last = json!({"type": "response.failed", "response": {"id": "resp_1", "status": "failed"}});
    let whole = stream(&[&events[..], &[last]].concat());
    assert_eq!(broken(&plan(), &[whole.as_bytes()]), whole);
}

#[test]
fn the_model_is_shown_as_before() {
    let mut plan = plan();
    plan.client.reply_model = Some("ours".into());
    let shown = broken(&plan, &[stream(&[created()]).as_bytes()]);
    assert!(!shown.contains("theirs"), "{shown}");
    assert_eq!(shown.matches("\"ours\"").count(), 2);
}

#[test]
fn what_is_too_large_to_be_kept_is_not() {
    let mut plan = plan();
    plan.limits.max_document = 200;
    let events = [
        created(),
        item(0, &json!({"type": "message", "id": "m", "content": []})),
        delta("output_text", "m", 0, &"a".repeat(160)),
        delta("output_text", "m", 0, "b"),
    ];
    let said = added(&plan, &stream(&events));
    assert_eq!(kinds(&said), ["error", "response.failed"]);
    assert_eq!(said[1]["response"]["output"], json!([]));
}
