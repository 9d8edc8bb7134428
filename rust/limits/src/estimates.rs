//! How many tokens a request will use, learnt from those before it.
//!
//! Each caller's are learnt by themselves: what an upstream makes up about one caller's requests is no other's matter.
//! What is learnt is clamped to what can be, and goes back where it alone refuses a request: no caller is locked out of
//! a model by what was said about it once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Output tokens of a request to a model of which nothing is known.
const FIRST_OUTPUT: u64 = 1024;

/// The most output that is learnt from: what models are offered with (GPT-5, Claude) is no more.
const MOST_OUTPUT: u64 = 131_072;

/// Of input tokens to a quarter of its bytes: no tokenizer makes more tokens of a text than it has bytes.
const MOST_RATIO: f64 = 4.0;
const LEAST_RATIO: f64 = 0.25;

/// The weight of the newest request in a moving average.
const WEIGHT: f64 = 0.05;

/// How far a refusal that is an estimate's fault takes it back to what it was at first: a few of them undo all.
const HEALING: f64 = 0.5;

const MOST_MEANS: usize = 10_000;

/// Of whom averages are kept: a caller's requests to a model.
#[derive(Debug, Clone)]
pub struct Whose(Arc<(Box<str>, Box<str>)>);

impl Whose {
    /// A caller without a name is everybody who needs no key.
    #[must_use]
    pub fn new(caller: &str, model: &str) -> Self {
        Self(Arc::new((caller.into(), model.into())))
    }
}

/// Moving averages of input and output, by caller and model.
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
        let tokens = rough as f64 * self.ratio.get(&whose.0).unwrap_or(1.0);
        whole(tokens)
    }

    /// Output tokens: twice what this caller's requests to the model have on average, but never more than `bound`, the
    /// client's own.
    ///
    /// Clients ask for far more than they use: their own bound alone would keep most of a limit unused.
    #[must_use]
    pub fn output(&self, whose: &Whose, bound: Option<u64>) -> u64 {
        let mean = self.output.get(&whose.0).filter(|&mean| mean != 0.0);
        let guess = mean.map_or(FIRST_OUTPUT, |mean| whole(2.0 * mean));
        bound.map_or(guess, |bound| guess.min(bound))
    }

    /// The same two, of a caller of whom nothing is known.
    #[must_use]
    pub fn unlearnt(rough: u64, bound: Option<u64>) -> (u64, u64) {
        let output = bound.map_or(FIRST_OUTPUT, |bound| FIRST_OUTPUT.min(bound));
        (rough.max(1), output)
    }

    /// A request with this rough input has used so much; None: not known.
    #[allow(clippy::cast_precision_loss)] // Of an average.
    pub fn learn(&mut self, whose: &Whose, rough: u64, input: Option<u64>, output: Option<u64>) {
        if let Some(input) = input
            && rough > 0
        {
            let ratio = (input as f64 / rough as f64).clamp(LEAST_RATIO, MOST_RATIO);
            self.ratio.mix(&whose.0, ratio, Some(1.0));
        }
        if let Some(output) = output {
            let output = output.min(MOST_OUTPUT) as f64;
            self.output.mix(&whose.0, output, None);
        }
    }

    /// A request was refused that would have been let in if nothing were known of its caller: what is known goes back
    /// towards that, and never below.
    #[allow(clippy::cast_precision_loss)] // Of an average.
    pub fn heal(&mut self, whose: &Whose) {
        self.ratio.lower(&whose.0, 1.0);
        self.output.lower(&whose.0, FIRST_OUTPUT as f64 / 2.0);
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

    /// Where it is above `floor`, half of that goes.
    fn lower(&mut self, key: &Key, floor: f64) {
        if let Some(mean) = self.found.get_mut(key)
            && mean.value > floor
        {
            mean.value += HEALING * (floor - mean.value);
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
        assert!((116..=130).contains(&estimates.input(&a, 100)));
        assert_eq!(
            (estimates.input(&b, 100), estimates.output(&b, None)),
            (100, 1024),
            "what one caller uses says nothing of another"
        );
        assert_eq!(estimates.input(&Whose::new("a", "other"), 100), 100);
        assert_eq!(estimates.input(&a, 0), 1);
    }

    #[test]
    fn what_an_upstream_makes_up_is_clamped_and_heals() {
        let mut estimates = Estimates::default();
        let a = Whose::new("a", "m");
        for _ in 0..1000 {
            estimates.learn(&a, 100, Some(100_000_000), Some(100_000_000));
        }
        assert_eq!(estimates.input(&a, 100), 400);
        assert_eq!(estimates.output(&a, None), 2 * MOST_OUTPUT);
        for _ in 0..20 {
            estimates.heal(&a);
        }
        assert_eq!(estimates.input(&a, 100), 100);
        assert_eq!(estimates.output(&a, None), FIRST_OUTPUT);
        for _ in 0..1000 {
            estimates.learn(&a, 100, Some(50), Some(3));
        }
        estimates.heal(&a);
        let learnt = (estimates.input(&a, 100), estimates.output(&a, None));
        assert_eq!(learnt, (50, 6), "nothing is above what it was at first");
        for _ in 0..1000 {
            estimates.learn(&a, 100_000, Some(0), None);
        }
        assert_eq!(estimates.input(&a, 100), 25);
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
