//! Streams made of completions, completions made of streams.

use super::*;

const COMPLETION: &str = "{\"id\":\"c1\",\"object\":\"chat.completion\",\"created\":7,\"model\":\"theirs\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hi\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1}}";

#[test]
fn a_completion_becomes_the_stream_that_was_asked_for() {
    let plan = renamed(chat(true), "ours");
    let (out, facts) = pass(&plan, &mut Flat, &format!("\n\n{COMPLETION}\n"));
    assert!(out.starts_with("data: {") && out.ends_with("data: [DONE]\n\n"));
    assert!(out.contains("\"delta\":{\"content\":\"Hi\"}") && !out.contains("theirs"));
    assert!(out.contains("\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1,\"cost\":1}"));
    assert_eq!(facts.mode, Some(Mode::Json));
    assert_eq!(facts.reply_is_stream, Some(true));
    assert_eq!(facts.finish_reason.as_deref(), Some("stop"));
    assert!(facts.output_started && !facts.truncated);
    assert_eq!(facts.usage.unwrap().total_tokens(), Some(3));

    let plan = hides_usage(chat(true));
    let (out, facts) = pass(&plan, &mut Flat, COMPLETION);
    assert!(!out.contains("usage") && out.ends_with("data: [DONE]\n\n"));
    assert_eq!(facts.usage.unwrap().total_tokens(), Some(3));
}

#[test]
fn a_byte_order_mark_in_front_of_a_completion_is_no_part_of_it() {
    let completion = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":2}}"#;
    for mark in ["\u{feff}", "\r\n\u{feff} "] {
        let body = format!("{mark}{completion}");
        let (out, facts) = pass(&chat(true), &mut Flat, &body);
        let (expected, _) = pass(&chat(true), &mut Flat, completion);
        assert_eq!(out, expected);
        assert_eq!(
            (facts.events, facts.malformed, facts.truncated),
            (1, 0, false)
        );
        let (out, facts) = pass(&chat(false), &mut Flat, &body);
        assert_eq!(out, body.replace("2}", "2,\"cost\":1}"));
        assert_eq!((facts.events, facts.malformed), (1, 0));
    }
}

#[test]
fn an_error_instead_of_a_completion_becomes_an_event() {
    let (out, facts) = pass(&chat(true), &mut Flat, "{\"error\":{\"message\":\"no\"}}");
    assert_eq!(out, "data: {\"error\":{\"message\":\"no\"}}\n\n");
    assert!(facts.error.is_some());
}

#[test]
fn chunks_as_lines_of_json_become_events() {
    let lines = [HI, STOP]
        .concat()
        .replace("data: ", "")
        .replace("\"id\"", "\"object\":\"chat.completion.chunk\",\"id\"")
        .replace("\n\n", "\n");
    let (out, _) = pass(&chat(true), &mut Unpriced, &lines);
    let expected: String = lines
        .lines()
        .map(|line| format!("data: {line}\n\n"))
        .collect();
    assert_eq!(out, expected + DONE);
}

#[test]
fn lines_of_json_that_break_off_give_no_end() {
    let line = HI
        .replace("data: ", "")
        .replace("\"id\"", "\"object\":\"chat.completion.chunk\",\"id\"");
    let (out, facts) = pass(&chat(true), &mut Unpriced, &format!("{line}{{\"id\""));
    assert_eq!(out, format!("data: {}\n\n", line.trim_end()));
    assert!(facts.truncated);
}

#[test]
fn a_completion_cut_short_gives_no_stream() {
    let (out, facts) = pass(&chat(true), &mut Flat, &COMPLETION[..60]);
    assert_eq!(out, "");
    assert!(facts.truncated);
}

#[test]
fn a_stream_becomes_the_completion_that_was_asked_for() {
    let plan = renamed(chat(false), "ours");
    let stream: String = [": ping\n\n", HI, HI, STOP, USAGE, DONE].concat().replace(
        "\"id\":\"c1\"",
        "\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"theirs\"",
    );
    let (out, facts) = pass(&plan, &mut Flat, &stream);
    assert!(
        out.contains("\"object\":\"chat.completion\"")
            && out.contains("\"content\":\"HiHi\"")
            && out.contains("\"model\":\"ours\""),
        "{out}"
    );
    assert!(
        out.contains("\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1,\"cost\":1}"),
        "{out}"
    );
    assert_eq!(facts.reply_is_stream, Some(false));
    assert_eq!(
        (facts.events, facts.token_events, facts.comments),
        (5, 2, 1)
    );
    assert_eq!(facts.usage.unwrap().total_tokens(), Some(3));
}

#[test]
fn half_a_stream_gives_no_completion() {
    let (out, facts) = pass(&chat(false), &mut Flat, HI);
    assert_eq!(out, "");
    assert!(facts.truncated);
    let mut pipeline = Pipeline::new(chat(false));
    let mut out = Vec::new();
    pipeline.feed(HI.into(), &mut Flat, &mut out).unwrap();
    pipeline.finish(&mut Flat, &mut out).unwrap();
    pipeline.fail("upstream_error", "truncated", "it broke off", &mut out);
    assert_eq!(
        String::from_utf8(out.concat()).unwrap(),
        "{\"error\":{\"message\":\"it broke off\",\"type\":\"upstream_error\",\"code\":\"truncated\",\"param\":null}}"
    );
}

#[test]
fn an_error_in_a_stream_becomes_a_document() {
    let body = format!("{HI}data: {{\"error\":{{\"message\":\"no\"}}}}\n\n{DONE}");
    let (out, facts) = pass(&chat(false), &mut Flat, &body);
    assert_eq!(out, "{\"error\":{\"message\":\"no\"}}");
    assert!(facts.error.is_some());
}
