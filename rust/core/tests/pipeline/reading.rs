//! What is known of a stream.

use super::*;

#[test]
fn a_whole_stream_is_known() {
    let body = [": queue\n\n", HI, STOP, USAGE, DONE].concat();
    let facts = facts(Api::Chat, &body);
    assert_eq!(
        (facts.events, facts.comments, facts.token_events),
        (4, 1, 1)
    );
    assert!(facts.output_started && facts.done && facts.terminal && !facts.truncated);
    assert_eq!(facts.finish_reason.as_deref(), Some("stop"));
    assert_eq!(facts.reply_id.as_deref(), Some("c1"));
    assert_eq!(facts.error, None);
}

#[test]
fn text_that_is_not_utf8_hides_no_usage() {
    // A client decodes the stream first, with U+FFFD for such bytes: what it then sees is JSON.
    let event = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xe4\xbd\"}}],\"usage\":{\"prompt_tokens\":2,\"x\":\"\xff\"}}\n\n";
    let mut pipeline = Pipeline::new(chat(true));
    let mut out = Vec::new();
    for read in [
        event.as_slice(),
        event,
        &USAGE.as_bytes()[..40],
        &USAGE.as_bytes()[40..],
    ] {
        pipeline
            .feed(Bytes::copy_from_slice(read), &mut Unpriced, &mut out)
            .unwrap();
        let facts = pipeline.facts();
        assert_eq!(facts.usage.as_ref().unwrap().input_tokens, Some(2));
    }
    let facts = pipeline.facts();
    assert_eq!(
        (facts.events, facts.token_events, facts.malformed),
        (3, 2, 0)
    );
    assert_eq!(out.concat(), [event, event, USAGE.as_bytes()].concat());
}

#[test]
fn shapes_that_differ_anywhere_are_all_recognised() {
    let shape = |before: &str, after: &str| {
        format!(
            "data: {{{before}\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"TEXT\"}}{after}}}]}}\n\n"
        )
    };
    let shapes = [
        shape("", ""),
        shape("", ",\"logprobs\":null"),
        shape("\"id\":\"a\",", ""),
        shape("\"id\":\"b\",", ""),
        shape("\"id\":\"b\",", ",\"logprobs\":null"),
    ];
    let texts = [
        "",
        "a",
        "\\n",
        "\\\\",
        "größer \\ud83d\\ude00",
        &"x".repeat(31),
        &"y".repeat(500),
    ];
    let mut stream = String::new();
    for round in 0..60 {
        let shape = &shapes[(round * round + round / 3) % shapes.len()];
        stream.push_str(&shape.replace("TEXT", texts[round % texts.len()]));
    }
    let facts = facts(Api::Chat, &stream);
    let empty = (0..60).filter(|round| round % texts.len() == 0).count() as u64;
    assert_eq!(
        (facts.events, facts.token_events, facts.malformed),
        (60, 60 - empty, 0)
    );
}

#[test]
fn what_bears_no_token_is_no_progress() {
    for event in [
        ": ping\n\n",
        ":\n\n",
        "\n",
        "event: keepalive\n\n",
        "data: : keepalive\n\n",
        "data:\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[ ],\"reasoning\":null}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"text\":\"\"}]}\n\n",
        "data: {\"choices\":[],\"prompt_filter_results\":[{\"content\":\"x\"}]}\n\n",
        USAGE,
        STOP,
        DONE,
    ] {
        let mut pipeline = Pipeline::new(chat(true));
        let mut out = Vec::new();
        for _ in 0..3 {
            let read = Bytes::from(format!("data: {{}}\n\n{event}"));
            pipeline.feed(read, &mut Unpriced, &mut out).unwrap();
        }
        assert!(!pipeline.take_progress(), "{event}");
        assert!(!pipeline.facts().output_started, "{event}");
    }
}

#[test]
fn what_bears_a_token_is_progress_each_time() {
    for (api, data) in [
        (
            Api::Chat,
            r#"{"choices":[{"index":0,"delta":{"content":" "}}]}"#,
        ),
        (
            Api::Chat,
            r#"{"choices":[{"delta":{"content":""}},{"delta":{"content":"x"}}]}"#,
        ),
        (
            Api::Chat,
            r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[]}]}}]}"#,
        ),
        (
            Api::Chat,
            r#"{"choices":[{"delta":{"content":null,"reasoning_content":"x"}}]}"#,
        ),
        (
            Api::Chat,
            r#"{"choices":[{"delta":{"content":"","reasoning":"x"}}]}"#,
        ),
        (
            Api::Chat,
            r#"{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.encrypted"}]}}]}"#,
        ),
        (Api::Chat, r#"{"choices":[{"delta":{"refusal":"no"}}]}"#),
        (
            Api::Chat,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}}]}"#,
        ),
        (
            Api::Chat,
            r#"{"choices":[{"delta":{"tool_calls":{"index":0}}}]}"#,
        ),
        (
            Api::Chat,
            r#"{"choices":[{"delta":{"function_call":{"arguments":"{"}}}]}"#,
        ),
        (Api::Chat, r#"{"choices":[{"d\u0065lta":{"content":"x"}}]}"#),
        (Api::Completions, r#"{"choices":[{"text":"x","index":0}]}"#),
        (
            Api::Responses,
            r#"{"type":"response.output_text.delta","delta":"x"}"#,
        ),
        (
            Api::Responses,
            r#"{"delta":"x","sequence_number":4,"type":"response.reasoning_summary_text.delta"}"#,
        ),
        (
            Api::Responses,
            r#"{"type":"response.refusal.delta","delta":"x"}"#,
        ),
        (
            Api::Responses,
            r#"{"type":"response.function_call_arguments.delta","delta":""}"#,
        ),
        (
            Api::Responses,
            r#"{"type":"response.output_item.added","item":{"type":"function_call"}}"#,
        ),
        (
            Api::Responses,
            r#"{"type":"response.web_search_call.searching","item_id":"ws_1"}"#,
        ),
        (
            Api::Messages,
            r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"x"}}"#,
        ),
        (
            Api::Messages,
            r#"{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"x"}}"#,
        ),
        (
            Api::Messages,
            r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{"}}"#,
        ),
        (
            Api::Messages,
            r#"{"type":"content_block_start","content_block":{"type":"tool_use","input":{}}}"#,
        ),
    ] {
        let mut pipeline = Pipeline::new(ReplyPlan::new(api, true));
        let mut out = Vec::new();
        for i in 1..4 {
            let read = Bytes::from(format!("data: {data}\n\n"));
            pipeline.feed(read, &mut Unpriced, &mut out).unwrap();
            assert!(pipeline.take_progress(), "{data}");
            assert!(!pipeline.take_progress(), "{data}");
            assert_eq!(pipeline.facts().token_events, i, "{data}");
        }
    }
}

#[test]
fn preambles_of_the_other_interfaces_bear_no_token() {
    for (api, data) in [
        (
            Api::Responses,
            r#"{"type":"response.created","response":{"id":"r"}}"#,
        ),
        (
            Api::Responses,
            r#"{"type":"response.in_progress","response":{"id":"r"}}"#,
        ),
        (
            Api::Responses,
            r#"{"type":"response.output_item.added","item":{"type":"message"}}"#,
        ),
        (
            Api::Responses,
            r#"{"type":"response.output_item.added","item":{"type":"reasoning"}}"#,
        ),
        (
            Api::Responses,
            r#"{"type":"response.output_text.delta","delta":""}"#,
        ),
        (
            Api::Messages,
            r#"{"type":"message_start","message":{"usage":{"input_tokens":1}}}"#,
        ),
        (
            Api::Messages,
            r#"{"type":"content_block_start","content_block":{"type":"text","text":""}}"#,
        ),
        (
            Api::Messages,
            r#"{"type":"content_block_delta","delta":{"type":"signature_delta","signature":"x"}}"#,
        ),
        (Api::Messages, r#"{"type":"ping"}"#),
    ] {
        let facts = facts(api, &format!("data: {data}\n\n").repeat(3));
        assert!(!facts.output_started, "{data}");
        assert_eq!(facts.token_events, 0);
        assert!(facts.truncated);
    }
}

#[test]
fn the_first_finish_reason_that_says_something_counts() {
    let reasons = |reasons: &[&str]| {
        let body: String = reasons
            .iter()
            .map(|reason| format!("data: {{\"choices\":[{{\"finish_reason\":{reason}}}]}}\n\n"))
            .collect();
        facts(Api::Chat, &body)
    };
    assert_eq!(reasons(&["null", "\"\""]).finish_reason, None);
    let stopped = reasons(&["null", "\"\"", "\"stop\"", "\"length\"", "null"]);
    assert_eq!(stopped.finish_reason.as_deref(), Some("stop"));
    assert!(stopped.terminal && !stopped.truncated && !stopped.done);
    assert_eq!(
        reasons(&["\"abort\""]).finish_reason.as_deref(),
        Some("abort")
    );
}

#[test]
fn only_a_line_of_its_own_is_the_end() {
    let body = format!(
        "{}data: \"data: [DONE]\"\n\n",
        HI.replace("Hi", "data: [DONE]")
    );
    assert!(!facts(Api::Chat, &body).done);
    let facts = facts(Api::Chat, "data:[DONE] \n\n");
    assert!(facts.done && facts.malformed == 0);
}

#[test]
fn several_ends_and_what_follows_them_go_on() {
    let body = [HI, DONE, DONE, USAGE].concat();
    let facts = facts(Api::Chat, &body);
    assert_eq!(facts.events, 4);
    assert!(facts.usage.is_some());
}

#[test]
fn a_stream_that_just_stops_is_truncated() {
    for body in [
        HI.to_owned(),
        format!("{HI}data: {{\"cho"),
        ": ping\n\n".to_owned(),
        USAGE.to_owned(),
    ] {
        assert!(facts(Api::Chat, &body).truncated, "{body}");
    }
    assert!(facts(Api::Responses, "data: {\"type\":\"response.created\"}\n\n").truncated);
    assert!(!facts(Api::Messages, "data: {\"type\":\"message_stop\"}\n\n").truncated);
}

#[test]
fn what_is_not_json_goes_on_and_is_counted() {
    let body = format!("data: {{\"choices\":\n\ndata: : keepalive\n\ndata: \\u00\n\n{HI}{DONE}");
    let facts = facts(Api::Chat, &body);
    assert_eq!((facts.events, facts.malformed), (5, 3));
    assert_eq!(facts.error, None);
}

#[test]
fn the_responses_interface_ends_with_its_last_event() {
    for (kind, status, expected) in [
        ("completed", "completed", "completed"),
        ("incomplete", "incomplete", "incomplete"),
        ("completed", "incomplete", "incomplete"),
        ("failed", "failed", "failed"),
    ] {
        let body = format!(
            "event: response.{kind}\ndata: {{\"type\":\"response.{kind}\",\"response\":{{\"id\":\"resp_1\",\"status\":\"{status}\"}}}}\n\n"
        );
        let facts = facts(Api::Responses, &body);
        assert!(facts.terminal && !facts.truncated);
        assert_eq!(facts.finish_reason.as_deref(), Some(expected));
        assert_eq!(facts.reply_id.as_deref(), Some("resp_1"));
    }
}
