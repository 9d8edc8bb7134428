//! What the client sees that the upstream did not send.

use super::*;

#[test]
fn a_usage_chunk_that_the_client_did_not_ask_for_stays_out() {
    let plan = hides_usage(chat(true));
    let azure = "data: {\"choices\":[],\"prompt_filter_results\":[],\"usage\":null}\n\n";
    let body = [azure, HI, STOP, USAGE, DONE].concat();
    let (out, facts) = pass(&plan, &mut Flat, &body);
    assert_eq!(out, [azure, HI, STOP, DONE].concat());
    assert_eq!(facts.usage.unwrap().total_tokens(), Some(3));
    // With CR line ends the last byte of a chunk may come a read later.
    for end in ["\r\n", "\r"] {
        let (out, _) = pass(&plan, &mut Flat, &body.replace('\n', end));
        assert_eq!(out, [azure, HI, STOP, DONE].concat().replace('\n', end));
    }
}

#[test]
fn usage_beside_a_choice_or_an_error_is_not_hidden() {
    let plan = hides_usage(chat(true));
    for body in [
        STOP.replace("}]}", "}],\"usage\":{\"prompt_tokens\":2}}"),
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2},\"error\":{\"message\":\"no\"}}\n\n"
            .to_owned(),
    ] {
        assert_eq!(pass(&plan, &mut Unpriced, &body).0, body);
    }
}

#[test]
fn a_whole_stream_without_its_last_event_gets_it_where_that_is_asked_for() {
    let mut plan = chat(true);
    let error = "data: {\"error\":{\"message\":\"no\"}}\n\n";
    let sent = [HI, STOP].concat();
    assert_eq!(pass(&plan, &mut Unpriced, &sent).0, sent);
    plan.client.completes = true;
    let (out, facts) = pass(&plan, &mut Unpriced, &sent);
    assert_eq!(out, [HI, STOP, DONE].concat());
    assert!(!facts.truncated);
    let open = sent.strip_suffix("\n").unwrap();
    assert_eq!(
        pass(&plan, &mut Unpriced, open).0,
        [HI, STOP, DONE].concat()
    );
    for unchanged in [&*[HI, STOP, DONE].concat(), HI, &[HI, STOP, error].concat()] {
        assert_eq!(pass(&plan, &mut Unpriced, unchanged).0, unchanged);
    }
}

#[test]
fn a_running_total_is_not_priced_and_its_end_is() {
    let running = |text: &str, finish: &str, n: u32| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":{finish}}}],\"usage\":{{\"prompt_tokens\":2,\"completion_tokens\":{n}}}}}\n\n"
        )
    };
    let head = [running("a", "null", 1), running("b", "null", 2)].concat();
    let last = running("", "\"stop\"", 2);
    let after = running("", "null", 2);
    let (out, facts) = pass(
        &chat(true),
        &mut Flat,
        &[&head, &*last, &after, USAGE, DONE].concat(),
    );
    let priced = |event: &str| event.replace("}}\n\n", ",\"cost\":1}}\n\n");
    assert_eq!(
        out,
        [
            head,
            priced(&last),
            priced(&after),
            priced(USAGE),
            DONE.to_owned()
        ]
        .concat()
    );
    assert_eq!(facts.usage.unwrap().output_tokens, Some(1));
}

#[test]
fn the_start_of_a_message_is_not_priced() {
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":2,\"output_tokens\":1}}}\n\n";
    let delta = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":5}}\n\n";
    let (out, facts) = pass(
        &ReplyPlan::new(Api::Messages, true),
        &mut Flat,
        &[start, delta].concat(),
    );
    assert_eq!(
        out,
        [start, &delta.replace(":5}", ":5,\"cost\":1}")].concat()
    );
    assert_eq!(facts.usage.unwrap().total_tokens(), Some(7));
}

#[test]
fn the_client_sees_the_model_it_asked_for() {
    let plan = |api| renamed(ReplyPlan::new(api, true), "our \"model\"");
    let ours = "\"our \\\"model\\\"\"";
    let event = |model: &str, text: &str| {
        format!(
            "data: {{\"id\":\"c\",\"model\":{model},\"choices\":[{{\"delta\":{{\"content\":\"{text} \\\"model\\\":\\\"x\\\"\"}}}}],\"x\":{{\"model\":\"x\"}}}}\n\n"
        )
    };
    let body: String = ["", "a", "bc", "é\\n", "日本"]
        .iter()
        .map(|text| event("\"theirs\"", text))
        .collect();
    let (out, _) = pass(&plan(Api::Chat), &mut Unpriced, &body);
    assert_eq!(out, body.replace("\"theirs\"", ours));
    let null = event("null", "a");
    assert_eq!(pass(&plan(Api::Chat), &mut Unpriced, &null).0, null);

    let created = "data: {\"type\":\"response.created\",\"response\":{\"model\":\"theirs\"}}\n\n";
    assert_eq!(
        pass(&plan(Api::Responses), &mut Unpriced, created).0,
        created.replace("\"theirs\"", ours)
    );
    let start = "data: {\"type\":\"message_start\",\"message\":{\"model\":\"theirs\"}}\n\n";
    assert_eq!(
        pass(&plan(Api::Messages), &mut Unpriced, start).0,
        start.replace("\"theirs\"", ours)
    );
    let priced = pass(
        &plan(Api::Chat),
        &mut Flat,
        &USAGE.replace("\"choices\"", "\"model\":\"theirs\",\"choices\""),
    )
    .0;
    assert_eq!(
        priced,
        USAGE
            .replace("\"choices\"", &format!("\"model\":{ours},\"choices\""))
            .replace("1}}", "1,\"cost\":1}}")
    );
}

#[test]
fn a_document_that_is_cut_short_goes_on_and_is_truncated() {
    let (out, facts) = pass(
        &chat(false),
        &mut Flat,
        "{\"choices\":[],\"usage\":{\"prompt_tokens\":2}",
    );
    assert_eq!(out, "{\"choices\":[],\"usage\":{\"prompt_tokens\":2}");
    assert!(facts.truncated);
    assert_eq!(facts.usage, None);
}

#[test]
fn a_document_cut_short_behind_a_whole_one_is_truncated() {
    for (plan, rest) in [
        (chat(false), "{\"choices\":["),
        (chat(false), "\"x"),
        (ReplyPlan::new(Api::Responses, false), "["),
    ] {
        let (_, facts) = pass(&plan, &mut Flat, &format!("{{\"choices\":[]}}\n{rest}"));
        assert!(facts.truncated, "{rest}");
    }
    let (out, facts) = pass(&chat(false), &mut Flat, "{\"choices\":[]} trailing");
    assert_eq!(out, "{\"choices\":[]} trailing");
    assert_eq!((facts.truncated, facts.malformed), (false, 1));
}

#[test]
fn an_error_instead_of_a_completion_is_known() {
    let body = "{\"code\":\"invalid\",\"error\":\"no\"}";
    let (out, facts) = pass(&chat(false), &mut Flat, body);
    assert_eq!(out, body);
    let error = facts.error.unwrap();
    assert_eq!(
        (&*error.message, error.code.as_deref()),
        ("no", Some("invalid"))
    );
    assert!(!facts.output_started);
}
