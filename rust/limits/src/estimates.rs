//! How many tokens a request will use, learnt from those before it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Output tokens of a request to a model of which nothing is known.
const FIRST_OUTPUT: u64 = 1024;

/// The weight of the newest request in a moving average.
const WEIGHT: f64 = 0.05;

const MOST_MEANS: usize = 10_000;

/// Of whom averages are kept: a caller's requests to a model.
#[derive(Debug, Clone)]
pub struct Whose {
    own: Arc<(Box<str>, Box<str>)>,
    /// Of all callers.
    model: Arc<(Box<str>, Box<str>)>,
}

impl Whose {
    /// A caller without a name is all callers.
    #[must_use]
    pub fn new(caller: &str, model: &str) -> Self {
        Self {
            own: Arc::new((caller.into(), model.into())),
            model: Arc::new(("".into(), model.into())),
        }
    }
}

/// Moving averages: of input by model, and of output by caller and model.
#[derive(Debug, Default)]
pub struct Estimates {
    ratio: Means,
    output: Means,
}

impl Estimates {
    /// Input tokens, where four bytes a token would make `rough`.
    #[must_use]
    pub fn input(&self, whose: &Whose, rough: u64) -> u64 {
        #[allow(clippy::cast_precision_loss)] // Of an estimate.
        let tokens = rough as f64 * self.ratio.get(&whose.model).unwrap_or(1.0);
        whole(tokens)
    }

    /// Output tokens: twice what this caller's requests to the model have on average, or all callers', but never more
    /// than `bound`, the client's own.
    ///
    /// Clients ask for far more than they use: their own bound alone would keep most of a limit unused.
    #[must_use]
    pub fn output(&self, whose: &Whose, bound: Option<u64>) -> u64 {
        let mean = |whose| self.output.get(whose).filter(|&mean| mean != 0.0);
        let mean = mean(&whose.own).or_else(|| mean(&whose.model));
        let guess = mean.map_or(FIRST_OUTPUT, |mean| whole(2.0 * mean));
        bound.map_or(guess, |bound| guess.min(bound))
    }

    /// A request with this rough input has used so much; None: not known.
    #[allow(clippy::cast_precision_loss)] // Of an average.
    pub fn learn(&mut self, whose: &Whose, rough: u64, input: Option<u64>, output: Option<u64>) {
        if let Some(input) = input
            && rough > 0
        {
            let ratio = input as f64 / rough as f64;
            self.ratio.mix(&whose.model, ratio, Some(1.0));
        }
        if let Some(output) = output {
            self.output.mix(&whose.own, output as f64, None);
            self.output.mix(&whose.model, output as f64, None);
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // It saturates.
fn whole(tokens: f64) -> u64 {
    (tokens.round_ties_even() as u64).max(1)
}

#[derive(Debug)]
struct Mean {
    value: f64,
    /// When it last changed, counted in changes.
    changed: u64,
}

#[derive(Debug)]
struct Means<Key = Arc<(Box<str>, Box<str>)>> {
    found: HashMap<Key, Mean>,
    changes: u64,
}

impl<Key> Default for Means<Key> {
    fn default() -> Self {
        Self {
            found: HashMap::new(),
            changes: 0,
        }
    }
}

impl<Key: Hash + Eq + Clone> Means<Key> {
    fn get(&self, key: &Key) -> Option<f64> {
        self.found.get(key).map(|mean| mean.value)
    }

    fn mix(&mut self, key: &Key, sample: f64, first: Option<f64>) {
        self.changes += 1;
        let changed = self.changes;
        if let Some(mean) = self.found.get_mut(key) {
            mean.value += WEIGHT * (sample - mean.value);
            mean.changed = changed;
            return;
        }
        let value = first.map_or(sample, |first| first + WEIGHT * (sample - first));
        self.found.insert(key.clone(), Mean { value, changed });
        if self.found.len() > MOST_MEANS {
            self.forget();
        }
    }

    /// The tenth that has not changed for longest: one at a time would be looked for each time.
    fn forget(&mut self) {
        let mut changed: Vec<u64> = self.found.values().map(|mean| mean.changed).collect();
        let (_, &mut last, _) = changed.select_nth_unstable(MOST_MEANS / 10);
        self.found.retain(|_, mean| mean.changed > last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_learnt_from_what_the_caller_used() {
        let mut estimates = Estimates::default();
        let (a, b) = (Whose::new("a", "m"), Whose::new("b", "m"));
        assert_eq!(estimates.output(&a, None), 1024);
        assert_eq!(estimates.output(&a, Some(100)), 100);
        for _ in 0..50 {
            estimates.learn(&a, 100, Some(130), Some(40));
        }
        assert_eq!(estimates.output(&a, None), 80);
        assert_eq!(estimates.output(&b, None), 80);
        assert!((116..=130).contains(&estimates.input(&a, 100)));
        assert_eq!(estimates.input(&Whose::new("a", "other"), 100), 100);
        assert_eq!(estimates.input(&a, 0), 1);
    }

    #[test]
    fn the_means_that_have_not_changed_for_longest_are_forgotten() {
        let mut means = Means::<usize>::default();
        for key in 0..MOST_MEANS {
            means.mix(&key, 1.0, None);
        }
        means.mix(&0, 1.0, None);
        means.mix(&MOST_MEANS, 1.0, None);
        assert!(means.found.len() <= MOST_MEANS);
        assert!(means.found.len() > MOST_MEANS / 10 * 8);
        assert!(means.get(&0).is_some() && means.get(&MOST_MEANS).is_some());
        assert!(means.get(&1).is_none());
    }
}
