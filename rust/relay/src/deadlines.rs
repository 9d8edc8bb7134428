//! The five deadlines of an upstream.

use std::time::Duration;

use tokio::time::Instant;

use crate::fault::FaultKind;

/// How long an upstream may take. `None`: as long as it likes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deadlines {
    /// Until a connection stands, TLS included.
    pub connect: Option<Duration>,
    /// From the start of the attempt until the reply's first body byte.
    pub first_byte: Option<Duration>,
    /// From the start of the attempt until the first text, reasoning or tool call of a stream.
    pub first_token: Option<Duration>,
    /// Between two of them. Comments, pings and empty deltas do not count.
    pub between_tokens: Option<Duration>,
    /// From the start of the attempt until the end of the reply.
    pub total: Option<Duration>,
}

/// Where a reply stands, as far as deadlines go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) started: Instant,
    pub(crate) first_byte: Option<Instant>,
    pub(crate) last_token: Option<Instant>,
    /// Tokens are only waited for in streams: a whole document has no first one.
    pub(crate) streaming: bool,
}

impl Deadlines {
    /// The deadline that fires next, and the fault it is.
    pub(crate) fn next(&self, progress: &Progress) -> Option<(Instant, FaultKind)> {
        let waiting = match (progress.first_byte, progress.last_token) {
            (None, _) => self
                .first_byte
                .map(|d| (progress.started + d, FaultKind::FirstByteTimeout)),
            (Some(_), _) if !progress.streaming => None,
            (Some(_), None) => self
                .first_token
                .map(|d| (progress.started + d, FaultKind::FirstTokenTimeout)),
            (Some(_), Some(last)) => self
                .between_tokens
                .map(|d| (last + d, FaultKind::BetweenTokensTimeout)),
        };
        let total = self
            .total
            .map(|d| (progress.started + d, FaultKind::TotalTimeout));
        [waiting, total]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
    }

    /// When to look again, from `now`: at the next deadline, and early enough for one whose phase begins in the meantime.
    pub(crate) fn wake(&self, progress: &Progress, now: Instant) -> Option<Instant> {
        let shortest = [self.first_token, self.between_tokens, self.total]
            .into_iter()
            .flatten()
            .min();
        let next = self.next(progress).map(|(at, _)| at);
        [next, shortest.map(|d| now + d)]
            .into_iter()
            .flatten()
            .min()
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
    fn a_document_is_bound_only_by_the_whole() {
        let deadlines = Deadlines {
            first_token: seconds(2),
            between_tokens: seconds(3),
            ..Deadlines::default()
        };
        let started = Instant::now();
        let progress = Progress {
            started,
            first_byte: Some(started),
            last_token: None,
            streaming: false,
        };
        assert_eq!(deadlines.next(&progress), None);
    }
}
