//! One client's connection: HTTP by hyper, driven here, within its bounds.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use sluicegate_relay::Engine;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

use crate::clock::{Clock, Expired};
use crate::service::Service;
use crate::socket::Socket;
use crate::state::{FrontState, Listening};
use crate::stream::Streams;
use crate::tcp::Tcp;

/// The part of what is held for a slow client that an HTTP/2 stream's frames may be.
const BUFFER_PART: usize = 4;

/// A client whose connection is silent for this long is asked whether it is there (HTTP/2).
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_PATIENCE: Duration = Duration::from_secs(20);

/// Serve one client until it, or the gateway, ends the connection.
pub(crate) async fn serve(
    stream: TcpStream,
    engine: Engine,
    state: Arc<FrontState>,
    listening: Arc<Listening>,
) {
    let stream = Tcp::new(stream);
    let (socket, clock, http2) = match &listening.tls {
        None => {
            let clock = Clock::new(listening.times);
            (Socket::plain(stream, &clock), clock, listening.http2)
        }
        Some(config) => {
            let accepting = TlsAcceptor::from(Arc::clone(config)).accept(stream);
            let Ok(Ok(stream)) = timeout(listening.bounds.head_time, accepting).await else {
                return;
            };
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let clock = Clock::new(listening.times);
            (Socket::tls(stream, &clock), clock, http2)
        }
    };
    let builder = builder(&state, &listening, http2);
    let service = Service::new(Arc::clone(&state), listening, engine, Arc::clone(&clock));
    let connection = builder.serve_connection(TokioIo::new(socket), service);
    let mut connection = pin!(connection);
    let mut draining = pin!(state.draining.given_owned());
    let mut told = false;
    let mut drains = false;
    let mut ending = false;
    let mut timer = pin!(sleep_until(Instant::now()));
    poll_fn(|cx| {
        // Once it has the waker it need not be asked: that takes a lock, and the flag does not.
        if !drains && (!told || state.draining.is_given()) {
            told = true;
            if draining.as_mut().poll(cx).is_ready() {
                drains = true;
                clock.drain();
            }
        }
        loop {
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            // hyper drops a connection on which nothing has come yet, and the client's request may be in its socket.
            if drains && !ending && clock.has_begun() {
                ending = true;
                connection.as_mut().graceful_shutdown();
                continue;
            }
            // What runs out is asked for after each poll, since that is what changes it.
            let expired = loop {
                let Some((at, expired)) = clock.next() else {
                    return Poll::Pending;
                };
                if timer.is_elapsed() && at <= Instant::now() {
                    break expired;
                }
                // It may be early: then it is asked again.
                if timer.is_elapsed() || at < timer.deadline() {
                    timer.as_mut().reset(at);
                }
                ready!(timer.as_mut().poll(cx));
            };
            if !matches!(expired, Expired::Idle | Expired::Resets) || ending {
                if expired == Expired::Stall {
                    clock.stall();
                }
                return Poll::Ready(());
            }
            ending = true;
            clock.ending();
            // The GOAWAY tells the client of a request that is still on its way that it was not processed; earlier
            // requests go on.
            connection.as_mut().graceful_shutdown();
        }
    })
    .await;
}

fn builder(state: &FrontState, listening: &Listening, http2: bool) -> auto::Builder<Streams> {
    let bounds = &listening.bounds;
    // A connection keeps the buffer that it read a large body into for as long as it lives: it is no larger than a head
    // may be.
    let buffer = bounds.head_bytes;
    let mut builder = auto::Builder::new(Streams {
        stall: bounds.stall,
    });
    builder
        .http1()
        .timer(TokioTimer::new())
        // The clock bounds the time of the head, too, and distinguishes an idle connection from a slow one.
        .header_read_timeout(None)
        .max_headers(bounds.headers)
        .max_buf_size(buffer);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(bounds.http2_streams)
        .max_pending_accept_reset_streams(bounds.http2_resets)
        .max_local_error_reset_streams(bounds.http2_resets)
        .max_header_list_size(u32::try_from(bounds.head_bytes).unwrap_or(u32::MAX))
        .max_send_buf_size(state.limits.client_buffer / BUFFER_PART)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_PATIENCE);
    match (http2, &listening.tls) {
        (false, _) => builder.http1_only(),
        (true, Some(_)) => builder.http2_only(),
        (true, None) => builder,
    }
}
