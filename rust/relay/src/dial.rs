//! The transport to an upstream below TLS: TCP, or a configured Unix socket, whatever the URL's host is.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::dns::{GaiAddrs, GaiResolver, Name};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tower_service::Service;

use crate::connect::BoxError;

/// The kernel asks a peer that has been silent for this long whether it is there (RFC 9293 section 3.8.4).
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// The time between two such questions.
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// A peer that leaves this many without an answer is dead.
const TCP_KEEPALIVE_RETRIES: u32 = 3;

/// A peer that leaves what it was sent without acknowledgement for this long is dead (RFC 5482): the same time in all.
#[cfg(target_os = "linux")]
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(60);

/// A host's name was not found, or no name server could be reached.
#[derive(Debug)]
pub(crate) struct LookupFailed(io::Error);

impl std::fmt::Display for LookupFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for LookupFailed {}

/// The system's resolver. Its failures are distinguished from failures to connect.
#[derive(Clone)]
pub(crate) struct Lookup(GaiResolver);

impl Lookup {
    pub(crate) fn new() -> Self {
        Self(GaiResolver::new())
    }
}

impl Service<Name> for Lookup {
    type Response = GaiAddrs;
    type Error = LookupFailed;
    type Future = Pin<Box<dyn Future<Output = Result<GaiAddrs, LookupFailed>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LookupFailed>> {
        self.0.poll_ready(cx).map_err(LookupFailed)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let looking = self.0.call(name);
        Box::pin(async move { looking.await.map_err(LookupFailed) })
    }
}

/// Makes connections. Names are looked up anew for each: an upstream that has moved is found there by the next one.
#[derive(Clone)]
pub(crate) enum Dial<R = Lookup> {
    Tcp(HttpConnector<R>),
    Unix(Arc<Path>),
}

impl<R> Dial<R> {
    /// Over TCP, to the addresses that `resolver` finds: IPv6 and IPv4 a moment apart (RFC 8305), those of a family in
    /// turn, each with its share of `deadline`.
    pub(crate) fn tcp(resolver: R, deadline: Option<Duration>) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(TCP_KEEPALIVE));
        tcp.set_keepalive_interval(Some(TCP_KEEPALIVE_INTERVAL));
        tcp.set_keepalive_retries(Some(TCP_KEEPALIVE_RETRIES));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));
        tcp.enforce_http(false);
        tcp.set_connect_timeout(deadline);
        Self::Tcp(tcp)
    }
}

impl<R> Service<Uri> for Dial<R>
where
    HttpConnector<R>: Service<Uri, Response = TokioIo<TcpStream>>,
    <HttpConnector<R> as Service<Uri>>::Error: Into<BoxError>,
    <HttpConnector<R> as Service<Uri>>::Future: Send + 'static,
{
    type Response = TokioIo<Wire>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Wire>, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Dial::Tcp(tcp) => tcp.poll_ready(cx).map_err(Into::into),
            Dial::Unix(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        match self {
            Dial::Tcp(tcp) => {
                let connecting = tcp.call(uri);
                Box::pin(async move {
                    let stream = connecting.await.map_err(Into::into)?;
                    Ok(TokioIo::new(Wire::Tcp(stream.into_inner())))
                })
            }
            Dial::Unix(path) => {
                let path = Arc::clone(path);
                Box::pin(async move {
                    let stream = UnixStream::connect(&path).await?;
                    Ok(TokioIo::new(Wire::Unix(stream)))
                })
            }
        }
    }
}

/// What bytes go over.
pub(crate) enum Wire {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        match self {
            Wire::Tcp(stream) => stream.connected(),
            Wire::Unix(_) => Connected::new(),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Wire::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Wire::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Wire::Tcp(stream) => stream.is_write_vectored(),
            Wire::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Wire::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
    use std::sync::Mutex;
    use std::vec;

    use hyper_util::client::legacy::connect::dns::Name;
    use tokio::net::TcpListener;

    use super::*;

    /// Resolves to the addresses that the test has set.
    #[derive(Clone, Default)]
    struct Names(Arc<Mutex<Vec<SocketAddr>>>);

    impl Names {
        fn set(&self, addresses: &[SocketAddr]) {
            *self.0.lock().unwrap() = addresses.to_vec();
        }
    }

    impl Service<Name> for Names {
        type Response = vec::IntoIter<SocketAddr>;
        type Error = io::Error;
        type Future = std::future::Ready<io::Result<vec::IntoIter<SocketAddr>>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Name) -> Self::Future {
            std::future::ready(Ok(self.0.lock().unwrap().clone().into_iter()))
        }
    }

    async fn listener(ip: IpAddr) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    async fn peer(dial: &mut Dial<Names>, port: u16) -> SocketAddr {
        let uri = format!("http://upstream.test:{port}/").parse().unwrap();
        let stream = dial.call(uri).await.unwrap().into_inner();
        match stream {
            Wire::Tcp(stream) => stream.peer_addr().unwrap(),
            Wire::Unix(_) => panic!("not TCP"),
        }
    }

    #[tokio::test]
    async fn a_name_is_looked_up_for_each_connection() {
        let (first, there) = listener(Ipv4Addr::LOCALHOST.into()).await;
        // The same port on another address: the name gives the address, and the URL the port.
        let elsewhere = SocketAddr::new(Ipv4Addr::new(127, 0, 0, 2).into(), there.port());
        let second = TcpListener::bind(elsewhere).await.unwrap();
        let names = Names::default();
        let mut dial = Dial::tcp(names.clone(), None);
        names.set(&[there]);
        assert_eq!(peer(&mut dial, there.port()).await, there);
        names.set(&[elsewhere]);
        assert_eq!(peer(&mut dial, there.port()).await, elsewhere);
        drop((first, second));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_watches_over_a_connection() {
        let (open, there) = listener(Ipv4Addr::LOCALHOST.into()).await;
        let names = Names::default();
        names.set(&[there]);
        let uri = format!("http://upstream.test:{}/", there.port())
            .parse()
            .unwrap();
        let stream = Dial::tcp(names, None).call(uri).await.unwrap().into_inner();
        let Wire::Tcp(stream) = stream else {
            panic!("not TCP");
        };
        let socket = socket2::SockRef::from(&stream);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), TCP_KEEPALIVE);
        assert_eq!(
            socket.tcp_keepalive_interval().unwrap(),
            TCP_KEEPALIVE_INTERVAL
        );
        assert_eq!(
            socket.tcp_keepalive_retries().unwrap(),
            TCP_KEEPALIVE_RETRIES
        );
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(TCP_USER_TIMEOUT));
        drop(open);
    }

    #[tokio::test]
    async fn an_address_that_refuses_is_passed_over() {
        let (open, there) = listener(Ipv4Addr::LOCALHOST.into()).await;
        let names = Names::default();
        let refusing = |ip: IpAddr| SocketAddr::new(ip, there.port());
        names.set(&[
            refusing(Ipv6Addr::LOCALHOST.into()),
            refusing(Ipv4Addr::new(127, 0, 0, 3).into()),
            there,
        ]);
        let mut dial = Dial::tcp(names, Some(Duration::from_secs(5)));
        assert_eq!(peer(&mut dial, there.port()).await, there);
        drop(open);
    }

    #[tokio::test]
    async fn one_that_is_silent_has_no_more_than_its_share_of_the_deadline() {
        let (open, there) = listener(Ipv4Addr::LOCALHOST.into()).await;
        // Its queue is full: connections are neither accepted nor refused.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        let silent = SocketAddr::new(Ipv4Addr::new(127, 0, 0, 4).into(), there.port());
        socket.bind(silent).unwrap();
        let full = socket.listen(1).unwrap();
        let mut held = Vec::new();
        while let Ok(Ok(stream)) =
            tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(silent)).await
        {
            held.push(stream);
        }
        let names = Names::default();
        names.set(&[silent, there]);
        let mut dial = Dial::tcp(names, Some(Duration::from_secs(1)));
        assert_eq!(peer(&mut dial, there.port()).await, there);
        drop((open, full, held));
    }
}
