//! The present, looked at once for all windows of a request.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What a calendar window may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calendar {
    /// From midnight on.
    Day,
    /// From a Monday on.
    Week,
    /// From the first on.
    Month,
}

impl Calendar {
    /// All of them, in the order of [`Moment::spans`].
    pub const ALL: [Calendar; 3] = [Calendar::Day, Calendar::Week, Calendar::Month];
}

/// A day, a week or a month: seconds since 1970, UTC. The first one has ended before any time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Span {
    /// When it began.
    pub began: i64,
    /// When the next one begins.
    pub ends: f64,
}

/// A moment, as windows count it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moment {
    /// Seconds, of a clock that is never set back.
    pub monotonic: f64,
    /// Seconds since 1970, UTC.
    pub wall: f64,
    /// The day, the week and the month around it.
    pub spans: [Span; 3],
}

impl Moment {
    /// The calendar windows that have ended by now: [`Clock::begin`] is to be told which came after them.
    pub fn ended(&self) -> impl Iterator<Item = Calendar> {
        let ended = |unit: &Calendar| self.wall >= self.spans[*unit as usize].ends;
        Calendar::ALL.into_iter().filter(ended)
    }
}

/// Tells the time to all windows of one process.
#[derive(Debug)]
pub struct Clock {
    began: Instant,
    /// What the monotonic clock said when this one began.
    origin: f64,
    /// Where several machines count together: a server's clock is the only one.
    is_heard: bool,
    held: Option<(f64, f64)>,
    spans: [Span; 3],
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            // Near the other clock, so that a server's time makes no leap when it is first heard.
            origin: system(),
            is_heard: false,
            held: None,
            spans: [Span::default(); 3],
        }
    }
}

impl Clock {
    /// The present.
    #[must_use]
    pub fn now(&self) -> Moment {
        let (monotonic, wall) = self.held.unwrap_or_else(|| {
            let monotonic = self.origin + self.began.elapsed().as_secs_f64();
            let wall = if self.is_heard { monotonic } else { system() };
            (monotonic, wall)
        });
        Moment {
            monotonic,
            wall,
            spans: self.spans,
        }
    }

    /// This is the span of `unit` from now on. One that begins no later than the one before it is none: a clock that
    /// is set back begins no window again.
    pub fn begin(&mut self, unit: Calendar, span: Span) {
        let known = &mut self.spans[unit as usize];
        if span.ends > known.ends {
            *known = span;
        }
    }

    /// A server says that its time is `at` (seconds since 1970, UTC), which holds from now on, for both clocks.
    pub fn hear(&mut self, at: f64) {
        self.is_heard = true;
        self.origin = at - self.began.elapsed().as_secs_f64();
    }

    /// Stand still at this moment, whatever is heard. For tests.
    pub fn hold(&mut self, monotonic: f64, wall: f64) {
        self.held = Some((monotonic, wall));
    }
}

fn system() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_begins_no_day_again() {
        let mut clock = Clock::default();
        clock.hold(0.0, 100.0);
        assert_eq!(clock.now().ended().collect::<Vec<_>>(), Calendar::ALL);
        let span = |began: i32| Span {
            began: began.into(),
            ends: f64::from(began) + 50.0,
        };
        clock.begin(Calendar::Day, span(100));
        clock.begin(Calendar::Day, span(50));
        assert_eq!(clock.now().spans[0], span(100));
        clock.hold(0.0, 60.0);
        assert!(!clock.now().ended().any(|unit| unit == Calendar::Day));
    }

    #[test]
    fn a_server_tells_both_clocks() {
        let mut clock = Clock::default();
        clock.hear(5000.0);
        let now = clock.now();
        assert_eq!(now.monotonic, now.wall);
        assert!((5000.0..6000.0).contains(&now.wall), "{now:?}");
    }
}
