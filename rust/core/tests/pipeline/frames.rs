//! Frames: what leaves with which read.

use super::*;

#[test]
fn a_read_of_whole_events_leaves_as_the_one_slice_it_is() {
    let mut pipeline = Pipeline::new(chat(true));
    let mut out = Vec::new();
    for _ in 0..5 {
        let read = Bytes::from([HI, HI, ": ping\n\n", HI].concat());
        pipeline
            .feed(read.clone(), &mut Unpriced, &mut out)
            .unwrap();
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].as_ptr(), read.as_ptr());
        assert_eq!(out.pop().unwrap(), read);
    }
}

#[test]
fn an_event_is_held_until_it_is_whole() {
    let mut pipeline = Pipeline::new(chat(true));
    let mut out = Vec::new();
    let (head, tail) = HI.split_at(30);
    for (read, frames) in [
        ([HI, head].concat(), vec![HI]),
        ([tail, HI].concat(), vec![HI, HI]),
    ] {
        pipeline.feed(read.into(), &mut Unpriced, &mut out).unwrap();
        assert_eq!(out, frames);
        out.clear();
    }
}

#[test]
fn an_event_without_its_end_is_ended_in_the_streams_own_line_ends() {
    for (body, added) in [
        ("data: [DONE]", "\n\n"),
        ("data: [DONE]\n", "\n"),
        ("data: {}\r\n\r\ndata: [DONE]", "\r\n\r\n"),
        ("data: {}\r\n\r\ndata: [DONE]\r\n", "\r\n"),
        ("data: {}\r\rdata: [DONE]\r", "\r"),
        ("data: [DONE]\n\n", ""),
    ] {
        let (out, facts) = pass(&chat(true), &mut Unpriced, body);
        assert_eq!(out, format!("{body}{added}"));
        assert!(facts.done && !facts.truncated);
    }
}

#[test]
fn an_event_past_the_bound_ends_the_stream() {
    let plan = ReplyPlan {
        limits: Limits {
            max_event: 64,
            ..Limits::default()
        },
        ..chat(true)
    };
    let mut pipeline = Pipeline::new(plan);
    let mut out = Vec::new();
    let read = format!("data: 1\n\ndata: {}", "x".repeat(100));
    let error = pipeline
        .feed(read.into(), &mut Unpriced, &mut out)
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::EventTooLarge);
    pipeline.fail("upstream_error", "event_too_large", "too large", &mut out);
    let text = String::from_utf8(out.concat()).unwrap();
    assert_eq!(
        text,
        "data: 1\n\ndata: {\"error\":{\"message\":\"too large\",\"type\":\"upstream_error\",\"code\":\"event_too_large\",\"param\":null}}\n\n"
    );
}

#[test]
fn nothing_is_lost_while_the_mode_is_undecided() {
    for (body, mode) in [
        ("\n\n \r\ndata: [DONE]\n\n", Some(Mode::Sse)),
        ("  {} ", Some(Mode::Json)),
        (" \n\t", None),
        ("", None),
    ] {
        let (out, facts) = pass(&ReplyPlan::new(Api::Embeddings, true), &mut Unpriced, body);
        assert_eq!(out, body);
        assert_eq!(facts.mode, mode);
        assert_eq!(facts.truncated, mode.is_none(), "{body:?}");
        let stream = mode.map(|mode| mode == Mode::Sse);
        assert_eq!(facts.reply_is_stream, stream);
    }
}

/// The error in one read and byte by byte, which must be the same, and what is then known.
fn refused(plan: &ReplyPlan, body: &str) -> (Error, Facts) {
    let mut results = [body.len(), 1].map(|size| {
        let mut pipeline = Pipeline::new(plan.clone());
        let mut out = Vec::new();
        let fed = body.as_bytes().chunks(size).find_map(|read| {
            let read = Bytes::copy_from_slice(read);
            pipeline.feed(read, &mut Unpriced, &mut out).err()
        });
        let error = fed.or_else(|| pipeline.finish(&mut Unpriced, &mut out).err());
        assert_eq!(out.concat(), b"");
        (error.unwrap(), pipeline.facts().clone())
    });
    assert_eq!(results[0], results[1]);
    std::mem::replace(
        &mut results[0],
        (Error::new(ErrorKind::TooDeep, 0), Facts::default()),
    )
}

#[test]
fn what_is_neither_json_nor_events_is_refused_with_its_beginning() {
    let apis = [
        (Api::Chat, Api::Chat),
        (Api::Completions, Api::Completions),
        (Api::Embeddings, Api::Embeddings),
        (Api::Responses, Api::Responses),
        (Api::Messages, Api::Messages),
        (Api::Responses, Api::Chat),
        (Api::Chat, Api::Responses),
    ];
    for (api, upstream_api) in apis {
        for streams in [false, true] {
            let client = ClientSide::new(api, streams);
            let plan = ReplyPlan::between(client, UpstreamSide::new(upstream_api));
            for body in ["it works", "null", "42", "\"text\"", "data", "echo: 1\n\n"] {
                let (error, facts) = refused(&plan, &format!("\n {body}"));
                assert_eq!(error, Error::new(ErrorKind::NotAReply, 2));
                assert_eq!(facts.quote.as_deref(), Some(body.trim_end()));
                assert_eq!(facts.mode, None);
            }
        }
    }
}

#[test]
fn what_nobody_writes_for_the_client_is_refused_and_not_forwarded() {
    for (client, upstream) in [
        (Api::Completions, Api::Responses),
        (Api::Embeddings, Api::Chat),
        (Api::Chat, Api::Embeddings),
    ] {
        for streams in [false, true] {
            let client = ClientSide::new(client, streams);
            let plan = ReplyPlan::between(client, UpstreamSide::new(upstream));
            for body in [HI, "{\"choices\":[]}"] {
                let (error, facts) = refused(&plan, body);
                assert_eq!(error, Error::new(ErrorKind::Untranslatable, 0));
                assert_eq!(facts.events, 0);
                let mut pipeline = Pipeline::new(plan.clone());
                let mut out = Vec::new();
                let fed = pipeline.feed(Bytes::from(body), &mut Unpriced, &mut out);
                assert!(fed.is_err());
                pipeline.fail("upstream_error", "untranslatable", "no", &mut out);
                let out = String::from_utf8(out.concat()).unwrap();
                assert!(out.contains("untranslatable"), "{out}");
            }
        }
    }
}

#[test]
fn what_is_declared_a_stream_may_begin_with_any_field() {
    let mut plan = chat(true);
    plan.upstream.declared_stream = true;
    let body = format!("model: m\n{HI}{DONE}");
    let (out, facts) = pass(&plan, &mut Unpriced, &body);
    assert_eq!((out, facts.mode), (body, Some(Mode::Sse)));
    let (_, facts) = pass(&plan, &mut Unpriced, "{}");
    assert_eq!(facts.mode, Some(Mode::Json));
}

#[test]
fn a_byte_order_mark_goes_on_and_hides_nothing() {
    let body = format!("\u{feff}{HI}{USAGE}{DONE}");
    let facts = facts(Api::Chat, &body);
    assert_eq!((facts.events, facts.malformed), (3, 0));
    assert_eq!(facts.usage.unwrap().input_tokens, Some(2));
}
