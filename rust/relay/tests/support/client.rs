//! A client that records what it is given, in the two ways in which the server in front takes replies.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use sluicegate_relay::{Engine, Exchange, Reply, Sink, Taken, inline_reply, reply};
use tokio_util::sync::CancellationToken;

use super::{CLIENT_BOUND, PATIENCE};

/// Who polls an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// A task of its own, on the engine; the client is another thread.
    Task,
    /// The client itself, in turn with its reply.
    Inline,
}

impl Way {
    pub(crate) fn ends(self) -> (Sink, Reply) {
        match self {
            Way::Task => reply(CLIENT_BOUND),
            Way::Inline => inline_reply(),
        }
    }
}

/// What the client does beside taking all there is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Orders {
    pub(crate) leave_at_once: bool,
    pub(crate) leave_after_first_frame: bool,
    /// Frames that it takes before it takes no more; `None`: all.
    pub(crate) reads: Option<usize>,
}

/// How the reply ended, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum End {
    #[default]
    Open,
    Ended,
    Aborted,
    Left,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Got {
    pub(crate) status: Option<u16>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
    pub(crate) left_at: Option<Instant>,
    frames: usize,
}

type Record = Arc<(Mutex<Got>, Condvar)>;

type Life = Pin<Box<dyn Future<Output = Option<Sink>> + Send>>;

pub(crate) struct Client {
    record: Record,
    leaving: CancellationToken,
}

impl Client {
    /// `stall`: how long the rest of a reply waits for its client once the exchange is over.
    pub(crate) fn start(
        way: Way,
        exchange: Exchange,
        reply: Reply,
        engine: &Engine,
        orders: Orders,
        stall: Option<Duration>,
    ) -> Self {
        let record = Record::default();
        let leaving = CancellationToken::new();
        if orders.leave_at_once {
            leaving.cancel();
        }
        let running: Life = Box::pin(exchange.run(engine));
        let running = match way {
            Way::Inline => Some(running),
            Way::Task => {
                engine.spawn(async move {
                    if let Some(sink) = running.await {
                        sink.flushed(stall).await;
                    }
                });
                None
            }
        };
        let taking = Taking {
            reply,
            running,
            engine: engine.clone(),
            record: Arc::clone(&record),
            leaving: leaving.clone(),
        };
        let life = taking.take(orders.reads);
        match way {
            Way::Inline => engine.spawn(life),
            Way::Task => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap();
                thread::spawn(move || runtime.block_on(life));
            }
        }
        Self { record, leaving }
    }

    pub(crate) fn leave(&self) {
        self.leaving.cancel();
    }

    pub(crate) fn has_frame(&self) -> bool {
        self.record.0.lock().unwrap().frames > 0
    }

    pub(crate) fn wait_first_frame(&self) {
        self.until(|got| got.frames > 0, "no frame came");
    }

    pub(crate) fn wait(&self) -> Got {
        self.until(|got| got.end != End::Open, "the reply did not end")
    }

    fn until(&self, done: impl Fn(&Got) -> bool, what: &str) -> Got {
        let (record, changed) = &*self.record;
        let guard = record.lock().unwrap();
        let waited = changed.wait_timeout_while(guard, PATIENCE, |got| !done(got));
        let (got, timeout) = waited.unwrap();
        assert!(!timeout.timed_out(), "{what}");
        got.clone()
    }
}

struct Taking {
    reply: Reply,
    running: Option<Life>,
    engine: Engine,
    record: Record,
    leaving: CancellationToken,
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.reply.leave(false);
        if let Some(running) = self.running.take() {
            self.engine.spawn(async move {
                let _ = running.await;
            });
        }
        self.note(|got| {
            if got.end == End::Open {
                got.end = End::Left;
            }
        });
    }
}

impl Taking {
    async fn take(mut self, reads: Option<usize>) {
        let leaving = self.leaving.clone();
        let head = tokio::select! {
            biased;
            () = leaving.cancelled() => return self.leave(),
            head = poll_fn(|cx| self.poll(cx, Reply::take_head)) => head,
        };
        let Ok(head) = head else {
            return self.note(|got| got.end = End::Aborted);
        };
        self.note(|got| {
            got.status = Some(head.status);
            got.headers = head
                .headers
                .iter()
                .map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_owned()))
                .collect();
        });
        let mut taken = 0;
        loop {
            let reads_on = reads.is_none_or(|reads| taken < reads);
            let frame = tokio::select! {
                biased;
                () = leaving.cancelled() => return self.leave(),
                frame = poll_fn(|cx| self.poll(cx, |reply| match reply.take() {
                    Taken::Nothing => None,
                    taken => Some(taken),
                })), if reads_on => frame,
            };
            taken += 1;
            match frame {
                Taken::Frame(frame) => self.note(|got| {
                    got.body.extend_from_slice(&frame);
                    got.frames += 1;
                }),
                Taken::Ended => return self.note(|got| got.end = End::Ended),
                _ => return self.note(|got| got.end = End::Aborted),
            }
        }
    }

    fn leave(self) {
        self.note(|got| got.left_at = Some(Instant::now()));
    }

    fn note(&self, change: impl FnOnce(&mut Got)) {
        change(&mut self.record.0.lock().unwrap());
        self.record.1.notify_all();
    }

    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&mut Reply) -> Option<T>,
    ) -> Poll<T> {
        if let Some(taken) = take(&mut self.reply) {
            return Poll::Ready(taken);
        }
        match self.running.take() {
            Some(mut running) => {
                if running.as_mut().poll(cx).is_pending() {
                    self.running = Some(running);
                }
            }
            None => self.reply.register(cx),
        }
        take(&mut self.reply).map_or(Poll::Pending, Poll::Ready)
    }
}
