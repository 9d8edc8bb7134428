//! The five deadlines of an upstream.

use std::time::Duration;

use tokio::time::Instant;

use crate::fault::FaultKind;

/// How long an upstream may take. `None`, and what is past the clock's end: as long as it likes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deadlines {
    /// Until a connection stands, TLS included.
    pub connect: Option<Duration>,
    /// From when the request is ready to be sent until the reply's first body byte.
    pub first_byte: Option<Duration>,
    /// From when the request is ready to be sent until the first text, reasoning or tool call of a stream.
    pub first_token: Option<Duration>,
    /// Between two of them. Comments, pings and empty deltas do not count.
    pub between_tokens: Option<Duration>,
    /// From when the request is ready to be sent for the first time until the end of the reply: the attempts before
    /// this one, and the pauses between them, count as well.
    pub total: Option<Duration>,
}

/// Where a reply stands, as far as deadlines go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    /// When the request was ready to be sent, later by what it took to make it again.
    pub(crate) started: Instant,
    /// What the `total` deadline counts from.
    pub(crate) first: Instant,
    /// When the client's own patience ends.
    pub(crate) until: Option<Instant>,
    pub(crate) first_byte: Option<Instant>,
    pub(crate) last_token: Option<Instant>,
    /// The upstream streams, as far as is known: a whole document has no first token.
    pub(crate) streaming: bool,
}

impl Deadlines {
    /// The deadline that fires next, and the fault it is.
    pub(crate) fn next(&self, progress: &Progress) -> Option<(Instant, FaultKind)> {
        let due = |from: Instant, limit: Option<Duration>, kind| {
            limit
                .and_then(|limit| from.checked_add(limit))
                .map(|at| (at, kind))
        };
        let started = progress.started;
        let first_byte = self.first_byte.filter(|_| progress.first_byte.is_none());
        let first_byte = due(started, first_byte, FaultKind::FirstByteTimeout);
        let token = match progress.last_token {
            _ if !progress.streaming => None,
            None => due(started, self.first_token, FaultKind::FirstTokenTimeout),
            Some(last) => due(last, self.between_tokens, FaultKind::BetweenTokensTimeout),
        };
        let total = self.end(progress.first, progress.until);
        [first_byte, token, total]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
    }

    /// Whether one has passed.
    pub(crate) fn is_over(&self, progress: &Progress) -> bool {
        let next = self.next(progress);
        next.is_some_and(|(at, _)| at <= Instant::now())
    }

    /// When everything has to be over for a request that was first sent at `first`, and whose client waits `until`;
    /// and the fault that it is then.
    pub(crate) fn end(
        &self,
        first: Instant,
        until: Option<Instant>,
    ) -> Option<(Instant, FaultKind)> {
        let total = self.total.and_then(|limit| first.checked_add(limit));
        let total = total.map(|at| (at, FaultKind::TotalTimeout));
        let until = until.map(|at| (at, FaultKind::ClientTimeout));
        [total, until]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
    }

    /// When to look again, from `now`: at the next deadline, and early enough for one whose phase begins in the
    /// meantime.
    pub(crate) fn wake(&self, progress: &Progress, now: Instant) -> Option<Instant> {
        let next = self.next(progress).map(|(at, _)| at);
        // The only one that does not count from the start.
        let between_tokens = self.between_tokens.and_then(|limit| now.checked_add(limit));
        [next, between_tokens].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Option<Duration> {
        Some(Duration::from_secs(n))
    }

    #[test]
    fn the_phase_decides_which_deadline_runs() {
        let deadlines = Deadlines {
            connect: None,
            first_byte: seconds(1),
            first_token: seconds(2),
            between_tokens: seconds(3),
            total: seconds(10),
        };
        let started = Instant::now();
        let mut progress = Progress {
            started,
            first: started,
            until: None,
            first_byte: None,
            last_token: None,
            streaming: true,
        };
        assert_eq!(
            deadlines.next(&progress),
            Some((
                started + Duration::from_secs(1),
                FaultKind::FirstByteTimeout
            ))
        );
        progress.first_byte = Some(started);
        assert_eq!(
            deadlines.next(&progress),
            Some((
                started + Duration::from_secs(2),
                FaultKind::FirstTokenTimeout
            ))
        );
        let token = started + Duration::from_secs(6);
        progress.last_token = Some(token);
        assert_eq!(
            deadlines.next(&progress),
            Some((
                token + Duration::from_secs(3),
                FaultKind::BetweenTokensTimeout
            ))
        );
        progress.last_token = Some(started + Duration::from_secs(8));
        assert_eq!(
            deadlines.next(&progress),
            Some((started + Duration::from_secs(10), FaultKind::TotalTimeout))
        );
    }

    #[test]
    fn a_deadline_whose_phase_has_not_begun_is_looked_after() {
        let deadlines = Deadlines {
            first_byte: seconds(120),
            between_tokens: seconds(5),
            ..Deadlines::default()
        };
        let started = Instant::now();
        let progress = Progress {
            started,
            first: started,
            until: None,
            first_byte: None,
            last_token: None,
            streaming: true,
        };
        assert_eq!(
            deadlines.wake(&progress, started),
            Some(started + Duration::from_secs(5))
        );
        assert_eq!(Deadlines::default().wake(&progress, started), None);
    }

    #[test]
    fn the_first_token_is_waited_for_while_not_even_a_byte_has_come() {
        let deadlines = Deadlines {
            first_byte: seconds(120),
            first_token: seconds(2),
            ..Deadlines::default()
        };
        let started = Instant::now();
        let mut progress = Progress {
            started,
            first: started,
            until: None,
            first_byte: None,
            last_token: None,
            streaming: true,
        };
        let due = Some((
            started + Duration::from_secs(2),
            FaultKind::FirstTokenTimeout,
        ));
        assert_eq!(deadlines.next(&progress), due);
        let later = started + Duration::from_secs(1);
        assert_eq!(deadlines.wake(&progress, later), due.map(|(at, _)| at));
        progress.streaming = false;
        let due = Some((
            started + Duration::from_secs(120),
            FaultKind::FirstByteTimeout,
        ));
        assert_eq!(deadlines.next(&progress), due);
    }

    #[test]
    fn a_document_is_bound_only_by_the_whole() {
        let deadlines = Deadlines {
            first_token: seconds(2),
            between_tokens: seconds(3),
            ..Deadlines::default()
        };
        let started = Instant::now();
        let progress = Progress {
            started,
            first: started,
            until: None,
            first_byte: Some(started),
            last_token: None,
            streaming: false,
        };
        assert_eq!(deadlines.next(&progress), None);
    }

    #[test]
    fn the_whole_counts_from_the_first_attempt_and_a_client_may_want_less() {
        let deadlines = Deadlines {
            first_byte: seconds(9),
            total: seconds(10),
            ..Deadlines::default()
        };
        let first = Instant::now();
        let started = first + Duration::from_secs(6);
        let mut progress = Progress {
            started,
            first,
            until: None,
            first_byte: None,
            last_token: None,
            streaming: true,
        };
        let total = (first + Duration::from_secs(10), FaultKind::TotalTimeout);
        assert_eq!(deadlines.next(&progress), Some(total));
        for (until, due, kind) in [
            (7, 7, FaultKind::ClientTimeout),
            (30, 10, FaultKind::TotalTimeout),
        ] {
            progress.until = Some(first + Duration::from_secs(until));
            let due = (first + Duration::from_secs(due), kind);
            assert_eq!(deadlines.next(&progress), Some(due));
        }
        assert_eq!(
            Deadlines::default().next(&progress).map(|(at, _)| at),
            progress.until
        );
    }

    #[test]
    fn what_is_past_the_clocks_end_never_fires() {
        let started = Instant::now();
        let mut progress = Progress {
            started,
            first: started,
            until: None,
            first_byte: None,
            last_token: None,
            streaming: true,
        };
        let for_ever = Some(Duration::MAX);
        let mut deadlines = Deadlines {
            connect: for_ever,
            first_byte: for_ever,
            first_token: for_ever,
            between_tokens: for_ever,
            total: for_ever,
        };
        for last_token in [None, Some(started)] {
            progress.last_token = last_token;
            assert_eq!(deadlines.next(&progress), None);
            assert_eq!(deadlines.wake(&progress, started), None);
        }
        deadlines.total = seconds(3);
        let due = started + Duration::from_secs(3);
        assert_eq!(deadlines.wake(&progress, started), Some(due));
    }
}
