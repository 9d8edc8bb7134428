//! One connection of the load generator: sends its request again and again and verifies every reply.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::check::{Check, Expectation, Line};
use crate::http::{Malformed, response_head};
use crate::load::Totals;
use crate::script;

const READ_SIZE: usize = 64 * 1024;

/// Why an exchange gave no whole reply.
#[derive(Debug)]
pub(crate) enum Failure {
    Connect(io::ErrorKind),
    /// The connection had served before and died before the first byte: a pool's usual race, tried once more.
    Stale,
    Broken(io::ErrorKind),
    Malformed(Malformed),
    Status(u16),
    NotAStream,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(kind) => write!(formatter, "connect: {kind}"),
            Self::Stale => write!(formatter, "reused connection closed"),
            Self::Broken(kind) => write!(formatter, "broken off: {kind}"),
            Self::Malformed(malformed) => write!(formatter, "{malformed}"),
            Self::Status(status) => write!(formatter, "status {status}"),
            Self::NotAStream => write!(formatter, "not an event stream"),
        }
    }
}

/// A connection's state between exchanges.
pub(crate) struct Client {
    address: SocketAddr,
    request: Vec<u8>,
    stream: bool,
    /// No exchange comes after this one: the request is dropped once it is sent, since thousands of large ones
    /// would fill the machine whose memory is measured.
    last: bool,
    connection: Option<TcpStream>,
    input: Vec<u8>,
    check: Check,
}

/// How far an exchange has come: when it began, and when its latest token arrived.
struct Times {
    begun: Instant,
    first: Option<Instant>,
    token: Option<Instant>,
}

impl Client {
    pub(crate) fn new(
        address: SocketAddr,
        request: Vec<u8>,
        stream: bool,
        expectation: Expectation,
    ) -> Self {
        Self {
            address,
            request,
            stream,
            last: false,
            connection: None,
            input: Vec::new(),
            check: Check::new(expectation),
        }
    }

    /// Says that the next exchange is the last one on a connection that served none before.
    pub(crate) fn only_once(&mut self) {
        self.last = true;
    }

    /// One request and its reply. A reused connection that was closed meanwhile is replaced once.
    pub(crate) async fn exchange(&mut self, totals: &Totals) -> Result<(), Failure> {
        match self.attempt(totals).await {
            Err(Failure::Stale) => {
                totals.reconnected();
                self.attempt(totals).await
            }
            outcome => outcome,
        }
    }

    async fn attempt(&mut self, totals: &Totals) -> Result<(), Failure> {
        self.check.restart();
        self.input.clear();
        let reused = self.connection.is_some();
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self
                .connect()
                .await
                .map_err(|error| Failure::Connect(error.kind()))?,
        };
        let times = Times {
            begun: Instant::now(),
            first: None,
            token: None,
        };
        let stale_or_broken = |error: &io::Error, nothing_read: bool| {
            if reused && nothing_read {
                Failure::Stale
            } else {
                Failure::Broken(error.kind())
            }
        };
        connection
            .write_all(&self.request)
            .await
            .map_err(|error| stale_or_broken(&error, true))?;
        if self.last {
            self.request = Vec::new();
        }
        let head = loop {
            if let Some(head) = response_head(&self.input).map_err(Failure::Malformed)? {
                break head;
            }
            let nothing_read = self.input.is_empty();
            match self.read(&mut connection).await {
                Ok(0) => {
                    return Err(stale_or_broken(
                        &io::ErrorKind::UnexpectedEof.into(),
                        nothing_read,
                    ));
                }
                Ok(_) => {}
                Err(error) => return Err(stale_or_broken(&error, nothing_read)),
            }
        };
        if head.status != 200 {
            return Err(Failure::Status(head.status));
        }
        self.input.drain(..head.length);
        let close = head.close;
        if self.stream {
            self.stream_body(&mut connection, head.body, times, totals)
                .await?;
        } else {
            self.document_body(&mut connection, head.body, times, totals)
                .await?;
        }
        totals.wrong(&self.check.settle());
        if !close {
            self.connection = Some(connection);
        }
        Ok(())
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let connection = TcpStream::connect(self.address).await?;
        connection.set_nodelay(true)?;
        Ok(connection)
    }

    async fn read(&mut self, connection: &mut TcpStream) -> io::Result<usize> {
        self.input.reserve(READ_SIZE);
        connection.read_buf(&mut self.input).await
    }

    async fn stream_body(
        &mut self,
        connection: &mut TcpStream,
        mut body: crate::http::Body,
        mut times: Times,
        totals: &Totals,
    ) -> Result<(), Failure> {
        loop {
            let (now, clock) = (Instant::now(), script::clock());
            let input = std::mem::take(&mut self.input);
            let mut rest = input.as_slice();
            while !rest.is_empty() && !body.done() {
                let run = body.take(&mut rest).map_err(Failure::Malformed)?;
                totals.received(run.len());
                self.check
                    .feed(run, |line| times.event(line, now, clock, totals));
            }
            self.input = input;
            self.input.clear();
            if body.done() {
                break;
            }
            match self.read(connection).await {
                Ok(0) if body == crate::http::Body::UntilClose => break,
                Ok(0) => return Err(Failure::Broken(io::ErrorKind::UnexpectedEof)),
                Ok(_) => {}
                Err(error) => return Err(Failure::Broken(error.kind())),
            }
        }
        if times.first.is_none() {
            return Err(Failure::NotAStream);
        }
        totals.finished(times.begun.elapsed());
        Ok(())
    }

    async fn document_body(
        &mut self,
        connection: &mut TcpStream,
        mut body: crate::http::Body,
        times: Times,
        totals: &Totals,
    ) -> Result<(), Failure> {
        let mut document = Vec::new();
        loop {
            let mut rest = self.input.as_slice();
            while !rest.is_empty() && !body.done() {
                document.extend_from_slice(body.take(&mut rest).map_err(Failure::Malformed)?);
            }
            self.input.clear();
            if body.done() {
                break;
            }
            match self.read(connection).await {
                Ok(0) if body == crate::http::Body::UntilClose => break,
                Ok(0) => return Err(Failure::Broken(io::ErrorKind::UnexpectedEof)),
                Ok(_) => {}
                Err(error) => return Err(Failure::Broken(error.kind())),
            }
        }
        totals.received(document.len());
        totals.opened_first(times.begun.elapsed());
        totals.finished(times.begun.elapsed());
        self.check.document(&document);
        Ok(())
    }
}

impl Times {
    /// `now` and `clock` are the same moment, that at which the event's end was read.
    fn event(&mut self, line: Line, now: Instant, clock: u64, totals: &Totals) {
        if self.first.is_none() {
            self.first = Some(now);
            totals.opened_first(now - self.begun);
        }
        if let Line::Token { sent } = line {
            let transit = sent.map(|sent| Duration::from_nanos(clock.saturating_sub(sent)));
            totals.token(self.token.map(|previous| now - previous), transit);
            self.token = Some(now);
        }
    }
}
