//! The two ends of one reply on its way to a client: the exchange fills a [`Sink`], and the client's side takes frames
//! from a [`Reply`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::task::AtomicWaker;
use http::HeaderMap;

use crate::copies::{Copies, Copying, NotCopied, ReplyCopy};
use crate::engine::Active;

/// How a reply begins.
#[derive(Debug, Clone)]
pub struct Head {
    /// HTTP status.
    pub status: u16,
    /// Headers; framing (length, transfer encoding) is left to the server.
    pub headers: HeaderMap,
}

/// The reply cannot be completed: the client must see its connection cut, not a regular end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aborted;

impl std::fmt::Display for Aborted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the reply was broken off")
    }
}

impl std::error::Error for Aborted {}

/// The copy of all frames.
#[derive(Default)]
enum CopyState {
    /// None is wanted, or the reply will not be whole.
    #[default]
    None,
    Made(Copying),
    GivenUp(NotCopied),
}

/// Frames that have not been taken yet. The first one stays a slice of its read. Those behind it are copied into one
/// buffer, so that they are sent at once, and so that small slices do not keep large reads in memory.
#[derive(Default)]
struct Waiting {
    first: Bytes,
    behind: BytesMut,
}

impl Waiting {
    fn len(&self) -> usize {
        self.first.len() + self.behind.len()
    }

    fn is_empty(&self) -> bool {
        // Nothing is behind where nothing is first.
        self.first.is_empty()
    }

    fn add(&mut self, frame: Bytes) {
        if self.first.is_empty() {
            self.first = frame;
        } else {
            self.behind.extend_from_slice(&frame);
        }
    }

    fn take(&mut self) -> Option<Bytes> {
        let behind = std::mem::take(&mut self.behind).freeze();
        let first = std::mem::replace(&mut self.first, behind);
        (!first.is_empty()).then_some(first)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Ended,
    Aborted,
}

struct ReplyState {
    head: Option<Head>,
    waiting: Waiting,
    end: End,
    /// The client is gone.
    left: bool,
    /// The client was disconnected because it took nothing.
    stalled: bool,
    /// The sink waits for room or for the last frame to be taken. Else taking a frame need not wake it.
    awaited: bool,
    copy: CopyState,
}

struct Shared {
    state: Mutex<ReplyState>,
    bound: usize,
    /// Both ends are polled by one task: neither has to wake the other.
    inline: bool,
    /// Where one task polls both ends: how long the client kept it from polling, in microseconds, not yet taken by the
    /// exchange.
    stalls: AtomicU64,
    sink: AtomicWaker,
    reply: AtomicWaker,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ReplyState> {
        // A panic while it was held cannot leave it inconsistent: every change is a plain assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both ends of a reply. `bound`: the bytes that may wait for a slow client before the upstream is read no further.
#[must_use]
pub fn reply(bound: usize) -> (Sink, Reply) {
    ends(bound, false)
}

/// What waits at most in a reply that one task polls: many events, and little enough to be held for a client that takes
/// nothing.
const INLINE_BOUND: usize = 16 * 1024;

/// Both ends of a reply that one task polls: it takes what there is after each poll of the exchange.
#[must_use]
pub fn inline_reply() -> (Sink, Reply) {
    ends(INLINE_BOUND, true)
}

fn ends(bound: usize, inline: bool) -> (Sink, Reply) {
    let shared = Arc::new(Shared {
        state: Mutex::new(ReplyState {
            head: None,
            waiting: Waiting::default(),
            end: End::Open,
            left: false,
            stalled: false,
            awaited: false,
            copy: CopyState::None,
        }),
        bound,
        inline,
        stalls: AtomicU64::new(0),
        sink: AtomicWaker::new(),
        reply: AtomicWaker::new(),
    });
    let sink = Sink {
        shared: Arc::clone(&shared),
        active: None,
    };
    (sink, Reply(shared))
}

/// Where an exchange puts the frames of its reply. No method blocks. Dropped before the end it aborts.
pub struct Sink {
    shared: Arc<Shared>,
    /// The exchange is under way until its last frame is taken.
    active: Option<Active>,
}

impl Sink {
    /// Copy all frames, up to `bound` bytes, and as long as `copies` has room: past that there is no copy.
    pub fn copy(&mut self, bound: usize, copies: &Arc<Copies>) {
        self.shared.lock().copy = CopyState::Made(Copying::new(bound, copies));
    }

    /// The copy, once, where one was wanted.
    pub(crate) fn take_copy(&mut self) -> Option<Result<ReplyCopy, NotCopied>> {
        match std::mem::take(&mut self.shared.lock().copy) {
            CopyState::None => None,
            CopyState::Made(copying) => Some(Ok(copying.whole())),
            CopyState::GivenUp(why) => Some(Err(why)),
        }
    }

    /// Copy nothing: the reply will not be whole.
    pub(crate) fn forget_copy(&mut self) {
        self.shared.lock().copy = CopyState::None;
    }

    /// Count the exchange as under way for as long as this lives.
    pub(crate) fn hold(&mut self, active: Option<Active>) {
        self.active = active;
    }

    /// Begin the reply. Called once, before any frame.
    pub fn start(&mut self, status: u16, headers: HeaderMap) {
        self.shared.lock().head = Some(Head { status, headers });
        self.shared.reply.wake();
    }

    /// Take `frames`, leaving it empty.
    pub fn push(&mut self, frames: &mut Vec<Bytes>) {
        let mut state = self.shared.lock();
        if state.left {
            // The copy would lack them.
            state.copy = CopyState::None;
            frames.clear();
            return;
        }
        if let CopyState::Made(copying) = &mut state.copy
            && let Err(why) = copying.add(frames)
        {
            state.copy = CopyState::GivenUp(why);
        }
        frames.drain(..).for_each(|frame| state.waiting.add(frame));
        drop(state);
        self.shared.reply.wake();
    }

    /// No more frames follow.
    pub fn end(&mut self) {
        self.finish(End::Ended);
    }

    /// The client's connection is to be cut, behind the frames that are on their way.
    pub fn abort(&mut self) {
        self.finish(End::Aborted);
    }

    fn finish(&mut self, end: End) {
        let mut state = self.shared.lock();
        if state.end == End::Open {
            state.end = end;
        }
        drop(state);
        self.shared.reply.wake();
    }

    /// The client is gone.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.shared.lock().left
    }

    /// One task polls both ends.
    pub(crate) fn is_inline(&self) -> bool {
        self.shared.inline
    }

    /// How long the client kept the task of both ends from polling, since this was asked last.
    pub(crate) fn take_stalls(&self) -> Duration {
        // Stalls are rare, so a plain load comes first. Nothing is added in between: both ends run in one task.
        match self.shared.stalls.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            _ => Duration::from_micros(self.shared.stalls.swap(0, Ordering::Relaxed)),
        }
    }

    /// Ready once the client has left.
    pub fn poll_left(&self, cx: &mut Context<'_>) -> Poll<()> {
        // Where one task polls both ends, it polls this one after it has dropped the other.
        if self.shared.inline && !self.has_left() {
            return Poll::Pending;
        }
        self.poll(cx, |state| state.left)
    }

    /// Whether it was cut since it took nothing.
    #[must_use]
    pub fn has_stalled(&self) -> bool {
        self.shared.lock().stalled
    }

    /// Ready while what waits for the client is below the bound, or the client has left.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let state = self.shared.lock();
        if state.waiting.len() < self.shared.bound || state.left {
            return Poll::Ready(());
        }
        drop(state);
        let bound = self.shared.bound;
        self.poll(cx, |state| state.waiting.len() < bound || state.left)
    }

    fn poll(&self, cx: &mut Context<'_>, ready: impl FnOnce(&ReplyState) -> bool) -> Poll<()> {
        self.shared.sink.register(cx.waker());
        let mut state = self.shared.lock();
        if ready(&state) {
            return Poll::Ready(());
        }
        state.awaited = true;
        Poll::Pending
    }

    /// Cut a client that takes nothing. `true`: it has just taken the rest.
    fn cut(&self) -> bool {
        let mut state = self.shared.lock();
        if state.left || state.waiting.is_empty() {
            return true;
        }
        // All at once: what lacks its last frames must at no time look like a reply that has ended.
        state.waiting.clear();
        state.end = End::Aborted;
        drop(state);
        self.shared.reply.wake();
        false
    }

    /// Wait until the client's side has taken everything. One that takes nothing for `stall` is cut: then the result is
    /// false.
    pub async fn flushed(self, stall: Option<Duration>) -> bool {
        loop {
            let before = self.shared.lock().waiting.len();
            let taken = std::future::poll_fn(|cx| {
                self.poll(cx, |state| {
                    state.left || state.waiting.len() < before || before == 0
                })
            });
            match stall {
                None => taken.await,
                Some(stall) => {
                    if tokio::time::timeout(stall, taken).await.is_err() {
                        return self.cut();
                    }
                }
            }
            let state = self.shared.lock();
            if state.left || state.waiting.is_empty() {
                return true;
            }
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.finish(End::Aborted);
    }
}

/// What the client's side does next.
#[derive(Debug)]
pub enum Taken {
    /// Send this.
    Frame(Bytes),
    /// The reply is whole.
    Ended,
    /// Cut the connection.
    Aborted,
    /// Nothing yet.
    Nothing,
}

/// All that is there of a reply at one moment.
#[derive(Debug, Default)]
pub struct Batch {
    /// The head, once.
    pub head: Option<Head>,
    /// Body bytes.
    pub body: Vec<Bytes>,
    /// Nothing more follows.
    pub ended: bool,
    /// The connection is to be cut.
    pub aborted: bool,
}

/// The client's end of a reply. To drop it before the reply has ended means that the client has left.
pub struct Reply(Arc<Shared>);

impl Reply {
    /// The head, once there is one. `Err`: there will be none.
    pub fn take_head(&mut self) -> Option<Result<Head, Aborted>> {
        let mut state = self.0.lock();
        match (state.head.take(), state.end) {
            (Some(head), _) => Some(Ok(head)),
            (None, End::Open) => None,
            (None, _) => Some(Err(Aborted)),
        }
    }

    /// The next frame.
    pub fn take(&mut self) -> Taken {
        let mut state = self.0.lock();
        match (state.waiting.take(), state.end) {
            (Some(frame), _) => {
                self.wake_sink(state);
                Taken::Frame(frame)
            }
            (None, End::Open) => Taken::Nothing,
            (None, End::Ended) => Taken::Ended,
            (None, End::Aborted) => Taken::Aborted,
        }
    }

    /// Everything that is there.
    pub fn take_all(&mut self) -> Batch {
        let mut state = self.0.lock();
        let batch = Batch {
            head: state.head.take(),
            body: std::iter::from_fn(|| state.waiting.take()).collect(),
            ended: state.end == End::Ended,
            aborted: state.end == End::Aborted,
        };
        self.wake_sink(state);
        batch
    }

    fn wake_sink(&self, mut state: MutexGuard<'_, ReplyState>) {
        if std::mem::take(&mut state.awaited) {
            drop(state);
            self.0.sink.wake();
        }
    }

    /// Where one task polls both ends: the client took nothing for so long, and kept it from polling.
    pub fn stalled_for(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.0.stalls.fetch_add(micros, Ordering::Relaxed);
    }

    /// Have `cx` woken when there is something new to take.
    pub fn register(&self, cx: &mut Context<'_>) {
        self.0.reply.register(cx.waker());
    }

    /// The client is gone: the upstream is closed, or read on if the route is configured so. `stalled`: the client was
    /// disconnected because it took nothing. Idempotent.
    pub fn leave(&mut self, stalled: bool) {
        let mut state = self.0.lock();
        state.stalled |= stalled;
        if state.end == End::Open || !state.waiting.is_empty() {
            state.left = true;
            state.waiting.clear();
        }
        drop(state);
        self.0.sink.wake();
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.leave(false);
    }
}

#[cfg(test)]
mod tests;
