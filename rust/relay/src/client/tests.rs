//! Against upstreams that are plain sockets or hyper's server, on the runtime of the test.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, Notify, mpsc};

use super::*;
use crate::fault::FaultKind;
use crate::reason::Reason;
use crate::upstream::UpstreamSettings;

/// A test that waits longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(20);

const WITH_LENGTH: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
const ERROR: &str = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 5\r\n\r\nhello";
const EMPTY: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap()
}

async fn until(condition: impl Fn() -> bool) {
    soon(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// Answers each request with the same bytes.
struct Server {
    url: String,
    accepted: Arc<AtomicUsize>,
    /// Tells the connections, by their number, to close.
    close: mpsc::UnboundedSender<usize>,
    /// The numbers of those that have ended.
    closed: mpsc::UnboundedReceiver<usize>,
}

impl Server {
    async fn start(reply: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let accepted = Arc::new(AtomicUsize::new(0));
        let (close, mut closing) = mpsc::unbounded_channel::<usize>();
        let (closed_in, closed) = mpsc::unbounded_channel();
        let count = Arc::clone(&accepted);
        tokio::spawn(async move {
            let mut hangups = Vec::<Arc<Notify>>::new();
            loop {
                tokio::select! {
                    Some(number) = closing.recv() => hangups[number].notify_one(),
                    stream = listener.accept() => {
                        let (mut stream, _) = stream.unwrap();
                        let (number, hangup) = (hangups.len(), Arc::new(Notify::new()));
                        hangups.push(Arc::clone(&hangup));
                        count.fetch_add(1, Ordering::Relaxed);
                        let closed = closed_in.clone();
                        tokio::spawn(async move {
                            tokio::select! {
                                () = hangup.notified() => {}
                                () = serve(&mut stream, reply) => {}
                            }
                            drop(stream);
                            let _ = closed.send(number);
                        });
                    }
                }
            }
        });
        Self {
            url,
            accepted,
            close,
            closed,
        }
    }

    fn upstream(&self, change: impl FnOnce(&mut UpstreamSettings)) -> Arc<Upstream> {
        upstream(&self.url, change)
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    async fn closed(&mut self) -> usize {
        soon(self.closed.recv()).await.unwrap()
    }
}

/// Until the peer closes.
async fn serve(stream: &mut TcpStream, reply: &str) {
    let mut bytes = Vec::new();
    loop {
        match stream.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if bytes.ends_with(b"\r\n\r\n{}") {
            bytes.clear();
            if stream.write_all(reply.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

fn upstream(url: &str, change: impl FnOnce(&mut UpstreamSettings)) -> Arc<Upstream> {
    let mut settings = UpstreamSettings {
        base_url: url.to_owned(),
        pool_idle: Duration::from_secs(60),
        ..UpstreamSettings::default()
    };
    change(&mut settings);
    Arc::new(Upstream::new("up", settings).unwrap())
}

fn pool(upstream: &Upstream) -> Arc<Pool> {
    upstream.client.pool()
}

async fn send(upstream: &Upstream, fresh: bool) -> Result<Response<UpstreamBody>, SendError> {
    let mut request = Request::new(RequestBody::from(Bytes::from_static(b"{}")));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = upstream.address("/v1/chat", "", false).unwrap().uri;
    soon(upstream.send(request, fresh)).await
}

async fn next(body: &mut UpstreamBody) -> Option<Bytes> {
    soon(poll_fn(|cx| body.poll_data(cx)))
        .await
        .map(Result::unwrap)
}

async fn whole(mut body: UpstreamBody) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(data) = next(&mut body).await {
        bytes.extend_from_slice(&data);
    }
    bytes
}

/// Whatever happened on this machine's sockets before is known to the runtime afterwards.
async fn round_trip() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut there = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (mut here, _) = listener.accept().await.unwrap();
    here.write_all(b"a").await.unwrap();
    soon(there.read_u8()).await.unwrap();
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    for (reply, body) in [
        (WITH_LENGTH, "hello"),
        (CHUNKED, "hello"),
        (ERROR, "hello"),
        (EMPTY, ""),
    ] {
        let server = Server::start(reply).await;
        let upstream = server.upstream(|_| {});
        for _ in 0..5 {
            let response = send(&upstream, false).await.unwrap();
            assert_eq!(whole(response.into_body()).await, body.as_bytes());
            assert_eq!(pool(&upstream).idle_lines(), 1, "{reply}");
        }
        assert_eq!(server.accepted(), 1, "{reply}");
    }
}

#[tokio::test]
async fn it_does_so_where_nobody_asks_for_the_end_of_a_body() {
    for reply in [WITH_LENGTH, CHUNKED, EMPTY] {
        let server = Server::start(reply).await;
        let upstream = server.upstream(|_| {});
        for _ in 0..5 {
            let mut body = send(&upstream, false).await.unwrap().into_body();
            let mut left = if reply == EMPTY { 0 } else { 5 };
            while left > 0 {
                left -= next(&mut body).await.unwrap().len();
            }
            drop(body);
            assert_eq!(pool(&upstream).idle_lines(), 1, "{reply}");
        }
        assert_eq!(server.accepted(), 1, "{reply}");
    }
}

#[tokio::test]
async fn a_body_that_is_dropped_in_the_middle_closes_its_connection() {
    for reply in [
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        let mut server = Server::start(reply).await;
        let upstream = server.upstream(|_| {});
        let mut body = send(&upstream, false).await.unwrap().into_body();
        assert_eq!(next(&mut body).await.unwrap(), "hello");
        drop(body);
        assert_eq!(server.closed().await, 0);
        assert_eq!(pool(&upstream).idle_lines(), 0);
    }
}

#[tokio::test]
async fn a_request_that_is_given_up_closes_its_connection() {
    let mut server = Server::start("").await;
    let upstream = server.upstream(|_| {});
    let sending = send(&upstream, false);
    let arrived = until(|| server.accepted() == 1);
    tokio::select! {
        _ = sending => panic!("nothing was answered"),
        () = arrived => {}
    }
    assert_eq!(server.closed().await, 0);
}

#[tokio::test]
async fn a_fresh_connection_is_not_one_of_the_pool() {
    let server = Server::start(WITH_LENGTH).await;
    let upstream = server.upstream(|_| {});
    for fresh in [false, true] {
        whole(send(&upstream, fresh).await.unwrap().into_body()).await;
    }
    assert_eq!(server.accepted(), 2);
    assert_eq!(pool(&upstream).idle_lines(), 2);
}

#[tokio::test]
async fn one_whose_peer_has_closed_is_passed_over() {
    let mut server = Server::start(WITH_LENGTH).await;
    let upstream = server.upstream(|_| {});
    let first = send(&upstream, false).await.unwrap();
    let second = send(&upstream, false).await.unwrap();
    whole(first.into_body()).await;
    whole(second.into_body()).await;
    assert_eq!(pool(&upstream).idle_lines(), 2);
    // The one that would be used next.
    server.close.send(1).unwrap();
    assert_eq!(server.closed().await, 1);
    round_trip().await;
    whole(send(&upstream, false).await.unwrap().into_body()).await;
    assert_eq!(server.accepted(), 2);
    assert_eq!(pool(&upstream).idle_lines(), 1);
}

#[tokio::test]
async fn no_more_are_kept_than_the_limit_says() {
    let mut server = Server::start(WITH_LENGTH).await;
    let upstream = server.upstream(|settings| settings.pool_max_idle = 1);
    let first = send(&upstream, false).await.unwrap();
    let second = send(&upstream, false).await.unwrap();
    whole(first.into_body()).await;
    whole(second.into_body()).await;
    assert_eq!(pool(&upstream).idle_lines(), 1);
    assert_eq!(
        server.closed().await,
        0,
        "the one that was used last is kept"
    );
    let upstream = server.upstream(|settings| settings.pool_max_idle = 0);
    whole(send(&upstream, false).await.unwrap().into_body()).await;
    assert_eq!(server.closed().await, 2);
}

#[tokio::test]
async fn what_is_idle_for_too_long_is_closed() {
    let mut server = Server::start(WITH_LENGTH).await;
    let upstream = server.upstream(|settings| settings.pool_idle = Duration::from_millis(50));
    whole(send(&upstream, false).await.unwrap().into_body()).await;
    assert_eq!(server.closed().await, 0);
    until(|| !pool(&upstream).is_swept()).await;
    // Its sweeper has ended; the next connection has one, too.
    whole(send(&upstream, false).await.unwrap().into_body()).await;
    assert_eq!(server.closed().await, 1);
}

#[tokio::test]
async fn what_its_peer_has_closed_is_not_kept() {
    let mut server = Server::start(WITH_LENGTH).await;
    let upstream = server.upstream(|_| {});
    whole(send(&upstream, false).await.unwrap().into_body()).await;
    server.close.send(0).unwrap();
    assert_eq!(server.closed().await, 0);
    until(|| pool(&upstream).idle_lines() == 0).await;
}

#[tokio::test]
async fn an_upstream_that_goes_takes_its_connections_along() {
    let mut server = Server::start(WITH_LENGTH).await;
    let upstream = server.upstream(|_| {});
    let body = send(&upstream, false).await.unwrap().into_body();
    whole(send(&upstream, false).await.unwrap().into_body()).await;
    drop(upstream);
    assert_eq!(server.closed().await, 1);
    assert_eq!(whole(body).await, b"hello", "what is under way goes on");
    assert_eq!(server.closed().await, 0);
}

#[test]
fn connections_stay_on_the_runtime_that_made_them() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let servers = runtime();
    let server = servers.block_on(Server::start(WITH_LENGTH));
    let upstream = server.upstream(|_| {});
    thread_of(servers, || {
        for accepted in 1..=2 {
            runtime().block_on(async {
                for _ in 0..2 {
                    whole(send(&upstream, false).await.unwrap().into_body()).await;
                }
                assert_eq!(server.accepted(), accepted);
                server.close.send(accepted - 1).unwrap();
                until(|| pool(&upstream).idle_lines() == 0).await;
            });
        }
    });
}

/// Run `test` while a thread runs what was spawned on `servers`.
fn thread_of(servers: tokio::runtime::Runtime, test: impl FnOnce()) {
    let (done, wait) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn(move || drop(servers.block_on(wait)));
    test();
    drop(done);
    thread.join().unwrap();
}

#[tokio::test]
async fn a_chunk_costs_its_reader_one_wake() {
    const CHUNKS: usize = 50;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (seen, mut acknowledged) = mpsc::unbounded_channel::<()>();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..CHUNKS {
            acknowledged.recv().await.unwrap();
            // A wake too many would show by now: what comes next is another's.
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            stream.write_all(b"5\r\nhello\r\n").await.unwrap();
        }
        acknowledged.recv().await.unwrap();
        stream.write_all(b"0\r\n\r\n").await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let upstream = upstream(&url, |_| {});
    let mut body = send(&upstream, false).await.unwrap().into_body();
    let mut waits = 0;
    let mut chunks = 0;
    soon(async {
        loop {
            seen.send(()).unwrap();
            let data = poll_fn(|cx| {
                let polled = body.poll_data(cx);
                waits += usize::from(polled.is_pending());
                polled
            });
            if data.await.is_none() {
                break;
            }
            chunks += 1;
        }
    })
    .await;
    assert_eq!(chunks, CHUNKS);
    assert!(waits <= CHUNKS + 5, "{waits} waits for {CHUNKS} chunks");
}

#[tokio::test]
async fn what_is_not_http_is_told_from_a_connection_that_broke() {
    for (reply, kind, reason) in [
        ("SMTP ready\r\n\r\n", FaultKind::Protocol, None),
        (
            "HTTP/1.1 200 OK\r\ncontent-le",
            FaultKind::Reset,
            Some(Reason::Closed),
        ),
    ] {
        let server = Server::start(reply).await;
        let upstream = server.upstream(|_| {});
        let sending = send(&upstream, false);
        let closing = async {
            until(|| server.accepted() == 1).await;
            if kind == FaultKind::Reset {
                server.close.send(0).unwrap();
            }
            std::future::pending::<()>().await;
        };
        let answer = tokio::select! {
            answer = sending => answer,
            () = closing => unreachable!(),
        };
        let error = answer.map(drop).unwrap_err();
        let expected = SendError {
            kind,
            reason,
            repeatable: false,
        };
        assert_eq!(error, expected);
    }
}

#[tokio::test]
async fn why_there_is_no_connection_is_told() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refusing = free.local_addr().unwrap();
    drop(free);
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let without_tls = plain.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.unwrap();
        stream.write_all(b"220 SMTP ready\r\n").await.unwrap();
        std::future::pending::<()>().await;
    });
    // No label of a name is longer than 63 (RFC 1035, section 2.3.4): nobody has to be asked.
    let name = "x".repeat(64);
    for (url, socket, reason) in [
        (format!("http://{refusing}/v1"), None, Reason::Refused),
        (format!("http://{name}.invalid/v1"), None, Reason::Dns),
        (format!("https://{without_tls}/v1"), None, Reason::Tls),
        (
            "http://host/v1".into(),
            Some("/nowhere/socket".into()),
            Reason::NoSocket,
        ),
    ] {
        let upstream = upstream(&url, |settings| settings.socket = socket);
        let error = soon(send(&upstream, false)).await.map(drop).unwrap_err();
        assert_eq!(
            (error.kind, error.reason),
            (FaultKind::Connect, Some(reason))
        );
    }
}

/// An HTTP/2 server that answers once `together` requests are there. A notification ends the first connection
/// gracefully.
async fn http2_server(together: usize) -> (String, Arc<AtomicUsize>, Arc<Notify>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicUsize::new(0));
    let (count, barrier) = (Arc::clone(&accepted), Arc::new(Barrier::new(together)));
    let shutdown = Arc::new(Notify::new());
    let shut = Arc::clone(&shutdown);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let number = count.fetch_add(1, Ordering::Relaxed);
            let (barrier, shut) = (Arc::clone(&barrier), Arc::clone(&shut));
            let service = service_fn(move |_: Request<Incoming>| {
                let barrier = Arc::clone(&barrier);
                async move {
                    barrier.wait().await;
                    Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from_static(b"hello"))))
                }
            });
            tokio::spawn(async move {
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service);
                let mut connection = std::pin::pin!(connection);
                let ended = tokio::select! {
                    ended = &mut connection => ended,
                    () = shut.notified(), if number == 0 => {
                        connection.as_mut().graceful_shutdown();
                        connection.await
                    }
                };
                drop(ended);
            });
        }
    });
    (url, accepted, shutdown)
}

#[tokio::test]
async fn concurrent_requests_share_one_http2_connection() {
    const TOGETHER: usize = 50;
    let (url, accepted, _) = http2_server(TOGETHER).await;
    let upstream = upstream(&url, |settings| settings.http2 = true);
    for _ in 0..2 {
        let exchanges = (0..TOGETHER)
            .map(|_| {
                let upstream = Arc::clone(&upstream);
                tokio::spawn(async move {
                    whole(send(&upstream, false).await.unwrap().into_body()).await
                })
            })
            .collect::<Vec<_>>();
        for exchange in exchanges {
            assert_eq!(soon(exchange).await.unwrap(), b"hello");
        }
    }
    assert_eq!(accepted.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn an_http2_connection_that_ends_is_followed_by_another() {
    let (url, accepted, shutdown) = http2_server(1).await;
    let upstream = upstream(&url, |settings| settings.http2 = true);
    whole(send(&upstream, false).await.unwrap().into_body()).await;
    shutdown.notify_one();
    let answer = soon(async {
        loop {
            match send(&upstream, false).await {
                // The announcement of the end may be on its way yet.
                Ok(response) if accepted.load(Ordering::Relaxed) == 1 => {
                    whole(response.into_body()).await;
                }
                Err(error) if error.repeatable => {
                    break send(&upstream, true).await;
                }
                answer => break answer,
            }
        }
    });
    assert_eq!(whole(answer.await.unwrap().into_body()).await, b"hello");
    assert_eq!(accepted.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn an_http2_connection_without_streams_is_closed_after_a_while() {
    let (url, accepted, _) = http2_server(1).await;
    let upstream = upstream(&url, |settings| {
        settings.http2 = true;
        settings.pool_idle = Duration::from_millis(50);
    });
    whole(send(&upstream, false).await.unwrap().into_body()).await;
    until(|| !pool(&upstream).is_swept()).await;
    whole(send(&upstream, false).await.unwrap().into_body()).await;
    assert_eq!(accepted.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn those_that_waited_for_a_connection_share_its_failure() {
    let error = SendError::of(FaultKind::ConnectTimeout);
    let mut slot = Slot::default();
    let waited = Instant::now();
    slot.fail(error);
    assert_eq!(slot.failed_since(waited), Some(error));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(slot.failed_since(Instant::now()), None);
}

#[tokio::test]
async fn the_pool_is_asked_in_the_order_of_use() {
    let mut server = Server::start(WITH_LENGTH).await;
    let upstream = server.upstream(|_| {});
    let first = send(&upstream, false).await.unwrap();
    let second = send(&upstream, false).await.unwrap();
    whole(second.into_body()).await;
    whole(first.into_body()).await;
    let body = send(&upstream, false).await.unwrap().into_body();
    pool(&upstream).checkout().unwrap();
    assert_eq!(server.closed().await, 1, "the first was used last");
    drop(body);
}
