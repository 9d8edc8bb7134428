//! An HTTP/2 connection, which many exchanges share; it has a task of its own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;

use crate::connect::{Connected, Uses};
use crate::line::Unsent;
use crate::unanswered::SendError;
use crate::upload::RequestBody;

/// What an upstream may send of one reply before the pump has taken it: a held stream stays small.
const STREAM_WINDOW: u32 = 48 * 1024;

/// The same for all replies of a connection. It must not bind: replies that are held would stop the others.
const CONNECTION_WINDOW: u32 = 1 << 30;

/// A peer that is silent for this long while streams are open is asked by a PING whether it is there.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// A connection whose peer leaves a PING unanswered for this long has ended.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// One connection. It closes when its last holder drops it, which is when no exchange uses it and its slot is empty.
pub(crate) struct Shared {
    sender: http2::SendRequest<RequestBody>,
    uses: Uses,
    made: Instant,
    used: Mutex<Instant>,
}

impl Shared {
    pub(crate) async fn open(connected: Connected) -> hyper::Result<Arc<Self>> {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(connected.io)
            .await?;
        // The streams that it breaks report its error.
        tokio::spawn(async move { drop(connection.await) });
        let now = Instant::now();
        Ok(Arc::new(Self {
            sender,
            uses: connected.uses,
            made: now,
            used: Mutex::new(now),
        }))
    }

    /// The reply's head. A dropped future resets the stream.
    pub(crate) async fn send(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, Unsent> {
        let sending = self.sender.clone().try_send_request(request);
        match sending.await {
            Ok(response) => {
                self.uses.add();
                Ok(response)
            }
            Err(error) => Err(Unsent::new(error, &self.uses)),
        }
    }

    /// An exchange begins, or has ended.
    pub(crate) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn idle_since(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one connection that later exchanges use. Whoever holds the lock over it may make it.
#[derive(Default)]
pub(crate) struct Slot {
    current: Option<Arc<Shared>>,
    failed: Option<(Instant, SendError)>,
}

impl Slot {
    /// For an exchange that came at `arrived`. `fresh`: only a connection that was made since.
    pub(crate) fn lease(&mut self, arrived: Instant, fresh: bool) -> Option<Arc<Shared>> {
        self.current.take_if(|shared| shared.sender.is_closed());
        let shared = self.current.as_ref()?;
        if fresh && shared.made < arrived {
            return None;
        }
        shared.touch();
        Some(Arc::clone(shared))
    }

    /// Why the connection failed that an exchange waited for since `arrived`: it would wait as long for the next.
    pub(crate) fn failed_since(&self, arrived: Instant) -> Option<SendError> {
        self.failed
            .filter(|(at, _)| *at >= arrived)
            .map(|(_, error)| error)
    }

    pub(crate) fn keep(&mut self, shared: &Arc<Shared>) {
        self.current = Some(Arc::clone(shared));
    }

    pub(crate) fn fail(&mut self, error: SendError) {
        self.failed = Some((Instant::now(), error));
    }

    /// Let go of a connection that has ended or that no exchange has used for `limit`. Whether one is left.
    pub(crate) fn sweep(&mut self, limit: Duration) -> bool {
        self.current.take_if(|shared| {
            let idle = Arc::strong_count(shared) == 1 && shared.idle_since().elapsed() >= limit;
            idle || shared.sender.is_closed()
        });
        self.current.is_some()
    }
}
