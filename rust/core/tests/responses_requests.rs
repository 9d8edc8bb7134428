//! The cases of `tests/corpus/responses_requests`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what fails here fails the test"
)]

use bytes::Bytes;
use serde_json::{Value, json};
use sluicegate_core::limits::Limits;
use sluicegate_core::protocols::chat::request::{
    self as chat_requests, ChatTarget, InstructionsRole, ReasoningField,
};
use sluicegate_core::protocols::responses::request::{
    self as requests, ResponsesRequest, ResponsesTarget,
};
use sluicegate_core::request::Request;

fn cases(name: &str) -> Vec<Value> {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/corpus/responses_requests"
    );
    serde_json::from_slice(&std::fs::read(format!("{folder}/{name}.json")).unwrap()).unwrap()
}

fn target(case: &Value) -> ChatTarget {
    let target = &case["target"];
    ChatTarget {
        instructions_role: match target["instructions_role"].as_str() {
            None => InstructionsRole::default(),
            Some("developer") => InstructionsRole::Developer,
            Some(other) => panic!("{other}"),
        },
        reasoning: match target["reasoning"].as_str() {
            None => ReasoningField::default(),
            Some("reasoning") => ReasoningField::Reasoning,
            Some("none") => ReasoningField::None,
            Some(other) => panic!("{other}"),
        },
        ..ChatTarget::default()
    }
}

fn left_out(case: &Value) -> Value {
    case.get("left_out").cloned().unwrap_or_else(|| json!([]))
}

#[test]
fn chat_requests_become_requests_for_a_response() {
    let cases = cases("from_chat");
    assert!(cases.len() > 60);
    for case in cases {
        let name = &case["name"];
        let target = ResponsesTarget {
            takes_reasoning: case["target"]["takes_reasoning"] == true,
        };
        let pretty = serde_json::to_string_pretty(&case["request"]).unwrap();
        for body in [case["request"].to_string(), pretty] {
            let request = Request::parse(Bytes::from(body), &Limits::default()).unwrap();
            let read = chat_requests::read_request(&request);
            match read.and_then(|it| requests::write_request(&it, &target)) {
                Ok(response) => {
                    let body: Value = serde_json::from_slice(&response.body).unwrap();
                    assert_eq!(body, case["responses"], "{name}");
                    assert_eq!(json!(response.left_out), left_out(&case), "{name}");
                }
                Err(refusal) => assert_eq!(case["refusal"], *refusal.param, "{name}: {refusal}"),
            }
        }
    }
}

#[test]
fn requests_become_chat_requests() {
    let cases = cases("to_chat");
    assert!(cases.len() > 100);
    for case in cases {
        let name = &case["name"];
        for body in [
            case["request"].to_string(),
            serde_json::to_string_pretty(&case["request"]).unwrap(),
        ] {
            let request = ResponsesRequest::parse(Bytes::from(body), &Limits::default()).unwrap();
            let read = requests::read_request(request.request());
            match read.and_then(|it| chat_requests::write_request(&it, &target(&case))) {
                Ok(chat) => {
                    let body: Value = serde_json::from_slice(&chat.body).unwrap();
                    assert_eq!(normal(body), normal(case["chat"].clone()), "{name}");
                    assert_eq!(json!(chat.left_out), left_out(&case), "{name}");
                }
                Err(refusal) => {
                    assert_eq!(case["refusal"], *refusal.param, "{name}: {refusal}");
                }
            }
        }
    }
}

/// Texts that are JSON in strings are compared as JSON: a request that is spelled otherwise has them otherwise.
fn normal(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            for (key, member) in members.iter_mut() {
                *member = match (key.as_str(), &member) {
                    ("arguments", Value::String(text)) => serde_json::from_str(text).unwrap(),
                    _ => normal(member.take()),
                };
            }
        }
        Value::Array(elements) => {
            for element in elements {
                *element = normal(element.take());
            }
        }
        _ => {}
    }
    value
}
