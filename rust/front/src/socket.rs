//! A client's socket, with or without TLS, that reports reads and writes to the connection's clock.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use crate::clock::Clock;
use crate::tcp::Tcp;

/// What a client that speaks HTTP/2 sends first (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum Stream {
    Plain(Tcp),
    Tls(Box<TlsStream<Tcp>>),
}

/// See the module.
pub(crate) struct Socket {
    stream: Stream,
    clock: Arc<Clock>,
    /// The last write would have blocked; only changes of this are reported to the clock.
    blocked: bool,
    /// The last read found no bytes: the connection reads, and learns of the client's end by that.
    reads: bool,
    /// So much of HTTP/2's preface has come, and nothing else; `None` once it is known what the client speaks.
    preface: Option<usize>,
}

impl Socket {
    pub(crate) fn plain(stream: Tcp, clock: &Arc<Clock>) -> Self {
        Self {
            stream: Stream::Plain(stream),
            clock: Arc::clone(clock),
            blocked: false,
            reads: true,
            preface: Some(0),
        }
    }

    pub(crate) fn tls(stream: TlsStream<Tcp>, clock: &Arc<Clock>) -> Self {
        Self {
            stream: Stream::Tls(Box::new(stream)),
            clock: Arc::clone(clock),
            blocked: false,
            reads: true,
            preface: Some(0),
        }
    }

    fn came(&mut self, bytes: &[u8]) {
        self.clock.read();
        let Some(before) = self.preface else { return };
        let expected = PREFACE.get(before..).unwrap_or_default();
        let size = bytes.len().min(expected.len());
        if bytes.get(..size) != expected.get(..size) {
            self.preface = None;
        } else if size == expected.len() {
            self.preface = None;
            self.clock.is_http2();
        } else {
            self.preface = Some(before + size);
        }
    }

    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.stream {
            Stream::Plain(tcp) => tcp.poll_left(cx),
            Stream::Tls(stream) => stream.get_mut().0.poll_left(cx),
        }
    }

    fn note<T>(&mut self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_pending() != self.blocked {
            self.blocked = written.is_pending();
            self.clock.wrote(!self.blocked);
        }
        written
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.clock.has_stalled() {
            return;
        }
        // The client takes nothing, so it would not learn of the end either: the system would keep what is not taken,
        // megabytes of it, and ask the client for minutes whether it takes more. A reset ends that.
        let tcp = match &self.stream {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(stream) => stream.get_ref().0,
        };
        let _ = tcp.stream().set_zero_linger();
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        };
        this.reads = true;
        if let Some(bytes @ [_, ..]) = buf.filled().get(before..) {
            this.reads = false;
            this.came(bytes);
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        this.note(written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => {
                let flushed = Pin::new(stream).poll_flush(cx);
                this.note(flushed)
            }
        })?;
        // An HTTP/1.1 connection reads nothing while it holds bytes behind the request that it serves, or the request's
        // body is not taken. It is flushed whenever it is polled.
        if !this.reads && this.clock.serves_http1() && this.poll_left(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        this.note(written)
    }
}
