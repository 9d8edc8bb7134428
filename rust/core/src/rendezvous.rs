//! Weighted rendezvous hashing: for each key an order of places in which each comes first as often as its weight says.
//!
//! There is no state, so all machines agree, and a place that is lost moves only the keys that it had. The score is
//! that of "Weighted Distributed Hash Tables" (Schindelhauer and Schomaker, 2005): `-weight / ln(u)` for a hash `u` of
//! key and name between 0 and 1.

use xxhash_rust::xxh3::xxh3_64;

/// Places with their weights.
#[derive(Debug, Clone, Default)]
pub struct Rendezvous {
    places: Vec<(u64, f64)>,
}

impl Rendezvous {
    /// The places with these names, which must differ, and weights above 0.
    pub fn new<'a>(places: impl IntoIterator<Item = (&'a str, f64)>) -> Self {
        let places = places.into_iter();
        Self {
            places: places
                .map(|(name, weight)| (xxh3_64(name.as_bytes()), weight))
                .collect(),
        }
    }

    /// The positions of the first `most` places for `key`.
    #[must_use]
    pub fn ranked(&self, key: u64, most: usize) -> Vec<usize> {
        let places = self.places.iter().enumerate();
        let mut scores: Vec<(f64, usize)> = places
            .map(|(position, &(name, weight))| (-weight / unit(mixed(name ^ key)).ln(), position))
            .collect();
        let most = most.min(scores.len());
        let descending =
            |a: &(f64, usize), b: &(f64, usize)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if most < scores.len() && most > 0 {
            scores.select_nth_unstable_by(most - 1, descending);
        }
        scores.truncate(most);
        scores.sort_unstable_by(descending);
        scores.into_iter().map(|(_, position)| position).collect()
    }
}

/// Every bit depends on every bit of `value` (the finalizer of SplitMix64).
fn mixed(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// Between 0 and 1, both excluded.
#[allow(clippy::cast_precision_loss)] // 53 bits fit.
fn unit(value: u64) -> f64 {
    ((value >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 20_000;

    fn of(names: &[&str]) -> Rendezvous {
        Rendezvous::new(names.iter().map(|name| (*name, 1.0)))
    }

    #[test]
    fn a_lost_place_moves_only_its_own_keys() {
        let (all, left) = (of(&["a", "b", "c", "d"]), of(&["a", "b", "d"]));
        let names = ["a", "b", "d"];
        for key in (0..KEYS).map(mixed) {
            let order = all.ranked(key, 4);
            let named = |position: usize| ["a", "b", "c", "d"][position];
            let kept: Vec<_> = order
                .iter()
                .map(|&place| named(place))
                .filter(|name| *name != "c")
                .collect();
            let now: Vec<_> = left
                .ranked(key, 3)
                .iter()
                .map(|&place| names[place])
                .collect();
            assert_eq!(now, kept, "the order of the others stays as it is");
        }
    }

    #[test]
    fn each_comes_first_as_often_as_its_weight_says() {
        let weights = [1.0, 2.0, 5.0];
        let places = Rendezvous::new(["a", "b", "c"].into_iter().zip(weights));
        let mut firsts = [0u32; 3];
        for key in (0..KEYS).map(mixed) {
            firsts[places.ranked(key, 1)[0]] += 1;
        }
        for (count, weight) in firsts.iter().zip(weights) {
            let expected = f64::from(u32::try_from(KEYS).unwrap()) * weight / 8.0;
            assert!(
                (f64::from(*count) - expected).abs() < 4.0 * expected.sqrt(),
                "{firsts:?}"
            );
        }
    }

    #[test]
    fn the_first_ones_are_the_beginning_of_the_whole_order() {
        let names: Vec<String> = (0..50).map(|number| format!("server-{number}")).collect();
        let places = Rendezvous::new(names.iter().map(|name| (&**name, 1.0)));
        for key in 0..100 {
            let whole = places.ranked(key, 100);
            assert_eq!(whole.len(), 50);
            for most in [0, 1, 3, 49, 50] {
                assert_eq!(places.ranked(key, most), whole[..most]);
            }
        }
        assert!(Rendezvous::default().ranked(1, 3).is_empty());
    }

    #[test]
    fn all_machines_agree() {
        let places = of(&["gpu-a/llama", "gpu-b/llama", "gpu-c/llama"]);
        let firsts: Vec<usize> = (0..12).map(|key| places.ranked(key, 1)[0]).collect();
        assert_eq!(firsts, FIRSTS);
    }

    const FIRSTS: [usize; 12] = [1, 0, 1, 1, 1, 1, 0, 2, 0, 2, 2, 0];
}
