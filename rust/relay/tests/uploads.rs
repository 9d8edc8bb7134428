//! Bodies that are sent on as they come: neither side gets ahead of the other, and what breaks off is told for what it
//! is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What fails here fails the test.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sluicegate_core::api::Api;
use sluicegate_relay::{Broken, ErrorReply, Fault, Source, Upload};
use support::{End, PATIENCE, Seen, Setup, Way, both_ways, engines};

const HELD: &[u8] = b"the model is ours, and so on";
const PIECE: usize = 64 * 1024;

/// A client's body: so many pieces, and then what it does.
struct Pieces {
    left: usize,
    end: Last,
    given: Arc<AtomicUsize>,
}

enum Last {
    Ends,
    Breaks(Broken),
    /// Nothing more comes.
    Stalls(Arc<Mutex<Option<Waker>>>),
}

impl Source for Pieces {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        if self.left > 0 {
            self.left -= 1;
            self.given.fetch_add(1, Ordering::SeqCst);
            return Poll::Ready(Some(Ok(vec![b'x'; PIECE].into())));
        }
        match &self.end {
            Last::Ends => Poll::Ready(None),
            Last::Breaks(broken) => Poll::Ready(Some(Err(broken.clone()))),
            Last::Stalls(waker) => {
                *waker.lock().unwrap() = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// An upload of `HELD` and so many pieces, and how many of them were taken.
fn upload(pieces: usize, end: Last, declared: bool) -> (Upload, Arc<AtomicUsize>) {
    let given = Arc::new(AtomicUsize::new(0));
    let source = Pieces {
        left: pieces,
        end,
        given: Arc::clone(&given),
    };
    let size = declared.then_some((HELD.len() + pieces * PIECE) as u64);
    let model = HELD.windows(4).position(|word| word == b"ours").unwrap();
    let upload = Upload::new(
        Bytes::from_static(HELD),
        Some(model..model + 4),
        size,
        Some(Box::new(source)),
    );
    (upload, given)
}

/// A server whose one connection is `serve`'s.
fn server(serve: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || serve(listener.accept().unwrap().0));
    format!("http://127.0.0.1:{port}/v1")
}

/// Reads the head of a request.
fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

const REPLY: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{\"text\":\"hi\"}";

/// What the client gets, and the faults that were decided about.
fn run(way: Way, base_url: String, upload: Upload) -> (Seen, Vec<Fault>) {
    let unused = support::upstream(|_| Vec::new());
    let setup = Setup {
        base_url,
        api: Api::Other,
        client_streams: false,
        upload: Some(upload),
        ..Setup::streaming(way, &unused)
    };
    let faults = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&faults);
    let engines = engines();
    let running = setup.submit_heard(&engines, &setup.attempt(), move |fault| {
        told.lock().unwrap().push(fault.clone());
    });
    let seen = running.wait();
    let faults = faults.lock().unwrap().clone();
    (seen, faults)
}

fn an_upload_arrives_with_its_model_renamed(way: Way) {
    const PIECES: usize = 100;
    for declared in [true, false] {
        let (tell, told) = channel();
        let base_url = server(move |mut stream| {
            let head = head(&mut stream);
            let mut body = Vec::new();
            let mut buffer = vec![0; PIECE];
            let end: &[u8] = if declared { b"" } else { b"0\r\n\r\n" };
            let size = HELD.len() + 2 + PIECES * PIECE;
            while if declared {
                body.len() < size
            } else {
                !body.ends_with(end)
            } {
                let read = stream.read(&mut buffer).unwrap();
                body.extend_from_slice(&buffer[..read]);
            }
            tell.send((head, body)).unwrap();
            stream.write_all(REPLY).unwrap();
        });
        let (asked, given) = upload(PIECES, Last::Ends, declared);
        let (seen, faults) = run(way, base_url, asked);
        assert_eq!((seen.status, seen.end), (Some(200), End::Ended));
        assert!(faults.is_empty());
        let (head, body) = told.recv_timeout(PATIENCE).unwrap();
        assert!(head.contains("content-length: ") == declared, "{head}");
        assert_eq!(given.load(Ordering::SeqCst), PIECES);
        let renamed = b"the model is theirs, and so on";
        assert!(body.windows(renamed.len()).any(|part| part == renamed));
        assert_eq!(
            body.iter().filter(|byte| **byte == b'x').count() / PIECE,
            PIECES
        );
    }
}

fn an_upstream_that_does_not_read_stops_the_client(way: Way) {
    let (go, may): (_, Receiver<()>) = channel();
    let base_url = server(move |mut stream| {
        head(&mut stream);
        may.recv_timeout(PATIENCE).unwrap();
        stream.write_all(REPLY).unwrap();
    });
    const PIECES: usize = 4096;
    let (asked, given) = upload(PIECES, Last::Ends, true);
    let watch = Arc::clone(&given);
    thread::spawn(move || {
        // Until what is taken stays the same: the system's buffers are full.
        let until = Instant::now() + PATIENCE;
        let mut before = usize::MAX;
        while Instant::now() < until {
            let now = watch.load(Ordering::SeqCst);
            if now > 0 && now == before {
                break;
            }
            before = now;
            thread::sleep(Duration::from_millis(200));
        }
        go.send(()).unwrap();
    });
    let (seen, _) = run(way, base_url, asked);
    assert_eq!(
        seen.status,
        Some(200),
        "it has answered before it was sent everything"
    );
    // Half of 256 MiB is more than any system's buffers, and the gateway's own are two pieces.
    assert!(given.load(Ordering::SeqCst) < PIECES / 2);
}

fn a_body_that_breaks_off_is_answered_with_what_its_source_says(way: Way) {
    let base_url = server(|mut stream| {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    });
    let reply = ErrorReply {
        status: 408,
        headers: http::HeaderMap::new(),
        body: Bytes::from_static(b"late"),
    };
    let broken = Last::Breaks(Broken::Refused(reply, "request_timeout"));
    let (asked, _) = upload(3, broken, false);
    let (seen, faults) = run(way, base_url, asked);
    assert_eq!((seen.status, &seen.body[..]), (Some(408), &b"late"[..]));
    assert_eq!(seen.outcome.code, Some("request_timeout"));
    assert!(faults.is_empty(), "no upstream is to blame");
}

fn a_client_that_has_left_is_recorded_so(way: Way) {
    let base_url = server(|mut stream| {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    });
    let (asked, _) = upload(3, Last::Breaks(Broken::Left), false);
    let (seen, _) = run(way, base_url, asked);
    assert!(seen.outcome.client_left);
    assert_eq!(seen.outcome.status, 499);
}

fn an_upstream_that_dies_in_the_middle_leaves_nothing_to_send_elsewhere(way: Way) {
    let base_url = server(|mut stream| {
        head(&mut stream);
        let mut some = vec![0; 3 * PIECE];
        stream.read_exact(&mut some).unwrap();
    });
    let (asked, _) = upload(4096, Last::Ends, true);
    let (seen, faults) = run(way, base_url, asked);
    assert_eq!(seen.status, Some(502));
    assert_eq!(faults.len(), 1);
    assert!(faults[0].spent);
    assert_eq!(seen.outcome.attempts, 1);
}

fn one_that_dies_before_it_was_sent_more_than_is_held_does(way: Way) {
    let base_url = server(drop);
    let waker = Arc::default();
    let (asked, given) = upload(0, Last::Stalls(waker), true);
    let (_, faults) = run(way, base_url, asked);
    assert_eq!(given.load(Ordering::SeqCst), 0);
    assert!(faults.iter().all(|fault| !fault.spent), "{faults:?}");
}

both_ways! {
    an_upload_arrives_with_its_model_renamed,
    an_upstream_that_does_not_read_stops_the_client,
    a_body_that_breaks_off_is_answered_with_what_its_source_says,
    a_client_that_has_left_is_recorded_so,
    an_upstream_that_dies_in_the_middle_leaves_nothing_to_send_elsewhere,
    one_that_dies_before_it_was_sent_more_than_is_held_does,
}
