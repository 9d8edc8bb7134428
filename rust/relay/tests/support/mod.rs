#![allow(clippy::unwrap_used, clippy::expect_used)] // What fails here fails the test.
//! A scripted upstream on plain sockets, a client that records what it is given, and what ties them together.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sluicegate_core::limits::Limits;
use sluicegate_core::pipeline::Api;
use sluicegate_core::request::Request;
use sluicegate_core::usage::Usage;
use sluicegate_relay::sink::HeaderList;
use sluicegate_relay::{
    Control, Deadlines, Director, DrainLimits, ErrorReply, Exchange, Fault, FaultKind, Next,
    Outcome, Relay, Route, Sink, Streaming, Upstream, UpstreamSettings,
};

/// Bytes that may wait for the recording client.
pub(crate) const CLIENT_BOUND: usize = 64 * 1024;

/// A test that waits longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the upstream does next.
#[derive(Clone)]
pub(crate) enum Answer {
    Write(Vec<u8>),
    Wait(Duration),
    /// Say nothing until the peer closes.
    Stall,
    /// Write this again and again until the peer closes.
    Repeat(Vec<u8>, Duration),
    /// Wait for another request on the same connection.
    NextRequest,
    Close,
}

pub(crate) struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    closed: Receiver<Instant>,
}

impl Server {
    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// When a peer closed a connection that stalled.
    pub(crate) fn wait_closed(&self, patience: Duration) -> Instant {
        self.closed
            .recv_timeout(patience)
            .expect("the gateway did not close the connection")
    }
}

/// Serve connections; `script` says what each does, by its number.
pub(crate) fn upstream(script: impl Fn(usize) -> Vec<Answer> + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let (closed_tx, closed) = channel();
    let log = Arc::clone(&requests);
    thread::spawn(move || {
        for (nth, stream) in listener.incoming().enumerate() {
            let (script, log, closed) = (script(nth), Arc::clone(&log), closed_tx.clone());
            let Ok(stream) = stream else { return };
            thread::spawn(move || serve(stream, script, &log, &closed));
        }
    });
    Server {
        port,
        requests,
        closed,
    }
}

fn serve(
    mut stream: TcpStream,
    script: Vec<Answer>,
    log: &Mutex<Vec<String>>,
    closed: &Sender<Instant>,
) {
    stream.set_nodelay(true).unwrap();
    if !read_request(&mut stream, log) {
        return;
    }
    for answer in script {
        match answer {
            Answer::Write(bytes) => {
                if stream.write_all(&bytes).is_err() {
                    return;
                }
            }
            Answer::Wait(time) => thread::sleep(time),
            Answer::Stall => {
                let mut byte = [0];
                let _ = stream.read(&mut byte);
                let _ = closed.send(Instant::now());
            }
            Answer::Repeat(bytes, pace) => {
                while stream.write_all(&bytes).is_ok() {
                    thread::sleep(pace);
                }
            }
            Answer::NextRequest => {
                if !read_request(&mut stream, log) {
                    return;
                }
            }
            Answer::Close => {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

fn read_request(stream: &mut TcpStream, log: &Mutex<Vec<String>>) -> bool {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(head) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&bytes).to_lowercase();
            let length = text
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |n| n.trim().parse::<usize>().unwrap());
            if bytes.len() >= head + 4 + length {
                log.lock()
                    .unwrap()
                    .push(String::from_utf8_lossy(&bytes).into_owned());
                return true;
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return false,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
        }
    }
}

pub(crate) fn head(content_type: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\n\r\n")
}

pub(crate) fn chat_chunk(content: &str, finish: &str) -> String {
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}},\"finish_reason\":{finish}}}]}}\n\n"
    )
}

/// `events` in a content coding, flushed but not ended.
pub(crate) fn compressed(coding: &str, events: &[String]) -> Vec<u8> {
    use async_compression::tokio::write::{BrotliEncoder, GzipEncoder, ZlibEncoder, ZstdEncoder};
    use tokio::io::{AsyncWrite, AsyncWriteExt};

    async fn run(mut encoder: impl AsyncWrite + Unpin, text: String) {
        encoder.write_all(text.as_bytes()).await.unwrap();
        encoder.flush().await.unwrap();
    }

    let text = events.concat();
    let mut out = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        match coding {
            "gzip" => run(GzipEncoder::new(&mut out), text).await,
            "deflate" => run(ZlibEncoder::new(&mut out), text).await,
            "br" => run(BrotliEncoder::new(&mut out), text).await,
            _ => run(ZstdEncoder::new(&mut out), text).await,
        }
    });
    out
}

/// `events` as one Zstandard frame whose window is of `1 << window_log` bytes.
pub(crate) fn zstd(window_log: u32, events: &[String]) -> Vec<u8> {
    use async_compression::tokio::write::ZstdEncoder;
    use async_compression::{Level, zstd::CParameter};
    use tokio::io::AsyncWriteExt;

    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let window = CParameter::window_log(window_log);
        let mut encoder =
            ZstdEncoder::with_quality_and_params(Vec::new(), Level::Fastest, &[window]);
        for event in events {
            encoder.write_all(event.as_bytes()).await.unwrap();
            // A frame that is written at once has a window no larger than itself.
            encoder.flush().await.unwrap();
        }
        encoder.shutdown().await.unwrap();
        encoder.into_inner()
    })
}

#[derive(Default)]
struct Record {
    status: Option<u16>,
    headers: Vec<(String, String)>,
    frames: Vec<Bytes>,
    pending: usize,
    largest_pending: usize,
    ended: bool,
    aborted: bool,
}

struct RecordingSink {
    record: Arc<(Mutex<Record>, Condvar)>,
    /// Frames taken before the client stops reading; `None`: all.
    reads: Option<usize>,
}

impl RecordingSink {
    fn change(&self, change: impl FnOnce(&mut Record)) {
        change(&mut self.record.0.lock().unwrap());
        self.record.1.notify_all();
    }
}

impl Sink for RecordingSink {
    fn start(&mut self, status: u16, headers: HeaderList) {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        self.change(|record| {
            record.status = Some(status);
            record.headers = headers.iter().map(|(n, v)| (text(n), text(v))).collect();
        });
    }

    fn push(&mut self, frames: &mut Vec<Bytes>) {
        let reads = self.reads;
        self.change(|record| {
            for frame in frames.drain(..) {
                if reads.is_some_and(|reads| record.frames.len() >= reads) {
                    record.pending += frame.len();
                    record.largest_pending = record.largest_pending.max(record.pending);
                }
                record.frames.push(frame);
            }
        });
    }

    fn end(&mut self) {
        self.change(|record| record.ended = true);
    }

    fn abort(&mut self) {
        self.change(|record| record.aborted = true);
    }

    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<()> {
        match self.record.0.lock().unwrap().pending < CLIENT_BOUND {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn poll_flushed(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

struct Fallback(Option<Route>);

impl Director for Fallback {
    fn price(&mut self, _: &Usage) -> Option<Bytes> {
        None
    }

    fn failed(&mut self, fault: &Fault) -> Next {
        match self.0.take() {
            Some(route) => Next::Route(route),
            None => Next::Reply(ErrorReply {
                status: 502,
                headers: Vec::new(),
                body: fault.message().into(),
            }),
        }
    }
}

/// What the client was given, and what was recorded.
pub(crate) struct Seen {
    pub(crate) status: Option<u16>,
    pub(crate) body: Vec<u8>,
    pub(crate) outcome: Arc<Outcome>,
    pub(crate) left_at: Option<Instant>,
    pub(crate) largest_pending: usize,
    headers: Vec<(String, String)>,
}

impl Seen {
    pub(crate) fn fault(&self) -> Option<FaultKind> {
        self.outcome.fault.as_ref().map(|fault| fault.kind)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }
}

pub(crate) struct Running {
    record: Arc<(Mutex<Record>, Condvar)>,
    control: Arc<Control>,
    finished: Receiver<Arc<Outcome>>,
}

impl Running {
    pub(crate) fn wait_first_frame(&self) {
        let (record, changed) = &*self.record;
        let guard = record.lock().unwrap();
        let (guard, timeout) = changed
            .wait_timeout_while(guard, PATIENCE, |record| record.frames.is_empty())
            .unwrap();
        assert!(!timeout.timed_out(), "no frame came");
        drop(guard);
    }

    fn leave(&self) -> Option<Instant> {
        let now = Instant::now();
        self.control.client_left();
        Some(now)
    }

    pub(crate) fn wait(self) -> Seen {
        self.wait_after(None)
    }

    fn wait_after(self, left_at: Option<Instant>) -> Seen {
        let outcome = self
            .finished
            .recv_timeout(PATIENCE)
            .expect("the exchange did not end");
        let (record, changed) = &*self.record;
        let guard = record.lock().unwrap();
        let (record, timeout) = changed
            .wait_timeout_while(guard, PATIENCE, |record| !record.ended && !record.aborted)
            .unwrap();
        assert!(!timeout.timed_out(), "the reply did not end");
        Seen {
            status: record.status,
            body: record.frames.concat(),
            outcome,
            left_at,
            largest_pending: record.largest_pending,
            headers: record.headers.clone(),
        }
    }
}

pub(crate) fn relay() -> Relay {
    Relay::start(|| {}, |life| life()).unwrap()
}

/// One request.
pub(crate) struct Setup {
    pub(crate) base_url: String,
    pub(crate) deadlines: Deadlines,
    /// The base URL of a second upstream.
    pub(crate) fallback: Option<String>,
    pub(crate) leave_at_once: bool,
    pub(crate) leave_after_first_frame: bool,
    pub(crate) leave_after: Option<Duration>,
    pub(crate) reads: Option<usize>,
    pub(crate) keepalive: Option<Duration>,
    pub(crate) streaming: Streaming,
    pub(crate) client_streams: bool,
    /// Read on after the client has left.
    pub(crate) drain: Option<DrainLimits>,
}

impl Setup {
    pub(crate) fn streaming(server: &Server) -> Self {
        Setup {
            base_url: server.base_url(),
            deadlines: Deadlines::default(),
            fallback: None,
            leave_at_once: false,
            leave_after_first_frame: false,
            leave_after: None,
            reads: None,
            keepalive: None,
            streaming: Streaming::Auto,
            client_streams: true,
            drain: None,
        }
    }

    fn upstream(&self, base_url: &str) -> Arc<Upstream> {
        let settings = UpstreamSettings {
            base_url: base_url.to_owned(),
            deadlines: self.deadlines,
            streaming: self.streaming,
            ..UpstreamSettings::default()
        };
        Arc::new(Upstream::new("up", settings).unwrap())
    }

    pub(crate) fn route(&self) -> Route {
        Route {
            upstream: self.upstream(&self.base_url),
            model: "theirs".into(),
            reply_model: None,
            last: self.fallback.is_none(),
            drain: self.drain.is_some(),
        }
    }

    pub(crate) fn submit(&self, relay: &Relay, route: &Route) -> Running {
        let stream = self.client_streams;
        let body = Bytes::from(format!(
            r#"{{"model":"ours","stream":{stream},"messages":[]}}"#
        ));
        let record = Arc::new((Mutex::new(Record::default()), Condvar::new()));
        let next = self.fallback.as_ref().map(|url| Route {
            upstream: self.upstream(url),
            last: true,
            ..route.clone()
        });
        let exchange = Exchange {
            request: Request::parse(body, &Limits::default()).unwrap(),
            api: Api::Chat,
            responses: None,
            path: "/chat/completions".into(),
            headers: vec![("authorization".into(), "Bearer client".into())],
            request_id: "req-1".into(),
            route: route.clone(),
            limits: Limits::default(),
            keepalive: self.keepalive,
            drain: self.drain.unwrap_or_default(),
            sink: Box::new(RecordingSink {
                record: Arc::clone(&record),
                reads: self.reads,
            }),
            director: Box::new(Fallback(next)),
        };
        let control = relay.submit(exchange).unwrap();
        let (tx, finished) = channel();
        control.on_finish(Box::new(move |outcome| drop(tx.send(outcome))));
        Running {
            record,
            control,
            finished,
        }
    }

    pub(crate) fn run_on(&self, relay: &Relay, route: &Route) -> Seen {
        let running = self.submit(relay, route);
        let left_at = if self.leave_at_once {
            running.leave()
        } else if self.leave_after_first_frame {
            running.wait_first_frame();
            running.leave()
        } else if let Some(after) = self.leave_after {
            thread::sleep(after);
            running.leave()
        } else {
            None
        };
        running.wait_after(left_at)
    }

    pub(crate) fn run(&self) -> Seen {
        self.run_on(&relay(), &self.route())
    }
}
