//! The queue between the engine threads and the one thread that decides.
//!
//! An engine pushes events and goes on with its other streams; the deciding thread takes all events that are there and
//! answers each, now or later. Waking a thread costs more than a decision does, so the deciding thread is woken only
//! while it waits. For the ends of requests, which no client waits for, it is woken after a short delay only: handled
//! in a row, each costs a fraction of what it costs alone. Where it is awake anyhow, they are handled in their turn.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use sluicegate_core::cost::Members;
use sluicegate_core::error::Error;
use sluicegate_core::pipeline::Pricer;
use sluicegate_core::protocols::responses::request::ResponsesRequest;
use sluicegate_core::usage::Usage;
use sluicegate_relay::{Attempt, ErrorReply, Fault, Next, Outcome, ReplyCopy, Share, Tally};
use tokio::sync::oneshot;

use crate::asked::AskedRequest;
use crate::callers::Digest;
use crate::endpoint::Endpoint;
use crate::facts::Facts;
use crate::notice::Notice;
use crate::refusal::{Form, Refusal};
use crate::report::Entered;

/// What is to be decided, or to be known.
// In place: to free a box on another thread than the one that made it costs more than to move what is in it.
#[allow(clippy::large_enum_variant)]
pub enum Event {
    /// A request has come, whole.
    Arrived(Arrived),
    /// An attempt failed with nothing sent to the client.
    Failed(Failed),
    /// An attempt that was to show whether its upstream works again has had its first output: the request's number.
    FirstOutput(u64),
    /// A usage object is to be priced by a policy of the user's own.
    Price(PriceAsked),
    /// A request is over. The last event of its ticket, and the only one that each ticket has, unless it is among the
    /// unrecorded ones.
    Ended(Box<Ended>),
    /// So many requests were refused, or left by their clients, before they came this far, while too many events
    /// waited: nothing else is known of them.
    Unrecorded(u64),
    /// An engine thread ended although it was not asked to.
    Died(String),
}

/// What is known of a request before anything of it is decided.
#[derive(Debug, Clone)]
pub struct About {
    /// Its number in this process.
    pub ticket: u64,
    /// The tag of the [`Submission`](crate::Submission).
    pub tag: Option<u64>,
    /// Its endpoint; `None`: none of those that are forwarded.
    pub endpoint: Option<Endpoint>,
    /// How its errors are written.
    pub(crate) form: Form,
    /// Passed on, and given back to the client.
    pub request_id: Box<str>,
    /// SHA-256 of the key that it presented.
    pub key: Option<Digest>,
}

impl About {
    /// A refusal of our own, in the form of the client's API.
    pub(crate) fn error(&self, refusal: Refusal) -> ErrorReply {
        refusal.reply(self.form, &self.request_id)
    }

    /// Whether its errors are written as those of the Messages interface are.
    #[must_use]
    pub fn is_anthropic(&self) -> bool {
        self.form == Form::Anthropic
    }
}

/// A request that has come, whole.
pub struct Arrived {
    /// What is known of it.
    pub about: Arc<About>,
    /// Bytes of its body.
    pub size: usize,
    /// The request, or why it cannot be read.
    pub request: Result<AskedRequest, Error>,
    /// What policies see beside that.
    pub facts: Facts,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Decision>,
}

/// What becomes of a request that has come.
pub enum Decision {
    /// It goes to an upstream.
    Forward(Box<Forward>),
    /// It is answered.
    Reply(ErrorReply),
}

/// How a request goes to an upstream.
pub struct Forward {
    /// The first attempt.
    pub attempt: Attempt,
    /// In place of the client's request.
    pub request: Option<Arc<ResponsesRequest>>,
    /// The id of a response that the gateway makes itself.
    pub response_id: Option<Box<str>>,
    /// The bytes of the reply that are wanted at its end.
    pub keep: Option<usize>,
    /// Who keeps the exchange's account.
    pub tally: Option<Box<dyn Tally>>,
    /// The tokens of its input that are charged where nobody tells them.
    pub estimated_input: Option<u64>,
}

/// An attempt failed with nothing sent to the client.
pub struct Failed {
    /// The request's number.
    pub ticket: u64,
    /// Why.
    pub fault: Fault,
    /// Attempts so far.
    pub attempts: u32,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Next>,
}

/// A usage object is to be priced.
pub struct PriceAsked {
    /// The request's number.
    pub ticket: u64,
    /// What was used.
    pub usage: Usage,
    /// Where the members for the usage object go.
    pub answer: mpsc::SyncSender<Option<Members>>,
}

/// A request is over.
pub struct Ended {
    /// What was known of it.
    pub about: Arc<About>,
    /// The model that the client named, where its request was read.
    pub model: Option<Box<str>>,
    /// How it ended.
    pub outcome: Outcome,
    /// The reply's body, where it was to be kept and all of it was.
    pub kept: Option<ReplyCopy>,
    /// The client's request, where the reply was to be kept.
    pub request: Option<RequestCopy>,
    /// Who keeps its account, where that cannot be closed before its price is said.
    pub tally: Option<Box<dyn Tally>>,
    /// It counts as a request as long as it waits here.
    pub(crate) entered: Option<Entered>,
}

/// A request that is kept for as long as its reply is copied. It takes the room of a copy until it is dropped.
pub struct RequestCopy {
    /// As the client sent it.
    pub request: AskedRequest,
    /// Its room.
    pub share: Share,
}

#[derive(Default)]
struct Queue {
    events: Vec<Event>,
    /// How many have been taken since the beginning.
    taken: u64,
    /// See [`Event::Unrecorded`].
    unrecorded: u64,
    /// How many of the events need no answer.
    later: usize,
    /// One of the events is waited for, or the delay of those that need no answer has passed.
    due: bool,
    /// The deciding thread waits for the condition variable, and has not been woken.
    waiting: bool,
    woken: bool,
    /// The deciding thread will be woken soon for the events that need no answer.
    promised: bool,
}

impl Queue {
    fn is_quiet(&self) -> bool {
        !self.woken && !self.due
    }

    /// All that is there, in its order: whoever decides knows of each request that was over before another came.
    fn take(&mut self) -> Vec<Event> {
        self.woken = false;
        self.due = false;
        self.later = 0;
        self.taken += self.events.len() as u64;
        let unrecorded = std::mem::take(&mut self.unrecorded);
        if unrecorded > 0 {
            self.events.push(Event::Unrecorded(unrecorded));
        }
        std::mem::take(&mut self.events)
    }
}

/// How long the end of a request may wait in the queue before the deciding thread is woken for it.
const LATER: Duration = Duration::from_millis(10);

/// So many ends of requests wake the deciding thread at once.
const WAKE_AT: usize = 64;

/// Where more events wait, requests that have not come this far are counted only: nothing else bounds how many of them
/// are refused while the deciding thread stands still.
const MOST_RECORDED: usize = 1 << 15;

/// The queue.
pub struct Decisions {
    queue: Mutex<Queue>,
    signal: Condvar,
    notice: Notice,
    tickets: AtomicU64,
    patience: Duration,
}

impl Decisions {
    /// `patience`: how long a decision is waited for.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self {
            queue: Mutex::default(),
            signal: Condvar::new(),
            notice: Notice::default(),
            tickets: AtomicU64::new(0),
            patience,
        }
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    pub(crate) fn next_ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A panic while it was held cannot leave it inconsistent: every change is a plain assignment.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Add an event, and tell of it now. Never blocks.
    pub fn push(&self, event: Event) {
        self.number(event);
    }

    /// The same; the number by which it can be [replaced](Self::replace).
    pub(crate) fn number(&self, event: Event) -> u64 {
        let mut queue = self.lock();
        let number = queue.taken + queue.events.len() as u64;
        queue.events.push(event);
        queue.due = true;
        self.tell_of(queue);
        number
    }

    /// Put the end of a request in place of its arrival, which has the `number`: what nobody waits for need not be
    /// decided.
    ///
    /// # Errors
    /// Where its arrival has been taken. It gives the end back.
    pub(crate) fn replace(&self, number: u64, ended: Box<Ended>) -> Result<(), Box<Ended>> {
        let mut queue = self.lock();
        let place = number.checked_sub(queue.taken).map(usize::try_from);
        let Some(Ok(place)) = place else {
            return Err(ended);
        };
        let Some(place) = queue.events.get_mut(place) else {
            return Err(ended);
        };
        let arrived = std::mem::replace(place, Event::Ended(ended));
        drop(queue);
        // To free megabytes takes its time.
        drop(arrived);
        Ok(())
    }

    /// Whether the end of a request that has not arrived can be recorded; else it is counted.
    pub(crate) fn records(&self) -> bool {
        let mut queue = self.lock();
        let records = queue.events.len() < MOST_RECORDED;
        if !records {
            queue.unrecorded += 1;
        }
        records
    }

    /// Add an event that needs no answer: the deciding thread is woken for it after a short delay, together with
    /// others.
    pub(crate) fn push_for_later(self: &Arc<Self>, event: Event) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return self.push(event);
        };
        let mut queue = self.lock();
        queue.events.push(event);
        queue.later += 1;
        if queue.later == WAKE_AT {
            queue.due = true;
            return self.tell_of(queue);
        }
        if std::mem::replace(&mut queue.promised, true) {
            return;
        }
        drop(queue);
        let promised = Promise(Arc::clone(self));
        runtime.spawn(async move {
            tokio::time::sleep(LATER).await;
            drop(promised);
        });
    }

    /// Let [`wait`](Self::wait) return.
    pub fn wake(&self) {
        let mut queue = self.lock();
        queue.woken = true;
        self.tell_of(queue);
    }

    fn tell_of(&self, mut queue: MutexGuard<'_, Queue>) {
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        if waiting {
            self.signal.notify_one();
        }
        self.notice.tell();
    }

    /// The events that are there, in their order. Waits for the first one that is told of, or for [`wake`](Self::wake),
    /// at most `time`.
    pub fn wait(&self, time: Duration) -> Vec<Event> {
        let until = Instant::now().checked_add(time);
        let mut queue = self.lock();
        while queue.is_quiet() {
            let left = match until {
                Some(until) => until.saturating_duration_since(Instant::now()),
                None => time,
            };
            if left.is_zero() {
                break;
            }
            queue.waiting = true;
            (queue, _) = self
                .signal
                .wait_timeout(queue, left)
                .unwrap_or_else(PoisonError::into_inner);
            queue.waiting = false;
        }
        queue.take()
    }

    /// All events that are there.
    pub fn take(&self) -> Vec<Event> {
        self.notice.clear();
        self.lock().take()
    }

    /// A descriptor that is readable while something is there, for an event loop.
    ///
    /// # Errors
    /// Where the system gives none.
    pub fn descriptor(&self) -> io::Result<RawFd> {
        let descriptor = self.notice.descriptor()?;
        // Events that came before there was a descriptor have given no notice.
        let queue = self.lock();
        if !queue.is_quiet() {
            self.notice.tell();
        }
        Ok(descriptor)
    }
}

/// Tells what was pushed for later, also where the runtime ends before that.
struct Promise(Arc<Decisions>);

impl Drop for Promise {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.promised = false;
        if queue.later > 0 {
            queue.due = true;
            self.0.tell_of(queue);
        }
    }
}

/// Prices by asking, on a thread that may wait.
pub(crate) struct AskedPricer {
    pub(crate) decisions: Arc<Decisions>,
    pub(crate) ticket: u64,
}

impl Pricer for AskedPricer {
    fn price(&mut self, usage: &Usage) -> Option<Members> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.decisions.push(Event::Price(PriceAsked {
            ticket: self.ticket,
            usage: usage.clone(),
            answer,
        }));
        answered
            .recv_timeout(self.decisions.patience())
            .ok()
            .flatten()
    }
}

#[cfg(test)]
mod tests;
