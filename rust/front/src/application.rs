//! The application: whatever is not forwarded to an upstream is answered by Python, behind a Unix socket.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderValue};
use http::request::Parts;
use http::{Request, Response, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::{Instant, Sleep};

use crate::head::drop_hop_by_hop;
use crate::refusal::Refusal;

/// A request's body on its way to the application.
pub(crate) enum Passed {
    /// It comes from the client.
    Coming(Incoming),
    /// It was read.
    Whole(Bytes),
}

/// The same, with a bound on the time between two parts.
struct PassedBody {
    body: Passed,
    pause: Duration,
    late: Pin<Box<Sleep>>,
    /// The client is waited for.
    waits: bool,
    /// What the client did wrong: an error of the connection that its body goes over does not say whose it is.
    fault: Fault,
}

type Fault = Arc<OnceLock<Refusal>>;

impl PassedBody {
    fn failed<T>(&self, refusal: Refusal) -> Poll<Option<Result<T, std::io::Error>>> {
        let _ = self.fault.set(refusal);
        Poll::Ready(Some(Err(std::io::ErrorKind::InvalidData.into())))
    }
}

impl Body for PassedBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        match &mut this.body {
            Passed::Coming(body) => {
                let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) else {
                    if !std::mem::replace(&mut this.waits, true) {
                        this.late.as_mut().reset(Instant::now() + this.pause);
                    }
                    ready!(this.late.as_mut().poll(cx));
                    return this.failed(Refusal::Late);
                };
                this.waits = false;
                match frame {
                    Some(Err(_)) => this.failed(Refusal::Malformed),
                    Some(Ok(frame)) => Poll::Ready(Some(Ok(frame))),
                    None => Poll::Ready(None),
                }
            }
            Passed::Whole(body) if body.is_empty() => Poll::Ready(None),
            Passed::Whole(body) => {
                let body = std::mem::take(body);
                Poll::Ready(Some(Ok(Frame::data(body))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Passed::Coming(body) => body.is_end_stream(),
            Passed::Whole(body) => body.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Passed::Coming(body) => body.size_hint(),
            Passed::Whole(body) => SizeHint::with_exact(body.len() as u64),
        }
    }
}

/// The application's answer. Each request has a connection of its own: what comes here is not what comes by the thousand.
pub(crate) async fn ask(
    socket: &Path,
    mut parts: Parts,
    body: Passed,
    pause: Duration,
) -> Result<Response<Incoming>, Refusal> {
    let unavailable = Refusal::NoApplication;
    let stream = UnixStream::connect(socket).await.map_err(|_| unavailable)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|_| unavailable)?;
    tokio::spawn(async move {
        // Where it breaks, the reply's body says so.
        let _ = connection.await;
    });
    // RFC 9112, section 3.2.2: the target's authority goes before what Host says.
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    if authority.is_some() || !parts.headers.contains_key(HOST) {
        let host = HeaderValue::from_str(authority.unwrap_or("localhost"));
        let host = host.unwrap_or(HeaderValue::from_static("localhost"));
        parts.headers.insert(HOST, host);
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let uri: Uri = path.parse().map_err(|_| unavailable)?;
    drop_hop_by_hop(&mut parts.headers);
    parts.headers.remove(CONTENT_LENGTH);
    parts.uri = uri;
    parts.version = Version::HTTP_11;
    parts.extensions = http::Extensions::new();
    let fault = Fault::default();
    let body = PassedBody {
        body,
        pause,
        late: Box::pin(tokio::time::sleep(pause)),
        waits: false,
        fault: Arc::clone(&fault),
    };
    sender
        .send_request(Request::from_parts(parts, body))
        .await
        .map_err(|_| fault.get().copied().unwrap_or(unavailable))
}
