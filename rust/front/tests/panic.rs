//! A panic on the way of one request, over either HTTP: its client is cut, or over HTTP/2 that one stream, it is
//! recorded, and nobody else notices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What fails here fails the test.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use sluicegate_core::api::Api;
use sluicegate_core::limits::Limits as CoreLimits;
use sluicegate_core::pricing::{self, CostStyle};
use sluicegate_core::protocols::Serves;
use sluicegate_core::protocols::responses::request::ResponsesRequest;
use sluicegate_front::decisions::{Decision, Decisions, Ended, Event, Forward};
use sluicegate_front::{Front, Submission};
use sluicegate_relay::{Attempt, FaultKind, Pricing, Reply, Route, Upstream, UpstreamSettings};

mod support;

use support::{PATIENCE, listening};

const EVENT: &str = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n";

const CREATED: &str = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"object\":\"response\",\"created_at\":1,\"model\":\"m\",\"status\":\"in_progress\",\"output\":[]}}\n\n";

const ASKED: &str = r#"{"model":"m","input":"hi","stream":true}"#;

/// A request that cannot be read: there is never an exchange.
const UNREADABLE: &str = r#"{"model":"#;

/// Requests with this id are given a text that breaks.
const BROKEN: &str = "broken";

/// A text that panics where the last reference to it is dropped: in the middle of what the engine does.
struct Broken(&'static str);

impl AsRef<[u8]> for Broken {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        panic!("a panic that the test wants");
    }
}

/// An upstream that streams without an end.
fn upstream() -> Route {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let mut request = [0; 65536];
                let _ = stream.read(&mut request);
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
                let _ = stream.write_all([head, CREATED].concat().as_bytes());
                while stream.write_all(EVENT.as_bytes()).is_ok() {
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
    });
    let settings = UpstreamSettings {
        base_url: format!("http://127.0.0.1:{port}/v1"),
        serves: Serves::new([Api::Responses]).unwrap(),
        ..UpstreamSettings::default()
    };
    Route {
        upstream: Arc::new(Upstream::new("local", settings).unwrap()),
        model: "m".into(),
        reply_model: None,
        drain: false,
    }
}

/// A front, and the thread that decides for it.
struct Stand {
    front: Front,
    address: SocketAddr,
    ended: Receiver<Box<Ended>>,
    over: Arc<AtomicBool>,
    deciding: Option<JoinHandle<()>>,
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.front.close();
        self.over.store(true, Ordering::Release);
        self.deciding.take().unwrap().join().unwrap();
    }
}

fn stand() -> Stand {
    let decisions = Arc::new(Decisions::new(PATIENCE));
    let (front, address) = listening(&decisions, true);
    let over = Arc::new(AtomicBool::new(false));
    let (tell, ended) = channel();
    let route = upstream();
    let until = Arc::clone(&over);
    let deciding = thread::spawn(move || {
        while !until.load(Ordering::Acquire) {
            for event in decisions.wait(Duration::from_millis(50)) {
                match event {
                    Event::Arrived(arrived) => {
                        let broken = &*arrived.about.request_id == BROKEN;
                        let forward = Decision::Forward(Box::new(forward(&route, broken)));
                        let _ = arrived.answer.send(forward);
                    }
                    Event::Ended(ended) => tell.send(ended).unwrap(),
                    Event::Died(message) => panic!("{message}"),
                    Event::Failed(_)
                    | Event::FirstOutput(_)
                    | Event::Price(_)
                    | Event::Unrecorded(_) => {
                        panic!("nothing fails here")
                    }
                }
            }
        }
    });
    Stand {
        front,
        address,
        ended,
        over,
        deciding: Some(deciding),
    }
}

fn forward(route: &Route, broken: bool) -> Forward {
    let request = broken.then(|| {
        let text = Bytes::from_owner(Broken(ASKED));
        Arc::new(ResponsesRequest::parse(text, &CoreLimits::default()).unwrap())
    });
    let rates = pricing::Pricing::new(None, CostStyle::None);
    Forward {
        attempt: Attempt {
            route: route.clone(),
            pricing: Pricing::Rates(Arc::new(rates)),
            last: true,
            trial: false,
            after: Duration::ZERO,
            headers: http::HeaderMap::new(),
        },
        request,
        response_id: None,
        keep: None,
        tally: None,
        estimated_input: None,
    }
}

fn ask(address: SocketAddr, request_id: &str) -> TcpStream {
    ask_with(address, request_id, ASKED)
}

fn ask_with(address: SocketAddr, request_id: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let size = body.len();
    let head = format!(
        "POST /v1/responses HTTP/1.1\r\nhost: a\r\nx-request-id: {request_id}\r\ncontent-length: {size}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    stream
}

/// Read on until `count` more events have come.
fn read_events(stream: &mut TcpStream, count: usize) {
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while seen.matches("\"delta\":\"a\"").count() < count {
        let read = stream.read(&mut buffer).unwrap();
        assert_ne!(read, 0, "cut after {seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
}

fn assert_cut(mut client: TcpStream) {
    let mut rest = Vec::new();
    // A connection that is cut is no end of a chunked body, whether or not something came before.
    match (&mut client).take(1 << 20).read_to_end(&mut rest) {
        Ok(read) => {
            assert!(read < 1 << 20, "the connection was not cut");
            assert!(!rest.ends_with(b"0\r\n\r\n"));
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

fn assert_recorded(ended: &Ended) {
    assert_eq!(&*ended.about.request_id, BROKEN);
    let fault = ended.outcome.fault.as_ref().unwrap();
    assert_eq!(fault.kind, FaultKind::Internal);
    assert!(!ended.outcome.client_left);
    assert_eq!(ended.outcome.attempts, 1);
}

#[test]
fn a_panic_cuts_the_connection_of_its_client_alone() {
    let stand = stand();
    let mut other = ask(stand.address, "other");
    read_events(&mut other, 1);

    assert_cut(ask(stand.address, BROKEN));
    assert_recorded(&stand.ended.recv_timeout(PATIENCE).unwrap());

    read_events(&mut other, 5);
    read_events(&mut ask(stand.address, "later"), 3);
    // The one that left, and nobody else.
    let left = stand.ended.recv_timeout(PATIENCE).unwrap();
    assert_eq!(&*left.about.request_id, "later");
    assert!(left.outcome.client_left);
    assert!(stand.ended.try_recv().is_err());
}

#[test]
fn a_panic_before_there_is_an_exchange_cuts_its_client_alone() {
    let stand = stand();
    let mut other = ask(stand.address, "other");
    read_events(&mut other, 1);
    assert_cut(ask_with(stand.address, BROKEN, UNREADABLE));
    let ended = stand.ended.recv_timeout(PATIENCE).unwrap();
    assert_eq!(&*ended.about.request_id, BROKEN);
    assert_eq!(
        (ended.outcome.status, ended.outcome.code),
        (500, Some("internal"))
    );
    read_events(&mut other, 5);
    assert!(stand.ended.try_recv().is_err(), "recorded once");
}

#[test]
fn so_does_one_while_a_request_is_read() {
    let stand = stand();
    let mut submitted = stand.front.submit(Submission {
        // Read as something else, its text goes where it is refused.
        target: stand
            .front
            .target(&Method::POST, "/v1/responses", None)
            .unwrap(),
        headers: http::HeaderMap::new(),
        body: Bytes::from_owner(Broken(UNREADABLE)),
        request_id: BROKEN.into(),
        tag: None,
    });
    let ended = stand.ended.recv_timeout(PATIENCE).unwrap();
    assert_eq!(&*ended.about.request_id, BROKEN);
    assert_eq!(
        (ended.outcome.status, ended.outcome.code),
        (500, Some("internal"))
    );
    assert!(!ended.outcome.client_left);
    wait_for_abort(&mut submitted.reply);
    read_events(&mut ask(stand.address, "later"), 3);
}

/// Over HTTP/2 in one connection: a stream that goes on, and the broken one, which alone ends.
#[test]
fn over_http2_a_panic_resets_its_stream_alone() {
    let stand = stand();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let ask = |request_id: &str| {
        Request::post(format!("http://{}/v1/responses", stand.address))
            .header("x-request-id", request_id)
            .body(Full::new(Bytes::from_static(ASKED.as_bytes())))
            .unwrap()
    };
    let going_on = async {
        let stream = tokio::net::TcpStream::connect(stand.address).await.unwrap();
        let (mut client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let mut other = client.send_request(ask("other")).await.unwrap();
        read_frames(&mut other, 1).await;
        let broken = async {
            let mut broken = client.clone().send_request(ask(BROKEN)).await?;
            while let Some(frame) = broken.frame().await {
                frame?;
            }
            Ok::<_, hyper::Error>(())
        };
        assert!(broken.await.is_err(), "neither whole nor for ever");
        read_frames(&mut other, 5).await;
        let mut later = client.send_request(ask("later")).await.unwrap();
        read_frames(&mut later, 3).await;
    };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, going_on).await.unwrap() });
    assert_recorded(&stand.ended.recv_timeout(PATIENCE).unwrap());
}

async fn read_frames(reply: &mut Response<Incoming>, count: usize) {
    let mut bytes = 0;
    while bytes < count * EVENT.len() {
        let frame = reply.frame().await.expect("cut").unwrap();
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
}

#[test]
fn a_panic_aborts_a_reply_without_a_connection() {
    let stand = stand();
    let mut submitted = stand.front.submit(Submission {
        target: stand
            .front
            .target(&Method::POST, "/v1/responses", None)
            .unwrap(),
        headers: http::HeaderMap::new(),
        body: Bytes::from_static(ASKED.as_bytes()),
        request_id: BROKEN.into(),
        tag: None,
    });
    assert_recorded(&stand.ended.recv_timeout(PATIENCE).unwrap());
    wait_for_abort(&mut submitted.reply);
}

fn wait_for_abort(reply: &mut Reply) {
    let until = Instant::now() + PATIENCE;
    while !reply.take_all().aborted {
        assert!(Instant::now() < until, "never aborted");
        thread::yield_now();
    }
}
