//! Errors that the upstream sends, and those that the client is told.

use super::*;

#[test]
fn every_form_of_error_is_known() {
    let error = |message: &str, code: Option<&str>, kind: Option<&str>| {
        Some((
            message.to_owned(),
            code.map(str::to_owned),
            kind.map(str::to_owned),
        ))
    };
    for (api, body, expected) in [
        (
            Api::Chat,
            r#"data: {"error":{"message":"no","type":"server_error","code":500,"param":null}}"#,
            error("no", Some("500"), Some("server_error")),
        ),
        (
            Api::Chat,
            r#"data: {"error":"no"}"#,
            error("no", None, None),
        ),
        (
            Api::Chat,
            r#"data: {"error":"no","error_type":"overloaded"}"#,
            error("no", None, Some("overloaded")),
        ),
        (
            Api::Chat,
            r#"data: {"error":{"message":"no","http_status_code":422}}"#,
            error("no", None, None),
        ),
        (
            Api::Chat,
            r#"data: {"choices":[],"error":{"code":"x"}}"#,
            error("{\"code\":\"x\"}", Some("x"), None),
        ),
        (
            Api::Chat,
            r#"data: {"choices":[{"delta":{},"finish_reason":"error"}],"error":{"code":429,"message":"no"}}"#,
            error("no", Some("429"), None),
        ),
        (
            Api::Chat,
            r#"data: {"message":"no","type":"invalid_request_error","param":"","code":"wrong"}"#,
            error("no", Some("wrong"), Some("invalid_request_error")),
        ),
        (
            Api::Chat,
            r#"data: {"object":"error","message":"no","type":"BadRequestError","code":400}"#,
            error("no", Some("400"), Some("BadRequestError")),
        ),
        (
            Api::Chat,
            "event: error\ndata: {\"error\":{\"message\":\"no\"}}",
            error("no", None, None),
        ),
        (Api::Chat, "event: error\ndata: no", error("no", None, None)),
        (
            Api::Chat,
            r#"error: {"code":500}"#,
            error("{\"code\":500}", None, None),
        ),
        (
            Api::Responses,
            r#"data: {"type":"error","code":"quota","message":"no","param":null,"sequence_number":2}"#,
            error("no", Some("quota"), Some("error")),
        ),
        (
            Api::Responses,
            r#"data: {"type":"error","error":{"type":"t","code":"quota","message":"no"}}"#,
            error("no", Some("quota"), Some("t")),
        ),
        (
            Api::Responses,
            r#"data: {"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"no"}}}"#,
            error("no", Some("server_error"), None),
        ),
        (
            Api::Messages,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"no\"}}",
            error("no", None, Some("overloaded_error")),
        ),
    ] {
        // llama.cpp's `error:` is no field of the standard.
        let mut plan = ReplyPlan::new(api, true);
        plan.upstream.declared_stream = true;
        let (_, facts) = pass(&plan, &mut Unpriced, &format!("{body}\n\n"));
        let found = facts.error.map(|error| {
            (
                String::from(error.message),
                error.code.map(String::from),
                error.kind.map(String::from),
            )
        });
        assert_eq!(found, expected, "{body}");
        assert!(facts.terminal && !facts.truncated, "{body}");
    }
}

#[test]
fn what_is_falsy_or_written_by_the_model_is_no_error() {
    for data in [
        r#"{"choices":[],"error":null}"#,
        r#"{"choices":[],"error":false}"#,
        r#"{"choices":[],"error":""}"#,
        r#"{"choices":[],"error":0}"#,
        r#"{"choices":[],"error":{ }}"#,
        r#"{"choices":[{"delta":{"content":"{\"error\":{\"message\":\"no\"}}"}}]}"#,
        r#"{"choices":[{"delta":{"content":"x","error":"no"}}]}"#,
        r#"{"type":"agentic_tool_call_progress","message":"searching"}"#,
    ] {
        assert_eq!(
            facts(Api::Chat, &format!("data: {data}\n\n")).error,
            None,
            "{data}"
        );
    }
}

#[test]
fn the_first_error_is_kept() {
    let facts = facts(
        Api::Chat,
        "data: {\"error\":\"first\"}\n\ndata: {\"error\":\"second\"}\n\ndata: [DONE]\n\n",
    );
    assert_eq!(&*facts.error.unwrap().message, "first");
    assert!(facts.done);
}

fn failed(plan: ReplyPlan, body: &str) -> String {
    let mut pipeline = Pipeline::new(plan);
    let mut out = Vec::new();
    pipeline
        .feed(
            Bytes::copy_from_slice(body.as_bytes()),
            &mut Unpriced,
            &mut out,
        )
        .unwrap();
    pipeline.fail("timeout_error", "timeout", "\"a\" stalled", &mut out);
    let len = out.len();
    pipeline.feed(HI.into(), &mut Unpriced, &mut out).unwrap();
    pipeline.finish(&mut Unpriced, &mut out).unwrap();
    assert_eq!(out.len(), len, "nothing comes after a failure");
    String::from_utf8(out.concat()).unwrap()
}

#[test]
fn a_failure_is_said_in_the_protocol_and_half_an_event_is_dropped() {
    let error = "{\"error\":{\"message\":\"\\\"a\\\" stalled\",\"type\":\"timeout_error\",\"code\":\"timeout\",\"param\":null}}";
    for begun in ["", HI, ": ping\n\n"] {
        assert_eq!(
            failed(chat(true), &format!("{begun}data: {{\"cho")),
            format!("{begun}data: {error}\n\n")
        );
    }
    assert_eq!(failed(chat(true), ""), format!("data: {error}\n\n"));
    assert_eq!(failed(chat(false), ""), error);
    assert_eq!(failed(chat(false), "{\"id\""), error);
    assert_eq!(failed(chat(false), "{}"), "{}");
    assert_eq!(failed(chat(true), "<html>"), format!("data: {error}\n\n"));
    assert_eq!(
        failed(ReplyPlan::new(Api::Messages, true), "event: ping\n"),
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"timeout_error\",\"message\":\"\\\"a\\\" stalled\"}}\n\n"
    );
}

#[test]
fn a_failed_response_goes_on_where_its_events_ended() {
    let begun = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"created_at\":17,\"model\":\"m\"}}\n\n";
    let delta = |n: u32| {
        format!(
            "data: {{\"type\":\"response.output_text.delta\",\"delta\":\"x\",\"sequence_number\":{n}}}\n\n"
        )
    };
    let body = [begun, &delta(1), &delta(2), &delta(9)].concat();
    let out = failed(ReplyPlan::new(Api::Responses, true), &body);
    let said = out.strip_prefix(&body).unwrap();
    let said = said.strip_suffix("data: [DONE]\n\n").unwrap();
    let events: Vec<(&str, serde_json::Value)> = said
        .split_terminator("\n\n")
        .map(|event| {
            let (name, data) = event.split_once('\n').unwrap();
            (
                name,
                serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap(),
            )
        })
        .collect();
    assert_eq!(events[0].0, "event: error");
    assert_eq!(events[0].1["sequence_number"], 10);
    assert_eq!(events[0].1["message"], "\"a\" stalled");
    assert_eq!(events[0].1["code"], "timeout");
    assert_eq!(events[1].0, "event: response.failed");
    assert_eq!(events[1].1["sequence_number"], 11);
    let response = &events[1].1["response"];
    assert_eq!(
        (&response["id"], &response["model"]),
        (&"resp_1".into(), &"m".into())
    );
    assert_eq!(
        (&response["created_at"], &response["status"]),
        (&17.into(), &"failed".into())
    );
    assert_eq!(response["error"]["code"], "server_error");
}

#[test]
fn a_responses_stream_is_done_with_its_terminal_event() {
    for state in ["completed", "incomplete", "failed"] {
        let data = format!(r#"{{"type":"response.{state}","response":{{"status":"{state}"}}}}"#);
        assert!(facts(Api::Responses, &format!("data: {data}\n\n")).done);
        assert!(!facts(Api::Chat, &format!("data: {data}\n\n")).done);
    }
    let data = r#"{"type":"response.output_text.done","text":"response.completed"}"#;
    assert!(!facts(Api::Responses, &format!("data: {data}\n\n")).done);
}
