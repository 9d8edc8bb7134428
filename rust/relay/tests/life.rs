//! What becomes of an exchange: how long it waits, for whom, what it holds on to, and that it is reported exactly once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What fails here fails the test.

mod support;

use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::task::Poll;
use std::time::Duration;

use sluicegate_core::api::Api;
use sluicegate_relay::{Copies, Engines, FaultKind, NotCopied, Pricing, Taken};
use support::{Answer, End, PATIENCE, Server, Setup, Way, both_ways, chat_chunk, head, upstream};

const DONE: &str = "data: [DONE]\n\n";

/// Longer than any test may take: a wait for it is a wait for ever.
const NEVER: Duration = Duration::from_secs(3600);

fn stream(events: &[String]) -> Answer {
    Answer::Write((head("text/event-stream") + &events.concat()).into_bytes())
}

fn finished() -> [String; 3] {
    [
        chat_chunk("a", "null"),
        chat_chunk("", "\"stop\""),
        DONE.to_owned(),
    ]
}

fn role() -> String {
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"}}]}\n\n".to_owned()
}

fn serving() -> Server {
    upstream(|_| vec![stream(&finished()), Answer::Close])
}

/// One that sends a token and then says nothing until its peer closes.
fn stalling() -> Server {
    upstream(|_| vec![stream(&[chat_chunk("a", "null")]), Answer::Stall])
}

/// One that sends tokens for as long as they are taken.
fn flooding() -> Server {
    upstream(|_| {
        let events = chat_chunk("a", "null").repeat(1_000).into_bytes();
        vec![
            stream(&[]),
            Answer::Repeat(events, Duration::ZERO),
            Answer::Stall,
        ]
    })
}

/// An address where nobody listens.
fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/v1", listener.local_addr().unwrap())
}

#[test]
fn a_client_that_takes_nothing_is_cut_and_its_upstream_closed() {
    // No other deadline is set: nothing else would look after it.
    let server = flooding();
    let mut setup = Setup::streaming(Way::Task, &server);
    setup.client_stall = Some(Duration::from_millis(100));
    setup.orders.reads = Some(1);
    let engines = support::engines();
    let running = setup.submit(&engines, &setup.attempt());
    let closed = server.wait_closed(PATIENCE);
    // The rest was thrown away; a client that takes again sees a reply that was cut.
    running.leave();
    let seen = running.wait();
    assert!(seen.outcome.stalled);
    assert!(seen.outcome.client_left);
    assert!(seen.outcome.fault.is_none());
    assert_eq!(seen.outcome.status, 200);
    assert!(seen.left_at.is_none_or(|left| left >= closed));
}

#[test]
fn a_client_that_takes_slowly_is_not_cut() {
    let server = upstream(|_| {
        let text = "x".repeat(support::CLIENT_BOUND / 2);
        let events = std::iter::repeat_n(chat_chunk(&text, "null"), 6).chain(finished());
        vec![stream(&events.collect::<Vec<_>>()), Answer::Close]
    });
    let mut setup = Setup::streaming(Way::Task, &server);
    setup.client_stall = Some(NEVER);
    let seen = setup.run();
    assert!(!seen.outcome.stalled);
    assert_eq!(seen.end, End::Ended);
    assert!(seen.outcome.fault.is_none());
}

/// Polls an exchange until its client has got `frames`, drops it, and gives the outcome that it reported.
fn dropped_after(setup: &Setup, engines: &Engines, frames: usize) -> sluicegate_relay::Outcome {
    let (sink, mut reply) = Way::Inline.ends();
    let (exchange, ended) = setup.exchange(engines.any(), &setup.attempt(), sink, |_| {});
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let running = Box::pin(exchange.run(engines.any()));
    assert_eq!(engines.any().active(), 1);
    runtime.block_on(async {
        let mut running = running;
        for _ in 0..frames {
            let next = poll_fn(|cx| {
                let over = running.as_mut().poll(cx).is_ready();
                match reply.take() {
                    Taken::Frame(_) => Poll::Ready(()),
                    _ if over => panic!("it ended"),
                    _ => Poll::Pending,
                }
            });
            tokio::time::timeout(PATIENCE, pin!(next)).await.unwrap();
        }
    });
    assert_eq!(engines.any().active(), 0);
    let (outcome, copy) = ended.recv_timeout(PATIENCE).unwrap();
    assert!(copy.is_none(), "it was not whole");
    assert!(ended.recv_timeout(PATIENCE).is_err(), "reported twice");
    assert!(matches!(reply.take(), Taken::Aborted));
    outcome
}

#[test]
fn an_exchange_that_is_dropped_is_reported_once() {
    let server = stalling();
    let engines = support::engines();
    let mut setup = Setup::streaming(Way::Inline, &server);
    setup.copied = Some(1 << 20);
    setup.pricing = Pricing::Rates(support::rates());
    let fault =
        |outcome: &sluicegate_relay::Outcome| outcome.fault.as_ref().map(|fault| fault.kind);
    let never_polled = dropped_after(&setup, &engines, 0);
    assert_eq!(fault(&never_polled), Some(FaultKind::Internal));
    assert_eq!(never_polled.attempts, 0);
    // What its upstream did is not forgotten.
    let in_the_middle = dropped_after(&setup, &engines, 1);
    assert_eq!(fault(&in_the_middle), Some(FaultKind::Internal));
    assert_eq!((in_the_middle.status, in_the_middle.token_events), (200, 1));
    assert!(in_the_middle.estimated);
    let cost = in_the_middle.cost.as_ref().map(|cost| cost.total());
    assert_eq!(cost.as_deref(), Some("0.000004"));
    server.wait_closed(PATIENCE);
    engines.close();
    let closed = dropped_after(&setup, &engines, 0);
    assert_eq!(fault(&closed), Some(FaultKind::Shutdown));
}

#[test]
fn a_director_that_panics_cuts_the_client_and_is_told_once() {
    let setup = {
        let mut setup = Setup::streaming(Way::Inline, &serving());
        setup.base_url = nobody();
        setup
    };
    let engines = support::engines();
    let attempt = setup.attempt();
    for way in [Way::Task, Way::Inline] {
        let mut setup = setup.clone();
        setup.way = way;
        let seen = setup
            .submit_heard(&engines, &attempt, |_| {
                resume_unwind(Box::new("as the test wants"))
            })
            .wait();
        assert_eq!(seen.fault(), Some(FaultKind::Internal), "{way:?}");
        assert_ne!(seen.end, End::Ended);
    }
    // The engine lives on.
    let server = serving();
    let seen = Setup::streaming(Way::Task, &server).run_on(&engines, &{
        let good = Setup::streaming(Way::Task, &server);
        good.attempt()
    });
    assert_eq!(seen.status, Some(200));
}

/// The request of `setup` is freed while its reply is under way.
fn is_freed(setup: &mut Setup, body: &str) {
    let (body, freed) = support::tracked(body);
    setup.body = Some(body);
    let engines = support::engines();
    let running = setup.submit(&engines, &setup.attempt());
    setup.body = None;
    running.wait_first_frame();
    freed.wait();
    running.leave();
    let seen = running.wait();
    assert_eq!(seen.status, Some(200));
    assert!(seen.outcome.client_left, "it was still under way");
}

const CHAT: &str =
    r#"{"model":"ours","stream":true,"messages":[{"role":"user","content":"hello"}]}"#;
const RESPONSES: &str = r#"{"model":"ours","stream":true,"input":"hello"}"#;

fn a_request_is_freed_when_its_reply_begins(way: Way) {
    let mut setup = Setup::streaming(way, &stalling());
    is_freed(&mut setup, CHAT);
    setup.keepalive = Some(NEVER);
    setup.drain = Some(sluicegate_relay::DrainLimits {
        replies: 0,
        ..Default::default()
    });
    is_freed(&mut setup, CHAT);
}

fn a_request_for_a_response_is_freed_when_its_reply_begins(way: Way) {
    let response = r#"{"id":"resp_2","object":"response","created_at":1,"status":"in_progress","model":"theirs","output":[]}"#;
    let created = format!(
        "event: response.created\ndata: {{\"type\":\"response.created\",\"sequence_number\":0,\"response\":{response}}}\n\n"
    );
    let forwarding = upstream(move |_| vec![stream(std::slice::from_ref(&created)), Answer::Stall]);
    let mut setup = Setup::streaming(way, &forwarding);
    setup.api = Api::Responses;
    setup.serves = Api::Responses;
    is_freed(&mut setup, RESPONSES);
    // Of a translated one the client's own bytes go as well.
    let translating = stalling();
    setup.base_url = translating.base_url();
    setup.serves = Api::Chat;
    is_freed(&mut setup, RESPONSES);
}

fn a_request_that_another_upstream_may_need_is_held(way: Way) {
    let error = "data: {\"error\":{\"message\":\"quota\"}}\n\n".to_owned();
    let failing = upstream(move |_| vec![stream(&[role(), error.clone()]), Answer::Close]);
    let second = stalling();
    let mut setup = Setup::streaming(way, &failing);
    setup.fallback = vec![second.base_url()];
    let (body, freed) = support::tracked(CHAT);
    setup.body = Some(body);
    let engines = support::engines();
    let (flag, (tell, told)) = (freed.flag(), channel());
    let running = setup.submit_heard(&engines, &setup.attempt(), move |_| {
        let _ = tell.send(flag.load(Ordering::SeqCst));
    });
    setup.body = None;
    assert!(
        !told.recv_timeout(PATIENCE).unwrap(),
        "another attempt needs it"
    );
    running.wait_first_frame();
    freed.wait();
    running.leave();
    let seen = running.wait();
    assert_eq!(seen.outcome.attempts, 2);
    assert!(second.requests()[0].contains("hello"));
}

fn each_try_is_recorded(way: Way) {
    let refusing = upstream(|_| {
        let reply = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}";
        vec![Answer::Write(reply.into()), Answer::Close]
    });
    let last = serving();
    let mut setup = Setup::streaming(way, &refusing);
    setup.fallback = vec![nobody(), last.base_url()];
    let seen = setup.run();
    assert_eq!(seen.status, Some(200));
    let tries = &seen.outcome.tries;
    let said = tries.iter().map(|tried| (tried.fault, tried.status));
    let expected = [
        (Some(FaultKind::Status), Some(503)),
        (Some(FaultKind::Connect), None),
        (None, Some(200)),
    ];
    assert_eq!(said.collect::<Vec<_>>(), expected);
    assert_eq!(seen.outcome.attempts, 3);
    for pair in tries.windows(2) {
        assert!(pair[0].began + pair[0].took <= pair[1].began);
    }
    assert!(
        tries
            .iter()
            .all(|tried| &*tried.upstream == "up" && &*tried.model == "theirs")
    );
    assert!(tries[2].began + tries[2].took <= seen.outcome.duration);
}

fn a_failed_try_that_was_the_last_is_recorded_as_it_failed(way: Way) {
    let error = "data: {\"error\":{\"message\":\"quota\"}}\n\n".to_owned();
    let usage =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":9}}\n\n"
            .to_owned();
    let failing = upstream(move |_| {
        vec![
            stream(&[role(), usage.clone(), error.clone()]),
            Answer::Close,
        ]
    });
    let mut setup = Setup::streaming(way, &failing);
    setup.pricing = Pricing::Rates(support::rates());
    setup.fallback = vec![nobody()];
    let seen = setup.run();
    let tries = &seen.outcome.tries;
    let faults = tries.iter().map(|tried| tried.fault).collect::<Vec<_>>();
    assert_eq!(
        faults,
        [Some(FaultKind::InBandError), Some(FaultKind::Connect)]
    );
    assert_eq!(seen.fault(), Some(FaultKind::Connect));
    assert_eq!(seen.status, Some(502));
    // The second has used nothing, whatever the first said of itself.
    assert_eq!(seen.outcome.usage, None);
    assert!(seen.outcome.cost.is_none());
    assert!(!seen.outcome.streamed);
}

fn an_attempt_waits_as_it_is_told(way: Way) {
    let second = serving();
    let mut setup = Setup::streaming(way, &second);
    setup.base_url = nobody();
    setup.fallback = vec![second.base_url()];
    setup.after = Duration::from_millis(120);
    let seen = setup.run();
    let tries = &seen.outcome.tries;
    assert!(tries[1].began >= tries[0].began + tries[0].took + setup.after);
    assert_eq!(seen.status, Some(200));
}

fn a_client_that_leaves_ends_the_wait_for_an_attempt(way: Way) {
    let second = serving();
    let mut setup = Setup::streaming(way, &second);
    setup.base_url = nobody();
    setup.fallback = vec![second.base_url()];
    setup.after = NEVER;
    let engines = support::engines();
    let (tell, told) = channel();
    let running = setup.submit_heard(&engines, &setup.attempt(), move |_| tell.send(()).unwrap());
    told.recv_timeout(PATIENCE).unwrap();
    running.leave();
    let seen = running.wait();
    assert!(seen.outcome.client_left);
    assert_eq!((seen.outcome.status, seen.outcome.attempts), (499, 1));
    assert_eq!(seen.outcome.tries.len(), 1);
    assert_eq!(seen.outcome.tries[0].fault, Some(FaultKind::Connect));
    assert!(second.requests().is_empty());
}

fn the_total_deadline_ends_the_wait_for_an_attempt(way: Way) {
    let second = serving();
    let mut setup = Setup::streaming(way, &second);
    setup.base_url = nobody();
    setup.fallback = vec![second.base_url()];
    setup.after = NEVER;
    setup.deadlines.total = Some(Duration::from_millis(150));
    let seen = setup.run();
    assert_eq!(seen.fault(), Some(FaultKind::TotalTimeout));
    assert_eq!((seen.status, seen.outcome.attempts), (Some(502), 1));
    assert_eq!(seen.outcome.tries[0].fault, Some(FaultKind::Connect));
    assert!(second.requests().is_empty());
}

fn attempts_share_the_total_deadline(way: Way) {
    let silent = upstream(|_| vec![Answer::Stall]);
    let mut setup = Setup::streaming(way, &silent);
    setup.fallback = vec![silent.base_url()];
    // Alone, the second would be late for its first byte after 3 s.
    setup.deadlines.first_byte = Some(Duration::from_millis(1500));
    setup.deadlines.total = Some(Duration::from_millis(2500));
    let seen = setup.run();
    let faults = seen.outcome.tries.iter().map(|tried| tried.fault);
    assert_eq!(
        faults.collect::<Vec<_>>(),
        [
            Some(FaultKind::FirstByteTimeout),
            Some(FaultKind::TotalTimeout)
        ]
    );
}

fn a_client_may_want_to_wait_for_less_than_the_total_deadline(way: Way) {
    let silent = upstream(|_| vec![Answer::Stall]);
    let mut setup = Setup::streaming(way, &silent);
    setup.deadlines.first_byte = Some(NEVER);
    setup.deadlines.total = Some(NEVER);
    setup.patience = Some(Duration::from_millis(150));
    let seen = setup.run();
    assert_eq!(seen.fault(), Some(FaultKind::ClientTimeout));
    assert_eq!(seen.outcome.attempts, 1);
}

fn an_error_in_a_reply_has_the_status_that_it_stands_for(way: Way) {
    let told = |error: &'static str| {
        let server = upstream(move |_| {
            let event = format!("data: {error}\n\n");
            vec![stream(&[event]), Answer::Close]
        });
        let fault = Setup::streaming(way, &server).run().outcome.fault.unwrap();
        assert_eq!(fault.kind, FaultKind::InBandError);
        fault.status
    };
    let both = r#"{"error":{"message":"m","type":"BadRequestError","code":400}}"#;
    assert_eq!(told(both), Some(400));
    let kind = r#"{"type":"error","error":{"message":"m","type":"overloaded_error"}}"#;
    assert_eq!(told(kind), Some(529));
    assert_eq!(told(r#"{"error":"m"}"#), None);
}

fn engines_that_close_end_the_wait_for_an_attempt(way: Way) {
    let second = serving();
    let mut setup = Setup::streaming(way, &second);
    setup.base_url = nobody();
    setup.fallback = vec![second.base_url()];
    setup.after = NEVER;
    let engines = support::engines();
    let (tell, told) = channel();
    let running = setup.submit_heard(&engines, &setup.attempt(), move |fault| {
        tell.send(fault.kind).unwrap()
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(FaultKind::Connect));
    engines.close();
    let seen = running.wait();
    assert_eq!(
        told.recv_timeout(PATIENCE),
        Ok(FaultKind::Shutdown),
        "what to say is asked"
    );
    assert_eq!(seen.fault(), Some(FaultKind::Shutdown));
    assert_eq!((seen.status, seen.end), (Some(502), End::Ended));
    assert!(second.requests().is_empty());
}

fn a_decision_that_never_comes_does_not_hold_up_the_end(way: Way) {
    let mut setup = Setup::streaming(way, &serving());
    setup.base_url = nobody();
    setup.silent_director = true;
    let engines = support::engines();
    let (tell, told) = channel();
    let running = setup.submit_heard(&engines, &setup.attempt(), move |_| tell.send(()).unwrap());
    told.recv_timeout(PATIENCE).unwrap();
    let (tell, closed) = channel();
    std::thread::spawn(move || {
        engines.close();
        tell.send(()).unwrap();
    });
    closed
        .recv_timeout(PATIENCE)
        .expect("the engines did not close");
    let seen = running.wait();
    assert_eq!(seen.fault(), Some(FaultKind::Connect));
    assert_eq!((seen.status, seen.end), (None, End::Aborted));
}

fn a_client_that_leaves_ends_the_wait_for_a_decision(way: Way) {
    let mut setup = Setup::streaming(way, &serving());
    setup.base_url = nobody();
    setup.silent_director = true;
    let engines = support::engines();
    let (tell, told) = channel();
    let running = setup.submit_heard(&engines, &setup.attempt(), move |_| tell.send(()).unwrap());
    told.recv_timeout(PATIENCE).unwrap();
    running.leave();
    let seen = running.wait();
    assert!(seen.outcome.client_left);
    assert_eq!(seen.fault(), Some(FaultKind::Connect));
}

fn a_copy_is_the_whole_reply_or_nothing(way: Way) {
    let whole = finished().concat();
    let mut setup = Setup::streaming(way, &serving());
    setup.copied = Some(whole.len());
    let seen = setup.run();
    assert_eq!(seen.copy.as_deref(), Some(whole.as_bytes()));
    assert_eq!(seen.outcome.not_copied, None);
    drop(seen);
    setup.copied = Some(whole.len() - 1);
    let seen = setup.run();
    assert!(seen.copy.is_none(), "too large");
    assert_eq!(seen.outcome.not_copied, Some(NotCopied::TooLarge));
    let stalling = stalling();
    setup.base_url = stalling.base_url();
    setup.copied = Some(1 << 20);
    setup.orders.leave_after_first_frame = true;
    let seen = setup.run();
    assert!(seen.copy.is_none(), "its client has left");
    assert_eq!(seen.outcome.not_copied, None);
    assert_eq!(setup.copies.taken(), 0);
}

fn replies_that_are_copied_have_a_bound_together(way: Way) {
    let whole = finished().concat();
    let mut setup = Setup::streaming(way, &serving());
    setup.copied = Some(1 << 20);
    setup.copies = Copies::new(2 * whole.len() - 1);
    let first = setup.run();
    assert_eq!(first.copy.as_deref(), Some(whole.as_bytes()));
    let second = setup.run();
    assert_eq!(second.body, whole.as_bytes(), "its client has all of it");
    assert!(second.copy.is_none());
    assert_eq!(second.outcome.not_copied, Some(NotCopied::NoRoom));
    drop(first);
    assert!(setup.run().copy.is_some(), "there is room again");
}

fn a_reply_that_is_read_on_is_not_copied(way: Way) {
    let server = upstream(|_| {
        vec![
            stream(&[chat_chunk("a", "null")]),
            Answer::Wait(Duration::from_millis(400)),
            Answer::Write(finished().concat().into_bytes()),
            Answer::Close,
        ]
    });
    let mut setup = Setup::streaming(way, &server);
    setup.copied = Some(1 << 20);
    setup.drain = Some(Default::default());
    setup.orders.leave_after_first_frame = true;
    let seen = setup.run();
    assert_eq!(seen.outcome.finish_reason.as_deref(), Some("stop"));
    assert!(seen.copy.is_none(), "frames are missing in it");
}

fn a_client_that_was_sent_comments_alone_has_got_a_status(way: Way) {
    let server = upstream(|_| vec![Answer::Stall]);
    let mut setup = Setup::streaming(way, &server);
    setup.keepalive = Some(Duration::from_millis(30));
    setup.orders.leave_after_first_frame = true;
    let seen = setup.run();
    assert_eq!(seen.status, Some(200));
    assert_eq!((seen.outcome.status, seen.outcome.streamed), (200, true));
    assert!(seen.outcome.client_left);
}

both_ways!(
    a_request_is_freed_when_its_reply_begins,
    a_request_for_a_response_is_freed_when_its_reply_begins,
    a_request_that_another_upstream_may_need_is_held,
    each_try_is_recorded,
    a_failed_try_that_was_the_last_is_recorded_as_it_failed,
    an_attempt_waits_as_it_is_told,
    a_client_that_leaves_ends_the_wait_for_an_attempt,
    the_total_deadline_ends_the_wait_for_an_attempt,
    attempts_share_the_total_deadline,
    a_client_may_want_to_wait_for_less_than_the_total_deadline,
    an_error_in_a_reply_has_the_status_that_it_stands_for,
    engines_that_close_end_the_wait_for_an_attempt,
    a_decision_that_never_comes_does_not_hold_up_the_end,
    a_client_that_leaves_ends_the_wait_for_a_decision,
    a_copy_is_the_whole_reply_or_nothing,
    replies_that_are_copied_have_a_bound_together,
    a_reply_that_is_read_on_is_not_copied,
    a_client_that_was_sent_comments_alone_has_got_a_status,
);
