//! A request of a client of Messages, or one for an upstream that speaks it, costs work in proportion to its bytes.
//!
//! Most of these would take hours where the work grew with the square of what is sent: then they do not end, and no
//! clock decides.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use sluicegate_core::input::{Refusal, Written};
use sluicegate_core::limits::{Limits, MAX_RECORDED};
use sluicegate_core::protocols::chat::request::{self as chat, ChatTarget};
use sluicegate_core::protocols::messages::request::forwarded::without_seals;
use sluicegate_core::protocols::messages::request::{self as messages, MessagesTarget};
use sluicegate_core::protocols::responses::request as responses;
use sluicegate_core::request::Request;

/// Turns and blocks of a request: more than one may have.
const TOO_MANY: usize = 140_000;

/// Far more than anybody sends.
const MANY: usize = 40_000;

fn request(body: String) -> Request {
    Request::parse(body.into(), &Limits::default()).unwrap()
}

fn to_chat(messages: &str) -> Result<Written, Refusal> {
    let body = format!(r#"{{"model":"m","max_tokens":9,"messages":[{messages}]}}"#);
    let request = request(body);
    let conversation = messages::read_request(&request)?;
    chat::write_request(&conversation, &ChatTarget::default())
}

fn from_responses(input: &str) -> Result<Written, Refusal> {
    let request = request(format!(r#"{{"model":"m","input":[{input}]}}"#));
    let conversation = responses::read_request(&request)?;
    messages::write_request(&conversation, &MessagesTarget::default())
}

fn repeated(part: &str, count: usize) -> String {
    vec![part; count].join(",")
}

#[test]
fn a_request_has_so_many_blocks() {
    let text = r#"{"type":"text","text":"a"}"#;
    let message = |count| {
        let blocks = repeated(text, count);
        format!(r#"{{"role":"user","content":[{blocks}]}}"#)
    };
    assert!(to_chat(&message(MANY)).is_ok());
    let refusal = to_chat(&message(TOO_MANY)).unwrap_err();
    assert!(refusal.param.starts_with("messages[0].content["));
    let messages = repeated(r#"{"role":"user","content":"a"}"#, TOO_MANY);
    assert!(to_chat(&messages).is_err());
}

#[test]
fn calls_of_one_id_are_numbered_on() {
    let call = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#;
    let output = r#"{"type":"function_call_output","call_id":"c","output":"a"}"#;
    let count = MANY / 2;
    let calls = repeated(call, count);
    let outputs = repeated(output, count);
    let written = from_responses(&format!("{calls},{outputs}")).unwrap();
    let body = String::from_utf8(written.body.to_vec()).unwrap();
    let last = format!("\"id\":\"c_{count}\"");
    assert_eq!(body.matches(&last).count(), 1);
    assert_eq!(body.matches("\"tool_use_id\":\"c_").count(), count - 1);
}

#[test]
fn ids_that_are_cut_alike_are_numbered_on() {
    let front = "x".repeat(63);
    let digits: Vec<char> = ('a'..='z').chain('A'..='Z').collect();
    let calls: Vec<String> = (0..MANY / 2)
        .map(|number| {
            let id = format!("{front}{}", digits[number % digits.len()]);
            format!(r#"{{"type":"function_call","call_id":"{id}","name":"f","arguments":""}}"#)
        })
        .collect();
    let written = from_responses(&calls.join(",")).unwrap();
    let body = String::from_utf8(written.body.to_vec()).unwrap();
    assert_eq!(body.matches("\"input\":{}").count(), MANY / 2);
}

#[test]
fn what_the_operator_says_between_is_read_once() {
    let items = r#"{"role":"user","content":"a"},{"role":"system","content":"b"}"#;
    for inline_system in [false, true] {
        let request = request(format!(
            r#"{{"model":"m","input":[{}]}}"#,
            repeated(items, MANY / 2)
        ));
        let conversation = responses::read_request(&request).unwrap();
        let target = MessagesTarget {
            inline_system,
            ..MessagesTarget::default()
        };
        let written = messages::write_request(&conversation, &target).unwrap();
        let body = String::from_utf8(written.body.to_vec()).unwrap();
        assert_eq!(body.matches("\"b\"").count(), MANY / 2);
    }
}

#[test]
fn seals_are_cut_out_in_one_go() {
    let sealed = r#"{"type":"thinking","thinking":"a","signature":"sg1.chat."}"#;
    let blocks = repeated(sealed, MANY);
    let body = format!(r#"{{"messages":[{{"role":"assistant","content":[{blocks}]}}]}}"#);
    for signed in [false, true] {
        let made = without_seals(body.as_bytes(), signed).unwrap();
        assert!(!made.body.windows(5).any(|bytes| bytes == b"\"sg1."));
        assert_eq!(made.left_out.len(), if signed { 17 } else { 0 });
    }
}

#[test]
fn a_refusal_is_short() {
    let kind = "k".repeat(1 << 20);
    let block = format!(r#"{{"role":"user","content":[{{"type":"{kind}"}}]}}"#);
    let refusal = to_chat(&block).unwrap_err().to_string();
    assert!(refusal.contains("kkk") && refusal.len() < 3 * MAX_RECORDED);
}
