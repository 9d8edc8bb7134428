//! Ollama's own interface counts at the top of the payload, without a usage object.

use super::counts::Count;
use super::report::{Meaning, Within};
use super::settle::Rules;

pub(super) const RULES: Rules = super::openai::RULES;

pub(super) fn meaning(within: Within, key: &[u8]) -> Option<Meaning> {
    Some(match (within, key) {
        (Within::Payload, b"prompt_eval_count") => Meaning::Count(Count::Prompt),
        (Within::Payload, b"eval_count") => Meaning::Count(Count::Completion),
        _ => return None,
    })
}
