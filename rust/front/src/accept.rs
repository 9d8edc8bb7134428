//! Accepting clients, each engine on a socket of its own.

use std::io;
use std::net::TcpListener as Listener;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluicegate_relay::Engine;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::clock::FIRST_REQUEST;
use crate::connection;
use crate::state::{FrontState, Listening};

/// Connections that wait for an engine to accept them.
pub(crate) const BACKLOG: i32 = 4096;

/// How long to wait after an accept that failed for want of descriptors or memory: asking again at once would fail
/// again.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// The descriptors that serving one connection takes beside its own.
const FILES_EACH: u64 = 2;

/// Accept until the gateway drains, and then what waits by then.
pub(crate) async fn accept(
    socket: Listener,
    engine: Engine,
    accepting: Accepting,
    listening: Arc<Listening>,
) {
    let state = Arc::clone(&accepting.0);
    let listener = match TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => {
            let event = crate::decisions::Event::Died(format!("a socket cannot be used: {error}"));
            return state.decisions.push(event);
        }
    };
    loop {
        let accepted = tokio::select! {
            accepted = next(&listener, &listening) => accepted,
            () = state.draining.given() => break,
        };
        let (stream, room) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_one(&error) => continue,
            Err(_) => {
                tokio::time::sleep(AFTER_FAILURE).await;
                continue;
            }
        };
        prepare(&stream, &state);
        let counted = Counted::new(&state);
        let (on, state, listening) = (engine.clone(), Arc::clone(&state), Arc::clone(&listening));
        engine.spawn(async move {
            connection::serve(stream, on, state, listening).await;
            drop((counted, room));
        });
    }
    let Ok(listener) = listener.into_std() else {
        return;
    };
    // The system resets what is still in the queue when its socket is closed.
    for stream in waiting(&listener, listening.bounds.connections) {
        prepare(&stream, &state);
        let counted = Counted::new(&state);
        let (on, state, listening) = (engine.clone(), Arc::clone(&state), Arc::clone(&listening));
        engine.spawn(async move {
            serve_waiting(stream, on, state, listening).await;
            drop(counted);
        });
    }
}

/// All connections in the queue of `listener`, as far as descriptors suffice for them and for those that are served.
fn waiting(listener: &Listener, served: usize) -> Vec<TcpStream> {
    let reserved = FILES_EACH.saturating_mul(served as u64);
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.map_or(u64::MAX, |files| files.saturating_sub(reserved));
    let mut waiting = Vec::new();
    // The queue holds one more than its length; what comes in the meantime must not keep the gateway here.
    for _ in 0..=BACKLOG {
        match listener.accept() {
            // The lowest number that is free is given: so many files are open.
            Ok((stream, _))
                if u64::try_from(stream.as_raw_fd()).is_ok_and(|open| open >= files) =>
            {
                break;
            }
            Ok((stream, _)) => {
                let stream = stream
                    .set_nonblocking(true)
                    .and_then(|()| TcpStream::from_std(stream));
                waiting.extend(stream);
            }
            Err(error) if is_of_one(&error) || error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    waiting
}

/// Serve a connection that waited when the gateway began to drain, once there is room for it. One whose client has said
/// nothing is closed, and none is kept from its answer by that. What there was no room for by the end of the drain is
/// served then, and told that the gateway stops.
async fn serve_waiting(
    stream: TcpStream,
    engine: Engine,
    state: Arc<FrontState>,
    listening: Arc<Listening>,
) {
    if !matches!(timeout(FIRST_REQUEST, stream.readable()).await, Ok(Ok(()))) {
        return;
    }
    let room = tokio::select! {
        room = Arc::clone(&listening.room).acquire_owned() => room.ok(),
        () = engine.closing().given() => None,
    };
    connection::serve(stream, engine, state, listening).await;
    drop(room);
}

/// A listening socket that is served. Reports a panic of its task: an engine that accepts no client is as useless as
/// one whose thread has ended.
pub(crate) struct Accepting(Arc<FrontState>);

impl Accepting {
    pub(crate) fn new(state: Arc<FrontState>) -> Self {
        state.accepting.fetch_add(1, Ordering::Relaxed);
        Self(state)
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.0.accepting.fetch_sub(1, Ordering::Release);
        if std::thread::panicking() {
            let message = "an engine accepts nobody any more".to_owned();
            self.0
                .decisions
                .push(crate::decisions::Event::Died(message));
        }
    }
}

fn prepare(stream: &TcpStream, state: &FrontState) {
    // Streams of tokens are small writes that must not wait for each other.
    let _ = stream.set_nodelay(true);
    bound_unsent(stream, state.limits.client_buffer);
}

/// The system's part of what is held for a slow client: half of the bound. Left to itself it grows to megabytes a
/// connection.
#[cfg(target_os = "linux")]
fn bound_unsent(stream: &TcpStream, client_buffer: usize) {
    let part = u32::try_from(client_buffer / 2).unwrap_or(u32::MAX);
    let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(part);
}

#[cfg(not(target_os = "linux"))]
fn bound_unsent(_: &TcpStream, _: usize) {}

struct Counted(Arc<FrontState>);

impl Counted {
    fn new(state: &Arc<FrontState>) -> Self {
        state.connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(state))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Release);
    }
}

/// A connection, once there is room for it. Until then it waits in the system's queue.
async fn next(
    listener: &TcpListener,
    listening: &Listening,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let room = Arc::clone(&listening.room);
    let room = room.acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, room))
}

/// Whether only the connection that was to be accepted is at fault.
fn is_of_one(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use std::panic::resume_unwind;

    use sluicegate_relay::{Copies, DrainLimits};

    use super::*;
    use crate::bounds::Limits;
    use crate::decisions::{Decisions, Event};

    /// What is reported of an accepting task that ends like this.
    fn deaths(ends: impl FnOnce() + Send + 'static) -> Vec<String> {
        let decisions = Arc::new(Decisions::new(Duration::ZERO));
        let limits = Limits {
            max_body: 1,
            all_bodies: 1,
            hold_upload: 64 << 10,
            max_event: 1,
            max_reply: 1,
            client_buffer: 1,
            keepalive: None,
            client_stall: None,
            drain: DrainLimits::default(),
            max_requests: 1,
            copies: Copies::new(0),
        };
        let state = Arc::new(FrontState::new(limits, Arc::clone(&decisions)));
        let accepting = Accepting::new(state);
        let task = std::thread::spawn(move || {
            let _accepting = accepting;
            ends();
        });
        let _ = task.join();
        let said = |event| match event {
            Event::Died(message) => Some(message),
            _ => None,
        };
        decisions.take().into_iter().filter_map(said).collect()
    }

    #[test]
    fn an_engine_that_accepts_nobody_has_died() {
        let panics = || resume_unwind(Box::new("as the test wants"));
        assert_eq!(deaths(panics), ["an engine accepts nobody any more"]);
        assert!(deaths(|| ()).is_empty(), "it drains");
    }
}
