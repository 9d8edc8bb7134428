use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

fn folded(chunks: &[&str]) -> String {
    let mut fold = ChatFold::new(Limits::default());
    for chunk in chunks {
        fold.push(chunk.as_bytes()).unwrap();
    }
    String::from_utf8(fold.finish().unwrap()).unwrap()
}

fn fold_json(chunks: &[Json]) -> Json {
    let chunks: Vec<String> = chunks.iter().map(Json::to_string).collect();
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    serde_json::from_str(&folded(&chunks)).unwrap()
}

// === the completion ===

#[test]
fn the_object_is_named_whatever_the_chunks_say() {
    for object in [
        json!("chat.completion.chunk"),
        json!("chat.completion.done"),
        json!(""),
        json!(null),
    ] {
        let whole = fold_json(&[json!({"object": object, "choices": []})]);
        assert_eq!(whole, json!({"object": "chat.completion", "choices": []}));
    }
    let whole = fold_json(&[json!({"choices": [{"index": 0, "delta": {}}]})]);
    assert_eq!(whole["object"], "chat.completion");
}

#[test]
fn the_first_chunk_that_has_id_model_and_time_gives_them() {
    let whole = fold_json(&[
        json!({"id": "", "created": 0, "model": "", "object": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}),
        json!({"id": "a", "created": 7, "model": "m", "choices": [], "system_fingerprint": "fp"}),
        json!({"id": "b", "created": 8, "model": "n", "choices": [], "system_fingerprint": null}),
    ]);
    assert_eq!(
        whole,
        json!({"id": "a", "created": 7, "model": "m", "object": "chat.completion", "choices": [],
            "prompt_filter_results": [{"prompt_index": 0}], "system_fingerprint": "fp"})
    );
    let never = fold_json(&[
        json!({"id": "", "choices": []}),
        json!({"id": "", "choices": []}),
    ]);
    assert_eq!(never["id"], "");
}

#[test]
fn usage_is_the_last_one_that_is_no_null() {
    let usage = |values: &[&str]| {
        let chunks: Vec<String> = values
            .iter()
            .map(|usage| format!(r#"{{"choices":[],"usage":{usage}}}"#))
            .collect();
        folded(&chunks.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let exact = r#"{"prompt_tokens":12,"cost":0.000123000,"ticks":37756000000000000000001}"#;
    let whole = format!(r#"{{"object":"chat.completion","choices":[],"usage":{exact}}}"#);
    assert_eq!(
        usage(&["null", r#"{"prompt_tokens":1}"#, exact, "null"]),
        whole
    );
    assert_eq!(usage(&[exact, "{}"]), whole);
    assert!(usage(&["null", "null"]).ends_with(r#""usage":null}"#));
    assert!(usage(&["{}", "null"]).ends_with(r#""usage":{}}"#));
}

#[test]
fn unknown_members_are_kept_on_every_level_as_they_are_spelled() {
    let whole = folded(&[
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","z":1.50},"x":{"a": 1e400}}],"timings":{"n":1},"w":"a"}"#,
        r#"{"choices":[{"index":0,"delta":{"z":2.50},"x":{}}],"timings":null,"w":"b"}"#,
    ]);
    assert_eq!(
        whole,
        r#"{"choices":[{"index":0,"message":{"role":"assistant","z":2.50},"x":{"a": 1e400}}],"timings":{"n":1},"w":"b","object":"chat.completion"}"#
            .replacen(r#"{"choices""#, r#"{"object":"chat.completion","choices""#, 1)
            .replacen(r#","object":"chat.completion"}"#, "}", 1)
    );
}

#[test]
fn padding_is_left_out() {
    let whole = folded(&[r#"{"choices":[],"obfuscation":"aXw"}"#]);
    assert_eq!(whole, r#"{"object":"chat.completion","choices":[]}"#);
}

#[test]
fn text_completions_have_their_own_form() {
    let whole = fold_json(&[
        json!({"object": "text_completion", "choices": [{"index": 0, "text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [-1], "text_offset": [0]}}]}),
        json!({"object": "text_completion", "choices": [{"index": 0, "text": "b", "logprobs": {"tokens": ["b"], "token_logprobs": [-2], "text_offset": [1]}}]}),
        json!({"object": "text_completion", "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}),
    ]);
    assert_eq!(
        whole,
        json!({"object": "text_completion", "choices": [{"index": 0, "text": "ab", "finish_reason": "stop",
            "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-1, -2], "text_offset": [0, 1]}}]})
    );
    let unnamed = fold_json(&[json!({"choices": [{"index": 0, "text": "a"}]})]);
    assert_eq!(unnamed["object"], "text_completion");
}

#[test]
fn spelling_and_split_surrogate_pairs_survive() {
    let whole = folded(&[
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"\u00e9\ud83d"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"c\u006fntent":"\ude00\/"}}]}"#,
    ]);
    assert!(whole.contains(r#""content":"\u00e9\ud83d\ude00\/""#));
    let whole: Json = serde_json::from_str(&whole).unwrap();
    assert_eq!(whole["choices"][0]["message"]["content"], "é😀/");
}

#[test]
fn bytes_that_are_not_utf8_become_replacement_characters() {
    let mut fold = ChatFold::new(Limits::default());
    fold.push(b"{\"choices\":[{\"delta\":{\"content\":\"a\xc3\"}}]}")
        .unwrap();
    fold.push(b"{\"choices\":[{\"delta\":{\"content\":\"\xa9b\"}}]}")
        .unwrap();
    let whole = String::from_utf8(fold.finish().unwrap()).unwrap();
    assert!(whole.contains("a\u{fffd}\u{fffd}b"));
}

#[test]
fn a_completion_in_one_event_is_itself() {
    let completion = json!({"id": "c", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "tool_calls", "message":
        {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}}]});
    assert_eq!(fold_json(std::slice::from_ref(&completion)), completion);
    assert_eq!(
        fold_json(&[completion.clone(), completion.clone()]),
        completion
    );
}

#[test]
fn choices_without_an_index_are_told_apart_by_their_place() {
    let whole = fold_json(&[
        json!({"choices": [{"delta": {"content": "a"}}, {"index": null, "delta": {"content": "b"}}]}),
        json!({"choices": [{"delta": {"content": "A"}}, {"index": "1", "delta": {"content": "B"}}, null]}),
    ]);
    let contents = [0, 1].map(|i| whole["choices"][i]["message"]["content"].clone());
    assert_eq!(contents, ["aA", "bB"]);
    assert_eq!(whole["choices"][1]["index"], 1);
}

// === refusals ===

#[test]
fn what_is_no_chunk_leaves_the_fold_as_it_was() {
    let mut fold = ChatFold::new(Limits {
        max_depth: 8,
        ..Limits::default()
    });
    fold.push(br#"{"choices":[{"delta":{"content":"a"}}]}"#)
        .unwrap();
    let deep = format!("{{\"choices\":{}{}}}", "[".repeat(8), "]".repeat(8));
    for (payload, kind, offset) in [
        (": keepalive", ErrorKind::UnexpectedByte, 0),
        (
            "{\"choices\":[{\"delta\":{\"content\":\"b\"}}]",
            ErrorKind::UnexpectedEnd,
            38,
        ),
        ("{\"choices\":[]} {}", ErrorKind::TrailingBytes, 15),
        ("[1]", ErrorKind::NotAnObject, 0),
        (&deep, ErrorKind::TooDeep, 18),
    ] {
        assert_eq!(
            fold.push(payload.as_bytes()),
            Err(Error::new(kind, offset)),
            "{payload}"
        );
    }
    for nothing in [
        "",
        "  ",
        "[DONE]",
        " [DONE] ",
        "{}",
        r#"{"type":"agentic_tool_call_progress","tool":"t"}"#,
    ] {
        assert_eq!(fold.push(nothing.as_bytes()), Ok(()));
    }
    assert!(fold.error().is_none());
    fold.push(br#"{"choices":[{"delta":{"content":"c"}}]}"#)
        .unwrap();
    let whole: Json = serde_json::from_slice(&fold.finish().unwrap()).unwrap();
    assert_eq!(whole["choices"][0]["message"]["content"], "ac");
    assert_eq!(whole.as_object().unwrap().len(), 2);
}

#[test]
fn an_error_in_the_stream_is_reported_and_stays() {
    for (payload, error) in [
        (
            r#"{"error":{"message":"m","code":500}}"#,
            r#"{"message":"m","code":500}"#,
        ),
        (r#"{"error":"Overloaded"}"#, r#""Overloaded""#),
        (
            r#"{"id":"x","choices":[{"delta":{},"finish_reason":"error"}],"error":{"code":502}}"#,
            r#"{"code":502}"#,
        ),
        (
            r#"{"message":"m","type":"t","param":null,"code":"c"}"#,
            r#"{"message":"m","type":"t","param":null,"code":"c"}"#,
        ),
        (
            r#"{"object":"error","message":""}"#,
            r#"{"object":"error","message":""}"#,
        ),
    ] {
        let mut fold = ChatFold::new(Limits::default());
        fold.push(br#"{"choices":[{"delta":{"content":"a"}}],"error":null}"#)
            .unwrap();
        let offset = payload.find(error).unwrap() as u64;
        let expected = Error::new(ErrorKind::ReportedError, offset);
        assert_eq!(fold.push(payload.as_bytes()), Err(expected));
        assert_eq!(fold.error(), Some(error.as_bytes()));
        assert_eq!(fold.push(br#"{"choices":[]}"#), Err(expected));
        assert_eq!(fold.finish(), Err(expected));
    }
}

#[test]
fn without_a_chunk_there_is_no_completion() {
    let none = Err(Error::new(ErrorKind::NoCompletion, 0));
    assert_eq!(ChatFold::new(Limits::default()).finish(), none);
    assert_eq!(
        fold_chat(b": ping\n\ndata: [DONE]\n\n", Limits::default()),
        none
    );
}

/// Small values cost more than their text: the bound is on memory.
#[test]
fn what_is_held_is_bounded() {
    let limits = Limits {
        max_document: 100_000,
        ..Limits::default()
    };
    for chunk in [
        format!(
            r#"{{"choices":[{{"delta":{{"content":"{}"}}}}]}}"#,
            "x".repeat(1_000)
        ),
        r#"{"choices":[{"delta":{"reasoning_details":[1,1,1,1]}}]}"#.to_owned(),
        r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f"}}]}}]}"#.to_owned(),
    ] {
        let mut fold = ChatFold::new(limits);
        let pushed = (0..10_000)
            .take_while(|_| fold.push(chunk.as_bytes()).is_ok())
            .count();
        assert!((50..1_000).contains(&pushed), "{pushed} {chunk}");
        assert_eq!(
            fold.finish(),
            Err(Error::new(ErrorKind::DocumentTooLarge, 0))
        );
    }
    // Nor does one chunk get past it.
    for piece in [
        r#"{"delta":{"reasoning_details":[REPEAT]}}"#,
        r#"{"delta":{"tool_calls":[REPEAT]}}"#,
        "REPEAT",
    ] {
        let repeated = vec![r#"{"function":{"name":"f"}}"#; 50_000].join(",");
        let chunk = format!(r#"{{"choices":[{piece}]}}"#).replace("REPEAT", &repeated);
        let mut fold = ChatFold::new(limits);
        let too_large = Error::new(ErrorKind::DocumentTooLarge, 0);
        assert_eq!(fold.push(chunk.as_bytes()), Err(too_large));
        assert!(fold.held < limits.max_document + 1_000, "{piece}");
    }
    // What is said again costs nothing.
    let mut fold = ChatFold::new(limits);
    let chunk = format!(
        r#"{{"id":"c","choices":[{{"message":{{"content":"a"}}}}],"citations":["{}"]}}"#,
        "x".repeat(1_000)
    );
    for _ in 0..10_000 {
        fold.push(chunk.as_bytes()).unwrap();
    }
    assert!(fold.finish().is_ok());
}

// === whole streams ===

const A: &str = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"a"}}]}"#;
const B: &str = r#"data: {"choices":[{"index":0,"delta":{"content":"b"}}]}"#;
const AB: &[u8] = br#"{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"ab"}}]}"#;

#[test]
fn streams_are_read_in_every_framing() {
    for stream in [
        format!("{A}\n\n{B}\n\ndata: [DONE]\n\n"),
        format!("\u{feff}{A}\r\n\r\n: ping\r\n\r\n{B} \r\n\r\ndata: [DONE]"),
        format!("{A}\r\r{B}"),
        format!("event: x\nid: 1\n{A}\n\ndata: [DONE]\n\n{B}\n\ndata: [DONE]\n\n"),
        format!(
            "{A}\n\ndata:\n\ndata: : keepalive\n\n{}\n\n",
            B.replace(",\"delta\"", "\ndata: ,\"delta\"")
        ),
    ] {
        assert_eq!(
            fold_chat(stream.as_bytes(), Limits::default()).as_deref(),
            Ok(AB),
            "{stream:?}"
        );
    }
}

#[test]
fn faults_of_a_stream_are_placed_in_the_stream() {
    let fault = |stream: &str, limits: Limits| fold_chat(stream.as_bytes(), limits).unwrap_err();
    let limits = Limits::default();
    let at = A.len() as u64 + 2;
    let reported = fault(
        &format!("{A}\n\ndata: {{\"error\":{{\"code\":1}}}}\n\n"),
        limits,
    );
    assert_eq!(reported, Error::new(ErrorKind::ReportedError, at + 15));
    let field = fault(
        &format!("{A}\n\nerror: {{\"code\":1}}\n\ndata: [DONE]\n\n"),
        limits,
    );
    assert_eq!(field, Error::new(ErrorKind::ReportedError, at));
    let garbage = fault("data: {}\n\ndata: {\n\ndata: x\n\n", limits);
    assert_eq!(garbage, Error::new(ErrorKind::UnexpectedEnd, 17));
    let small = Limits {
        max_event: A.len() + 2,
        ..limits
    };
    let large = fault(&format!("{A}\n\n{A} \n\n"), small);
    assert_eq!(large, Error::new(ErrorKind::EventTooLarge, at * 2));
}

proptest! {
    #[test]
    fn no_payload_makes_it_panic(payloads in prop::collection::vec(payload(), 0..6)) {
        let mut fold = ChatFold::new(Limits::default());
        for payload in payloads {
            let _ = fold.push(&payload);
        }
        if let Ok(whole) = fold.finish() {
            prop_assert!(scan::document(&whole, scan::MAX_DEPTH).is_ok(), "{:?}", String::from_utf8_lossy(&whole));
        }
    }
}

/// Chunks in which any member may be anything, and anything else.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    use crate::protocols::chat::tree::{Tree, any_tree};
    let keys = "choices|delta|message|index|content|reasoning|reasoning_details|type|text|thinking|tool_calls|id|function|name|arguments|custom|input|logprobs|usage|finish_reason|role|audio|object|e";
    let chunk = any_tree().prop_recursive(7, 40, 5, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..3).prop_map(Tree::List),
            3 => prop::collection::btree_map(keys, inner, 0..5).prop_map(Tree::Object),
        ]
    });
    let choice = prop::collection::btree_map("delta|message|index|text", chunk.clone(), 0..3)
        .prop_map(Tree::Object);
    prop_oneof![
        4 => prop::collection::vec(choice, 0..3).prop_map(|choices| Tree::object([("choices", Tree::List(choices))]).to_string().into_bytes()),
        2 => chunk.prop_map(|chunk| chunk.to_string().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}
