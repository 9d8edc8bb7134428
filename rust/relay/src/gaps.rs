//! The times between a reply's tokens, as far as they are the upstream's: without those in which it was not read
//! because the client took nothing.

use std::time::Duration;

use tokio::time::Instant;

use crate::outcome::Outcome;

#[derive(Default)]
pub(crate) struct Gaps {
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    /// What the gap under way is counted from: the last token, or the end of a stall since then.
    from: Option<Instant>,
    /// What of the gap under way was over when a stall began.
    before: Duration,
    /// What of the gap under way is the client's.
    excluded: Duration,
    longest: Option<Duration>,
    sum: Duration,
    client_blocked: Duration,
}

impl Gaps {
    /// The upstream is read no further from `now` on.
    pub(crate) fn pause(&mut self, now: Instant) {
        if let Some(from) = self.from {
            self.before += now - from;
        }
    }

    /// It is read again at `now`, having been paused since `since`.
    pub(crate) fn go_on(&mut self, since: Instant, now: Instant) {
        self.from = self.from.map(|_| now);
        self.client_blocked += now - since;
    }

    /// It was not read for `time`, in one piece or several, since it was read last.
    pub(crate) fn stalled(&mut self, time: Duration) {
        self.client_blocked += time;
        if self.from.is_some() {
            self.excluded += time;
        }
    }

    /// Tokens have come at `now`.
    pub(crate) fn tokens(&mut self, now: Instant) {
        if let Some(from) = self.from.replace(now) {
            let excluded = std::mem::take(&mut self.excluded);
            let gap = (std::mem::take(&mut self.before) + (now - from)).saturating_sub(excluded);
            self.longest = self.longest.max(Some(gap));
            self.sum += gap;
        }
        self.first_token.get_or_insert(now);
        self.last_token = Some(now);
    }

    /// `since`: from a moment to the time since the exchange's beginning.
    pub(crate) fn report(&self, outcome: &mut Outcome, since: impl Fn(Instant) -> Duration) {
        outcome.first_token = self.first_token.map(&since);
        outcome.last_token = self.last_token.map(&since);
        outcome.longest_gap = self.longest;
        outcome.gaps = self.sum;
        outcome.client_blocked = self.client_blocked;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn reported(gaps: &Gaps, start: Instant) -> Outcome {
        let mut outcome = Outcome::default();
        gaps.report(&mut outcome, |at| at - start);
        outcome
    }

    #[test]
    fn what_the_client_takes_its_time_for_is_not_the_upstreams() {
        let start = Instant::now();
        let mut gaps = Gaps::default();
        gaps.tokens(start + 10 * MS);
        gaps.tokens(start + 30 * MS);
        // 5 ms of reading, a stall of 1000, and 7 ms more of reading.
        gaps.pause(start + 35 * MS);
        gaps.go_on(start + 35 * MS, start + 1035 * MS);
        gaps.tokens(start + 1042 * MS);
        let outcome = reported(&gaps, start);
        assert_eq!(outcome.first_token, Some(10 * MS));
        assert_eq!(outcome.last_token, Some(1042 * MS));
        assert_eq!(outcome.longest_gap, Some(20 * MS));
        assert_eq!(outcome.gaps, 32 * MS);
        assert_eq!(outcome.client_blocked, 1000 * MS);
    }

    #[test]
    fn stalls_that_are_told_afterwards_count_the_same() {
        let start = Instant::now();
        let mut gaps = Gaps::default();
        gaps.stalled(50 * MS);
        gaps.tokens(start + 60 * MS);
        gaps.stalled(300 * MS);
        gaps.stalled(200 * MS);
        gaps.tokens(start + 570 * MS);
        gaps.tokens(start + 575 * MS);
        let outcome = reported(&gaps, start);
        assert_eq!(outcome.longest_gap, Some(10 * MS));
        assert_eq!(outcome.gaps, 15 * MS);
        assert_eq!(outcome.client_blocked, 550 * MS);
    }

    #[test]
    fn the_mean_is_never_above_the_longest() {
        let start = Instant::now();
        let mut gaps = Gaps::default();
        let mut now = start;
        for round in 0..100_u32 {
            now += MS * (round % 7);
            gaps.tokens(now);
            let since = now + MS * (round % 3);
            now = since + MS * (round * 31 % 200);
            if round % 2 == 0 {
                gaps.pause(since);
                gaps.go_on(since, now);
            } else {
                gaps.stalled(now - since);
            }
        }
        let outcome = reported(&gaps, start);
        assert!(outcome.gaps / 99 <= outcome.longest_gap.unwrap());
        assert!(outcome.longest_gap.unwrap() < 9 * MS);
    }

    #[test]
    fn one_token_has_no_gap() {
        let start = Instant::now();
        let mut gaps = Gaps::default();
        gaps.tokens(start + MS);
        let outcome = reported(&gaps, start);
        assert_eq!((outcome.longest_gap, outcome.gaps), (None, Duration::ZERO));
    }
}
