//! An HTTP/1.1 connection without a task of its own: the exchange that uses it polls it.

use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::{TrySendError, http1};
use tokio::time::Instant;

use crate::connect::{Connected, Io, Uses};
use crate::fault::FaultKind;
use crate::pool::Pool;
use crate::reason::Reason;
use crate::unanswered::SendError;
use crate::upload::RequestBody;
use crate::wakes::Wakes;

/// The largest read from an upstream connection, in bytes: many events fit, and a held stream stays small.
const READ_BUFFER: usize = 32 * 1024;

/// A request without a reply, and the request itself where nothing of it was sent.
pub(crate) struct Unsent {
    pub(crate) error: SendError,
    pub(crate) request: Option<Box<Request<RequestBody>>>,
}

impl Unsent {
    pub(crate) fn new(mut error: TrySendError<Request<RequestBody>>, uses: &Uses) -> Self {
        let request = error.take_message().map(Box::new);
        Self {
            error: SendError::sending(error.error(), uses),
            request,
        }
    }
}

pub(crate) struct Line {
    sender: http1::SendRequest<RequestBody>,
    /// `None` once it has ended: it must not be polled again.
    connection: Option<http1::Connection<Io, RequestBody>>,
    uses: Uses,
    wakes: Arc<Wakes>,
    waker: Waker,
    home: Weak<Pool>,
    idle_since: Instant,
}

impl Line {
    /// Nothing is sent yet. `home` is where it goes between two exchanges.
    pub(crate) async fn open(connected: Connected, home: &Arc<Pool>) -> hyper::Result<Box<Self>> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(READ_BUFFER)
            .handshake(connected.io)
            .await?;
        let wakes = Arc::new(Wakes::default());
        Ok(Box::new(Self {
            sender,
            connection: Some(connection),
            uses: connected.uses,
            waker: Waker::from(Arc::clone(&wakes)),
            wakes,
            home: Arc::downgrade(home),
            idle_since: Instant::now(),
        }))
    }

    /// The reply's head. A dropped future closes the connection.
    pub(crate) async fn send(
        mut self: Box<Self>,
        request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Box<Self>), Unsent> {
        // Nothing but the connection resolves it, so it is polled after that and needs no wake; for the same reason the
        // budget of the task must not put it off.
        let responding = tokio::task::unconstrained(self.sender.try_send_request(request));
        let mut responding = pin!(responding);
        let answer = std::future::poll_fn(|cx| {
            self.wakes.set_task(cx.waker());
            let ended = self.drive().is_ready();
            match responding.as_mut().poll(&mut silent()) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending if ended => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        match answer {
            Some(Ok(response)) => {
                self.uses.add();
                Ok((response, self))
            }
            Some(Err(error)) => Err(Unsent::new(error, &self.uses)),
            None => Err(Unsent {
                error: SendError {
                    kind: FaultKind::Reset,
                    reason: Some(Reason::Closed),
                    repeatable: self.uses.went_stale(),
                },
                request: None,
            }),
        }
    }

    /// The next bytes of the reply to what was sent last; `None` at the regular end.
    pub(crate) fn poll_body(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Bytes>>> {
        self.wakes.set_task(cx.waker());
        // What was read is taken before more is: the connection reads on only then.
        if let (Poll::Ready(data), _) = self.take(body) {
            return Poll::Ready(data);
        }
        loop {
            // The body reports the connection's error.
            let _ = self.drive();
            match self.take(body) {
                (Poll::Pending, true) => {}
                (taken, _) => return taken,
            }
        }
    }

    /// What the connection has given to the body, and whether the connection wants to be polled. The body's end of
    /// their channel needs no waker: only the driver of the connection fills it.
    fn take(&self, body: &mut Incoming) -> (Poll<Option<hyper::Result<Bytes>>>, bool) {
        self.wakes.mute();
        let taken = poll_bytes(body, &mut silent());
        (taken, self.wakes.unmute())
    }

    /// Go on as far as the socket allows. Ready: the connection has ended.
    fn drive(&mut self) -> Poll<()> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(());
        };
        let polled = Pin::new(connection).poll(&mut Context::from_waker(&self.waker));
        if polled.is_ready() {
            self.connection = None;
        }
        polled.map(drop)
    }

    /// To its pool, if the last exchange is complete in both directions and the peer has not closed.
    pub(crate) fn give_back(mut self: Box<Self>) {
        if self.is_alive()
            && let Some(pool) = self.home.upgrade()
        {
            self.wakes.clear_task();
            self.idle_since = Instant::now();
            pool.put(self);
        }
    }

    /// Whether it can take another request, as far as can be known.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.drive().is_pending() && self.sender.is_ready()
    }

    pub(crate) fn idle_since(&self) -> Instant {
        self.idle_since
    }
}

/// The next bytes of a body; trailers are passed over.
pub(crate) fn poll_bytes(
    body: &mut Incoming,
    cx: &mut Context<'_>,
) -> Poll<Option<hyper::Result<Bytes>>> {
    loop {
        let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(cx)) else {
            return Poll::Ready(None);
        };
        if let Ok(data) = frame?.into_data() {
            return Poll::Ready(Some(Ok(data)));
        }
    }
}

/// For what is polled by hand at the right moments.
fn silent() -> Context<'static> {
    Context::from_waker(Waker::noop())
}
