//! Mistral's other names for tokens read from the cache.

use super::counts::Count;
use super::report::{Meaning, Within};
use super::settle::Rules;

pub(super) const RULES: Rules = super::openai::RULES;

pub(super) fn meaning(within: Within, key: &[u8]) -> Option<Meaning> {
    Some(match (within, key) {
        (Within::Usage, b"num_cached_tokens") => Meaning::Count(Count::Cached),
        (Within::Usage, b"prompt_token_details") => Meaning::Object(Within::InputDetails),
        _ => return None,
    })
}
