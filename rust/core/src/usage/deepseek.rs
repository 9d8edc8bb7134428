//! DeepSeek splits the prompt into cache hits and misses; together they are `prompt_tokens`.

use super::counts::Count;
use super::report::{Meaning, Within};
use super::settle::Rules;

pub(super) const RULES: Rules = super::openai::RULES;

pub(super) fn meaning(within: Within, key: &[u8]) -> Option<Meaning> {
    match (within, key) {
        (Within::Usage, b"prompt_cache_hit_tokens") => Some(Meaning::Count(Count::Cached)),
        _ => None,
    }
}
