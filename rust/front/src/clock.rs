//! The time bounds of one client's connection: it is closed when it is idle, sends its head too slowly, takes nothing,
//! or resets too many requests.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a connection may be silent that is new when the gateway drains. What its client sent before lies there
/// already.
pub(crate) const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// How long a connection may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// From a request's first byte to the end of its head.
    pub(crate) head: Duration,
    /// Between two requests.
    pub(crate) idle: Duration,
    /// While there is something to take, and the client takes nothing.
    pub(crate) stall: Option<Duration>,
    /// How many more requests may be reset over HTTP/2 than are not.
    pub(crate) resets: usize,
}

struct ConnectionState {
    /// Requests that have come, and whose replies are not all written.
    underway: usize,
    /// A request has come.
    begun: bool,
    /// See [`Times::idle`]; less for a connection without a request when the gateway drains.
    idle: Duration,
    idle_since: Instant,
    /// A head has begun to come.
    head_since: Option<Instant>,
    /// The client speaks HTTP/2, whose frames need not be parts of a head.
    http2: bool,
    /// Since when the client knows that the connection ends.
    ending_since: Option<Instant>,
    /// The socket takes nothing.
    blocked_since: Option<Instant>,
    /// How long it has taken nothing in total, without the present wait.
    blocked: Duration,
    stalled: bool,
    /// Requests that were reset before their replies were whole, minus those that were not. Each reset request has cost
    /// an upstream's work.
    taken_back: usize,
}

/// The clock of one connection. Its socket, its requests and its driver report to it; all run in turn.
pub(crate) struct Clock {
    times: Times,
    /// How often the socket has begun to take nothing, and to take again.
    turns: AtomicU32,
    state: Mutex<ConnectionState>,
}

/// What has run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expired {
    Idle,
    Head,
    Stall,
    Resets,
}

impl Clock {
    pub(crate) fn new(times: Times) -> Arc<Self> {
        Arc::new(Self {
            times,
            turns: AtomicU32::new(0),
            state: Mutex::new(ConnectionState {
                underway: 0,
                begun: false,
                idle: times.idle,
                idle_since: Instant::now(),
                head_since: None,
                http2: false,
                ending_since: None,
                blocked_since: None,
                blocked: Duration::ZERO,
                stalled: false,
                taken_back: 0,
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes have come.
    pub(crate) fn read(&self) {
        let mut state = self.lock();
        if state.underway == 0 && state.head_since.is_none() && !state.http2 {
            state.head_since = Some(Instant::now());
        }
    }

    /// The connection has begun as HTTP/2 does.
    pub(crate) fn is_http2(&self) {
        let mut state = self.lock();
        state.http2 = true;
        state.head_since = None;
    }

    /// The client has been sent the notice that the connection ends; it has as long as for a head to take it.
    pub(crate) fn ending(&self) {
        self.lock().ending_since = Some(Instant::now());
    }

    /// Whether the socket took what was written to it.
    pub(crate) fn wrote(&self, taken: bool) {
        let mut state = self.lock();
        if taken == state.blocked_since.is_none() {
            return;
        }
        let now = Instant::now();
        match state.blocked_since.take() {
            Some(since) => state.blocked += now - since,
            None => state.blocked_since = Some(now),
        }
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Changes whenever the socket begins to take nothing, or to take again: [`blocked`](Self::blocked) need not be
    /// asked before.
    pub(crate) fn turns(&self) -> u32 {
        self.turns.load(Ordering::Relaxed)
    }

    /// How long the socket has taken nothing, in all.
    pub(crate) fn blocked(&self) -> Duration {
        let state = self.lock();
        let now = state.blocked_since.map(|since| since.elapsed());
        state.blocked + now.unwrap_or_default()
    }

    /// A request has come.
    pub(crate) fn begin(self: &Arc<Self>) -> Underway {
        let mut state = self.lock();
        state.underway += 1;
        state.begun = true;
        state.head_since = None;
        drop(state);
        Underway {
            clock: Arc::clone(self),
            whole: false,
        }
    }

    /// Whether a request has come.
    pub(crate) fn has_begun(&self) -> bool {
        self.lock().begun
    }

    /// Whether a request is served over HTTP/1.
    pub(crate) fn serves_http1(&self) -> bool {
        let state = self.lock();
        state.underway > 0 && !state.http2
    }

    /// The gateway drains: a connection on which no request has begun to come has [`FIRST_REQUEST`] for that, from its
    /// own beginning.
    pub(crate) fn drain(&self) {
        let mut state = self.lock();
        if !state.begun {
            state.idle = state.idle.min(FIRST_REQUEST);
        }
    }

    /// The client was cut since it took nothing.
    pub(crate) fn has_stalled(&self) -> bool {
        self.lock().stalled
    }

    /// When something runs out, as things are now, and what.
    pub(crate) fn next(&self) -> Option<(Instant, Expired)> {
        let state = self.lock();
        if state.http2 && state.taken_back > self.times.resets && state.ending_since.is_none() {
            return Some((Instant::now(), Expired::Resets));
        }
        let waiting = match (state.underway, state.head_since.or(state.ending_since)) {
            (0, Some(since)) => Some((since.checked_add(self.times.head), Expired::Head)),
            (0, None) => Some((state.idle_since.checked_add(state.idle), Expired::Idle)),
            _ => None,
        };
        let stall = state
            .blocked_since
            .zip(self.times.stall)
            .map(|(since, stall)| (since.checked_add(stall), Expired::Stall));
        [waiting, stall]
            .into_iter()
            .flatten()
            .filter_map(|(at, expired)| Some((at?, expired)))
            .min_by_key(|(at, _)| *at)
    }

    /// Note that the client is cut since it takes nothing.
    pub(crate) fn stall(&self) {
        self.lock().stalled = true;
    }
}

/// A request whose reply is not all written; it is over when this is dropped.
pub(crate) struct Underway {
    clock: Arc<Clock>,
    whole: bool,
}

impl Underway {
    /// All of the reply was handed over, or will never be.
    pub(crate) fn is_whole(&mut self) {
        self.whole = true;
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        let mut state = self.clock.lock();
        state.underway -= 1;
        state.taken_back = if self.whole {
            state.taken_back.saturating_sub(1)
        } else {
            state.taken_back + 1
        };
        if state.underway == 0 {
            state.idle_since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(60),
        stall: Some(Duration::from_secs(30)),
        resets: 3,
    };

    const SECOND: Duration = Duration::from_secs(1);

    /// What runs out, and in how many seconds.
    fn next(clock: &Clock) -> Option<(u64, Expired)> {
        let (at, expired) = clock.next()?;
        Some(((at - Instant::now()).as_secs(), expired))
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_until_a_head_begins() {
        let clock = Clock::new(TIMES);
        assert_eq!(next(&clock), Some((60, Expired::Idle)));
        tokio::time::advance(50 * SECOND).await;
        assert_eq!(next(&clock), Some((10, Expired::Idle)));
        clock.read();
        assert_eq!(next(&clock), Some((10, Expired::Head)));
        tokio::time::advance(4 * SECOND).await;
        clock.read();
        assert_eq!(
            next(&clock),
            Some((6, Expired::Head)),
            "each byte gives no new time"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_under_way_is_bound_by_its_own_times() {
        let clock = Clock::new(TIMES);
        clock.read();
        let first = clock.begin();
        let second = clock.begin();
        assert_eq!(next(&clock), None);
        clock.read();
        tokio::time::advance(1000 * SECOND).await;
        drop(first);
        assert_eq!(next(&clock), None);
        drop(second);
        assert_eq!(
            next(&clock),
            Some((60, Expired::Idle)),
            "idle since the last of them"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn frames_of_http2_are_no_head_and_keep_nothing_open() {
        let clock = Clock::new(TIMES);
        clock.read();
        clock.is_http2();
        tokio::time::advance(Duration::from_secs(3)).await;
        clock.read();
        assert_eq!(next(&clock), Some((57, Expired::Idle)));
        clock.ending();
        assert_eq!(next(&clock), Some((10, Expired::Head)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_has_little_time_for_its_first_request_once_the_gateway_drains() {
        let clock = Clock::new(TIMES);
        clock.drain();
        assert_eq!(next(&clock), Some((1, Expired::Idle)));
        clock.read();
        assert_eq!(next(&clock), Some((10, Expired::Head)));
        assert!(!clock.has_begun());
        let begun = clock.begin();
        assert!(clock.has_begun() && clock.serves_http1());
        drop(begun);
        assert!(!clock.serves_http1());
        let used = Clock::new(TIMES);
        drop(used.begin());
        used.drain();
        assert_eq!(next(&used), Some((60, Expired::Idle)));
        used.is_http2();
        let _begun = used.begin();
        assert!(!used.serves_http1());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_has_its_time_from_the_first_refusal() {
        let clock = Clock::new(TIMES);
        let underway = clock.begin();
        clock.wrote(false);
        tokio::time::advance(20 * SECOND).await;
        clock.wrote(false);
        assert_eq!(next(&clock), Some((10, Expired::Stall)));
        clock.wrote(true);
        assert_eq!(next(&clock), None);
        clock.wrote(false);
        assert_eq!(next(&clock), Some((30, Expired::Stall)));
        drop(underway);
        tokio::time::advance(25 * SECOND).await;
        assert_eq!(
            next(&clock),
            Some((5, Expired::Stall)),
            "whichever is first"
        );
        assert!(!clock.has_stalled());
        clock.stall();
        assert!(clock.has_stalled());
    }

    #[tokio::test(start_paused = true)]
    async fn more_requests_may_not_be_taken_back_than_others_by_so_many() {
        let clock = Clock::new(TIMES);
        clock.is_http2();
        let take_back = || drop(clock.begin());
        (0..3).for_each(|_| take_back());
        for _ in 0..10 {
            assert_eq!(next(&clock), Some((60, Expired::Idle)));
            clock.begin().is_whole();
            take_back();
        }
        take_back();
        assert_eq!(next(&clock), Some((0, Expired::Resets)));
        clock.ending();
        assert_eq!(next(&clock), Some((10, Expired::Head)), "it is told once");
        let http1 = Clock::new(TIMES);
        (0..9).for_each(|_| drop(http1.begin()));
        assert_eq!(next(&http1), Some((60, Expired::Idle)), "it closes anyway");
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_in_which_the_socket_takes_nothing_adds_up() {
        let clock = Clock::new(TIMES);
        clock.wrote(true);
        assert_eq!((clock.turns(), clock.blocked()), (0, Duration::ZERO));
        for _ in 0..2 {
            clock.wrote(false);
            tokio::time::advance(2 * SECOND).await;
            clock.wrote(false);
            tokio::time::advance(SECOND).await;
            clock.wrote(true);
            tokio::time::advance(10 * SECOND).await;
        }
        assert_eq!((clock.turns(), clock.blocked()), (4, 6 * SECOND));
        clock.wrote(false);
        tokio::time::advance(SECOND).await;
        assert_eq!((clock.turns(), clock.blocked()), (5, 7 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn times_past_the_clocks_end_never_come() {
        let clock = Clock::new(Times {
            head: Duration::MAX,
            idle: Duration::MAX,
            stall: Some(Duration::MAX),
            resets: usize::MAX,
        });
        clock.wrote(false);
        assert_eq!(next(&clock), None);
        clock.read();
        assert_eq!(next(&clock), None);
        let clock = Clock::new(Times {
            stall: None,
            ..TIMES
        });
        let _underway = clock.begin();
        clock.wrote(false);
        assert_eq!(next(&clock), None);
    }
}
