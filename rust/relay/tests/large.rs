//! Requests and replies that are worked on by another thread than the engine's, and prices that are asked for there:
//! the bytes are the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What fails here fails the test.

mod support;

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use proptest::prelude::*;
use sluicegate_core::api::Api;
use sluicegate_core::pipeline::{Pipeline, Pricer, ReplyPlan};
use sluicegate_core::usage::Usage;
use sluicegate_relay::offload::LARGE;
use sluicegate_relay::{Engines, Fault, Pricing, Streaming};
use support::{Answer, End, Setup, Way, both_ways, chat_chunk, head, rates, upstream};

const USAGE: &str = r#""usage":{"prompt_tokens":14,"completion_tokens":7,"total_tokens":21}"#;
const COST: &str = r#""cost":0.000042"#;

struct ByRates;

impl Pricer for ByRates {
    fn price(&mut self, usage: &Usage) -> Option<sluicegate_core::cost::Members> {
        rates().price(usage).1
    }
}

/// A completion of about `size` bytes.
fn document(size: usize) -> Bytes {
    let text = "word \\n ".repeat(size / 8);
    let choice = format!(
        r#"{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}"#
    );
    format!(r#"{{"object":"chat.completion","choices":[{choice}],{USAGE}}}"#).into()
}

/// What the core alone makes of a document.
fn expected(document: &Bytes) -> Vec<u8> {
    let mut pipeline = Pipeline::new(ReplyPlan::new(Api::Chat, false));
    let mut frames = Vec::new();
    pipeline
        .feed(document.clone(), &mut ByRates, &mut frames)
        .unwrap();
    pipeline.finish(&mut ByRates, &mut frames).unwrap();
    frames.concat()
}

/// Writes `text` in parts that end at `cuts`, as a body with its length.
fn in_parts(text: &[u8], cuts: &[usize]) -> Vec<Answer> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        text.len()
    );
    let mut cuts = cuts.to_vec();
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    cuts.dedup();
    let mut answers = vec![Answer::Write(head.into())];
    for part in cuts.windows(2) {
        answers.push(Answer::Write(text[part[0]..part[1]].to_vec()));
        // So that the parts are read one by one. Read together they must give the same.
        answers.push(Answer::Wait(Duration::from_millis(1)));
    }
    answers.push(Answer::Close);
    answers
}

fn plain(way: Way, answers: Vec<Answer>, pricing: Pricing) -> (support::Seen, Setup) {
    let server = upstream(move |_| answers.clone());
    let mut setup = Setup::streaming(way, &server);
    setup.client_streams = false;
    setup.pricing = pricing;
    (setup.run(), setup)
}

fn a_large_document_is_what_a_small_one_is(way: Way) {
    for size in [100, LARGE - 4_096, LARGE + 4_096, 3 * LARGE] {
        let text = document(size);
        let expected = expected(&text);
        assert!(String::from_utf8_lossy(&expected).contains(COST));
        for cuts in [
            vec![],
            vec![1, text.len() / 2, text.len() - 1],
            vec![LARGE, LARGE + 1],
        ] {
            let cuts = cuts
                .into_iter()
                .filter(|cut| *cut < text.len())
                .collect::<Vec<_>>();
            for pricing in [Pricing::Rates(rates()), Pricing::Asked] {
                let asked = matches!(pricing, Pricing::Asked);
                let (seen, setup) = plain(way, in_parts(&text, &cuts), pricing);
                assert!(
                    seen.body == expected,
                    "{size} bytes, cut at {cuts:?}, asked: {asked}"
                );
                assert_eq!(seen.end, End::Ended);
                assert!(seen.outcome.usage.is_some());
                let cost = seen.outcome.cost.as_ref().map(|cost| cost.total());
                assert_eq!(cost.as_deref(), (!asked).then_some("0.000042"));
                // Whoever prices may take its time, so it is on no engine's thread.
                let on = setup.priced_on.lock().unwrap().clone();
                assert_eq!(on.len(), usize::from(asked));
                assert!(on.iter().all(|name| !name.contains("engine")), "{on:?}");
            }
        }
    }
}

fn a_large_document_that_is_cut_is_truncated(way: Way) {
    let text = document(2 * LARGE);
    let answers = in_parts(&text, &[LARGE + 10_000]);
    let cut = answers[..answers.len() - 3]
        .iter()
        .cloned()
        .chain([Answer::Close]);
    let (seen, _) = plain(way, cut.collect(), Pricing::Rates(rates()));
    assert!(seen.outcome.fault.is_some());
    assert_ne!((seen.status, seen.end), (Some(200), End::Ended));
}

fn a_stream_costs_the_same_whoever_prices_it(way: Way) {
    let usage = format!("data: {{\"choices\":[],{USAGE}}}\n\n");
    let large = "y".repeat(LARGE + 1_000);
    let events = [
        chat_chunk("a", "null"),
        chat_chunk(&large, "null"),
        chat_chunk("", "\"stop\""),
        usage,
        "data: [DONE]\n\n".to_owned(),
    ];
    let text = head("text/event-stream") + &events.concat();
    let mut bodies = Vec::new();
    for pricing in [Pricing::Rates(rates()), Pricing::Asked] {
        let text = text.clone();
        let server = upstream(move |_| vec![Answer::Write(text.clone().into()), Answer::Close]);
        let mut setup = Setup::streaming(way, &server);
        setup.pricing = pricing;
        let body = r#"{"model":"ours","stream":true,"stream_options":{"include_usage":true},"messages":[]}"#;
        setup.body = Some(Bytes::from_static(body.as_bytes()));
        let seen = setup.run();
        assert_eq!(seen.outcome.finish_reason.as_deref(), Some("stop"));
        assert!(seen.text().contains(COST), "it has no cost");
        bodies.push(seen.body);
    }
    assert!(bodies[0] == bodies[1]);
    let text = String::from_utf8(bodies.remove(0)).unwrap();
    assert!(text.contains(&large));
    assert!(text.ends_with("data: [DONE]\n\n"));
}

fn a_large_folded_stream_is_whole(way: Way) {
    let part = "z".repeat(50_000);
    let mut events = vec![chat_chunk(&part, "null"); 12];
    events.extend([chat_chunk("", "\"stop\""), "data: [DONE]\n\n".to_owned()]);
    let text = head("text/event-stream") + &events.concat();
    let server = upstream(move |_| vec![Answer::Write(text.clone().into()), Answer::Close]);
    let mut setup = Setup::streaming(way, &server);
    setup.client_streams = false;
    setup.streaming = Streaming::Always;
    let seen = setup.run();
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert!(
        seen.text()
            .contains(&format!(r#""content":"{}""#, part.repeat(12)))
    );
}

fn a_large_request_is_edited_and_translated_as_a_small_one(way: Way) {
    let text = "w".repeat(LARGE + 10_000);
    let answer = || (head("text/event-stream") + "data: [DONE]\n\n").into_bytes();
    for (api, body, wanted) in [
        (
            Api::Chat,
            format!(
                r#"{{"messages":[{{"role":"user","content":"{text}"}}],"model":"ours","stream":true}}"#
            ),
            "/v1/chat/completions",
        ),
        (
            Api::Responses,
            format!(r#"{{"model":"ours","stream":true,"input":"{text}"}}"#),
            "/v1/chat/completions",
        ),
    ] {
        let server = upstream(move |_| vec![Answer::Write(answer()), Answer::Close]);
        let mut setup = Setup::streaming(way, &server);
        setup.api = api;
        setup.body = Some(body.into());
        setup.run();
        let request = server.requests().remove(0);
        assert!(request.starts_with(&format!("POST {wanted} ")));
        assert!(request.contains(r#""model":"theirs""#));
        assert!(request.contains(&format!(r#""content":"{text}""#)));
        assert!(request.contains(r#""include_usage":true"#));
    }
}

#[test]
fn a_large_error_is_passed_on_in_short() {
    let body = format!(
        r#"{{"error":{{"message":"{}","code":"bad"}}}}"#,
        "w".repeat(300_000)
    );
    let head = format!(
        "HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let reply = head + &body;
    let server = upstream(move |_| vec![Answer::Write(reply.clone().into()), Answer::Close]);
    let setup = Setup::streaming(Way::Inline, &server);
    let (tell, told) = channel();
    let failed = move |fault: &Fault| tell.send(fault.clone()).unwrap();
    setup
        .submit_heard(&support::engines(), &setup.attempt(), failed)
        .wait();
    let fault = told.recv_timeout(support::PATIENCE).unwrap();
    assert_eq!(fault.status, Some(500));
    let said = String::from_utf8(fault.body.to_vec()).unwrap();
    assert!(said.starts_with(r#"{"error":{"message":"www"#), "{said}");
    assert!(said.ends_with(r#"…","code":"bad"}}"#), "{said}");
    assert!(said.len() < 2_000, "{said}");
}

/// More than the threads that an engine has for large texts.
const MORE_THAN_ALL: usize = 600;

/// Keeps these threads busy until `held` is let go of.
fn occupy(engines: &Engines, held: &Arc<Mutex<()>>) {
    let (tell, told) = channel();
    let held = Arc::clone(held);
    engines.any().spawn(async move {
        for _ in 0..MORE_THAN_ALL {
            let held = Arc::clone(&held);
            tokio::task::spawn_blocking(move || drop(held.lock()));
        }
        tell.send(()).unwrap();
    });
    told.recv_timeout(support::PATIENCE).unwrap();
}

#[test]
fn what_the_gateway_needs_for_a_request_is_not_the_upstreams_time() {
    let limit = Duration::from_secs(1);
    let body = r#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}"#;
    let reply = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let server = upstream(move |_| vec![Answer::Write(reply.clone().into()), Answer::Close]);
    let mut setup = Setup::streaming(Way::Inline, &server);
    setup.client_streams = false;
    setup.api = Api::Responses;
    setup.body = Some(format!(r#"{{"model":"ours","input":"{}"}}"#, "w".repeat(2 * LARGE)).into());
    setup.deadlines.first_byte = Some(limit);
    setup.deadlines.first_token = Some(limit);
    setup.deadlines.total = Some(limit);

    let engines = support::engines();
    let held = Arc::new(Mutex::new(()));
    let guard = held.lock().unwrap();
    occupy(&engines, &held);
    let running = setup.submit(&engines, &setup.attempt());
    std::thread::sleep(limit + limit / 5);
    drop(guard);
    let seen = running.wait();
    assert_eq!(seen.fault(), None);
    assert_eq!(seen.status, Some(200));
}

#[test]
fn events_that_repeat_a_large_request_are_made_away_from_the_engine() {
    let pause = Duration::from_secs(1);
    let events = [
        chat_chunk("a", "null"),
        chat_chunk("", "\"stop\""),
        "data: [DONE]\n\n".to_owned(),
    ];
    let server = upstream(move |_| {
        vec![
            Answer::Wait(pause),
            Answer::Write((head("text/event-stream") + &events.concat()).into()),
            Answer::Close,
        ]
    });
    let mut setup = Setup::streaming(Way::Inline, &server);
    setup.api = Api::Responses;
    let settings = "w".repeat(2 * LARGE);
    let body =
        format!(r#"{{"model":"ours","stream":true,"instructions":"{settings}","input":"a"}}"#);
    setup.body = Some(body.into());

    let engines = support::engines();
    let running = setup.submit(&engines, &setup.attempt());
    let until = Instant::now() + support::PATIENCE;
    while server.requests().is_empty() {
        assert!(Instant::now() < until, "no request came");
        std::thread::sleep(Duration::from_millis(5));
    }
    let held = Arc::new(Mutex::new(()));
    let guard = held.lock().unwrap();
    occupy(&engines, &held);
    std::thread::sleep(2 * pause);
    assert!(!running.has_frame(), "it was made on the engine's thread");
    drop(guard);
    let seen = running.wait();
    assert_eq!(seen.fault(), None);
    assert!(seen.text().contains(&settings));
}

both_ways!(
    a_large_document_is_what_a_small_one_is,
    a_large_document_that_is_cut_is_truncated,
    a_stream_costs_the_same_whoever_prices_it,
    a_large_folded_stream_is_whole,
    a_large_request_is_edited_and_translated_as_a_small_one,
);

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_of_a_large_document_gives_the_same(
        size in LARGE - 5_000..2 * LARGE,
        at in prop::collection::vec(0.0..1.0, 0..6),
        inline: bool,
    ) {
        let text = document(size);
        let cuts = at.iter().map(|at| (text.len() as f64 * at) as usize).collect::<Vec<_>>();
        let way = if inline { Way::Inline } else { Way::Task };
        let (seen, _) = plain(way, in_parts(&text, &cuts), Pricing::Rates(rates()));
        prop_assert!(seen.body == expected(&text));
    }
}
