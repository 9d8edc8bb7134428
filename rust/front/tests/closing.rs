//! A gateway that closes while a request waits for its first decision: its client is told, and it is recorded as what it was.
#![allow(clippy::unwrap_used, clippy::panic)] // What fails here fails the test.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluicegate_front::decisions::{Decisions, Event};
use sluicegate_front::{Bounds, Callers, Front, Limits, Pace};
use sluicegate_relay::DrainLimits;

const PATIENCE: Duration = Duration::from_secs(20);

const ASKED: &str = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}";

/// A front where nothing is decided, and a client's connection to it.
fn stand(decisions: &Arc<Decisions>) -> (Front, TcpStream) {
    let limits = Limits {
        max_body: 1 << 20,
        max_event: 1 << 20,
        max_reply: 1 << 20,
        client_buffer: 1 << 20,
        keepalive: None,
        client_stall: None,
        drain: DrainLimits::default(),
        max_requests: 100,
    };
    let front = Front::start(1, limits, Arc::clone(decisions)).unwrap();
    front.set_callers(Callers {
        digests: None,
        ..Callers::nobody()
    });
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let bounds = Bounds {
        head_bytes: 1 << 16,
        headers: 100,
        url_bytes: 1 << 14,
        head_time: PATIENCE,
        body_pace: Pace {
            pause: PATIENCE,
            rate: NonZeroU32::MIN,
        },
        idle: PATIENCE,
        stall: None,
        connections: 100,
        http2_streams: 100,
        http2_resets: 100,
    };
    let nowhere = PathBuf::from("/nowhere");
    front.listen(address, nowhere, false, None, bounds).unwrap();
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
