//! Groq repeats OpenAI's usage object in `x_groq` on the chunk with the finish reason, asked or not
//! (`Portkey-AI/gateway#1338`).

use super::report::{Meaning, Within};
use super::settle::Rules;

pub(super) const RULES: Rules = super::openai::RULES;

pub(super) fn meaning(within: Within, key: &[u8]) -> Option<Meaning> {
    Some(match (within, key) {
        (Within::Payload, b"x_groq") => Meaning::Object(Within::XGroq),
        (Within::XGroq, b"usage") => Meaning::Object(Within::Usage),
        _ => return None,
    })
}
