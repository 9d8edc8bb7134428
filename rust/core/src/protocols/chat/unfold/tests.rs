use proptest::prelude::*;

use super::*;
use crate::protocols::chat::tree::Tree;
use crate::sse::event::Events;

const WITH_USAGE: Unfold = Unfold {
    include_usage: true,
};

fn unfold(completion: &str, options: Unfold) -> String {
    let stream = unfold_chat(completion.as_bytes(), options, Limits::default()).unwrap();
    String::from_utf8(stream).unwrap()
}

/// The data of a stream's events, `[DONE]` left out.
fn payloads(stream: &str) -> Vec<Tree> {
    Events::new(stream.as_bytes())
        .map(|event| event.data().unwrap().to_vec())
        .filter(|data| data != b"[DONE]")
        .map(|data| Tree::parse(&data))
        .collect()
}

fn deltas(stream: &str) -> Vec<String> {
    payloads(stream)
        .iter()
        .flat_map(|chunk| match chunk.get("choices") {
            Some(Tree::List(choices)) => choices.clone(),
            _ => Vec::new(),
        })
        .map(|choice| choice.get("delta").unwrap().to_string())
        .collect()
}

#[test]
fn reasoning_content_refusal_and_calls_come_in_this_order_each_in_its_chunk() {
    let stream = unfold(
        r#"{"choices":[{"index":0,"finish_reason":"tool_calls","message":{
            "tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{\"x\":1}"}}],
            "refusal":"no","content":"yes","reasoning":"because","reasoning_details":[{"type":"reasoning.text","text":"because"}],
            "annotations":[1],"audio":null,"role":"assistant"}}]}"#,
        Unfold::default(),
    );
    assert_eq!(
        deltas(&stream),
        [
            r#"{ "audio": null, "content": "", "role": "assistant"}"#,
            r#"{ "reasoning": "because", "reasoning_details": [{ "text": "because", "type": "reasoning.text"}]}"#,
            r#"{ "content": "yes"}"#,
            r#"{ "refusal": "no"}"#,
            r#"{ "annotations": [1]}"#,
            r#"{ "tool_calls": [{ "function": { "arguments": "{}", "name": "f"}, "id": "a", "index": 0, "type": "function"}]}"#,
            r#"{ "tool_calls": [{ "function": { "arguments": "{\"x\":1}", "name": "g"}, "id": "b", "index": 1, "type": "function"}]}"#,
            "{ }",
        ]
    );
    assert!(stream.ends_with("\n\ndata: [DONE]\n\n"));
}

#[test]
fn every_choice_of_every_chunk_has_a_delta_and_the_chunk_its_object() {
    let stream = unfold(
        r#"{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"},
            {"index":1,"message":{"role":"assistant","content":null},"finish_reason":"length"}],"usage":{}}"#,
        WITH_USAGE,
    );
    let chunks = payloads(&stream);
    assert_eq!(chunks.len(), 6);
    for chunk in &chunks {
        assert_eq!(
            chunk.get("object"),
            Some(&Tree::text("chat.completion.chunk"))
        );
        let Some(Tree::List(choices)) = chunk.get("choices") else {
            panic!("{chunk}")
        };
        assert!(choices.iter().all(|choice| choice.get("delta").is_some()));
        assert!(choices.iter().all(|choice| choice.get("message").is_none()));
    }
}

#[test]
fn usage_is_sent_only_if_asked_for() {
    let completion = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"cost":0.10}}"#;
    assert!(!unfold(completion, Unfold::default()).contains("usage"));
    let chunks = payloads(&unfold(completion, WITH_USAGE));
    let (last, others) = chunks.split_last().unwrap();
    assert_eq!(last.get("choices"), Some(&Tree::List(Vec::new())));
    assert_eq!(
        last.get("usage").unwrap().to_string(),
        r#"{ "cost": 0.10, "prompt_tokens": 1}"#
    );
    assert!(
        others
            .iter()
            .all(|chunk| chunk.get("usage") == Some(&Tree::null()))
    );
    let without = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}"#;
    assert!(!unfold(without, WITH_USAGE).contains("usage"));
}

#[test]
fn an_event_is_one_line_whatever_the_completion_looks_like() {
    let stream = unfold(
        "{\r\n  \"choices\" : [ {\n\"index\": 0 ,\"message\":{\"role\":\"assistant\",\"content\":\"a\u{2028}b\u{85}c \\\" \\\\ d\"} } ],\n \"x\": [ 1,\r 2 ] }",
        Unfold::default(),
    );
    for event in stream.trim_end().split("\n\n") {
        assert_eq!(event.lines().count(), 1, "{event:?}");
        assert!(!event.contains(['\u{2028}', '\u{85}', '\r']));
    }
    assert!(stream.contains(r#""content":"a\u2028b\u0085c \" \\ d""#));
    assert!(stream.contains(r#""x":[1,2]"#));
}

#[test]
fn what_is_unknown_is_sent_once_with_the_last_finish() {
    let stream = unfold(
        r#"{"w":1,"choices":[{"index":0,"message":{"role":"assistant"},"finish_reason":"stop","x":2},
            {"index":1,"message":{"role":"assistant"},"finish_reason":"stop","text":"y","delta":3}]}"#,
        WITH_USAGE,
    );
    let chunk = |choice: &str, rest: &str| {
        format!("data: {{\"object\":\"chat.completion.chunk\",\"choices\":[{choice}]{rest}}}\n\n")
    };
    let role = |index: u64| {
        format!(r#"{{"index":{index},"delta":{{"role":"assistant"}},"finish_reason":null}}"#)
    };
    let chunks = [
        chunk(&role(0), ""),
        chunk(r#"{"index":0,"delta":{},"finish_reason":"stop","x":2}"#, ""),
        chunk(&role(1), ""),
        chunk(
            r#"{"index":1,"delta":{},"finish_reason":"stop","text":"y"}"#,
            r#","w":1"#,
        ),
    ];
    assert_eq!(stream, chunks.concat() + "data: [DONE]\n\n");
}

#[test]
fn logprobs_go_with_the_text_that_they_are_of() {
    let choice = |message: &str| {
        let completion = format!(
            r#"{{"choices":[{{"index":0,"message":{message},"logprobs":{{"content":[1]}},"finish_reason":"stop"}}]}}"#
        );
        let chunks = payloads(&unfold(&completion, Unfold::default()));
        let logprobs = |chunk: &Tree| match chunk.get("choices") {
            Some(Tree::List(choices)) => choices[0].get("logprobs").unwrap().to_string(),
            _ => panic!("{chunk}"),
        };
        chunks.iter().map(logprobs).collect::<Vec<_>>()
    };
    let said = r#"{ "content": [1]}"#;
    assert_eq!(
        choice(r#"{"role":"assistant","content":"a","reasoning":"r"}"#),
        ["null", "null", said, "null"]
    );
    assert_eq!(
        choice(r#"{"role":"assistant","refusal":"a"}"#),
        ["null", said, "null"]
    );
    assert_eq!(
        choice(r#"{"role":"assistant","content":null}"#),
        ["null", said]
    );
}

#[test]
fn what_is_missing_or_wrong_is_set_right_for_the_client() {
    let stream = unfold(
        r#"{"choices":[{"index":0,"message":{"content":"a","tool_calls":[{"index":-1,"id":"x","function":{"name":"f","arguments":null}}]}},
            {"index":0,"message":null},7]}"#,
        Unfold::default(),
    );
    assert_eq!(
        deltas(&stream),
        [
            r#"{ "content": "", "role": "assistant"}"#,
            r#"{ "content": "a"}"#,
            r#"{ "tool_calls": [{ "function": { "arguments": "", "name": "f"}, "id": "x", "index": 0, "type": "function"}]}"#,
            "{ }",
            r#"{ "role": "assistant"}"#,
            "{ }",
        ]
    );
    assert_eq!(stream.matches("\"index\":1,").count(), 2);
}

#[test]
fn an_error_is_one_event_without_done() {
    for error in [
        r#"{"error": {"message": "no"}}"#,
        r#"{"code": "The model is overloaded", "error": "try later"}"#,
        r#"{"object": "error", "message": "no", "type": "BadRequestError", "code": 400}"#,
    ] {
        let stream = unfold(error, WITH_USAGE);
        let compacted = error.replace(": ", ":").replace(", ", ",");
        assert_eq!(stream, format!("data: {compacted}\n\n"));
    }
    assert!(unfold(r#"{"error":null,"choices":[]}"#, WITH_USAGE).ends_with("[DONE]\n\n"));
}

#[test]
fn what_is_no_completion_is_refused_where_it_shows() {
    let refusal = |text: &str, limits: Limits| {
        let error = unfold_chat(text.as_bytes(), WITH_USAGE, limits).unwrap_err();
        (error.kind, error.offset)
    };
    let limits = Limits::default();
    assert_eq!(refusal(" [1]", limits), (ErrorKind::NotAnObject, 1));
    assert_eq!(refusal("{\"a\":}", limits), (ErrorKind::UnexpectedByte, 5));
    assert_eq!(refusal("{\"a\":1", limits), (ErrorKind::UnexpectedEnd, 6));
    let shallow = Limits {
        max_depth: 2,
        ..limits
    };
    assert_eq!(refusal("{\"a\":[[]]}", shallow), (ErrorKind::TooDeep, 6));
    let small = Limits {
        max_document: 8,
        ..limits
    };
    assert_eq!(
        refusal("{\"a\":1234}", small),
        (ErrorKind::DocumentTooLarge, 8)
    );
}

/// A long member that each chunk repeats, and many chunks: the product is bounded.
#[test]
fn a_stream_grows_no_further_than_a_document_may() {
    let call = r#"{"id":"a","type":"function","function":{"name":"f","arguments":""}}"#;
    let completion = format!(
        r#"{{"model":"{}","choices":[{{"index":0,"message":{{"role":"assistant","tool_calls":[{}]}}}}]}}"#,
        "m".repeat(10_000),
        vec![call; 1_000].join(",")
    );
    let limits = Limits {
        max_document: 1 << 20,
        ..Limits::default()
    };
    let error = unfold_chat(completion.as_bytes(), WITH_USAGE, limits).unwrap_err();
    assert_eq!(error.kind, ErrorKind::DocumentTooLarge);
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = unfold_chat(&text, WITH_USAGE, Limits::default());
    }
}
