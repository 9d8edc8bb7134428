//! What holds of every conversation that is put from Messages into another protocol and back.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what fails here fails the test"
)]

mod neutral;

use proptest::prelude::*;
use serde_json::{Value, json};
use sluicegate_core::limits::Limits;
use sluicegate_core::protocols::chat::request::ChatTarget;
use sluicegate_core::protocols::messages::request::MessagesTarget;
use sluicegate_core::protocols::responses::request::ResponsesTarget;
use sluicegate_core::protocols::{chat, messages, responses};
use sluicegate_core::request::Request;

use neutral::{Form, instructions, tools, turns};

/// A text that says something, with what JSON escapes in the middle.
fn text() -> impl Strategy<Value = String> {
    "[a-zé]{1,4}( |\n|\"|\\\\|😀){0,2}[a-z]{1,4}"
}

/// One exchange: what the user says, what the model says and calls, and how many of the calls failed.
#[derive(Clone, Debug)]
struct Exchange {
    asked: String,
    said: Option<String>,
    thought: Option<String>,
    calls: Vec<(String, bool)>,
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let call = (text(), any::<bool>());
    (
        text(),
        prop::option::of(text()),
        prop::option::of(text()),
        prop::collection::vec(call, 0..3),
    )
        .prop_map(|(asked, said, thought, calls)| Exchange {
            asked,
            said,
            thought,
            calls,
        })
}

/// A request to Messages with these exchanges. An exchange with calls is followed by their results, in the message that
/// asks the next.
fn request(system: &Option<String>, exchanges: &[Exchange]) -> Value {
    let mut list: Vec<Value> = Vec::new();
    let mut results: Vec<Value> = Vec::new();
    for (turn, exchange) in exchanges.iter().enumerate() {
        let mut user = std::mem::take(&mut results);
        user.push(json!({"type": "text", "text": exchange.asked}));
        list.push(json!({"role": "user", "content": user}));
        let mut reply = Vec::new();
        if let Some(thought) = &exchange.thought {
            reply.push(json!({"type": "thinking", "thinking": thought, "signature": ""}));
        }
        let said = exchange.said.as_deref();
        if let Some(said) = said.or(exchange.calls.is_empty().then_some("nothing")) {
            reply.push(json!({"type": "text", "text": said}));
        }
        for (index, (argument, failed)) in exchange.calls.iter().enumerate() {
            let id = format!("toolu_{turn}_{index}");
            reply.push(
                json!({"type": "tool_use", "id": id, "name": "look", "input": {"q": argument}}),
            );
            results.push(json!({
                "type": "tool_result", "tool_use_id": id, "is_error": failed, "content": format!("of {argument}"),
            }));
        }
        list.push(json!({"role": "assistant", "content": reply}));
    }
    results.push(json!({"type": "text", "text": "go on"}));
    list.push(json!({"role": "user", "content": results}));
    let schema = json!({"type": "object", "properties": {"q": {"type": "string"}}});
    let mut body = json!({
        "model": "m", "max_tokens": 100, "messages": list,
        "tools": [{"name": "look", "description": "Looks.", "input_schema": schema}],
    });
    if let Some(system) = system {
        body["system"] = json!(system);
    }
    body
}

fn parse(body: &[u8]) -> Request {
    Request::parse(body.to_vec().into(), &Limits::default()).unwrap()
}

fn to_chat(body: &Value) -> Vec<u8> {
    let request = parse(&serde_json::to_vec(body).unwrap());
    let conversation = messages::request::read_request(&request).unwrap();
    let target = ChatTarget::default();
    let written = chat::request::write_request(&conversation, &target).unwrap();
    written.body.to_vec()
}

fn to_responses(body: &Value) -> Vec<u8> {
    let request = parse(&serde_json::to_vec(body).unwrap());
    let conversation = messages::request::read_request(&request).unwrap();
    let target = ResponsesTarget {
        takes_reasoning: true,
    };
    let written = responses::request::write_request(&conversation, &target).unwrap();
    written.body.to_vec()
}

/// An upstream that takes the thoughts of others.
fn open_target() -> MessagesTarget {
    MessagesTarget {
        signed: false,
        ..MessagesTarget::default()
    }
}

fn back_from_chat(body: &[u8]) -> Value {
    let request = parse(body);
    let conversation = chat::request::read_request(&request).unwrap();
    let written = messages::request::write_request(&conversation, &open_target()).unwrap();
    serde_json::from_slice(&written.body).unwrap()
}

fn back_from_responses(body: &[u8]) -> Value {
    let request = parse(body);
    let conversation = responses::request::read_request(&request).unwrap();
    let written = messages::request::write_request(&conversation, &open_target()).unwrap();
    serde_json::from_slice(&written.body).unwrap()
}

/// The turns, with what the other protocols have no word for said in theirs: the text of a failed result.
fn expected(body: &Value) -> Vec<Value> {
    let mut body = body.clone();
    for message in body["messages"].as_array_mut().unwrap() {
        for block in message["content"].as_array_mut().unwrap() {
            if block["is_error"] == true {
                let text = block["content"].as_str().unwrap();
                block["content"] = json!(format!("Error: {text}"));
            }
        }
    }
    turns(Form::Messages, &body)
}

/// The texts of a turn behind its other parts: a protocol may have one member for all of them.
fn assert_same(made: &Value, body: &Value) {
    assert_eq!(turns(Form::Messages, made), expected(body));
    assert_eq!(
        instructions(Form::Messages, made),
        match &body["system"] {
            Value::Null => Value::Null,
            system => json!([system]),
        }
    );
    assert_eq!(tools(Form::Messages, made), tools(Form::Messages, body));
    assert_eq!(made["max_tokens"], body["max_tokens"]);
}

/// All messages or items but the last, which what follows may add to.
fn beginning(body: &[u8], list: &str) -> Vec<Value> {
    let body: Value = serde_json::from_slice(body).unwrap();
    let mut list = body[list].as_array().unwrap().clone();
    list.pop();
    list
}

proptest! {
    #[test]
    fn a_conversation_comes_back_from_other_protocols(
        system in prop::option::of(text()),
        exchanges in prop::collection::vec(exchange(), 0..5),
    ) {
        let body = request(&system, &exchanges);
        assert_same(&back_from_chat(&to_chat(&body)), &body);
        assert_same(&back_from_responses(&to_responses(&body)), &body);
    }

    #[test]
    fn what_was_sent_of_earlier_turns_stays_the_same(
        system in prop::option::of(text()),
        exchanges in prop::collection::vec(exchange(), 1..6),
    ) {
        let later = request(&system, &exchanges);
        let earlier = request(&system, &exchanges[..exchanges.len() - 1]);
        for (translate, list) in [(to_chat as fn(&Value) -> Vec<u8>, "messages"), (to_responses, "input")] {
            let (later, earlier) = (translate(&later), translate(&earlier));
            let sent = beginning(&earlier, list);
            prop_assert_eq!(&beginning(&later, list)[..sent.len()], &sent[..]);
        }
        let back = |body: &Value| {
            let body = back_from_chat(&to_chat(body));
            beginning(&serde_json::to_vec(&body).unwrap(), "messages")
        };
        let (later, earlier) = (back(&later), back(&earlier));
        prop_assert_eq!(&later[..earlier.len()], &earlier[..]);
    }
}
