//! What is charged for a request whose upstream has not said what it used.
#![allow(clippy::unwrap_used, clippy::panic)] // What fails here fails the test.

mod support;

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sluicegate_relay::{FaultKind, Pricing};
use support::{Answer, PATIENCE, Seen, Server, Setup, Tallied, Way, both_ways, upstream};

const NEVER: Duration = Duration::from_secs(3600);
const ESTIMATE: u64 = 500;

fn setup(way: Way, server: &Server) -> Setup {
    let mut setup = Setup::streaming(way, server);
    setup.estimated_input = Some(ESTIMATE);
    setup.pricing = Pricing::Rates(support::rates());
    setup
}

/// The input and the output that are charged, each of which must be priced.
fn charged(seen: &Seen) -> Option<(u64, u64)> {
    let outcome = &seen.outcome;
    let usage = outcome.usage.as_ref()?;
    let (input, output) = (usage.input_tokens.unwrap(), usage.output_tokens.unwrap());
    let [cost, ..] = outcome.cost.as_ref().unwrap().in_picodollars().unwrap();
    assert_eq!(cost, (input + 4 * output) * 1_000_000);
    assert!(outcome.estimated);
    Some((input, output))
}

fn wait_until(what: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !what() {
        assert!(Instant::now() < end, "it did not come to that");
        thread::sleep(Duration::from_millis(1));
    }
}

fn a_client_that_leaves_before_the_answer_pays_for_what_was_sent(way: Way) {
    let server = upstream(|_| vec![Answer::Stall]);
    let mut setup = setup(way, &server);
    let told = Arc::new(Mutex::new(Vec::new()));
    setup.tallied = Some(Arc::clone(&told));
    let engines = support::engines();
    let running = setup.submit(&engines, &setup.attempt());
    wait_until(|| !server.requests().is_empty());
    // A process that dies here has to find that the upstream has the request.
    wait_until(|| told.lock().unwrap().contains(&Tallied::Accepted));
    running.leave();
    let seen = running.wait();
    assert!(seen.outcome.client_left);
    assert_eq!(charged(&seen), Some((ESTIMATE, 0)));
}

fn a_client_that_leaves_at_the_first_chunk_pays_for_its_input(way: Way) {
    let server = upstream(|_| {
        let begun = support::head("text/event-stream") + &support::chat_chunk("a", "null");
        vec![Answer::Write(begun.into_bytes()), Answer::Stall]
    });
    let mut setup = setup(way, &server);
    setup.orders.leave_after_first_frame = true;
    assert_eq!(charged(&setup.run()), Some((ESTIMATE, 1)));
}

fn what_breaks_off_is_paid_for_once_it_has_output(way: Way) {
    let breaking = |chunks: usize| {
        let server = upstream(move |_| {
            let mut reply = support::head("text/event-stream");
            reply += &support::chat_chunk("a", "null").repeat(chunks);
            vec![Answer::Write(reply.into_bytes()), Answer::Close]
        });
        setup(way, &server).run()
    };
    assert_eq!(charged(&breaking(3)), Some((ESTIMATE, 3)));
    assert_eq!(charged(&breaking(0)), None);
}

fn what_an_upstream_refuses_or_fails_is_not_paid_for(way: Way) {
    let refusing = upstream(|_| {
        let reply = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}";
        vec![Answer::Write(reply.into()), Answer::Close]
    });
    assert_eq!(charged(&setup(way, &refusing).run()), None);
    let closing = upstream(|_| vec![Answer::Close]);
    assert_eq!(charged(&setup(way, &closing).run()), None);
    let silent = upstream(|_| vec![Answer::Stall]);
    let mut slow = setup(way, &silent);
    slow.deadlines.first_byte = Some(Duration::from_millis(150));
    slow.patience = Some(NEVER);
    assert_eq!(charged(&slow.run()), None);
}

fn a_client_that_gives_no_time_pays_as_one_that_leaves(way: Way) {
    let silent = upstream(|_| vec![Answer::Stall]);
    let mut hasty = setup(way, &silent);
    hasty.deadlines.total = Some(NEVER);
    hasty.patience = Some(Duration::from_millis(150));
    let seen = hasty.run();
    assert_eq!(seen.fault(), Some(FaultKind::ClientTimeout));
    assert_eq!(charged(&seen), Some((ESTIMATE, 0)));
}

both_ways!(
    a_client_that_leaves_before_the_answer_pays_for_what_was_sent,
    a_client_that_leaves_at_the_first_chunk_pays_for_its_input,
    what_breaks_off_is_paid_for_once_it_has_output,
    what_an_upstream_refuses_or_fails_is_not_paid_for,
    a_client_that_gives_no_time_pays_as_one_that_leaves,
);
