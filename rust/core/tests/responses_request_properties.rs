//! What holds for every request: no panic, valid JSON, texts as they were spelled.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what fails here fails the test"
)]

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluicegate_core::input::{Refusal, Written};
use sluicegate_core::limits::Limits;
use sluicegate_core::protocols::chat::request::{self as chat_requests, ChatTarget};
use sluicegate_core::protocols::responses::conversation::{Page, Turn, page, repeated};
use sluicegate_core::protocols::responses::echo::Echo;
use sluicegate_core::protocols::responses::request::{
    self as requests, ResponsesRequest, ResponsesTarget,
};
use sluicegate_core::request::Request;

fn parse(body: impl Into<Bytes>) -> ResponsesRequest {
    ResponsesRequest::parse(body.into(), &Limits::default()).unwrap()
}

fn to_chat(request: &ResponsesRequest) -> Result<Written, Refusal> {
    let conversation = requests::read_request(request.request())?;
    chat_requests::write_request(&conversation, &ChatTarget::default())
}

fn from_chat(request: &Request, target: &ResponsesTarget) -> Result<Written, Refusal> {
    requests::write_request(&chat_requests::read_request(request)?, target)
}

fn chat(body: impl Into<Bytes>) -> String {
    let chat = to_chat(&parse(body)).unwrap();
    String::from_utf8(chat.body.to_vec()).unwrap()
}

#[test]
fn numbers_texts_and_schemas_are_copied_as_they_are_spelled() {
    let schema = r#"{ "b": 1.0, "a": 1e400, "caf\u00e9": 12345678901234567890123 }"#;
    let body = format!(
        r#"{{"model":"m","temperature":0.50,"seed":1E3,"input":[{{"role":"user","content":"\u00e9\ud83d\/\n"}},
        {{"type":"custom_tool_call","call_id":"c","name":"\u0066","input":"\\ \" \u00e9 \t"}}],
        "tools":[{{"type":"function","name":"f","parameters":{schema}}}],
        "text":{{"format":{{"type":"json_schema","name":"n","schema":{schema}}}}}}}"#
    );
    let chat = chat(body);
    for spelled in [
        r#""temperature":0.50"#,
        r#""seed":1E3"#,
        r#""content":"\u00e9\ud83d\/\n""#,
        r#""name":"\u0066","arguments":"{\"input\":\"\\\\ \\\" \\u00e9 \\t\"}""#,
        &format!(r#""parameters":{schema}"#),
        &format!(r#""schema":{schema}"#),
    ] {
        assert!(chat.contains(spelled), "{spelled} in {chat}");
    }
}

#[test]
fn of_several_members_of_one_name_the_last_counts() {
    let chat =
        chat(r#"{"input":"a","temperature":1,"input":"b","temperature":0,"\u0069nput":"c"}"#);
    assert_eq!(
        chat,
        r#"{"messages":[{"role":"user","content":"c"}],"temperature":0}"#
    );
}

#[test]
fn tools_are_bounded_in_number() {
    let tools = vec![r#"{"type":"function","name":"f"}"#; 4097];
    let body = |count: usize| format!(r#"{{"input":"a","tools":[{}]}}"#, tools[..count].join(","));
    assert!(to_chat(&parse(body(4096))).is_ok());
    let refusal = to_chat(&parse(body(4097))).unwrap_err();
    assert_eq!(&*refusal.param, "tools[4096]");
}

#[test]
fn tools_in_the_input_are_never_passed_over() {
    let body = r#"{"input":[{"type":"additional\u005ftools","tools":[]}]}"#;
    let refusal = to_chat(&parse(body)).unwrap_err();
    assert_eq!(&*refusal.param, "input[0].type");
}

// === properties ===

fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[ -~]{0,12}", Just(String::new())]
}

fn part() -> impl Strategy<Value = Value> {
    prop_oneof![
        text().prop_map(|text| json!({"type": "input_text", "text": text})),
        text().prop_map(|url| json!({"type": "input_image", "image_url": url, "detail": "low"})),
    ]
}

fn item() -> impl Strategy<Value = Value> {
    let role = prop::sample::select(vec!["user", "system", "developer"]);
    prop_oneof![
        (role, proptest::collection::vec(part(), 0..4))
            .prop_map(|(role, parts)| json!({"role": role, "content": parts})),
        text().prop_map(|text| json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})),
        text().prop_map(|text| json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": format!("{{\"a\":{}}}", json!(text))})),
        text().prop_map(|text| json!({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": text})),
        text().prop_map(|text| json!({"type": "function_call_output", "call_id": "c", "output": text})),
        text().prop_map(|text| json!({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]})),
    ]
}

fn body() -> impl Strategy<Value = Value> {
    (proptest::collection::vec(item(), 0..8), text()).prop_map(|(input, instructions)| {
        json!({"model": "m", "input": input, "instructions": instructions,
            "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}, {"type": "web_search"}],
            "tool_choice": "auto", "text": {"format": {"type": "json_object"}}, "top_logprobs": 2, "max_output_tokens": 5})
    })
}

/// All strings in a value, those in texts that are JSON included.
fn strings(value: &Value, found: &mut String) {
    match value {
        Value::String(text) => {
            match serde_json::from_str::<Value>(text) {
                Ok(inner @ Value::Object(_)) => strings(&inner, found),
                _ => found.push_str(text),
            }
            found.push('\u{1}');
        }
        Value::Array(elements) => elements.iter().for_each(|it| strings(it, found)),
        Value::Object(members) => members.values().for_each(|it| strings(it, found)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn every_text_arrives(body in body()) {
        let chat: Value = serde_json::from_str(&chat(body.to_string())).unwrap();
        let mut arrived = String::new();
        strings(&chat["messages"], &mut arrived);
        let input = body["input"].as_array().unwrap();
        for (index, item) in input.iter().enumerate() {
            let mut sent = String::new();
            for name in ["content", "arguments", "input", "output"] {
                strings(&item[name], &mut sent);
            }
            // Reasoning goes with what follows it, if the model's turn goes on.
            let goes_on = input[index..].iter().find(|it| it["type"] != "reasoning").is_some_and(|it| {
                matches!(it["type"].as_str(), Some("message" | "function_call" | "custom_tool_call"))
            });
            if item["type"] == "reasoning" && !goes_on {
                continue;
            }
            for text in sent.split('\u{1}').filter(|it| !["input_text", "input_image", "output_text", "reasoning_text"].contains(it)) {
                prop_assert!(arrived.contains(text), "{text:?} of {item} in {chat}");
            }
        }
    }

    #[test]
    fn messages_alternate_as_upstreams_want_them(body in body()) {
        let chat: Value = serde_json::from_str(&chat(body.to_string())).unwrap();
        let messages = chat["messages"].as_array().unwrap();
        for (index, message) in messages.iter().enumerate() {
            let calls = message["tool_calls"].as_array().map_or(0, Vec::len);
            prop_assert!(message["role"] != "assistant" || calls > 0 || message["content"].is_string());
            if index > 0 && message["role"] == "assistant" && messages[index - 1]["role"] == "assistant" {
                prop_assert!(messages[index - 1].get("tool_calls").is_none(), "outputs must follow calls: {chat}");
            }
        }
    }

    #[test]
    fn damage_is_an_error_or_a_refusal_and_never_a_panic(body in body(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut text = body.to_string().into_bytes();
        let at = at.index(text.len());
        if cut {
            text.truncate(at);
        } else {
            text[at] = byte;
        }
        if let Ok(request) = ResponsesRequest::parse(text.into(), &Limits::default()) {
            if let Ok(chat) = to_chat(&request) {
                prop_assert!(serde_json::from_slice::<Value>(&chat.body).is_ok());
            }
            check_rest(&request);
        }
    }

    #[test]
    fn values_of_any_type_in_any_place_are_answered(swaps in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..4), body in body()) {
        let mut body = body;
        let junk = [json!(null), json!(5), json!("x"), json!([]), json!({}), json!(true), json!([{"type": "message"}]), json!({"type": "function"})];
        for (place, value) in swaps {
            let mut places = Vec::new();
            pointers(&body, String::new(), &mut places);
            let place = place.get(&places);
            *body.pointer_mut(place).unwrap() = value.get(&junk).clone();
        }
        if let Ok(request) = ResponsesRequest::parse(body.to_string().into(), &Limits::default()) {
            if let Ok(chat) = to_chat(&request) {
                prop_assert!(serde_json::from_slice::<Value>(&chat.body).is_ok());
            }
            check_rest(&request);
        }
    }
}

fn check_rest(request: &ResponsesRequest) {
    let echo = Echo::of(request, "resp_1", 0);
    let members = format!("{{{}}}", String::from_utf8_lossy(&echo.members));
    assert!(serde_json::from_str::<Value>(&members).is_ok(), "{members}");
    let turn = Turn {
        id: "resp_1",
        request: request.body(),
        response: request.body(),
    };
    let asked = Page {
        ascending: false,
        after: None,
        limit: 100,
    };
    let list = page(&[turn], &asked).unwrap();
    assert!(serde_json::from_slice::<Value>(&list).is_ok());
    let repeated = [b"[", &repeated(&[turn])[..], b"]"].concat();
    assert!(serde_json::from_slice::<Value>(&repeated).is_ok());
    assert!(serde_json::from_slice::<Value>(&request.as_run()).is_ok());
    let prefixed =
        request.with_input_prefix(&[Bytes::from_static(b"{}")], &Limits::default(), |body| {
            body
        });
    let prefixed = prefixed.unwrap();
    assert!(serde_json::from_slice::<Value>(prefixed.body()).is_ok());
}

fn pointers(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                pointers(element, format!("{at}/{index}"), found);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                pointers(member, format!("{at}/{name}"), found);
            }
        }
        _ => {}
    }
    if !at.is_empty() {
        found.push(at);
    }
}

// === the other way ===

fn message() -> impl Strategy<Value = Value> {
    let call = |id: &str, text: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": json!({"a": text}).to_string()}});
    let one = "[ -~é]{1,12}";
    prop_oneof![
        one.prop_map(|text| json!([{"role": "user", "content": text}])),
        (one, one).prop_map(|(text, url)| json!([{"role": "user", "content": [
            {"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url, "detail": "low"}}]}])),
        (one, one).prop_map(|(text, next)| json!([{"role": "assistant", "content": text}, {"role": "user", "content": next}])),
        (one, one, one).prop_map(move |(text, a, output)| json!([
            {"role": "assistant", "content": text, "tool_calls": [call("c1", &a), call("c2", &text)]},
            {"role": "tool", "tool_call_id": "c1", "content": output}, {"role": "tool", "tool_call_id": "c2", "content": a}])),
        (one, one).prop_map(move |(a, output)| json!([
            {"role": "assistant", "content": null, "tool_calls": [call("c3", &a)]},
            {"role": "tool", "tool_call_id": "c3", "content": output}])),
        (one, one).prop_map(move |(text, reasoning)| json!([
            {"role": "assistant", "content": text, "reasoning_content": reasoning}, {"role": "user", "content": text}])),
    ]
}

fn chat_body() -> impl Strategy<Value = Value> {
    let system = proptest::option::of("[ -~]{1,9}");
    let messages = proptest::collection::vec(message(), 1..6);
    (system, messages).prop_map(|(system, groups)| {
        let system = system.map(|text| json!({"role": "system", "content": text}));
        let groups = groups.into_iter().flat_map(|group| group.as_array().cloned().unwrap());
        let messages: Vec<Value> = system.into_iter().chain(groups).collect();
        let parameters = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let tool = json!({"type": "function", "function": {"name": "f", "description": "d", "parameters": parameters, "strict": false}});
        json!({"model": "m", "messages": messages, "tools": [tool], "tool_choice": "auto", "max_tokens": 5, "temperature": 0.5,
            "top_logprobs": 2, "logprobs": true, "reasoning_effort": "low", "verbosity": "low", "top_k": 3,
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}})
    })
}

proptest! {
    #[test]
    fn there_and_back_is_the_same_request(body in chat_body()) {
        let target = ResponsesTarget { takes_reasoning: true };
        let request = Request::parse(body.to_string().into(), &Limits::default()).unwrap();
        let there = from_chat(&request, &target).unwrap();
        prop_assert!(there.left_out.is_empty());
        let back: Value = serde_json::from_str(&chat(there.body)).unwrap();
        prop_assert_eq!(back, body);
    }

    #[test]
    fn chat_requests_of_any_shape_are_answered(swaps in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..4), body in chat_body()) {
        let mut body = body;
        let junk = [json!(null), json!(5), json!("x"), json!([]), json!({}), json!(true), json!([{"role": "user"}])];
        for (place, value) in swaps {
            let mut places = Vec::new();
            pointers(&body, String::new(), &mut places);
            let place = place.get(&places);
            *body.pointer_mut(place).unwrap() = value.get(&junk).clone();
        }
        let request = Request::parse(body.to_string().into(), &Limits::default());
        if let Ok(there) = request.map(|request| from_chat(&request, &ResponsesTarget::default()))
            && let Ok(there) = there
        {
            prop_assert!(serde_json::from_slice::<Value>(&there.body).is_ok());
        }
    }
}
