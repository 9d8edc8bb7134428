//! What an upstream or a client sends costs work in proportion to its bytes, and no more memory than the bounds say.
//!
//! Most of these would take hours where the work grew with the square of what is sent: then they do not end, and no
//! clock decides.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what fails here fails the test"
)]

use std::sync::Arc;

use bytes::Bytes;
use sluicegate_core::api::Api;
use sluicegate_core::cost::{self, Members};
use sluicegate_core::error::{Error, ErrorKind};
use sluicegate_core::input::settings::MAX_MEMBERS;
use sluicegate_core::input::tools::MAX_TOOLS;
use sluicegate_core::input::{MAX_BLOCKS, Refusal};
use sluicegate_core::json::scan;
use sluicegate_core::json::splice::Splice;
use sluicegate_core::limits::{Limits, MAX_CHOICES, MAX_ITEMS, MAX_RECORDED};
use sluicegate_core::pipeline::{Facts, Pipeline, ReplyPlan, Unpriced};
use sluicegate_core::protocols;
use sluicegate_core::protocols::chat::fold::ChatFold;
use sluicegate_core::protocols::chat::request::{ChatTarget, write_request};
use sluicegate_core::protocols::chat::unfold::{Unfold, unfold_chat};
use sluicegate_core::protocols::responses::echo::{Asked, Echo};
use sluicegate_core::protocols::responses::request::ResponsesRequest;
use sluicegate_core::protocols::responses::request::read_request;
use sluicegate_core::protocols::{ClientProtocol, ClientSide, UpstreamSide};
use sluicegate_core::request::Request;

/// Far more than any bound on a count.
const MANY: usize = 100_000;

fn plan(upstream: Api, client: Api) -> ReplyPlan {
    let mut client = ClientSide::new(client, true);
    if let ClientProtocol::Responses(asked) = &mut client.protocol {
        *asked = Some(Asked::Echo(Arc::new(Echo::new("resp_1", 7, "m"))));
    }
    ReplyPlan::between(client, UpstreamSide::new(upstream))
}

fn repair() -> ReplyPlan {
    let mut plan = plan(Api::Responses, Api::Responses);
    plan.upstream.repair = true;
    plan
}

/// The reply to `body`, and what went wrong; it fails in the end, as a reply does whose upstream breaks off.
fn reply(plan: ReplyPlan, body: &str) -> (Vec<u8>, Result<(), Error>) {
    let mut pipeline = Pipeline::new(plan);
    let mut out = Vec::new();
    let mut result = Ok(());
    for read in body.as_bytes().chunks(1 << 14) {
        result = pipeline.feed(Bytes::copy_from_slice(read), &mut Unpriced, &mut out);
        if result.is_err() {
            break;
        }
    }
    pipeline.fail("upstream_error", "truncated", "it broke off", &mut out);
    (out.concat(), result)
}

fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

fn completed(item: &str, count: usize) -> String {
    let items = vec![item; count].join(",");
    event(&format!(
        r#"{{"type":"response.completed","response":{{"status":"completed","output":[{items}]}}}}"#
    ))
}

const MESSAGE: &str = r#"{"type":"message","content":[{"type":"output_text","text":"a"}]}"#;

#[test]
fn a_response_has_so_many_items() {
    let refused = Err(Error::new(ErrorKind::TooManyItems, 0));
    let to_chat = plan(Api::Responses, Api::Chat);
    for item in ["{}", r#"{"type":"function_call","arguments":"{}"}"#] {
        assert_eq!(
            reply(to_chat.clone(), &completed(item, MANY / 5)).1,
            refused
        );
    }
    assert_eq!(reply(repair(), &completed(MESSAGE, MANY / 5)).1, refused);
    let parts = vec![r#"{"type":"output_text","text":"a"}"#; MANY / 5].join(",");
    let parts = format!(r#"{{"type":"message","content":[{parts}]}}"#);
    assert_eq!(reply(to_chat.clone(), &completed(&parts, 1)).1, refused);
    let (out, result) = reply(to_chat, &completed(MESSAGE, MAX_ITEMS / 2));
    assert_eq!(result, Ok(()));
    assert!(out.ends_with(b"data: [DONE]\n\n"));
    // What is not translated is not counted.
    let body = completed("{}", MANY);
    let (out, result) = reply(plan(Api::Responses, Api::Responses), &body);
    assert_eq!(result, Ok(()));
    assert!(out.starts_with(body.as_bytes()));
}

#[test]
fn a_response_of_too_many_items_does_not_seem_to_be_whole() {
    let to_chat = plan(Api::Responses, Api::Chat);
    for (plan, end) in [
        (to_chat, r#""finish_reason":"stop""#),
        (repair(), "response.completed"),
    ] {
        let (out, result) = reply(plan, &completed(MESSAGE, MANY / 5));
        assert!(result.is_err());
        let out = String::from_utf8(out).unwrap();
        assert!(!out.contains(end), "{end}");
        assert!(out.contains("it broke off"));
    }
}

#[test]
fn events_of_many_items_are_forwarded() {
    let created = event(r#"{"type":"response.created","response":{"id":"r"}}"#);
    let added = |index| {
        event(&format!(
            r#"{{"type":"response.output_item.added","output_index":{index},"item":{{}}}}"#
        ))
    };
    let body: String = (0..MANY).map(added).collect();
    // An item that is not there is looked for among all.
    let unknown = event(
        r#"{"type":"response.output_text.delta","output_index":900000,"delta":"a","logprobs":[{}]}"#,
    );
    let body = [created, body, unknown.repeat(MANY)].concat();
    let (out, result) = reply(plan(Api::Responses, Api::Responses), &body);
    assert_eq!(result, Ok(()));
    assert!(out.starts_with(body.as_bytes()));
    // What is known to be open is closed: no more than the bound, and than came.
    assert!(out.len() < 2 * body.len(), "{}", out.len() - body.len());
}

#[test]
fn a_chunk_with_many_calls_is_read_once() {
    let calls = vec![r#"{"function":{"arguments":"a"}}"#; MANY].join(",");
    let body = event(&format!(
        r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{calls}]}}}}]}}"#
    ));
    assert_eq!(reply(plan(Api::Chat, Api::Responses), &body).1, Ok(()));
    let choices = vec![r#"{"index":0,"delta":{"content":"a"}}"#; MANY].join(",");
    let body = event(&format!(r#"{{"choices":[{choices}]}}"#));
    assert_eq!(reply(plan(Api::Chat, Api::Responses), &body).1, Ok(()));
    assert_eq!(reply(plan(Api::Chat, Api::Chat), &body).1, Ok(()));
}

#[test]
fn what_is_repeated_in_each_event_is_short() {
    let long = "x".repeat(100_000);
    let chunk = event(r#"{"type":"response.output_text.delta","item_id":"m","delta":"a"}"#);
    let created = event(&format!(
        r#"{{"type":"response.created","response":{{"id":"{long}","model":"{long}","service_tier":"{long}"}}}}"#
    ));
    let body = [created, chunk.repeat(1000)].concat();
    for plan in [plan(Api::Responses, Api::Chat), repair()] {
        let (out, _) = reply(plan, &body);
        assert!(out.len() < 10 * body.len(), "{}", out.len());
    }
}

#[test]
fn a_name_that_never_ends_is_too_large() {
    let name = "x".repeat(1 << 20);
    let piece = |letter: &str| {
        event(&format!(
            r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":0,"function":{{"name":"{letter}{name}"}}}}]}}}}]}}"#
        ))
    };
    let limits = Limits {
        max_document: 4 << 20,
        ..Limits::default()
    };
    for client in [Api::Responses, Api::Chat] {
        let mut plan = plan(Api::Chat, client);
        plan.limits = limits;
        plan.upstream.harmony = true;
        let (_, result) = reply(plan, &[piece("a"), piece("b")].concat().repeat(4));
        assert_eq!(result, Err(Error::new(ErrorKind::DocumentTooLarge, 0)));
    }
}

#[test]
fn a_completion_has_so_many_choices() {
    let completion = |count| {
        let choices = vec!["{}"; count].join(",");
        format!(r#"{{"choices":[{choices}]}}"#)
    };
    let unfolded = |count| {
        let completion = completion(count);
        unfold_chat(completion.as_bytes(), Unfold::default(), Limits::default())
    };
    let refused = Error::new(ErrorKind::TooManyItems, 0);
    assert!(unfolded(MAX_CHOICES).is_ok());
    assert_eq!(unfolded(10_000_000), Err(refused));
    let mut fold = ChatFold::new(Limits::default());
    assert_eq!(fold.push(completion(MAX_CHOICES).as_bytes()), Ok(()));
    assert_eq!(fold.push(completion(MANY).as_bytes()), Err(refused));
    assert_eq!(fold.finish(), Err(refused));
}

#[test]
fn blanks_are_looked_through_once() {
    let mut fold = ChatFold::new(Limits::default());
    let blank = format!("{{\"choices\":[],\"id\":[{}]}}", " ".repeat(8 << 20));
    fold.push(blank.as_bytes()).unwrap();
    for _ in 0..MANY {
        fold.push(b"{\"choices\":[],\"id\":[]}").unwrap();
    }
    let folded = fold.finish().unwrap();
    assert_eq!(
        folded,
        br#"{"object":"chat.completion","choices":[],"id":[]}"#
    );
}

#[test]
fn so_many_members_are_renamed() {
    let members = Members::parse("\"cost\":1").unwrap();
    for (count, is_added) in [(64, true), (100_000, false)] {
        let usage = format!("{{{}}}", vec!["\"cost\":0"; count].join(","));
        let value = scan::document(usage.as_bytes(), 8).unwrap();
        let mut plan = Splice::new();
        let added = cost::splice(usage.as_bytes(), value, &members, 8, &mut plan);
        assert_eq!(added, is_added);
        assert_eq!(plan.is_empty(), !is_added);
    }
}

fn to_chat(body: String) -> String {
    let request = ResponsesRequest::parse(body.into(), &Limits::default()).unwrap();
    let read = read_request(request.request());
    match read.and_then(|it| write_request(&it, &ChatTarget::default())) {
        Ok(chat) => String::from_utf8(chat.body.to_vec()).unwrap(),
        Err(refusal) => refusal.to_string(),
    }
}

#[test]
fn tools_of_one_name_are_numbered_on() {
    let name = "a__".repeat(1000);
    let tools: Vec<String> = (1..1000)
        .map(|place| {
            let (namespace, name) = name.split_at(3 * place);
            format!(
                r#"{{"type":"namespace","name":"{namespace}","tools":[{{"type":"function","name":"{name}"}}]}}"#
            )
        })
        .collect();
    let body = format!(
        r#"{{"model":"m","input":"","tools":[{}]}}"#,
        tools.join(",")
    );
    let chat = to_chat(body);
    assert_eq!(chat.matches("\"name\":").count(), 999);
    assert!(chat.contains("a___999\"") && !chat.contains("a___1000\""));
}

#[test]
fn tools_that_are_allowed_are_looked_up() {
    let left_out = vec![r#"{"type":"tool_search"}"#; 4000].join(",");
    let allowed = vec![r#"{"type":"image_generation"}"#; MANY].join(",");
    let body = format!(
        r#"{{"model":"m","input":"","tools":[{left_out},{{"type":"image_generation"}},{{"type":"function","name":"f"}}],
        "tool_choice":{{"type":"allowed_tools","mode":"auto","tools":[{allowed},{{"type":"function","name":"f"}}]}}}}"#
    );
    assert!(to_chat(body).contains("\"name\":\"f\""));
}

/// What is known of a reply to `body`, and what the client got.
fn facts(plan: ReplyPlan, body: &str) -> (Facts, Vec<u8>) {
    let mut pipeline = Pipeline::new(plan);
    let mut out = Vec::new();
    let body = Bytes::copy_from_slice(body.as_bytes());
    pipeline.feed(body, &mut Unpriced, &mut out).unwrap();
    pipeline.finish(&mut Unpriced, &mut out).unwrap();
    (pipeline.facts().clone(), out.concat())
}

#[test]
fn what_is_recorded_is_short_and_what_is_forwarded_is_whole() {
    let long = "é".repeat(1 << 20);
    let kept = format!("{}…", "é".repeat(MAX_RECORDED / 2));
    let body = [
        event(&format!(
            r#"{{"id":"{long}","choices":[{{"index":0,"delta":{{}},"finish_reason":"{long}"}}],"usage":{{"cost":{}}}}}"#,
            "1".repeat(1 << 20),
        )),
        event(&format!(
            r#"{{"error":{{"message":"{long}","code":"{long}","type":"{long}"}}}}"#
        )),
    ]
    .concat();
    let (facts_of, out) = facts(plan(Api::Chat, Api::Chat), &body);
    assert_eq!(out, body.as_bytes());
    assert_eq!(facts_of.finish_reason.as_deref(), Some(&*kept));
    assert_eq!(facts_of.reply_id.as_deref(), Some(&*kept));
    let error = facts_of.error.unwrap();
    assert_eq!(*error.message, kept);
    assert_eq!(error.code.as_deref(), Some(&*kept));
    assert_eq!(error.kind.as_deref(), Some(&*kept));
    assert_eq!(facts_of.usage.and_then(|usage| usage.upstream_cost), None);
    // A client that is told of an error anew is told all of it.
    let (_, out) = facts(plan(Api::Chat, Api::Responses), &body);
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains(&format!("\"message\":\"{long}\"")));
}

#[test]
fn every_name_of_reasoning_is_output() {
    for name in [
        "content",
        "reasoning_content",
        "reasoning",
        "thinking",
        "reasoning_text",
        "tool_plan",
        "refusal",
    ] {
        let chunk = event(&format!(
            r#"{{"choices":[{{"index":0,"delta":{{"{name}":"some words"}}}}]}}"#
        ));
        let empty = chunk.replace("some words", "");
        let (known, _) = facts(
            plan(Api::Chat, Api::Chat),
            &format!("{empty}{chunk}{chunk}"),
        );
        assert_eq!(known.token_events, 2, "{name}");
        let done = "data: [DONE]\n\n";
        let (known, out) = facts(
            plan(Api::Chat, Api::Responses),
            &[&*chunk, &chunk, done].concat(),
        );
        assert_eq!(known.token_events, 2, "{name}");
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out.matches("\"delta\":\"some words\"").count(), 2, "{name}");
    }
    let summary = event(
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"compaction_delta","content":"words"}}"#,
    );
    let (known, _) = facts(plan(Api::Messages, Api::Messages), &summary);
    assert_eq!(known.token_events, 1);
}

/// Why a request to `api` is not read.
fn unread(api: Api, body: String) -> Refusal {
    let request = Request::parse(body.into(), &Limits::default()).unwrap();
    let read = protocols::read_request(api, &request).unwrap();
    read.unwrap_err()
}

#[test]
fn what_is_made_of_a_request_is_bounded() {
    let members: String = (0..MAX_MEMBERS)
        .map(|number| format!(r#""m{number}":1,"#))
        .collect();
    // A message counts, and so does its text.
    let messages = vec![r#"{"role":"user","content":""}"#; MAX_BLOCKS / 2 + 1].join(",");
    let texts = vec![r#"{"type":"text","text":""}"#; MAX_BLOCKS].join(",");
    let tools = vec![r#"{"type":"x"}"#; MAX_TOOLS + 1].join(",");
    for (api, turns) in [(Api::Chat, "messages"), (Api::Responses, "input")] {
        let refusal = unread(api, format!(r#"{{{members}"last":1}}"#));
        assert_eq!(&*refusal.param, "last");
        let refusal = unread(api, format!(r#"{{"{turns}":[{messages}]}}"#));
        assert_eq!(*refusal.param, *format!("{turns}[65536]"));
        let message = format!(r#"{{"role":"user","content":[{texts}]}}"#);
        let refusal = unread(api, format!(r#"{{"{turns}":[{message}]}}"#));
        assert_eq!(*refusal.param, *format!("{turns}[0].content[131071]"));
        let refusal = unread(api, format!(r#"{{"{turns}":[],"tools":[{tools}]}}"#));
        assert_eq!(&*refusal.param, "tools[4096]");
    }
}

#[test]
fn the_name_of_a_namespace_is_bounded() {
    let name = "n".repeat(4097);
    let body =
        format!(r#"{{"input":"","tools":[{{"type":"namespace","name":"{name}","tools":[]}}]}}"#);
    assert_eq!(&*unread(Api::Responses, body).param, "tools[0].name");
}

#[test]
fn a_refusal_is_short() {
    let kind = "k".repeat(1 << 20);
    let refusal = to_chat(format!(
        r#"{{"model":"m","input":[{{"type":"{kind}"}}],"{kind}":1}}"#
    ));
    assert!(refusal.contains("kkk") && refusal.len() < 3 * MAX_RECORDED);
}
