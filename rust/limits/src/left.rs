//! What is left of limits, as the headers of two APIs tell clients.

use std::str::FromStr;

use crate::Amount;
use crate::clock::Moment;
use crate::holding::{Limit, Resource};

/// How headers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `x-ratelimit-{limit,remaining,reset}-{requests,tokens}` (OpenAI's documentation, "Rate limits").
    OpenAi,
    /// `anthropic-ratelimit-{requests,tokens}-{limit,remaining,reset}` (Anthropic's documentation, "Rate limits").
    Anthropic,
}

impl FromStr for Form {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "openai" => Ok(Form::OpenAi),
            "anthropic" => Ok(Form::Anthropic),
            _ => Err(()),
        }
    }
}

impl Form {
    /// Both.
    pub const ALL: [Form; 2] = [Form::OpenAi, Form::Anthropic];

    /// The names of the headers for requests, then of those for tokens: the limit's, what is left, when it resets.
    #[must_use]
    pub fn names(self) -> [[&'static str; 3]; 2] {
        match self {
            Form::OpenAi => [
                [
                    "x-ratelimit-limit-requests",
                    "x-ratelimit-remaining-requests",
                    "x-ratelimit-reset-requests",
                ],
                [
                    "x-ratelimit-limit-tokens",
                    "x-ratelimit-remaining-tokens",
                    "x-ratelimit-reset-tokens",
                ],
            ],
            Form::Anthropic => [
                [
                    "anthropic-ratelimit-requests-limit",
                    "anthropic-ratelimit-requests-remaining",
                    "anthropic-ratelimit-requests-reset",
                ],
                [
                    "anthropic-ratelimit-tokens-limit",
                    "anthropic-ratelimit-tokens-remaining",
                    "anthropic-ratelimit-tokens-reset",
                ],
            ],
        }
    }
}

/// What is left of one limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Left {
    /// The limit itself.
    pub limit: Amount,
    /// Never below zero.
    pub remaining: Amount,
    /// Seconds until nothing of what is counted by now counts.
    pub reset: f64,
}

impl Left {
    /// The values of its headers, in the order of [`Form::names`].
    #[must_use]
    pub fn values(&self, form: Form, now: &Moment) -> [String; 3] {
        let reset = match form {
            Form::OpenAi => span(self.reset),
            Form::Anthropic => date(now.wall + self.reset),
        };
        [self.limit.to_string(), self.remaining.to_string(), reset]
    }
}

/// What is left of requests, and of tokens: of the limit with the least left, where there is one.
#[must_use]
pub fn left(limits: &[impl AsRef<Limit>], now: &Moment) -> [Option<Left>; 2] {
    [Resource::Requests, Resource::Tokens].map(|resource| {
        let limits = limits.iter().map(AsRef::as_ref);
        let of = limits.filter(|limit| limit.resource == resource);
        let remaining = of.map(|limit| {
            let used = limit.window.lock().used();
            (limit, (limit.amount - used).max(0))
        });
        let (limit, remaining) = remaining.min_by_key(|&(_, remaining)| remaining)?;
        Some(Left {
            limit: limit.amount,
            remaining,
            reset: limit.window.lock().reset(now),
        })
    })
}

/// As OpenAI writes it: `120ms`, `7s`, `6m0s`, `23h59m8s`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // At most a month, and never below zero.
fn span(seconds: f64) -> String {
    if seconds < 1.0 {
        return format!("{}ms", (seconds * 1000.0).round_ties_even());
    }
    let whole = seconds.round_ties_even() as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// RFC 3339, of seconds since 1970, UTC.
#[allow(clippy::cast_possible_truncation)] // Beyond every date there will be it saturates.
fn date(wall: f64) -> String {
    // Of a clock that tells microseconds, since a binary fraction may be just below a whole second.
    let seconds = ((wall * 1e6).round_ties_even() / 1e6).floor() as i64;
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let (hour, minute, second) = (
        seconds.rem_euclid(86_400) / 3600,
        seconds / 60 % 60,
        seconds % 60,
    );
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a day counted from 1970 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms"): the
/// years begin in March there, so that a leap day is the last one.
fn civil(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{Counter, Unit};

    #[test]
    fn times_are_written_as_openai_does() {
        for (seconds, text) in [
            (0.0, "0ms"),
            (0.12, "120ms"),
            (6.6, "7s"),
            (360.0, "6m0s"),
            (86_348.0, "23h59m8s"),
            (3600.4, "1h0m0s"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (wall, text) in [
            (0.0, "1970-01-01T00:00:00Z"),
            (951_782_399.9, "2000-02-28T23:59:59Z"),
            (951_782_400.0, "2000-02-29T00:00:00Z"),
            (951_868_799.999_999_9, "2000-03-01T00:00:00Z"),
            (1_801_439_940.0, "2027-01-31T23:59:00Z"),
            (4_107_542_400.0, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(wall), text);
        }
    }

    #[test]
    fn the_limit_with_the_least_left_is_told() {
        let limit = |resource, amount, used| {
            let window = Counter::new(Unit::UnderWay);
            window.lock().add(used);
            Limit {
                resource,
                amount,
                window,
            }
        };
        let limits = [
            limit(Resource::Requests, 600, 100),
            limit(Resource::Requests, 200, 250),
            limit(Resource::Concurrent, 1, 1),
        ];
        let expected = Left {
            limit: 200,
            remaining: 0,
            reset: 0.0,
        };
        let now = Moment::default();
        assert_eq!(left(&limits, &now), [Some(expected), None]);
        let values = expected.values(Form::Anthropic, &now);
        assert_eq!(values, ["200", "0", "1970-01-01T00:00:00Z"]);
        assert_eq!(expected.values(Form::OpenAi, &now), ["200", "0", "0ms"]);
    }
}
