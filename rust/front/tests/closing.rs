//! A gateway that closes while a request waits for its first decision: its client is told, and it is recorded as what
//! it was.
#![allow(clippy::unwrap_used, clippy::panic)] // What fails here fails the test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
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

/// More clients than tasks that an engine runs before it asks whether it is to end.
const MANY: usize = 90;

async fn ask_over_http2(address: SocketAddr) -> (u16, Bytes) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::post(format!("http://{address}/v1/chat/completions"))
        .body(Full::new(Bytes::from_static(b"{}")))
        .unwrap();
    let reply = sender.send_request(request).await.unwrap();
    let status = reply.status().as_u16();
    (
        status,
        reply.into_body().collect().await.unwrap().to_bytes(),
    )
}

#[test]
fn all_are_told_over_http2() {
    let decisions = Arc::new(Decisions::new(PATIENCE));
    let (front, address) = listening(&decisions, true);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let asking = (0..MANY).map(|_| runtime.spawn(ask_over_http2(address)));
    let asking = asking.collect::<Vec<_>>();
    let until = Instant::now() + PATIENCE;
    // Held, so that they wait to be decided about.
    let mut arrived = Vec::new();
    while arrived.len() < MANY {
        assert!(Instant::now() < until, "only {} came", arrived.len());
        arrived.extend(decisions.wait(PATIENCE));
    }
    front.close();
    for one in asking {
        let (status, body) = runtime.block_on(one).unwrap();
        assert_eq!(status, 503);
        assert!(body.windows(10).any(|part| part == b"\"shutdown\""));
    }
}
