//! The input of a request as items, and earlier items in front of it.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use bytes::Bytes;
use serde_json::{Value, json};
use sluicegate_core::error::ErrorKind;
use sluicegate_core::limits::Limits;
use sluicegate_core::request::affinity::of_key;
use sluicegate_core::responses::request::ResponsesRequest;
use sluicegate_core::responses::request::to_chat::ChatTarget;

fn parse(body: &str) -> ResponsesRequest {
    ResponsesRequest::parse(Bytes::from(body.to_owned()), &Limits::default()).unwrap()
}

fn items(body: &Value) -> Vec<Value> {
    let items = parse(&body.to_string()).input_items("7a").unwrap();
    items
        .iter()
        .map(|item| serde_json::from_slice(item).unwrap())
        .collect()
}

#[test]
fn a_string_is_a_message_of_the_user() {
    let text = json!([{"type": "input_text", "text": "Hi"}]);
    let message = json!({"type": "message", "role": "user", "content": text, "id": "msg_7ai0", "status": "completed"});
    assert_eq!(items(&json!({"input": "Hi"})), [message]);
    assert!(items(&json!({})).is_empty());
}

#[test]
fn items_get_what_they_lack_and_keep_what_they_have() {
    let found = items(&json!({"input": [
        {"role": "user", "content": "Hi", "id": null},
        {"role": "assistant", "content": "Hello", "type": null},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "?"}], "id": "msg_own", "status": "in_progress", "x": 1},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "1", "status": null},
        {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": ""},
        {"type": "custom_tool_call_output", "call_id": "d", "output": ""},
        {"type": "reasoning", "summary": []},
        {"type": "acme:thing"},
        {"id": "msg_0"},
    ]}));
    let done = "completed";
    let expected = [
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}], "id": "msg_7ai0", "status": done}),
        json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello", "annotations": []}], "id": "msg_7ai1", "status": done}),
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "?"}], "id": "msg_own", "status": "in_progress", "x": 1}),
        json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "fc_7ai3", "status": done}),
        json!({"type": "function_call_output", "call_id": "c", "output": "1", "id": "fco_7ai4", "status": done}),
        json!({"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "", "id": "ctc_7ai5", "status": done}),
        json!({"type": "custom_tool_call_output", "call_id": "d", "output": "", "id": "ctco_7ai6", "status": done}),
        json!({"type": "reasoning", "summary": [], "id": "rs_7ai7"}),
        json!({"type": "acme:thing", "id": "item_7ai8"}),
        json!({"id": "msg_0"}),
    ];
    assert_eq!(found, expected);
}

#[test]
fn an_input_that_is_no_list_of_objects_is_refused() {
    for (body, param) in [
        (r#"{"input":5}"#, "input"),
        (r#"{"input":[{},5]}"#, "input[1]"),
    ] {
        let refusal = parse(body).input_items("").unwrap_err();
        assert_eq!(&*refusal.param, param);
    }
}

#[test]
fn earlier_items_come_first_and_all_else_stays() {
    let earlier = [
        Bytes::from_static(br#"{"type":"message","role":"user","content":"Hi"}"#),
        Bytes::from_static(br#"{"type":"message","role":"assistant","content":"Hello"}"#),
    ];
    let expected = r#""input":[{"type":"message","role":"user","content":"Hi"},{"type":"message","role":"assistant","content":"Hello"},"#;
    for (input, added) in [
        (
            r#""\u00e9""#,
            r#"{"type":"message","role":"user","content":"\u00e9"}"#,
        ),
        (
            r#"[ {"role":"user","content":1.50} ]"#,
            r#"{"role":"user","content":1.50}"#,
        ),
    ] {
        let body = format!(
            r#"{{"model":"m", "previous_response_id":"resp_0","input":{input} ,"temperature":0.50,"x":{{}}}}"#
        );
        let request = parse(&body)
            .with_input_prefix(&earlier, &Limits::default())
            .unwrap();
        let expected = format!(r#"{{"model":"m","temperature":0.50,"x":{{}},{expected}{added}]}}"#);
        assert_eq!(request.body(), &expected);
        assert_eq!(request.previous_response_id(), Some("resp_0"));
        assert_eq!(request.model(), Some("m"));
    }
    let request = parse(r#"{"input":"?","previous_response_id":"resp_0"}"#);
    let request = request
        .with_input_prefix(&earlier, &Limits::default())
        .unwrap();
    let chat = request.to_chat(&ChatTarget::default()).unwrap();
    assert_eq!(
        chat.body,
        r#"{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"},{"role":"user","content":"?"}]}"#
    );
}

#[test]
fn a_continued_conversation_is_known_by_its_first_turn() {
    let first = parse(r#"{"model":"m","instructions":"Be brief.","input":"Hi \u00e9"}"#);
    let next = parse(
        r#"{"model":"m","instructions":"Be brief.","input":"More","previous_response_id":"resp_1"}"#,
    );
    assert!(first.affinity().is_some());
    assert_ne!(next.affinity(), first.affinity());
    let mut items = first.input_items("7a").unwrap();
    items.push(Bytes::from_static(
        br#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Yes?"}]}"#,
    ));
    let continued = next.with_input_prefix(&items, &Limits::default()).unwrap();
    assert_eq!(continued.affinity(), first.affinity());
    let keyed = parse(r#"{"model":"m","input":"Hi","prompt_cache_key":"k"}"#);
    assert_eq!(keyed.affinity(), Some(of_key(b"k")));
    assert_eq!(parse(r#"{"model":"m"}"#).affinity(), None);
    let without_a_message = r#"{"input":[{"type":"function_call_output","output":"1"}]}"#;
    assert_eq!(parse(without_a_message).affinity(), None);
}

#[test]
fn what_routing_and_keeping_depend_on_is_read() {
    let request = parse(
        r#"{"model":"m","stream":true,"background":true,"store":false,"previous_response_id":"resp_\u0031"}"#,
    );
    assert_eq!(request.model(), Some("m"));
    assert!(request.stream() && request.background() && !request.store());
    assert_eq!(request.previous_response_id(), Some("resp_1"));
    let request =
        parse(r#"{"stream":null,"background":null,"store":null,"previous_response_id":null}"#);
    assert!(!request.stream() && !request.background() && request.store());
    assert_eq!(request.previous_response_id(), None);
    for body in [
        r#"{"store":1}"#,
        r#"{"background":"yes"}"#,
        r#"{"previous_response_id":5}"#,
        r#"{"stream":[]}"#,
    ] {
        let error = ResponsesRequest::parse(body.into(), &Limits::default()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::WrongType, "{body}");
    }
    for body in ["[]", "5", "{", "", "{\"input\":\"\\x\"}"] {
        assert!(ResponsesRequest::parse(body.into(), &Limits::default()).is_err());
    }
}

#[test]
fn size_and_depth_are_bounded() {
    let limits = Limits {
        max_document: 40,
        max_depth: 3,
        ..Limits::default()
    };
    let parse = |body: &'static str| ResponsesRequest::parse(body.into(), &limits);
    let error = parse(r#"{"input":[{"content":[]}]}"#).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooDeep);
    let request = parse(r#"{"input":"0123456789"}"#).unwrap();
    let item = Bytes::from_static(br#"{"role":"user","content":"a"}"#);
    let error = request.with_input_prefix(&[item], &limits).unwrap_err();
    assert_eq!(error.kind, ErrorKind::DocumentTooLarge);
}

#[test]
fn an_id_that_is_no_text_is_told_by_its_place() {
    for body in [
        r#"{"input":"\ud800"}"#,
        r#"{"input":[{"role":"user","content":"\ud800"}]}"#,
        r#"{"input":[{"id":"msg_\ud83d\ude00"},{"id":5},"\ud800"],"previous_response_id":"\u0041"}"#,
        r#"{"input":{"id":"\ud800"}}"#,
        r#"{"input":[],"previous_response_id":null,"x":"\u0000"}"#,
    ] {
        assert_eq!(parse(body).unstorable(), None, "{body}");
    }
    for (body, place) in [
        (
            r#"{"input":[{"type":"message","id":"\ud800","role":"user","content":"x"}]}"#,
            "input[0].id",
        ),
        (
            r#"{"input":[{"id":"msg_1"},{"id":"msg\u0000"}]}"#,
            "input[1].id",
        ),
        (
            r#"{"input":[{"id":"\udc00","\u0069d":"msg_1"}]}"#,
            "input[0].id",
        ),
        (
            r#"{"previous_response_id":"resp_\u0000","input":[{"id":"\ud800"}]}"#,
            "previous_response_id",
        ),
    ] {
        assert_eq!(parse(body).unstorable(), Some(place), "{body}");
    }
}
