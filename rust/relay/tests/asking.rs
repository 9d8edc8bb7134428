//! Prices that somebody has to be asked for: only reads with usage wait for them, and nothing is lost by it.
#![allow(clippy::unwrap_used, clippy::panic)] // What fails here fails the test.

mod support;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sluicegate_core::api::Api;
use sluicegate_relay::{FaultKind, Pricing};
use support::{
    Answer, DONE, PATIENCE, Setup, Tallied, Way, both_ways, chat_chunk, head, rates, upstream,
};

const TOKENS: usize = 100;
const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":100}}\n\n";

const WANTS_USAGE: &str =
    r#"{"model":"ours","stream":true,"stream_options":{"include_usage":true},"messages":[]}"#;

fn chat() -> Vec<String> {
    let mut events = vec![chat_chunk("a", "null"); TOKENS];
    events.extend([
        chat_chunk("", "\"stop\""),
        USAGE.to_owned(),
        DONE.to_owned(),
    ]);
    events
}

fn messages() -> Vec<String> {
    let event =
        |name: &str, rest: &str| format!("event: {name}\ndata: {{\"type\":\"{name}\"{rest}}}\n\n");
    let message = r#"{"id":"m","type":"message","role":"assistant","model":"x","content":[],"#;
    let start = format!(r#","message":{message}"usage":{{"input_tokens":9,"output_tokens":1}}}}"#);
    let block = r#","index":0,"content_block":{"type":"text","text":""}"#;
    let delta = r#","index":0,"delta":{"type":"text_delta","text":"a"}"#;
    let mut events = vec![
        event("message_start", &start),
        event("content_block_start", block),
    ];
    events.extend(vec![event("content_block_delta", delta); TOKENS]);
    events.extend([
        event("content_block_stop", r#","index":0"#),
        event(
            "message_delta",
            r#","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":100}"#,
        ),
        event("message_stop", ""),
    ]);
    events
}

/// The reply that the client of `api` gets, without the times in it, and how often somebody was asked to price. The
/// upstream sends the `parts` one after the other.
fn reply(way: Way, serves: Api, api: Api, parts: &[&[u8]], pricing: Pricing) -> (String, usize) {
    let mut answers = vec![Answer::Write(head("text/event-stream").into())];
    for part in parts {
        answers.push(Answer::Write(part.to_vec()));
        // So that the parts are read one by one. Read together they must give the same.
        answers.push(Answer::Wait(Duration::from_millis(1)));
    }
    answers.push(Answer::Close);
    let server = upstream(move |_| answers.clone());
    let mut setup = Setup::streaming(way, &server);
    (setup.serves, setup.api) = (serves, api);
    setup.body = (api == Api::Chat).then(|| WANTS_USAGE.into());
    setup.pricing = pricing;
    let seen = setup.run();
    let text = seen.text().to_owned();
    assert!(seen.outcome.fault.is_none(), "{text}");
    (without_times(&text), setup.pricers.load(Ordering::Acquire))
}

fn without_times(text: &str) -> String {
    let mut rest = text;
    let mut found = String::new();
    while let Some((place, name)) = next_time(rest) {
        let (before, behind) = rest.split_at(place + name.len());
        found += before;
        rest = behind.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    found + rest
}

/// Where the next name of a time begins, and that name with what stands before its number.
fn next_time(text: &str) -> Option<(usize, &'static str)> {
    let names = ["\"created\":", "_at\":"];
    names
        .into_iter()
        .filter_map(|name| Some((text.find(name)?, name)))
        .min()
}

const WAYS_THROUGH: [(Api, Api); 4] = [
    (Api::Chat, Api::Chat),
    (Api::Chat, Api::Responses),
    (Api::Messages, Api::Chat),
    (Api::Messages, Api::Responses),
];

fn events_of(serves: Api) -> Vec<String> {
    if serves == Api::Messages {
        messages()
    } else {
        chat()
    }
}

fn only_reads_with_usage_are_taken_elsewhere(way: Way) {
    for (serves, api) in WAYS_THROUGH {
        let events = events_of(serves);
        let parts: Vec<_> = events.iter().map(String::as_bytes).collect();
        let (_, asked) = reply(way, serves, api, &parts, Pricing::Asked);
        assert!(
            asked <= 7,
            "{serves:?} to {api:?}: {asked} of {}",
            parts.len()
        );
    }
}

fn every_cut_gives_the_reply_that_rates_give(way: Way) {
    for (serves, api) in WAYS_THROUGH {
        let text = events_of(serves).concat().into_bytes();
        // What comes before is nothing but text.
        let last = text.len() - 600;
        let (expected, _) = reply(way, serves, api, &[&text], Pricing::Rates(rates()));
        assert!(
            expected.contains("0.000409"),
            "{serves:?} to {api:?}: {expected}"
        );
        for cut in (last..text.len()).step_by(37) {
            let (first, second) = text.split_at(cut);
            let (found, _) = reply(way, serves, api, &[first, second], Pricing::Asked);
            assert!(
                found == expected,
                "{serves:?} to {api:?}, cut at {cut}: {found}"
            );
        }
    }
}

fn usage_is_known_before_its_price_and_without_it(way: Way) {
    let server = upstream(|_| {
        let reply = head("text/event-stream") + &chat().concat();
        vec![Answer::Write(reply.into_bytes()), Answer::Close]
    });
    let mut setup = Setup::streaming(way, &server);
    setup.pricing = Pricing::Asked;
    setup.body = Some(WANTS_USAGE.into());
    let account = Arc::new(Mutex::new(Vec::new()));
    setup.tallied = Some(Arc::clone(&account));
    let gate = Arc::clone(&setup.price_gate);
    let held = gate.lock().unwrap();
    let engines = support::engines();
    let running = setup.submit(&engines, &setup.attempt());
    let knows = || {
        let told = account.lock().unwrap();
        told.iter()
            .any(|what| matches!(what, Tallied::Progress(_, _, Some(100), _)))
    };
    let began = Instant::now();
    while !knows() {
        assert!(began.elapsed() < PATIENCE, "the account never heard of it");
        std::thread::yield_now();
    }
    let closing = std::thread::spawn(move || engines.close());
    let seen = running.wait();
    drop(held);
    closing.join().unwrap();
    assert_eq!(seen.fault(), Some(FaultKind::Shutdown));
    assert_eq!(seen.outcome.usage.unwrap().output_tokens, Some(100));
    assert!(seen.outcome.cost.is_none());
}

both_ways!(
    only_reads_with_usage_are_taken_elsewhere,
    every_cut_gives_the_reply_that_rates_give,
    usage_is_known_before_its_price_and_without_it,
);
