//! How replies end: finish reasons, errors, broken connections, and what was used.

use bytes::Bytes;
use serde_json::{Value as Json, json};
use sluicegate_core::cost::Members;
use sluicegate_core::error::ErrorKind;
use sluicegate_core::pipeline::{Pipeline, Pricer, Unpriced};
use sluicegate_core::usage::Usage;

use super::stream::{Seen, chunk, events, finish, plan, stream, translated, translated_by};

fn ended(reason: &str) -> Json {
    Seen::of(&stream(&[json!({"content": "a"})], reason)).response
}

#[test]
fn a_reason_settles_the_response_and_its_last_item() {
    for (reason, status, details) in [
        ("stop", "completed", Json::Null),
        ("tool_calls", "completed", Json::Null),
        ("function_call", "completed", Json::Null),
        ("eos", "completed", Json::Null),
        (
            "length",
            "incomplete",
            json!({"reason": "max_output_tokens"}),
        ),
        (
            "content_filter",
            "incomplete",
            json!({"reason": "content_filter"}),
        ),
    ] {
        let response = ended(reason);
        assert_eq!(response["status"], status, "{reason}");
        assert_eq!(response["output"][0]["status"], status, "{reason}");
        assert_eq!(response["incomplete_details"], details, "{reason}");
        assert_eq!(response["error"], Json::Null);
    }
    assert_eq!(ended("abort")["status"], "failed");
}

#[test]
fn the_mark_of_the_end_alone_completes_a_response() {
    let reply = events(&[chunk(&json!({"content": "a"}))]) + "data: [DONE]\n\n";
    assert_eq!(Seen::of(&reply).response["status"], "completed");
    let reply = events(&[chunk(&json!({"content": "a"})), finish("stop")]);
    assert_eq!(Seen::of(&reply).response["status"], "completed");
    assert_eq!(Seen::of("data: [DONE]\n\n").response["output"], json!([]));
}

#[test]
fn text_behind_the_reason_is_not_lost() {
    let mut last = finish("stop");
    last["choices"][0]["delta"] = json!({"content": "b"});
    let reply = events(&[
        chunk(&json!({"content": "a"})),
        last.clone(),
        chunk(&json!({"content": "c"})),
        last,
    ]) + "data: [DONE]\n\n";
    assert_eq!(Seen::of(&reply).items(), ["message output:abcb"]);
}

#[test]
fn an_error_in_the_stream_fails_the_response() {
    let error =
        json!({"error": {"message": "no more tokens", "type": "rate_limit_error", "code": 429}});
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}]});
    for before in [
        vec![],
        vec![chunk(&json!({"content": "a"}))],
        vec![chunk(&call)],
    ] {
        let count = before.len();
        let payloads: Vec<Json> = before.into_iter().chain([error.clone()]).collect();
        let seen = Seen::of(&(events(&payloads) + "data: [DONE]\n\n"));
        assert_eq!(seen.response["status"], "failed");
        assert_eq!(
            seen.response["error"],
            json!({"code": "rate_limit_exceeded", "message": "no more tokens"})
        );
        let output = seen.response["output"].as_array().unwrap();
        assert_eq!(output.len(), count);
        assert!(output.iter().all(|item| item["status"] == "incomplete"));
        let event = &seen.events[seen.events.len() - 2];
        assert_eq!(event["type"], "error");
        assert_eq!(event["code"], "429");
        assert_eq!(event["message"], "no more tokens");
    }
}

#[test]
fn an_error_beside_the_last_words_does_not_take_them() {
    let mut last = chunk(&json!({"content": "b"}));
    last["error"] = json!({"message": "overloaded"});
    last["choices"][0]["finish_reason"] = "error".into();
    let seen = Seen::of(&events(&[chunk(&json!({"content": "a"})), last]));
    assert_eq!(seen.items(), ["message output:ab"]);
    assert_eq!(seen.response["error"]["code"], "server_error");
}

#[test]
fn an_error_instead_of_a_reply_is_an_error() {
    let error = json!({"error": {"message": "no", "type": "invalid_request_error", "code": null, "param": "tools"}}).to_string();
    let whole: Json = serde_json::from_slice(&translated(&error, false)).unwrap();
    assert_eq!(whole["error"]["param"], "tools");
    let seen = Seen::of(&error);
    assert_eq!(seen.response["error"]["message"], "no");
    assert_eq!(seen.response["error"]["code"], "invalid_prompt");
    let whole: Json =
        serde_json::from_slice(&translated(&format!("data: {error}\n\n"), false)).unwrap();
    assert_eq!(whole["error"]["message"], "no");
}

#[test]
fn a_reply_that_breaks_off_fails_with_all_it_said() {
    let reply = events(&[
        chunk(&json!({"reasoning": "r"})),
        chunk(&json!({"content": "a"})),
    ]);
    let cut = &reply[..reply.len() - 20];
    let seen = Seen::of(&(cut.to_owned() + "\n\n"));
    assert_eq!(seen.items(), ["reasoning reasoning:r"]);
    let seen = Seen::of(&reply);
    assert_eq!(seen.items(), ["reasoning reasoning:r", "message output:a"]);
    assert_eq!(seen.response["output"][0]["status"], "completed");
    assert_eq!(seen.response["output"][1]["status"], "incomplete");
    assert_eq!(seen.response["error"]["message"], "it broke off");
    let whole: Json = serde_json::from_slice(&translated(&reply, false)).unwrap();
    assert_eq!(whole["error"]["message"], "it broke off");
}

#[test]
fn a_deadline_closes_what_is_open() {
    let mut pipeline = Pipeline::new(plan(true));
    let mut out = Vec::new();
    let call = |index: u64| json!({"tool_calls": [{"index": index, "id": index.to_string(), "function": {"name": "f", "arguments": "{"}}]});
    let reply = events(&[chunk(&call(0)), chunk(&call(1))]);
    pipeline
        .feed(Bytes::from(reply), &mut Unpriced, &mut out)
        .unwrap();
    assert!(pipeline.take_progress());
    pipeline.fail("timeout_error", "idle_timeout", "too slow", &mut out);
    let before = out.len();
    pipeline
        .feed(
            Bytes::from_static(b"data: [DONE]\n\n"),
            &mut Unpriced,
            &mut out,
        )
        .unwrap();
    pipeline.fail("timeout_error", "idle_timeout", "too slow", &mut out);
    assert_eq!(out.len(), before);
    let seen = Seen::read(&out.concat());
    let output = seen.response["output"].as_array().unwrap();
    assert!(output.len() == 2 && output.iter().all(|item| item["status"] == "incomplete"));
    assert_eq!(seen.response["error"]["code"], "server_error");
    assert_eq!(seen.events[seen.events.len() - 2]["code"], "idle_timeout");
}

#[test]
fn a_deadline_before_anything_came_is_said_in_the_protocol() {
    let mut pipeline = Pipeline::new(plan(true));
    let mut out = Vec::new();
    pipeline.fail(
        "timeout_error",
        "first_byte_timeout",
        "nothing came",
        &mut out,
    );
    let seen = Seen::read(&out.concat());
    assert_eq!(seen.response["model"], "asked-for");
    assert_eq!(seen.response["error"]["message"], "nothing came");
}

#[test]
fn what_is_no_reply_is_refused() {
    let page = "<html>".repeat(200);
    for reply in [&page, "{\"detail\":\"Not Found\"}", "{\"choices\":[]}"] {
        let mut pipeline = Pipeline::new(plan(true));
        let mut out = Vec::new();
        let fed = pipeline.feed(
            Bytes::copy_from_slice(reply.as_bytes()),
            &mut Unpriced,
            &mut out,
        );
        let kind = fed.unwrap_err().kind;
        assert!(
            matches!(kind, ErrorKind::NotAReply | ErrorKind::NoCompletion),
            "{reply}"
        );
        assert!(out.is_empty());
    }
}

#[test]
fn what_is_no_chunk_is_counted_and_passed_over() {
    let reply = events(&[chunk(&json!({"content": "a"}))])
        + "data: not JSON\n\nevent: agentic_tool_call_progress\ndata: {\"tool\":\"x\"}\n\ndata: [1]\n\n"
        + &stream(&[json!({"content": "b"})], "stop");
    assert_eq!(Seen::of(&reply).items(), ["message output:ab"]);
}

struct Flat;

impl Pricer for Flat {
    fn price(&mut self, usage: &Usage) -> Option<Members> {
        Members::parse(format!("\"cost\":{}", usage.total_tokens()?))
    }
}

#[test]
fn usage_is_said_once_in_its_own_words_with_its_price() {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "cost": 0.5,
        "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 3}});
    let reply = stream(&[json!({"content": "a"})], "stop").replace(
        "data: [DONE]",
        &format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\ndata: [DONE]"),
    );
    let out = translated_by(plan(true), &[reply.as_bytes()], &mut Flat);
    let seen = Seen::read(&out);
    let expected = json!({
        "input_tokens": 10, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 15, "upstream_cost": 0.5, "cost": 15,
    });
    assert_eq!(seen.response["usage"], expected);
    assert_eq!(seen.events[0]["response"]["usage"], Json::Null);
    let whole = translated_by(plan(false), &[reply.as_bytes()], &mut Flat);
    let whole: Json = serde_json::from_slice(&whole).unwrap();
    assert_eq!(whole, seen.response);
}

#[test]
fn running_totals_are_not_summed() {
    let mut payloads: Vec<Json> = (1..5)
        .map(|i| {
            let mut chunk = chunk(&json!({"content": "a"}));
            chunk["usage"] =
                json!({"prompt_tokens": 3, "completion_tokens": i, "total_tokens": 3 + i});
            chunk
        })
        .collect();
    payloads.push(finish("stop"));
    let response = Seen::of(&events(&payloads)).response;
    assert_eq!(response["usage"]["output_tokens"], 4);
    assert_eq!(response["usage"]["total_tokens"], 7);
}

#[test]
fn what_is_known_of_a_reply_is_what_forwarding_knows() {
    let reply = stream(
        &[
            json!({"role": "assistant", "content": ""}),
            json!({"content": "a"}),
            json!({"content": "b"}),
        ],
        "stop",
    );
    for streams in [true, false] {
        let mut pipeline = Pipeline::new(plan(streams));
        let mut out = Vec::new();
        pipeline
            .feed(Bytes::from(reply.clone()), &mut Unpriced, &mut out)
            .unwrap();
        pipeline.finish(&mut Unpriced, &mut out).unwrap();
        let facts = pipeline.facts();
        assert_eq!((facts.events, facts.token_events), (5, 2));
        assert_eq!(facts.finish_reason.as_deref(), Some("stop"));
        assert_eq!(facts.reply_is_stream, Some(streams));
        assert!(facts.done && facts.terminal && !facts.truncated && facts.output_started);
    }
}

#[test]
fn a_completed_response_says_when() {
    let mut plan = plan(true);
    plan.clock = Some(|| 99);
    let reply = stream(&[json!({"content": "a"})], "stop");
    let seen = Seen::read(&translated_by(plan, &[reply.as_bytes()], &mut Unpriced));
    assert_eq!(seen.response["completed_at"], 99);
    assert_eq!(ended("stop")["completed_at"], Json::Null);
}

#[test]
fn the_model_is_shown_under_its_public_name() {
    let mut plan = plan(true);
    plan.client.reply_model = Some("public".into());
    let reply = stream(&[json!({"content": "a"})], "stop");
    let seen = Seen::read(&translated_by(plan, &[reply.as_bytes()], &mut Unpriced));
    assert_eq!(seen.response["model"], "public");
}

#[test]
fn a_reply_is_bounded() {
    let mut plan = plan(true);
    plan.limits.max_document = 1000;
    let mut pipeline = Pipeline::new(plan);
    let mut out = Vec::new();
    let event = Bytes::from(events(&[chunk(&json!({"content": "0123456789"}))]));
    let fed = (0..200).try_for_each(|_| pipeline.feed(event.clone(), &mut Unpriced, &mut out));
    assert_eq!(fed.unwrap_err().kind, ErrorKind::DocumentTooLarge);
    pipeline.fail("upstream_error", "too_large", "too large", &mut out);
    assert_eq!(Seen::read(&out.concat()).response["status"], "failed");
}
