//! A log-linear histogram of durations: constant memory however many samples, and an error below 0.4 %.

use std::time::Duration;

use serde::Serialize;

const SUB_BITS: u32 = 8;
const SUB_BUCKETS: usize = 1 << SUB_BITS;
/// 2^40 ns is 18 minutes: longer than any run.
const MAGNITUDES: usize = 33;

/// Counts of durations in nanoseconds.
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    largest: u64,
}

/// What is reported of a histogram, in milliseconds.
#[derive(Serialize)]
pub(crate) struct Summary {
    count: u64,
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            counts: vec![0; SUB_BUCKETS * MAGNITUDES],
            total: 0,
            largest: 0,
        }
    }

    pub(crate) fn record(&mut self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let last = self.counts.len() - 1;
        self.counts[index(nanoseconds).min(last)] += 1;
        self.total += 1;
        self.largest = self.largest.max(nanoseconds);
    }

    /// The smallest recorded bucket at or below which a share `quantile` of the samples lies, in nanoseconds.
    fn quantile(&self, quantile: f64) -> u64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss
        )]
        let rank = ((self.total as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        for (position, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle(position).min(self.largest);
            }
        }
        self.largest
    }

    /// None where nothing was recorded.
    pub(crate) fn summary(&self) -> Option<Summary> {
        #[expect(clippy::cast_precision_loss)]
        let milliseconds = |nanoseconds: u64| nanoseconds as f64 / 1e6;
        (self.total > 0).then(|| Summary {
            count: self.total,
            p50: milliseconds(self.quantile(0.50)),
            p90: milliseconds(self.quantile(0.90)),
            p99: milliseconds(self.quantile(0.99)),
            max: milliseconds(self.largest),
        })
    }
}

fn index(nanoseconds: u64) -> usize {
    let magnitude = (64 - nanoseconds.leading_zeros()).saturating_sub(SUB_BITS) as usize;
    magnitude * SUB_BUCKETS + (nanoseconds >> magnitude) as usize
}

fn middle(index: usize) -> u64 {
    let magnitude = index / SUB_BUCKETS;
    let low = ((index % SUB_BUCKETS) as u64) << magnitude;
    low + (1u64 << magnitude) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_known_distribution_are_within_the_stated_error() {
        let mut histogram = Histogram::new();
        for microseconds in 1..=100_000 {
            histogram.record(Duration::from_micros(microseconds));
        }
        for (quantile, expected) in [(0.5, 50_000_000u64), (0.99, 99_000_000), (1.0, 100_000_000)] {
            let error = histogram.quantile(quantile).abs_diff(expected);
            assert!(
                error * 250 <= expected,
                "{quantile}: off by {error} ns of {expected}"
            );
        }
    }

    #[test]
    fn nothing_recorded_has_no_summary() {
        assert!(Histogram::new().summary().is_none());
    }

    #[test]
    fn every_duration_has_a_bucket_and_buckets_do_not_decrease() {
        let mut previous = 0;
        for exponent in 0..40 {
            for nanoseconds in [1u64 << exponent, (1 << exponent) + (1 << exponent) / 3] {
                let position = index(nanoseconds);
                assert!(position >= previous && position < SUB_BUCKETS * MAGNITUDES);
                assert!(middle(position).abs_diff(nanoseconds) * 250 <= nanoseconds.max(250));
                previous = position;
            }
        }
        Histogram::new().record(Duration::from_secs(1 << 40));
    }
}
