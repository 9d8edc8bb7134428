//! Connections to an upstream: one deadline over transport and TLS, and a note of how a connection has been used, so
//! that one that died while idle is distinguished from an upstream that fails.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::Connection;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;

use crate::dial::Dial;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a connection was used for so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Uses(Arc<Used>);

#[derive(Debug, Default)]
struct Used {
    replies: AtomicU32,
    heard: AtomicBool,
    /// HTTP/2: what arrives may belong to another request, or announce the connection's end (GOAWAY).
    shared: bool,
}

impl Uses {
    /// It has carried another reply.
    pub(crate) fn add(&self) {
        self.0.replies.fetch_add(1, Ordering::Relaxed);
    }

    /// It has carried a reply, and nothing has arrived since it was last written to.
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

    /// To the server that `uri` names.
    pub(crate) async fn connect(&self, uri: Uri) -> Result<Connected, BoxError> {
        let mut inner = self.inner.clone();
        let connecting = async move {
            std::future::poll_fn(|cx| inner.poll_ready(cx)).await?;
            inner.call(uri).await
        };
        let stream = match self.deadline {
            Some(limit) => tokio::time::timeout(limit, connecting)
                .await
                .map_err(|_| ConnectTimeout)??,
            None => connecting.await?,
        };
        let http2 = self.plain_http2 || stream.connected().is_negotiated_h2();
        let stream: Box<dyn Stream> = match stream {
            MaybeHttpsStream::Http(plain) => Box::new(plain.into_inner()),
            MaybeHttpsStream::Https(tls) => Box::new(tls.into_inner()),
        };
        let uses = Uses(Arc::new(Used {
            shared: http2,
            ..Used::default()
        }));
        let io = TokioIo::new(Watched {
            stream,
            uses: uses.clone(),
        });
        Ok(Connected { io, uses, http2 })
    }
}

/// What HTTP is spoken over.
pub(crate) type Io = TokioIo<Watched>;

/// A connection that stands.
pub(crate) struct Connected {
    pub(crate) io: Io,
    pub(crate) uses: Uses,
    /// HTTP/2 is what is spoken.
    pub(crate) http2: bool,
}

/// With or without TLS, whose state is ten times as large as all the rest of a connection.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Notes what goes by. It speaks tokio's traits because hyper's do not tell how much was read.
pub(crate) struct Watched {
    stream: Box<dyn Stream>,
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
