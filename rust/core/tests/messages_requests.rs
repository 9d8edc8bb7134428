//! The cases of `tests/corpus/messages_requests`: what is sent upstream, read back into turns that name no protocol.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what fails here fails the test"
)]

mod neutral;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sluicegate_core::input::{Conversation, Refusal, Written};
use sluicegate_core::limits::Limits;
use sluicegate_core::protocols::chat::request::{
    ChatTarget, EffortCeiling, LateSystem, ReasoningField, ThinkingOff,
};
use sluicegate_core::protocols::messages::request::forwarded::without_seals;
use sluicegate_core::protocols::messages::request::{MessagesTarget, Rest, ThinkingForm};
use sluicegate_core::protocols::responses::request::ResponsesTarget;
use sluicegate_core::protocols::{chat, messages, responses};
use sluicegate_core::request::Request;

use neutral::{Form, instructions, tools, turns};

fn cases(name: &str) -> Vec<Value> {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/corpus/messages_requests"
    );
    serde_json::from_slice(&std::fs::read(format!("{folder}/{name}.json")).unwrap()).unwrap()
}

fn body(case: &Value) -> Vec<u8> {
    match case["body_text"].as_str() {
        Some(text) => text.into(),
        None => serde_json::to_vec(&case["body"]).unwrap(),
    }
}

/// Places without the types that may stand behind them.
fn places(left_out: &[Box<str>]) -> Value {
    left_out
        .iter()
        .map(|place| place.split(' ').next().unwrap())
        .collect()
}

fn messages_target(case: &Value) -> MessagesTarget {
    let target = &case["target"];
    let mut made = MessagesTarget::default();
    for (name, value) in target.as_object().into_iter().flatten() {
        match name.as_str() {
            "max_tokens" => made.max_tokens = value.as_u64().unwrap(),
            "thinking" => {
                made.thinking = match value.as_str().unwrap() {
                    "adaptive" => ThinkingForm::Adaptive,
                    "budget" => ThinkingForm::Budget,
                    "none" => ThinkingForm::None,
                    other => panic!("{other}"),
                }
            }
            "signed" => made.signed = value.as_bool().unwrap(),
            "inline_system" => made.inline_system = value.as_bool().unwrap(),
            "rest" => {
                made.rest = if value == "drop" {
                    Rest::Drop
                } else {
                    Rest::Pass
                }
            }
            other => panic!("{other}"),
        }
    }
    made
}

/// What a body must hold, and what was said of it.
fn check(case: &Value, form: Form, written: Result<Written, Refusal>) {
    let expect = case["expect"].as_object().unwrap();
    let name = &case["name"];
    let written = match (expect.get("refused"), written) {
        (Some(place), Err(refusal)) => {
            assert_eq!(*place, *refusal.param, "{name}: {}", refusal.message);
            return;
        }
        (Some(_), Ok(written)) => panic!("{name}: {written:?}"),
        (None, written) => written.unwrap_or_else(|refusal| panic!("{name}: {refusal}")),
    };
    let text = String::from_utf8(written.body.to_vec()).unwrap();
    let body: Value = serde_json::from_str(&text).unwrap();
    let made = turns(form, &body);
    for (what, expected) in expect {
        match what.as_str() {
            "turns" => assert_turns(&made, expected, name),
            "instructions" => assert_eq!(instructions(form, &body), *expected, "{name}"),
            "members" => {
                for (member, value) in expected.as_object().unwrap() {
                    assert_eq!(body[member], *value, "{name}: {member}");
                }
            }
            "members_spelled" => {
                for (member, spelled) in expected.as_object().unwrap() {
                    let member = format!("\"{member}\":{}", spelled.as_str().unwrap());
                    assert!(text.contains(&member), "{name}: {text}");
                }
            }
            "absent" => {
                for member in expected.as_array().unwrap() {
                    let is_there = body.get(member.as_str().unwrap()).is_some();
                    assert!(!is_there, "{name}: {member} in {text}");
                }
            }
            "left_out" => assert_eq!(places(&written.left_out), *expected, "{name}"),
            "plain_strings" => {
                for index in expected.as_array().unwrap() {
                    let message = &body["messages"][index.as_u64().unwrap() as usize];
                    assert!(message["content"].is_string(), "{name}: {message}");
                }
            }
            "never_contains" => {
                for part in expected.as_array().unwrap() {
                    assert!(!text.contains(part.as_str().unwrap()), "{name}: {text}");
                }
            }
            "arguments_spelled" => {
                for (id, arguments) in expected.as_object().unwrap() {
                    let calls = parts(&made, "call");
                    let call = calls.iter().find(|call| call["id"] == **id).unwrap();
                    assert_eq!(call["arguments"], *arguments, "{name}");
                }
            }
            "tools" => assert_tools(&tools(form, &body), expected, name),
            "tool_names_match" => {
                let made = tools(form, &body);
                for (tool, pattern) in made.iter().zip(expected.as_array().unwrap()) {
                    assert_matches(pattern.as_str().unwrap(), tool["name"].as_str().unwrap());
                }
            }
            "names" if expected["mapped_back"] == true => {
                let names = written.names.as_ref().unwrap();
                for (tool, own) in tools(form, &body).iter().zip(own_names(case)) {
                    assert_eq!(names.client(tool["name"].as_str().unwrap()), own, "{name}");
                }
            }
            // Custom tools are known by the request that the reply's writer has.
            "names" => assert!(expected["custom"].is_array(), "{name}"),
            "same_ids" => {
                for pair in expected.as_array().unwrap() {
                    let ids = |index: usize| {
                        let turn = &made[pair[index].as_u64().unwrap() as usize];
                        ids(std::slice::from_ref(turn))
                    };
                    assert_eq!(ids(0), ids(1), "{name}");
                }
            }
            "distinct_call_ids" => {
                let calls: BTreeSet<String> = parts(&made, "call")
                    .iter()
                    .map(|call| call["id"].to_string())
                    .collect();
                assert_eq!(calls.len() as u64, expected.as_u64().unwrap(), "{name}");
            }
            "id_pattern" => {
                for id in ids(&made) {
                    assert_matches(expected.as_str().unwrap(), &id);
                }
            }
            "results_in_order_of" => {
                let of = |kind: &str| -> Vec<String> {
                    let parts = parts(&made, kind);
                    parts.iter().map(|part| part["id"].to_string()).collect()
                };
                assert_eq!(of("call"), of("result"), "{name}");
            }
            other => panic!("{name}: {other}"),
        }
    }
}

/// The names of the client's own tools.
fn own_names(case: &Value) -> Vec<&str> {
    let tools = case["body"]["tools"].as_array().unwrap();
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

/// The parts of a kind in all turns.
fn parts(turns: &[Value], kind: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for turn in turns {
        found.extend(turn["item"].get(kind).cloned());
        for part in turn["parts"].as_array().into_iter().flatten() {
            found.extend(part.get(kind).cloned());
        }
    }
    found
}

fn ids(turns: &[Value]) -> Vec<String> {
    let mut found = parts(turns, "call");
    found.extend(parts(turns, "result"));
    found
        .iter()
        .map(|part| part["id"].as_str().unwrap().to_owned())
        .collect()
}

/// `^[class]{least,most}$`, `^[class]+$`, or literal text around one such class.
fn assert_matches(pattern: &str, text: &str) {
    let class = |char: char| char.is_ascii_alphanumeric() || "_-".contains(char);
    let inner = pattern.trim_matches(['^', '$']);
    let (front, class_of) = inner.split_once('[').unwrap();
    let rest = text.strip_prefix(front);
    let rest = rest.unwrap_or_else(|| panic!("{text} does not begin as {pattern}"));
    let (set, times) = class_of.split_once(']').unwrap();
    let is_taken = |char: char| match set {
        "0-9a-f" => char.is_ascii_digit() || ('a'..='f').contains(&char),
        "a-zA-Z0-9_-" => class(char),
        other => panic!("{other}"),
    };
    assert!(
        rest.chars().all(is_taken),
        "{text} does not match {pattern}"
    );
    let (least, most) = match times {
        "+" => (1, usize::MAX),
        "{8}" => (8, 8),
        "{1,64}" => (1, 64),
        other => panic!("{other}"),
    };
    assert!(
        (least..=most).contains(&rest.len()),
        "{text} does not match {pattern}"
    );
}

fn assert_turns(made: &[Value], expected: &Value, name: &Value) {
    let expected = expected.as_array().unwrap();
    assert_eq!(made.len(), expected.len(), "{name}: {made:?}");
    for (made, expected) in made.iter().zip(expected) {
        if expected["item"].is_object() {
            assert_eq!(made, expected, "{name}");
            continue;
        }
        assert_eq!(made["role"], expected["role"], "{name}");
        let (made, expected) = (&made["parts"], &expected["parts"]);
        let length = |parts: &Value| parts.as_array().unwrap().len();
        assert_eq!(length(made), length(expected), "{name}: {made}");
        for (made, expected) in made
            .as_array()
            .unwrap()
            .iter()
            .zip(expected.as_array().unwrap())
        {
            let text = made["text"].as_str().unwrap_or_default();
            if let Some(texts) = expected["text_contains"].as_array() {
                for part in texts {
                    assert!(text.contains(part.as_str().unwrap()), "{name}: {made}");
                }
            } else if let Some(id) = expected["names_call"].as_str() {
                assert!(text.contains(id), "{name}: {made}");
            } else {
                assert_eq!(made, expected, "{name}");
            }
        }
    }
}

fn assert_tools(made: &[Value], expected: &Value, name: &Value) {
    let expected = expected.as_array().unwrap();
    assert_eq!(made.len(), expected.len(), "{name}: {made:?}");
    for (made, expected) in made.iter().zip(expected) {
        if let Some(members) = expected["input_schema_has"].as_array() {
            assert_eq!(made["name"], expected["name"], "{name}");
            for member in members {
                let properties = &made["input_schema"]["properties"];
                assert!(properties[member.as_str().unwrap()].is_object(), "{name}");
            }
        } else {
            assert_eq!(made, expected, "{name}");
        }
    }
}

fn request(body: Vec<u8>) -> Request {
    Request::parse(body.into(), &Limits::default()).unwrap()
}

/// Checks all cases of a file, put through `read` and `write`.
fn all(
    name: &str,
    form: Form,
    read: fn(&Request) -> Result<Conversation<'_>, Refusal>,
    write: impl Fn(&Conversation<'_>, &Value) -> Result<Written, Refusal>,
) {
    for case in cases(name) {
        let request = request(body(&case));
        let written = read(&request).and_then(|conversation| write(&conversation, &case));
        check(&case, form, written);
    }
}

fn chat_target(case: &Value) -> ChatTarget {
    let mut made = ChatTarget::default();
    for (name, value) in case["target"].as_object().into_iter().flatten() {
        match (name.as_str(), value.as_str().unwrap()) {
            ("late_system", "user") => made.late_system = LateSystem::User,
            ("reasoning", "reasoning_content") => made.reasoning = ReasoningField::ReasoningContent,
            ("effort_ceiling", word) => made.effort_ceiling = EffortCeiling(word.into()),
            ("thinking_off", "template") => made.thinking_off = ThinkingOff::Template,
            other => panic!("{other:?}"),
        }
    }
    made
}

#[test]
fn messages_to_chat() {
    all(
        "messages_to_chat",
        Form::Chat,
        messages::request::read_request,
        |conversation, case| chat::request::write_request(conversation, &chat_target(case)),
    );
}

#[test]
fn messages_to_responses() {
    all(
        "messages_to_responses",
        Form::Responses,
        messages::request::read_request,
        |conversation, case| {
            let target = &case["target"];
            let target = ResponsesTarget {
                takes_reasoning: target["takes_reasoning"].as_bool().unwrap_or_default(),
            };
            responses::request::write_request(conversation, &target)
        },
    );
}

#[test]
fn chat_to_messages() {
    all(
        "chat_to_messages",
        Form::Messages,
        chat::request::read_request,
        |conversation, case| messages::request::write_request(conversation, &messages_target(case)),
    );
}

#[test]
fn responses_to_messages() {
    all(
        "responses_to_messages",
        Form::Messages,
        responses::request::read_request,
        |conversation, case| messages::request::write_request(conversation, &messages_target(case)),
    );
}

#[test]
fn messages_to_messages() {
    for case in cases("messages_to_messages") {
        let body = body(&case);
        let signed = case["target"]["signed"].as_bool().unwrap_or(true);
        let made = without_seals(&body, signed);
        let expect = &case["expect"];
        if expect["same_bytes"] == true {
            assert_eq!(made, None);
            continue;
        }
        let made = made.unwrap();
        let sent: Value = serde_json::from_slice(&made.body).unwrap();
        assert_turns(
            &turns(Form::Messages, &sent),
            &expect["turns"],
            &case["name"],
        );
        assert_eq!(json!(made.left_out), expect["left_out"]);
    }
}
