//! An exchange that the client's connection drives: polling the reply's body polls the exchange.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use sluicegate_relay::{Aborted, Engine, Exchange, Head, Reply, Sink, Taken, inline_reply, reply};

use crate::arrival::Forwarding;
use crate::bounds::Limits;
use crate::clock::Clock;
use crate::stream::Watch;

type Running = Pin<Box<dyn Future<Output = Option<Sink>> + Send>>;

/// Whether the exchange has anything to do. The connection that carries it is polled for reasons of its own, more than
/// once a chunk, and to ask all that an exchange waits for costs as much as to forward a chunk.
#[derive(Default)]
struct Due {
    set: AtomicBool,
    connection: AtomicWaker,
}

impl Wake for Due {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set.store(true, Ordering::Release);
        self.connection.wake();
    }
}

/// An exchange that is polled where its reply is.
struct Inline {
    running: Running,
    due: Arc<Due>,
    waker: Waker,
}

impl Inline {
    fn new(running: Running) -> Self {
        let due = Arc::new(Due::default());
        due.set.store(true, Ordering::Relaxed);
        Self {
            running,
            waker: Waker::from(Arc::clone(&due)),
            due,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.due.connection.register(cx.waker());
        if !self.due.set.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let mut cx = Context::from_waker(&self.waker);
        self.running.as_mut().poll(&mut cx).map(drop)
    }
}

/// The client's end of a reply, and the exchange behind it.
///
/// Over HTTP/1.1 one task does both: an upstream's bytes wake the client's connection, and no other task is in between.
/// Over HTTP/2 the exchange is a task of its own, because a stream without room is not polled, and its deadlines must
/// run on.
pub(crate) struct Carried {
    reply: Reply,
    inline: Option<Inline>,
    engine: Engine,
    clock: Arc<Clock>,
    watch: Option<Watch>,
    stalls: Stalls,
}

/// What the clock last reported about the client's socket.
#[derive(Default)]
struct Stalls {
    turns: u32,
    blocked: Duration,
    /// A frame was given last: until the next is asked for, the exchange is not polled.
    given: bool,
}

impl Carried {
    pub(crate) fn start(
        forwarding: Forwarding,
        limits: &Limits,
        engine: &Engine,
        clock: &Arc<Clock>,
        alone: bool,
    ) -> Self {
        let (sink, reply) = if alone {
            inline_reply()
        } else {
            reply(limits.client_buffer)
        };
        let exchange = forwarding.into_exchange(sink, limits);
        let mut carried = Self {
            reply,
            inline: None,
            engine: engine.clone(),
            clock: Arc::clone(clock),
            watch: Watch::of_task(),
            stalls: Stalls {
                turns: clock.turns(),
                blocked: clock.blocked(),
                given: false,
            },
        };
        if alone {
            carried.inline = Some(Inline::new(Box::pin(exchange.run(engine))));
        } else {
            run(exchange, engine, limits);
        }
        carried
    }

    /// A reply whose exchange runs elsewhere.
    #[cfg(test)]
    pub(crate) fn over(reply: Reply, engine: &Engine, clock: &Arc<Clock>) -> Self {
        Self {
            reply,
            inline: None,
            engine: engine.clone(),
            clock: Arc::clone(clock),
            watch: None,
            stalls: Stalls::default(),
        }
    }

    /// How the reply begins.
    pub(crate) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, Aborted>> {
        self.poll(cx, Reply::take_head)
    }

    /// The next frame; `None` at the regular end.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Aborted>>> {
        self.poll(cx, |reply| match reply.take() {
            Taken::Frame(frame) => Some(Some(Ok(frame))),
            Taken::Ended => Some(None),
            Taken::Aborted => Some(Some(Err(Aborted))),
            Taken::Nothing => None,
        })
    }

    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&mut Reply) -> Option<T>,
    ) -> Poll<T> {
        self.note_stalls();
        if let Some(taken) = take(&mut self.reply) {
            self.stalls.given = true;
            return Poll::Ready(taken);
        }
        // Taken while it is polled: one that panics is dropped there, and not polled again.
        match self.inline.take() {
            Some(mut inline) => {
                if inline.poll(cx).is_pending() {
                    self.inline = Some(inline);
                }
            }
            None => self.reply.register(cx),
        }
        match take(&mut self.reply) {
            Some(taken) => {
                self.stalls.given = true;
                Poll::Ready(taken)
            }
            None => Poll::Pending,
        }
    }

    /// Tell the exchange how long the client's socket has kept it from being polled.
    fn note_stalls(&mut self) {
        let given = std::mem::take(&mut self.stalls.given);
        let turns = self.clock.turns();
        if self.inline.is_none() || turns == self.stalls.turns {
            return;
        }
        self.stalls.turns = turns;
        let blocked = self.clock.blocked();
        let before = std::mem::replace(&mut self.stalls.blocked, blocked);
        if given {
            self.reply.stalled_for(blocked.saturating_sub(before));
        }
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.note_stalls();
        let alone = self.watch.as_ref().is_some_and(Watch::has_stalled);
        self.reply.leave(alone || self.clock.has_stalled());
        if let Some(mut inline) = self.inline.take() {
            // The client has left: what is to follow, reading on or the record, is no more a part of its connection.
            // What the exchange waits for has its waker, so that goes with it.
            inline.due.set.store(true, Ordering::Release);
            self.engine
                .spawn(std::future::poll_fn(move |cx| inline.poll(cx)));
        }
    }
}

/// Run an exchange as a task of its own, until the last frame is taken.
pub(crate) fn run(exchange: Exchange, engine: &Engine, limits: &Limits) {
    let stall = limits.client_stall;
    let running = exchange.run(engine);
    engine.spawn(async move {
        if let Some(sink) = running.await {
            sink.flushed(stall).await;
        }
    });
}
