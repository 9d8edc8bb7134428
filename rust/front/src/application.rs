//! Forwarding to the Python application, over a Unix socket: it answers every request that does not go to an upstream.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue,
};
use http::request::Parts;
use http::{Request, Response, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use crate::bounds::Pace;
use crate::callers::X_API_KEY;
use crate::facts::Wanted;
use crate::head::drop_hop_by_hop;
use crate::paced::Paced;
use crate::refusal::{ANTHROPIC_VERSION, Refusal};

/// What the application reads of a request's head, beside the headers that the configuration names. Nothing else goes
/// there: its server refuses a head with more than a hundred headers, whatever our bound is.
const READ: [HeaderName; 8] = [
    ACCEPT,
    AUTHORIZATION,
    CONTENT_TYPE,
    EXPECT,
    HOST,
    HeaderName::from_static("x-request-id"),
    X_API_KEY,
    ANTHROPIC_VERSION,
];

/// A request's body on its way to the application.
pub(crate) enum Passed {
    /// It comes from the client.
    Coming(Box<Paced>),
    /// It was read.
    Whole(Bytes),
}

impl Passed {
    /// It comes, and its client has so long for it.
    pub(crate) fn coming(body: Incoming, pace: Pace) -> Self {
        Self::Coming(Box::new(Paced::new(body, pace, 0, Duration::ZERO)))
    }
}

/// The same, with a place for what the client did wrong.
struct PassedBody {
    body: Passed,
    /// An error of the connection that the body goes over does not say whose it is.
    fault: Fault,
}

type Fault = Arc<OnceLock<Refusal>>;

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
                let data = ready!(body.poll_data(cx));
                Poll::Ready(data.map(|data| match data {
                    Ok(data) => Ok(Frame::data(data)),
                    Err(refusal) => {
                        let _ = this.fault.set(refusal);
                        Err(std::io::ErrorKind::InvalidData.into())
                    }
                }))
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

fn read_of(mut headers: HeaderMap, wanted: &Wanted) -> HeaderMap {
    let mut read: HeaderMap = wanted.of_head(&headers).headers.into_iter().collect();
    for name in READ {
        if let Some(value) = headers.remove(&name) {
            read.insert(name, value);
        }
    }
    read
}

/// The application's answer. Each request has a connection of its own: what comes here is not what comes by the
/// thousand.
pub(crate) async fn ask(
    socket: &Path,
    wanted: &Wanted,
    mut parts: Parts,
    body: Passed,
) -> Result<Response<Incoming>, Refusal> {
    let unavailable = Refusal::NoApplication;
    let stream = UnixStream::connect(socket).await.map_err(|_| unavailable)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|_| unavailable)?;
    tokio::spawn(async move {
        // The reply's body reports it when the connection breaks.
        let _ = connection.await;
    });
    // RFC 9112, section 3.2.2: the authority of the request target takes precedence over `Host`.
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    if authority.is_some() || !parts.headers.contains_key(HOST) {
        let host = HeaderValue::from_str(authority.unwrap_or("localhost"));
        let host = host.unwrap_or(HeaderValue::from_static("localhost"));
        parts.headers.insert(HOST, host);
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let uri: Uri = path.parse().map_err(|_| unavailable)?;
    drop_hop_by_hop(&mut parts.headers);
    parts.headers = read_of(parts.headers, wanted);
    parts.uri = uri;
    parts.version = Version::HTTP_11;
    parts.extensions = http::Extensions::new();
    let fault = Fault::default();
    let body = PassedBody {
        body,
        fault: Arc::clone(&fault),
    };
    sender
        .send_request(Request::from_parts(parts, body))
        .await
        .map_err(|_| fault.get().copied().unwrap_or(unavailable))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::num::NonZeroU32;

    use http_body_util::{BodyExt, Empty};
    use hyper::service::service_fn;
    use tokio::io::AsyncWriteExt;
    use tokio::sync::mpsc;
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    const PACE: Pace = Pace {
        pause: Duration::from_secs(10),
        rate: NonZeroU32::new(1).unwrap(),
    };

    /// How many bytes get through where client and application rest for so long between two of them, and what the
    /// client did wrong.
    async fn passed(client_rests: Duration, application_rests: Duration) -> (usize, Fault) {
        let (mut client, server) = tokio::io::duplex(1024);
        let (tell, mut told) = mpsc::channel(1);
        let service = service_fn(move |request: Request<Incoming>| {
            let tell = tell.clone();
            async move {
                let fault = Fault::default();
                let mut body = PassedBody {
                    body: Passed::coming(request.into_body(), PACE),
                    fault: Arc::clone(&fault),
                };
                let mut bytes = 0;
                while let Some(Ok(frame)) = body.frame().await {
                    bytes += frame.data_ref().map_or(0, Bytes::len);
                    sleep(application_rests).await;
                }
                tell.send((bytes, fault)).await.unwrap();
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        });
        let sending = async {
            let head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 30\r\n\r\n";
            let _ = client.write_all(head).await;
            for _ in 0..30 {
                sleep(client_rests).await;
                let _ = client.write_all(b"x").await;
            }
            std::future::pending::<()>().await;
        };
        let serving = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(server), service);
        tokio::select! {
            told = told.recv() => told.unwrap(),
            // Both have ended once the request has been reported.
            (_, ()) = async { tokio::join!(serving, sending) } => unreachable!(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_has_its_time_and_the_application_its_own() {
        let (bytes, fault) = passed(SECOND, Duration::ZERO).await;
        assert_eq!((bytes, fault.get()), (30, None));
        let (bytes, fault) = passed(2 * SECOND, Duration::ZERO).await;
        assert_eq!((bytes, fault.get()), (9, Some(&Refusal::Late)));
        let (bytes, fault) = passed(SECOND / 10, 9 * SECOND).await;
        assert_eq!((bytes, fault.get()), (30, None));
    }
}
