//! A client's TCP stream that tells when the client has left, whatever lies unread before the end.

use std::io::{self, IoSlice, Read};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// See the module.
pub(crate) struct Tcp {
    stream: TcpStream,
    /// The runtime holds that nothing can be read, since it was told so, and something may lie there.
    untold: bool,
}

impl Tcp {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            untold: false,
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Ready once the client has ended its side or reset the connection, as soon as the system knows: an end behind
    /// more bytes than the system takes for us does not come before these are read.
    pub(crate) fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if ready!(self.stream.poll_read_ready(cx)).is_err() {
                return Poll::Ready(());
            }
            match pin!(self.stream.ready(Interest::READABLE)).poll(cx) {
                Poll::Ready(Ok(found)) if !found.is_read_closed() => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => continue,
            }
            // What lies unread makes it ready all the time, and only a change of that would wake the task.
            self.untold = true;
            let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _ = self.stream.try_io(Interest::READABLE, nothing);
        }
    }

    /// Read what may lie there without the runtime's knowledge; `None`: there is nothing.
    fn read_untold(&mut self, buf: &mut ReadBuf<'_>) -> Option<io::Result<()>> {
        let room = buf.initialize_unfilled();
        let size = room.len();
        let read = loop {
            match (&*SockRef::from(&self.stream)).read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        // Of what comes after all has been read the runtime learns by itself.
        self.untold = matches!(read, Ok(count) if count == size);
        match read {
            Ok(count) => {
                buf.advance(count);
                Some(Ok(()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl AsyncRead for Tcp {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.untold
            && buf.remaining() > 0
            && let Some(read) = this.read_untold(buf)
        {
            return Poll::Ready(read);
        }
        Pin::new(&mut this.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    async fn pair() -> (TcpStream, Tcp) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (client.unwrap(), Tcp::new(accepted.unwrap().0))
    }

    async fn left(tcp: &mut Tcp) {
        timeout(PATIENCE, poll_fn(|cx| tcp.poll_left(cx)))
            .await
            .unwrap();
    }

    /// Whether it is known by now, after what has been sent was noticed.
    async fn has_left(tcp: &mut Tcp) -> bool {
        tokio::task::yield_now().await;
        poll_fn(|cx| Poll::Ready(tcp.poll_left(cx).is_ready())).await
    }

    #[tokio::test]
    async fn an_end_behind_unread_bytes_wakes_whoever_waits_for_it() {
        for reset in [false, true] {
            let (mut client, mut tcp) = pair().await;
            client.write_all(b"unread").await.unwrap();
            tcp.stream.readable().await.unwrap();
            assert!(!has_left(&mut tcp).await);
            client.write_all(b"more").await.unwrap();
            assert!(!has_left(&mut tcp).await);
            let leaving = tokio::spawn(async move {
                if reset {
                    client.set_zero_linger().unwrap();
                }
                drop(client);
            });
            left(&mut tcp).await;
            assert!(has_left(&mut tcp).await, "for good");
            leaving.await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_was_not_read_is_read_afterwards() {
        let (mut client, mut tcp) = pair().await;
        let mut expected = Vec::new();
        let mut read = Vec::new();
        for round in 0..50_u8 {
            for part in 0..3 {
                let sent = vec![round; 1 + usize::from(round) * 100 * part];
                client.write_all(&sent).await.unwrap();
                expected.extend(sent);
                assert!(!has_left(&mut tcp).await);
            }
            // Now and then all of it, or so much that some is left.
            let size = (expected.len() - read.len()).div_ceil(1 + usize::from(round % 3));
            let mut part = vec![0; size];
            let reading = timeout(PATIENCE, tcp.read_exact(&mut part));
            reading.await.unwrap().unwrap();
            read.extend(part);
        }
        assert!(!has_left(&mut tcp).await);
        drop(client);
        let reading = timeout(PATIENCE, tcp.read_to_end(&mut read));
        reading.await.unwrap().unwrap();
        assert!(read == expected);
    }

    #[tokio::test]
    async fn a_reader_that_waits_is_woken() {
        let (mut client, mut tcp) = pair().await;
        client.write_all(b"a").await.unwrap();
        tcp.stream.readable().await.unwrap();
        assert!(!has_left(&mut tcp).await);
        assert_eq!(tcp.read_u8().await.unwrap(), b'a');
        let writing = tokio::spawn(async move {
            client.write_all(b"b").await.unwrap();
            client
        });
        assert_eq!(
            timeout(PATIENCE, tcp.read_u8()).await.unwrap().unwrap(),
            b'b'
        );
        drop(writing.await.unwrap());
        left(&mut tcp).await;
    }
}
