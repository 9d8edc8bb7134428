//! Perplexity reports a running total in every chunk, its own charge as an object, and reasoning outside both
//! `completion_tokens` and `total_tokens` (`agno-agi/agno#6058`; the numbers of sonar-deep-research).

use super::report::{Meaning, Within};
use super::settle::{Inclusion, Rules};

pub(super) const RULES: Rules = Rules {
    cache: Inclusion::Inside,
    reasoning: Inclusion::Beside,
    unexplained_total_is_reasoning: false,
};

pub(super) fn meaning(within: Within, key: &[u8]) -> Option<Meaning> {
    match (within, key) {
        (Within::Cost, b"total_cost") => Some(Meaning::Cost("cost.total_cost")),
        _ => None,
    }
}
