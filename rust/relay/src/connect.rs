//! Connections to an upstream: one deadline over transport and TLS, and a memory of their use, so that a connection that died while
//! idle can be told from an upstream that fails.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;

use crate::dial::{Dial, Wire};

type Stream = MaybeHttpsStream<TokioIo<Wire>>;
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a connection was used for so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Uses(Arc<Used>);

#[derive(Debug, Default)]
struct Used {
    replies: AtomicU32,
    heard: AtomicBool,
    /// HTTP/2: what is heard may belong to another request, or be the announcement of the end.
    shared: bool,
}

impl Uses {
    /// It has carried another reply.
    pub(crate) fn add(&self) {
        self.0.replies.fetch_add(1, Ordering::Relaxed);
    }

    /// It has carried a reply, and has said nothing since it was last written to.
    pub(crate) fn went_stale(&self) -> bool {
        self.0.replies.load(Ordering::Relaxed) > 0 && (self.0.shared || !self.heard())
    }

    fn heard(&self) -> bool {
        self.0.heard.load(Ordering::Relaxed)
    }

    fn set_heard(&self, heard: bool) {
        if self.heard() != heard {
            self.0.heard.store(heard, Ordering::Relaxed);
        }
    }
}

/// The connect deadline fired.
#[derive(Debug)]
pub(crate) struct ConnectTimeout;

impl std::fmt::Display for ConnectTimeout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("connect deadline")
    }
}

impl std::error::Error for ConnectTimeout {}

/// Connects, within the deadline.
#[derive(Clone)]
pub(crate) struct Connector {
    inner: HttpsConnector<Dial>,
    deadline: Option<Duration>,
    plain_http2: bool,
}

impl Connector {
    /// `plain_http2`: HTTP/2 is spoken without TLS, whose handshake would tell.
    pub(crate) fn new(
        inner: HttpsConnector<Dial>,
        deadline: Option<Duration>,
        plain_http2: bool,
    ) -> Self {
        Self {
            inner,
            deadline,
            plain_http2,
        }
    }
}

impl Service<Uri> for Connector {
    type Response = CountedStream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<CountedStream, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.inner.call(uri);
        let (deadline, plain_http2) = (self.deadline, self.plain_http2);
        Box::pin(async move {
            let stream = match deadline {
                Some(limit) => tokio::time::timeout(limit, connecting)
                    .await
                    .map_err(|_| ConnectTimeout)??,
                None => connecting.await?,
            };
            let shared = plain_http2 || stream.connected().is_negotiated_h2();
            Ok(CountedStream(TokioIo::new(Watched {
                stream: TokioIo::new(stream),
                uses: Uses(Arc::new(Used {
                    shared,
                    ..Used::default()
                })),
            })))
        })
    }
}

/// A connection that knows how it was used.
pub(crate) struct CountedStream(TokioIo<Watched>);

impl Connection for CountedStream {
    fn connected(&self) -> Connected {
        let Watched { stream, uses } = self.0.inner();
        stream.inner().connected().extra(uses.clone())
    }
}

impl Read for CountedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buf)
    }
}

impl Write for CountedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write_vectored(cx, bufs)
    }
}

/// Notes what goes by. It speaks tokio's traits because hyper's do not tell how much was read.
struct Watched {
    stream: TokioIo<Stream>,
    uses: Uses,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.uses.set_heard(true);
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.uses.set_heard(false);
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.uses.set_heard(false);
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}
