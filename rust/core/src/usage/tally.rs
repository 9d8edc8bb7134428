//! One reply's usage, gathered over its events.

use super::counts::{Count, Counts};
use super::report::Report;
use super::settle::settle;
use super::{Dialect, Usage};

/// Bytes that a number may have which is kept as it is spelled: twice as many as any price needs.
const MAX_NUMBER: usize = 64;

/// What a reply has reported so far. Counts are kept in the upstream's terms until they are asked for, since the events
/// of one reply may each hold a part of what settles a dialect's inclusions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    dialect: Option<Dialect>,
    counts: Counts,
    cost: Option<(Box<str>, &'static str)>,
}

/// Whether a JSON number is zero: no digit of its significand is anything else.
fn is_zero(number: &[u8]) -> bool {
    number
        .iter()
        .take_while(|byte| !matches!(byte, b'e' | b'E'))
        .all(|byte| !matches!(byte, b'1'..=b'9'))
}

impl Tally {
    /// Nothing reported yet. `dialect`: what is known of the upstream in advance.
    pub(crate) fn new(dialect: Option<Dialect>) -> Self {
        Tally {
            dialect,
            ..Tally::default()
        }
    }

    /// Takes in what the payload `text` reported.
    pub(crate) fn add(&mut self, report: &Report, text: &[u8]) {
        self.counts.merge(&report.counts);
        if let Some((range, field)) = &report.cost
            && let Some(number) = text.get(range.clone())
            && number.len() <= MAX_NUMBER
            && (self.cost.is_none() || !is_zero(number))
            && let Ok(number) = std::str::from_utf8(number)
            && self
                .cost
                .as_ref()
                .is_none_or(|(known, _)| **known != *number)
        {
            self.cost = Some((number.into(), field));
        }
    }

    /// Takes in a newer value of one count.
    pub(crate) fn set(&mut self, count: Count, value: u64) {
        self.counts.set(count, value);
    }

    /// The normal form of what was reported so far; None where nothing was.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let usage = settle(&self.counts, self.dialect);
        match &self.cost {
            None => usage,
            Some((cost, field)) => Some(Usage {
                upstream_cost: Some(cost.clone()),
                upstream_cost_field: Some(field),
                ..usage.unwrap_or_default()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::MOST_TOKENS;

    fn told(counts: &[(Count, u64)], dialect: Option<Dialect>) -> (Option<u64>, Option<u64>, bool) {
        let mut tally = Tally::new(dialect);
        for &(count, value) in counts {
            tally.set(count, value);
        }
        let usage = tally.usage().unwrap_or_default();
        (usage.input_tokens, usage.output_tokens, usage.implausible)
    }

    #[test]
    fn a_count_that_no_request_has_is_not_reported() {
        use Count::{Cached, Completion, Prompt, Thoughts, Total};
        let made_up = 1_000_000_000_000_000;
        assert_eq!(
            told(&[(Prompt, MOST_TOKENS), (Completion, 7)], None),
            (Some(MOST_TOKENS), Some(7), false)
        );
        assert_eq!(
            told(&[(Prompt, made_up), (Completion, 7)], None),
            (None, Some(7), true)
        );
        // Nor is what would be made of it.
        for dialect in [None, Some(Dialect::Gemini)] {
            let counts = [(Prompt, 14), (Completion, 7), (Total, made_up)];
            assert_eq!(told(&counts, dialect), (Some(14), Some(7), true));
        }
        assert_eq!(
            told(&[(Prompt, 14), (Cached, u64::MAX)], None),
            (Some(14), None, true)
        );
        let sum = [(Completion, MOST_TOKENS), (Thoughts, MOST_TOKENS)];
        assert_eq!(told(&sum, None), (None, None, true));
        // The last count holds, whatever came before it.
        let corrected = [(Prompt, made_up), (Prompt, 14)];
        assert_eq!(told(&corrected, None), (Some(14), None, false));
    }
}
