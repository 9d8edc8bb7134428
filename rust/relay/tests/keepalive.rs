//! What a client gets while its upstream is silent.
#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use std::time::Duration;

use sluicegate_core::api::Api;
use sluicegate_relay::FaultKind;
use support::{Answer, DONE, Setup, Way, both_ways, chat_chunk, finished, stream, upstream};

fn a_silent_upstream_is_covered_by_comments(way: Way) {
    let server = upstream(|_| {
        vec![
            Answer::Wait(Duration::from_millis(600)),
            Answer::Write(stream(&finished())),
            Answer::Close,
        ]
    });
    let mut setup = Setup::streaming(way, &server);
    setup.keepalive = Some(Duration::from_millis(50));
    let seen = setup.run();
    let text = seen.text();
    assert!(text.starts_with(": keep-alive\n\n"), "{text}");
    assert!(text.ends_with(&finished().concat()), "{text}");
    assert_eq!(
        seen.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
}

fn a_silent_upstream_of_messages_is_covered_by_pings(way: Way) {
    let said = [
        r#"{"type":"message_start","message":{"id":"msg_1","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let said = said.map(|data| format!("data: {data}\n\n"));
    let sent = said.clone();
    let server = upstream(move |_| {
        vec![
            Answer::Wait(Duration::from_millis(200)),
            Answer::Write(stream(&said)),
            Answer::Close,
        ]
    });
    let mut setup = Setup::streaming(way, &server);
    setup.api = Api::Messages;
    setup.serves = Api::Messages;
    setup.keepalive = Some(Duration::from_millis(50));
    let seen = setup.run();
    let text = seen.text();
    let ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
    assert!(text.starts_with(ping), "{text}");
    assert!(text.ends_with(&sent.concat()), "{text}");
    assert!(!text.contains(": keep-alive"), "{text}");
}

fn a_silence_inside_a_stream_is_covered_too(way: Way) {
    let server = upstream(|_| {
        let first = Answer::Write(stream(&[chat_chunk("a", "null")]));
        let rest = [chat_chunk("", "\"stop\""), DONE.to_owned()]
            .concat()
            .into_bytes();
        vec![
            first,
            Answer::Wait(Duration::from_millis(600)),
            Answer::Write(rest),
            Answer::Close,
        ]
    });
    let mut setup = Setup::streaming(way, &server);
    setup.keepalive = Some(Duration::from_millis(50));
    let seen = setup.run();
    let text = seen.text();
    assert!(
        text.starts_with(&format!("{}: keep-alive\n\n", chat_chunk("a", "null"))),
        "{text}"
    );
    assert!(text.ends_with(DONE), "{text}");
}

fn an_error_after_a_comment_comes_as_an_event(way: Way) {
    let server = upstream(|_| vec![Answer::Wait(Duration::from_millis(600)), Answer::Close]);
    let mut setup = Setup::streaming(way, &server);
    setup.keepalive = Some(Duration::from_millis(50));
    let seen = setup.run();
    let text = seen.text();
    assert_eq!(seen.status, Some(200));
    assert!(
        text.contains("data: upstream 'up' closed the connection"),
        "{text}"
    );
    assert_eq!(seen.fault(), Some(FaultKind::Reset));
}

both_ways!(
    a_silent_upstream_is_covered_by_comments,
    a_silent_upstream_of_messages_is_covered_by_pings,
    a_silence_inside_a_stream_is_covered_too,
    an_error_after_a_comment_comes_as_an_event,
);
