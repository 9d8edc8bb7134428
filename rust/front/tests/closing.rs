//! A gateway that closes while a request waits for its first decision: its client is told, and it is recorded as what it was.
#![allow(clippy::unwrap_used, clippy::panic)] // What fails here fails the test.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use sluicegate_front::Front;
use sluicegate_front::decisions::{Decisions, Event};

mod support;

use support::{PATIENCE, listening};

const ASKED: &str = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}";

/// A front where nothing is decided, and a client's connection to it.
fn stand(decisions: &Arc<Decisions>) -> (Front, TcpStream) {
    let (front, address) = listening(decisions, false);
    let client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    (front, client)
}

/// The next event that there is.
fn next(decisions: &Decisions) -> Event {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if let Some(event) = decisions.wait(PATIENCE).pop() {
            return event;
        }
    }
    panic!("nothing comes");
}

#[test]
fn a_request_that_nothing_was_decided_about_is_told() {
    let decisions = Arc::new(Decisions::new(PATIENCE));
    let (front, mut client) = stand(&decisions);
    client.write_all(ASKED.as_bytes()).unwrap();
    let Event::Arrived(arrived) = next(&decisions) else {
        panic!("another event");
    };
    assert_eq!(front.active(), 1);
    front.close();
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
    assert!(reply.contains(r#""code":"shutdown""#), "{reply}");
    assert!(reply.contains("retry-after: 1\r\n"), "{reply}");
    let Event::Ended(ended) = next(&decisions) else {
        panic!("another event");
    };
    assert_eq!(ended.about.ticket, arrived.about.ticket);
    assert!(!ended.outcome.client_left);
    assert_eq!(
        (ended.outcome.status, ended.outcome.code),
        (503, Some("shutdown"))
    );
}
