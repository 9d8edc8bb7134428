//! xAI leaves reasoning out of `completion_tokens` but not out of `total_tokens`: 12 prompt, 1 completion, 290
//! reasoning, 303 in all. Its Responses interface counts reasoning inside `output_tokens`; the total tells the two
//! apart.

use super::report::{Meaning, Within};
use super::settle::{Inclusion, Rules};

pub(super) const RULES: Rules = Rules {
    cache: Inclusion::Inside,
    reasoning: Inclusion::BesideUnlessTotalSaysInside,
    unexplained_total_is_reasoning: false,
};

pub(super) fn meaning(within: Within, key: &[u8]) -> Option<Meaning> {
    match (within, key) {
        (Within::Usage, b"cost_in_usd_ticks") => Some(Meaning::Cost("cost_in_usd_ticks")),
        _ => None,
    }
}
