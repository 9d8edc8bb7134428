//! Cohere splits usage into the tokens of the model and those that are billed. The former are counted; the latter stand
//! in for them.

use super::counts::Count;
use super::report::{Meaning, Within};
use super::settle::Rules;

pub(super) const RULES: Rules = super::openai::RULES;

pub(super) fn meaning(within: Within, key: &[u8]) -> Option<Meaning> {
    use Within::{BilledUnits, Meta, Payload, Tokens, Usage};
    Some(match (within, key) {
        // Of embeddings and rankings.
        (Payload, b"meta") => Meaning::Object(Meta),
        (Meta, b"billed_units") => Meaning::Object(BilledUnits),
        (Meta, b"tokens") => Meaning::Object(Tokens),
        (Usage, b"tokens") => Meaning::Object(Tokens),
        (Usage, b"billed_units") => Meaning::Object(BilledUnits),
        (Tokens, b"input_tokens") => Meaning::Count(Count::Input),
        (Tokens, b"output_tokens") => Meaning::Count(Count::Output),
        (BilledUnits, b"input_tokens") => Meaning::Count(Count::BilledInput),
        (BilledUnits, b"output_tokens") => Meaning::Count(Count::BilledOutput),
        _ => return None,
    })
}
