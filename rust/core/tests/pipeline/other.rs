//! Replies of endpoints that are forwarded and nothing else.

use super::*;

fn bytes() -> ReplyPlan {
    let mut plan = ReplyPlan::new(Api::Other, false);
    plan.upstream.reading = Reading::Nothing;
    plan
}

#[test]
fn bytes_are_not_read() {
    for body in [
        "ID3 and so on",
        "{\"usage\":{\"prompt_tokens\":1}}",
        "data: {\"error\":1}\n\n",
        "[Music]",
        " \n",
        "",
    ] {
        let (out, facts) = pass(&bytes(), &mut Flat, body);
        assert_eq!(out, body);
        assert_eq!(facts.mode, Some(Mode::Bytes));
        assert_eq!(facts.reply_is_stream, Some(false));
        assert!(facts.terminal && !facts.truncated);
        assert_eq!((facts.usage, facts.error, facts.events), (None, None, 0));
        assert_eq!(facts.output_started, !body.is_empty());
    }
}

#[test]
fn each_read_of_bytes_is_progress() {
    let mut pipeline = Pipeline::new(bytes());
    let mut out = Vec::new();
    assert!(!pipeline.take_progress());
    for _ in 0..2 {
        let read = Bytes::from_static(b"abc");
        pipeline.feed(read, &mut Unpriced, &mut out).unwrap();
        assert!(pipeline.take_progress());
    }
}

#[test]
fn bytes_that_break_off_have_no_words_for_it() {
    let mut pipeline = Pipeline::new(bytes());
    let mut out = Vec::new();
    let read = Bytes::from_static(b"abc");
    pipeline.feed(read, &mut Unpriced, &mut out).unwrap();
    pipeline.fail("upstream_error", "truncated", "broke off", &mut out);
    assert_eq!(out.concat(), b"abc");
}

#[test]
fn events_that_name_themselves_have_an_end_and_a_cost() {
    for (part, last) in [
        (
            r#"{"type":"transcript.text.delta","delta":"Hi"}"#,
            r#"{"type":"transcript.text.done","text":"Hi","usage":{"input_tokens":2,"output_tokens":1}}"#,
        ),
        (
            r#"{"type":"speech.audio.delta","audio":"AA=="}"#,
            r#"{"type":"speech.audio.done","usage":{"input_tokens":2,"output_tokens":1}}"#,
        ),
        (
            r#"{"type":"image_generation.partial_image","b64_json":"AA=="}"#,
            r#"{"type":"image_edit.completed","b64_json":"AA==","usage":{"input_tokens":2,"output_tokens":1}}"#,
        ),
    ] {
        let plan = ReplyPlan::new(Api::Other, false);
        let body = format!("data: {part}\n\ndata: {part}\n\n");
        let (out, facts) = pass(&plan, &mut Flat, &body);
        assert_eq!(out, body);
        assert!(facts.truncated, "{last}");
        assert_eq!((facts.token_events, facts.reply_is_stream), (2, Some(true)));
        let (out, facts) = pass(&plan, &mut Flat, &format!("{body}data: {last}\n\n"));
        assert!(!facts.truncated, "{last}");
        assert_eq!(facts.finish_reason.as_deref(), Some("completed"));
        assert_eq!(facts.usage.unwrap().input_tokens, Some(2));
        assert!(
            out.ends_with("\"output_tokens\":1,\"cost\":1}}\n\n"),
            "{out}"
        );
    }
}

#[test]
fn chunks_of_a_transcription_are_chunks() {
    let (out, facts) = pass(
        &ReplyPlan::new(Api::Other, false),
        &mut Unpriced,
        &format!("{HI}{STOP}{USAGE}{DONE}"),
    );
    assert_eq!(out, format!("{HI}{STOP}{USAGE}{DONE}"));
    assert!(facts.done && !facts.truncated);
    assert_eq!(facts.usage.unwrap().output_tokens, Some(1));
}

fn free(kind: &str) -> ReplyPlan {
    let mut plan = ReplyPlan::new(Api::Other, false);
    plan.upstream.reading = Reading::Usage;
    plan.upstream.declared_stream = kind == "events";
    plan
}

#[test]
fn of_a_reply_of_no_known_protocol_the_usage_alone_is_read() {
    for (kind, body) in [
        (
            "json",
            "{\"error\":{\"message\":\"of a job\"},\"id\":\"job-1\"}",
        ),
        ("json", "\"text\""),
        ("json", " [1, 2"),
        ("json", "<html>"),
        ("json", "{\"a\":1}{\"a\":2}\n"),
        (
            "events",
            "event: error\ndata: {\"error\":{\"message\":\"x\"}}\n\ndata: 1\n\n",
        ),
        ("events", "event: x\r\ndata: y\r\n\r\n: c\n\n"),
        ("events", "{\"no\":\"event\"}\n\n"),
    ] {
        let (out, facts) = pass(&free(kind), &mut Flat, body);
        assert_eq!(out, body);
        assert_eq!(facts.reply_is_stream, Some(kind == "events"), "{body}");
        assert!(!facts.truncated && facts.output_started, "{body}");
        assert_eq!((facts.usage, facts.error), (None, None), "{body}");
    }
    let usage = "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1";
    for (kind, begin, end) in [("json", "{", "}"), ("events", "data: {", "}\n\n")] {
        let (out, facts) = pass(&free(kind), &mut Flat, &format!("{begin}{usage}}}{end}"));
        assert!(out.starts_with(&format!("{begin}{usage},")), "{out}");
        assert_eq!(facts.usage.unwrap().input_tokens, Some(2));
    }
}
