//! Exchanges against upstreams that are nothing but sockets, so that every byte and every ending is the test's own.
#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod support;

use std::time::{Duration, Instant};

use sluicegate_relay::{Deadlines, DrainLimits, FaultKind, Streaming};
use support::{Answer, DONE, Setup, Waits, Way, both_ways, chat_chunk, finished, stream, upstream};

fn a_stream_arrives_byte_for_byte(way: Way) {
    let server = upstream(|_| vec![Answer::Write(stream(&finished())), Answer::Close]);
    let seen = Setup::streaming(way, &server).run();
    assert_eq!(seen.status, Some(200));
    assert_eq!(seen.body, finished().concat().as_bytes());
    assert_eq!(seen.header("content-type"), Some("text/event-stream"));
    assert_eq!(seen.header("x-accel-buffering"), Some("no"));
    assert_eq!(seen.outcome.finish_reason.as_deref(), Some("stop"));
    assert!(seen.outcome.fault.is_none());
    assert!(seen.outcome.first_token.is_some());
}

fn the_model_is_mapped_and_usage_asked_for(way: Way) {
    let server = upstream(|_| vec![Answer::Write(stream(&finished())), Answer::Close]);
    Setup::streaming(way, &server).run();
    let request = server.requests().remove(0);
    assert!(request.contains(r#""model":"theirs""#), "{request}");
    assert!(request.contains(r#""include_usage":true"#), "{request}");
    assert!(
        request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        !request.to_lowercase().contains("bearer client"),
        "{request}"
    );
}

fn stream_options_are_left_out_where_the_upstream_refuses_them(way: Way) {
    let server = upstream(|nth| {
        if nth == 0 {
            let body = r#"{"error":{"message":"stream_options: extra fields not permitted"}}"#;
            let head = format!(
                "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            return vec![Answer::Write(head.into_bytes()), Answer::Close];
        }
        vec![Answer::Write(stream(&finished())), Answer::Close]
    });
    let seen = Setup::streaming(way, &server).run();
    assert_eq!(seen.status, Some(200));
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests[0].contains("stream_options") && !requests[1].contains("stream_options"));
}

fn a_refused_connection_is_a_fault_before_the_reply(way: Way) {
    let server = upstream(|_| vec![]);
    let mut setup = Setup::streaming(way, &server);
    setup.base_url = "http://127.0.0.1:1/v1".to_owned();
    let seen = setup.run();
    assert_eq!(seen.status, Some(502));
    assert_eq!(seen.fault(), Some(FaultKind::Connect));
}

fn an_upstream_that_closes_without_a_word_is_a_reset(way: Way) {
    let server = upstream(|_| vec![Answer::Close]);
    let seen = Setup::streaming(way, &server).run();
    assert_eq!(seen.fault(), Some(FaultKind::Reset));
    assert_eq!(
        server.requests().len(),
        1,
        "a fresh connection is not tried twice"
    );
}

fn a_pooled_connection_that_died_is_replaced_once(way: Way) {
    // The second request of the first connection is met with a close, as by a server whose keep-alive ran out.
    let server = upstream(|nth| match nth {
        0 => {
            let body = r#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}"#;
            let reply = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            vec![
                Answer::Write(reply.into_bytes()),
                Answer::NextRequest,
                Answer::Close,
            ]
        }
        _ => vec![Answer::Write(stream(&finished())), Answer::Close],
    });
    let engines = support::engines();
    let setup = Setup::streaming(way, &server);
    let attempt = setup.attempt();
    setup.run_on(&engines, &attempt);
    let seen = setup.run_on(&engines, &attempt);
    assert_eq!(seen.status, Some(200));
    assert_eq!(seen.body, finished().concat().as_bytes());
    assert_eq!(server.requests().len(), 3);
    assert_eq!(seen.outcome.attempts, 1);
}

fn a_stream_that_breaks_off_ends_with_an_error_event(way: Way) {
    let server = upstream(|_| {
        vec![
            Answer::Write(stream(&[chat_chunk("a", "null")])),
            Answer::Close,
        ]
    });
    let seen = Setup::streaming(way, &server).run();
    let text = seen.text();
    assert_eq!(seen.status, Some(200));
    assert!(text.starts_with(&chat_chunk("a", "null")), "{text}");
    assert!(text.contains(r#"data: {"error":"#), "{text}");
    assert!(!text.contains("[DONE]"), "{text}");
    assert_eq!(seen.fault(), Some(FaultKind::Truncated));
}

fn a_chunked_body_that_is_cut_is_truncated_too(way: Way) {
    let server = upstream(|_| {
        let event = chat_chunk("a", "null");
        let reply = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{event}\r\n",
            event.len()
        );
        vec![Answer::Write(reply.into_bytes()), Answer::Close]
    });
    let seen = Setup::streaming(way, &server).run();
    assert!(seen.text().contains(r#"data: {"error":"#));
    assert_eq!(seen.fault(), Some(FaultKind::Truncated));
}

fn an_empty_success_is_an_error_reply(way: Way) {
    let server = upstream(|_| vec![Answer::Write(stream(&[])), Answer::Close]);
    let seen = Setup::streaming(way, &server).run();
    assert_eq!(seen.status, Some(502));
    assert_eq!(seen.fault(), Some(FaultKind::Empty));
}

fn with_deadlines(way: Way, deadlines: Deadlines, script: Vec<Answer>) -> support::Seen {
    let server = upstream(move |_| script.clone());
    let mut setup = Setup::streaming(way, &server);
    setup.deadlines = deadlines;
    setup.run()
}

fn short() -> Option<Duration> {
    Some(Duration::from_millis(150))
}

fn silence_before_the_head_ends_at_the_first_byte_deadline(way: Way) {
    let deadlines = Deadlines {
        first_byte: short(),
        ..Deadlines::default()
    };
    let seen = with_deadlines(way, deadlines, vec![Answer::Stall]);
    assert_eq!(seen.status, Some(502));
    assert_eq!(seen.fault(), Some(FaultKind::FirstByteTimeout));
}

fn silence_after_the_head_ends_at_the_first_byte_deadline(way: Way) {
    let deadlines = Deadlines {
        first_byte: short(),
        ..Deadlines::default()
    };
    let seen = with_deadlines(
        way,
        deadlines,
        vec![Answer::Write(stream(&[])), Answer::Stall],
    );
    assert_eq!(seen.fault(), Some(FaultKind::FirstByteTimeout));
}

fn keep_alives_are_no_tokens(way: Way) {
    let deadlines = Deadlines {
        first_token: short(),
        ..Deadlines::default()
    };
    let pings = Answer::Repeat(b": keep-alive\n\n".to_vec(), Duration::from_millis(20));
    let role =
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"}}]}\n\n".to_owned();
    let before = with_deadlines(
        way,
        deadlines,
        vec![Answer::Write(stream(&[role])), pings.clone()],
    );
    assert_eq!(before.fault(), Some(FaultKind::FirstTokenTimeout));
    let first = stream(&[chat_chunk("a", "null")]);
    let deadlines = Deadlines {
        between_tokens: short(),
        ..Deadlines::default()
    };
    let between = with_deadlines(way, deadlines, vec![Answer::Write(first), pings]);
    assert_eq!(between.fault(), Some(FaultKind::BetweenTokensTimeout));
    assert!(between.text().contains("between_tokens_timeout"));
}

fn tokens_move_the_deadline_and_the_total_does_not_move(way: Way) {
    let deadlines = Deadlines {
        between_tokens: Some(Duration::from_millis(1500)),
        total: Some(Duration::from_millis(2500)),
        ..Deadlines::default()
    };
    let first = Answer::Write(stream(&[chat_chunk("a", "null")]));
    let tokens = Answer::Repeat(
        chat_chunk("b", "null").into_bytes(),
        Duration::from_millis(50),
    );
    let seen = with_deadlines(way, deadlines, vec![first, tokens]);
    assert_eq!(seen.fault(), Some(FaultKind::TotalTimeout));
}

fn a_client_that_leaves_closes_a_silent_upstream_within_100_ms(way: Way) {
    let server = upstream(|_| {
        vec![
            Answer::Write(stream(&[chat_chunk("a", "null")])),
            Answer::Stall,
        ]
    });
    let mut setup = Setup::streaming(way, &server);
    setup.orders.leave_after_first_frame = true;
    let engines = support::engines();
    let waits = Waits::so_far();
    let seen = setup.run_on(&engines, &setup.attempt());
    let left = seen.left_at.unwrap();
    let closed = server.wait_closed(support::PATIENCE);
    let most = Duration::from_millis(100) + waits.since();
    assert!(closed.saturating_duration_since(left) < most);
    assert!(seen.outcome.client_left);
    assert_eq!(seen.outcome.token_events, 1);
}

fn a_client_that_leaves_before_the_head_is_recorded_as_499(way: Way) {
    let server = upstream(|_| vec![Answer::Stall]);
    let mut setup = Setup::streaming(way, &server);
    setup.orders.leave_at_once = true;
    let seen = setup.run();
    assert_eq!(seen.outcome.status, 499);
    assert!(seen.outcome.client_left);
}

/// A stream whose client leaves after its first token; the rest follows later.
fn left_alone(way: Way, rest: Vec<u8>, limits: DrainLimits) -> support::Seen {
    let server = upstream(move |_| {
        vec![
            Answer::Write(stream(&[chat_chunk("a", "null")])),
            Answer::Wait(Duration::from_millis(400)),
            Answer::Write(rest.clone()),
            Answer::Close,
        ]
    });
    let mut setup = Setup::streaming(way, &server);
    setup.orders.leave_after_first_frame = true;
    setup.drain = Some(limits);
    setup.run()
}

fn a_reply_without_a_client_is_read_on_where_the_route_drains(way: Way) {
    let seen = left_alone(
        way,
        finished().concat().into_bytes(),
        DrainLimits::default(),
    );
    assert!(seen.outcome.client_left);
    assert!(seen.outcome.fault.is_none());
    assert_eq!(seen.outcome.finish_reason.as_deref(), Some("stop"));
    assert_eq!(seen.outcome.token_events, 2);
    assert_eq!(
        seen.body,
        chat_chunk("a", "null").as_bytes(),
        "nothing more is given to the client"
    );
}

fn reading_on_is_bound_in_time_bytes_and_number(way: Way) {
    let long = DrainLimits::default();
    for limits in [
        DrainLimits {
            time: Duration::from_millis(10),
            ..long
        },
        DrainLimits { bytes: 10, ..long },
        DrainLimits { replies: 0, ..long },
    ] {
        let seen = left_alone(way, finished().concat().into_bytes(), limits);
        assert!(seen.outcome.client_left);
        assert!(seen.outcome.finish_reason.is_none(), "{limits:?}");
        assert_eq!(seen.outcome.token_events, 1);
    }
}

fn an_upstream_that_is_always_ready_does_not_hide_a_deadline(way: Way) {
    let events = chat_chunk("a", "null").repeat(1_000).into_bytes();
    let flood = Answer::Repeat(events, Duration::ZERO);
    let deadlines = Deadlines {
        total: short(),
        ..Deadlines::default()
    };
    let seen = with_deadlines(way, deadlines, vec![Answer::Write(stream(&[])), flood]);
    assert_eq!(seen.fault(), Some(FaultKind::TotalTimeout));
}

fn a_compressed_stream_is_decoded_with_each_flush(way: Way) {
    for coding in ["gzip", "deflate", "br", "zstd"] {
        let first = support::compressed(coding, &[chat_chunk("a", "null")]);
        let mut bytes = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: {coding}\r\n\r\n"
        )
        .into_bytes();
        bytes.extend_from_slice(&first);
        let server = upstream(move |_| vec![Answer::Write(bytes.clone()), Answer::Stall]);
        let mut setup = Setup::streaming(way, &server);
        setup.orders.leave_after_first_frame = true;
        let seen = setup.run();
        assert_eq!(seen.body, chat_chunk("a", "null").as_bytes(), "{coding}");
        assert_eq!(seen.header("content-encoding"), None);
    }
}

fn an_unknown_encoding_is_a_fault(way: Way) {
    let server = upstream(|_| {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: rot13\r\n\r\n";
        vec![Answer::Write(head.into()), Answer::Close]
    });
    let seen = Setup::streaming(way, &server).run();
    assert_eq!(seen.fault(), Some(FaultKind::Decode));
}

fn a_zstandard_frame_may_not_ask_for_more_than_8_mib(way: Way) {
    for (window_log, fault) in [(23, None), (24, Some(FaultKind::Decode))] {
        let mut bytes =
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: zstd\r\n\r\n"
                .to_vec();
        bytes.extend_from_slice(&support::zstd(window_log, &finished()));
        let server = upstream(move |_| vec![Answer::Write(bytes.clone()), Answer::Close]);
        let seen = Setup::streaming(way, &server).run();
        assert_eq!(seen.fault(), fault, "{window_log}");
    }
}

fn another_upstream_takes_over_until_the_first_output(way: Way) {
    let role =
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"}}]}\n\n".to_owned();
    let error = "data: {\"error\":{\"message\":\"quota\"}}\n\n".to_owned();
    let preamble = stream(&[role, error]);
    let failing = upstream(move |_| vec![Answer::Write(preamble.clone()), Answer::Close]);
    let second = upstream(|_| vec![Answer::Write(stream(&finished())), Answer::Close]);
    let mut setup = Setup::streaming(way, &failing);
    setup.fallback = vec![second.base_url()];
    let seen = setup.run();
    assert_eq!(seen.body, finished().concat().as_bytes());
    assert_eq!(seen.outcome.attempts, 2);
    assert!(seen.outcome.fault.is_none());
}

fn a_stream_is_never_switched_after_its_first_output(way: Way) {
    let first = stream(&[chat_chunk("a", "null")]);
    let failing = upstream(move |_| vec![Answer::Write(first.clone()), Answer::Close]);
    let second = upstream(|_| vec![Answer::Write(stream(&finished())), Answer::Close]);
    let mut setup = Setup::streaming(way, &failing);
    setup.fallback = vec![second.base_url()];
    let seen = setup.run();
    assert_eq!(seen.outcome.attempts, 1);
    assert!(second.requests().is_empty());
}

fn a_client_that_does_not_read_stops_the_reading_of_its_upstream(way: Way) {
    let events = (0..4_000)
        .map(|n| chat_chunk(&n.to_string().repeat(40), "null"))
        .collect::<Vec<_>>();
    let total = events.iter().map(String::len).sum::<usize>();
    let script = stream(&events);
    let server = upstream(move |_| vec![Answer::Write(script.clone()), Answer::Close]);
    let mut setup = Setup::streaming(way, &server);
    setup.orders.reads = Some(1);
    let engines = support::engines();
    let running = setup.submit(&engines, &setup.attempt());
    running.wait_first_frame();
    // Long enough for far more than the bound; a shorter wait could only make the test milder.
    std::thread::sleep(Duration::from_millis(200));
    running.leave();
    let seen = running.wait();
    // What is bounded is what waits; one read more may be on its way.
    let most = (support::CLIENT_BOUND + 64 * 1024) as u64;
    assert!(most < total as u64 / 2);
    assert!(seen.outcome.bytes_in <= most, "{}", seen.outcome.bytes_in);
}

fn times_past_the_clocks_end_never_come(way: Way) {
    let server = upstream(|_| {
        vec![
            Answer::Write(stream(&[chat_chunk("a", "null")])),
            Answer::Wait(Duration::from_millis(100)),
            Answer::Write(finished().concat().into_bytes()),
            Answer::Close,
        ]
    });
    let for_ever = Some(Duration::MAX);
    for leaves in [false, true] {
        let mut setup = Setup::streaming(way, &server);
        setup.deadlines = Deadlines {
            connect: for_ever,
            first_byte: for_ever,
            first_token: for_ever,
            between_tokens: for_ever,
            total: for_ever,
        };
        setup.keepalive = for_ever;
        setup.orders.leave_after_first_frame = leaves;
        setup.drain = Some(DrainLimits {
            time: Duration::MAX,
            ..DrainLimits::default()
        });
        let seen = setup.run();
        assert!(seen.outcome.fault.is_none());
        assert_eq!(seen.outcome.client_left, leaves);
        assert_eq!(seen.outcome.finish_reason.as_deref(), Some("stop"));
    }
}

fn closing_the_relay_ends_what_runs(way: Way) {
    let server = upstream(|_| {
        vec![
            Answer::Write(stream(&[chat_chunk("a", "null")])),
            Answer::Stall,
        ]
    });
    let engines = support::engines();
    let setup = Setup::streaming(way, &server);
    let running = setup.submit(&engines, &setup.attempt());
    running.wait_first_frame();
    let begun = Instant::now();
    engines.close();
    assert!(begun.elapsed() < Duration::from_secs(5));
    let seen = running.wait();
    assert_eq!(seen.fault(), Some(FaultKind::Shutdown));
}

fn completion() -> Vec<u8> {
    let body = r#"{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}"#;
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn an_upstream_that_never_streams_is_not_asked_to(way: Way) {
    let server = upstream(|_| vec![Answer::Write(completion()), Answer::Close]);
    let mut setup = Setup::streaming(way, &server);
    setup.streaming = Streaming::Never;
    let seen = setup.run();
    let request = server.requests().remove(0);
    assert!(
        request.contains(r#""stream":false"#) && !request.contains("stream_options"),
        "{request}"
    );
    assert!(
        seen.header("content-type")
            .unwrap()
            .starts_with("text/event-stream")
    );
    assert!(seen.body.ends_with(DONE.as_bytes()));
}

fn an_upstream_that_only_streams_is_folded_for_a_client_that_does_not(way: Way) {
    let server = upstream(|_| vec![Answer::Write(stream(&finished())), Answer::Close]);
    let mut setup = Setup::streaming(way, &server);
    setup.streaming = Streaming::Always;
    setup.client_streams = false;
    let seen = setup.run();
    let request = server.requests().remove(0);
    assert!(
        request.contains(r#""stream":true"#) && request.contains("include_usage"),
        "{request}"
    );
    assert_eq!(seen.header("content-type"), Some("application/json"));
    let text = seen.text();
    assert!(
        text.contains(r#""object":"chat.completion""#) && text.contains(r#""content":"a""#),
        "{text}"
    );
}

both_ways!(
    a_stream_arrives_byte_for_byte,
    the_model_is_mapped_and_usage_asked_for,
    stream_options_are_left_out_where_the_upstream_refuses_them,
    a_refused_connection_is_a_fault_before_the_reply,
    an_upstream_that_closes_without_a_word_is_a_reset,
    a_pooled_connection_that_died_is_replaced_once,
    a_stream_that_breaks_off_ends_with_an_error_event,
    a_chunked_body_that_is_cut_is_truncated_too,
    an_empty_success_is_an_error_reply,
    silence_before_the_head_ends_at_the_first_byte_deadline,
    silence_after_the_head_ends_at_the_first_byte_deadline,
    keep_alives_are_no_tokens,
    tokens_move_the_deadline_and_the_total_does_not_move,
    a_client_that_leaves_closes_a_silent_upstream_within_100_ms,
    a_client_that_leaves_before_the_head_is_recorded_as_499,
    a_reply_without_a_client_is_read_on_where_the_route_drains,
    reading_on_is_bound_in_time_bytes_and_number,
    an_upstream_that_is_always_ready_does_not_hide_a_deadline,
    a_compressed_stream_is_decoded_with_each_flush,
    an_unknown_encoding_is_a_fault,
    a_zstandard_frame_may_not_ask_for_more_than_8_mib,
    another_upstream_takes_over_until_the_first_output,
    a_stream_is_never_switched_after_its_first_output,
    a_client_that_does_not_read_stops_the_reading_of_its_upstream,
    times_past_the_clocks_end_never_come,
    closing_the_relay_ends_what_runs,
    an_upstream_that_never_streams_is_not_asked_to,
    an_upstream_that_only_streams_is_folded_for_a_client_that_does_not,
);
