//! Waiting for an upstream while the client may leave, a deadline may pass, and keep-alive comments are due.

use std::future::Future;
use std::pin::Pin;

use tokio::time::Instant;

use crate::keepalive::KeepAlive;
use crate::leaving::Leaving;
use crate::reply::Sink;
use crate::signal::Signal;

/// How the waiting ended.
pub(crate) enum Attended<T> {
    Done(T),
    /// The client is gone, and nothing is read on.
    Left,
    /// The gateway stops.
    Closing,
    /// The limit was reached.
    Late,
}

/// What an exchange looks after while it waits.
pub(crate) struct Watch<'a> {
    pub(crate) sink: &'a mut Sink,
    pub(crate) keepalive: &'a mut KeepAlive,
    pub(crate) leaving: &'a mut Leaving,
    /// `None`: what is waited for is awaited even while the gateway stops.
    pub(crate) closing: Option<&'a Signal>,
    pub(crate) request_id: &'a str,
    /// A client that leaves does not end the waiting where its route drains.
    pub(crate) drains: bool,
}

impl Watch<'_> {
    /// `what` stays where it is: a future that is passed by value has room in each one that it is passed through.
    pub(crate) async fn attend<T>(
        self,
        mut what: Pin<&mut impl Future<Output = T>>,
        limit: Option<Instant>,
    ) -> Attended<T> {
        let Watch {
            sink,
            keepalive,
            leaving,
            closing,
            request_id,
            drains,
        } = self;
        loop {
            tokio::select! {
                biased;
                done = &mut what => return Attended::Done(done),
                () = std::future::poll_fn(|cx| sink.poll_left(cx)), if !leaving.departed() => {
                    if !drains || !leaving.depart() {
                        return Attended::Left;
                    }
                    keepalive.stop();
                }
                () = sleep_until(leaving.until()), if leaving.departed() => return Attended::Left,
                () = given(closing) => return Attended::Closing,
                () = sleep_until(limit) => return Attended::Late,
                () = sleep_until(keepalive.next()) => keepalive.beat(sink, request_id, false),
            }
        }
    }
}

async fn given(signal: Option<&Signal>) {
    match signal {
        Some(signal) => signal.given().await,
        None => std::future::pending().await,
    }
}

pub(crate) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
