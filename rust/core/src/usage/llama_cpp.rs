//! llama.cpp adds `timings` to its last chunk: `prompt_n` leaves out what `cache_n` found in the cache, while
//! `usage.prompt_tokens` includes it. Where no usage was asked for, the timings are all there is.

use super::counts::Count;
use super::report::{Meaning, Within};
use super::settle::Rules;

pub(super) const RULES: Rules = super::openai::RULES;

pub(super) fn meaning(within: Within, key: &[u8]) -> Option<Meaning> {
    Some(match (within, key) {
        (Within::Payload, b"timings") => Meaning::Object(Within::Timings),
        (Within::Timings, b"prompt_n") => Meaning::Count(Count::Evaluated),
        (Within::Timings, b"cache_n") => Meaning::Count(Count::Reused),
        (Within::Timings, b"predicted_n") => Meaning::Count(Count::Predicted),
        _ => return None,
    })
}
