//! Finding what one payload reports about usage. Only the real places count: what a model wrote, in a string or deeper, is no usage.

use std::ops::Range;

use crate::json::cursor::Cursor;
use crate::json::scan::{Fault, Kind, Value};
use crate::json::string;

use super::counts::{Count, Counts};
use super::{
    anthropic, cohere, deepseek, gemini, groq, llama_cpp, mistral, ollama, openai, perplexity, xai,
};

/// An object in which counts are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Within {
    /// The payload itself.
    Payload,
    /// The usage object.
    Usage,
    /// `prompt_tokens_details` and its like.
    InputDetails,
    /// `completion_tokens_details` and its like.
    OutputDetails,
    /// `usage.cache_creation`
    CacheCreation,
    /// `usage.cost`
    Cost,
    /// `usage.tokens`
    Tokens,
    /// `usage.billed_units`
    BilledUnits,
    /// `x_groq`
    XGroq,
    /// `timings`
    Timings,
    /// `usageMetadata`
    UsageMetadata,
}

/// What a member means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Its value is a count.
    Count(Count),
    /// Its value is an object with more of them.
    Object(Within),
    /// Its value is what the upstream charges; the name says the unit.
    Cost(&'static str),
}

/// Every dialect's names are known everywhere: an aggregator passes on whatever its own upstream wrote.
fn meaning(within: Within, key: &[u8]) -> Option<Meaning> {
    openai::meaning(within, key)
        .or_else(|| anthropic::meaning(within, key))
        .or_else(|| groq::meaning(within, key))
        .or_else(|| ollama::meaning(within, key))
        .or_else(|| xai::meaning(within, key))
        .or_else(|| perplexity::meaning(within, key))
        .or_else(|| mistral::meaning(within, key))
        .or_else(|| deepseek::meaning(within, key))
        .or_else(|| llama_cpp::meaning(within, key))
        .or_else(|| gemini::meaning(within, key))
        .or_else(|| cohere::meaning(within, key))
}

/// What one payload reports. Positions are in that payload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// The numbers.
    pub(crate) counts: Counts,
    /// The usage object itself; where there are several, the one at the usual place.
    pub(crate) object: Option<Value>,
    /// The number that the upstream charges, and the name that says its unit.
    pub(crate) cost: Option<(Range<usize>, &'static str)>,
}

impl Report {
    /// Whether nothing was reported.
    pub(crate) fn is_empty(&self) -> bool {
        self.cost.is_none() && self.counts.is_empty()
    }

    /// Passes over the cursor's next value and, where it is an object, takes in what it counts.
    ///
    /// Numbers that are no unsigned 64-bit integers, and other values where a number should be, count nothing.
    pub(crate) fn read(
        &mut self,
        cursor: &mut Cursor<'_>,
        text: &[u8],
        within: Within,
    ) -> Result<Value, Fault> {
        cursor.members(|cursor, key| self.read_member(cursor, text, within, key))
    }

    /// Passes over a member's value and takes in what it counts, if its name means anything within `within`.
    pub(crate) fn read_member(
        &mut self,
        cursor: &mut Cursor<'_>,
        text: &[u8],
        within: Within,
        key: Value,
    ) -> Result<(), Fault> {
        let raw = key.content(text);
        let meaning = if memchr::memchr(b'\\', raw).is_some() {
            meaning(within, string::decode(raw).as_bytes())
        } else {
            meaning(within, raw)
        };
        match meaning {
            Some(Meaning::Count(count)) => {
                if let Some(value) = cursor.skip()?.as_u64(text) {
                    self.counts.set(count, value);
                }
            }
            Some(Meaning::Cost(name)) => {
                // Perplexity's is an object that holds it.
                let value = self.read(cursor, text, Within::Cost)?;
                if value.kind == Kind::Number {
                    self.cost = Some((value.range(), name));
                }
            }
            // A call for each level that has a name of its own: at most four deep, whatever the text holds.
            Some(Meaning::Object(inner)) => {
                let value = self.read(cursor, text, inner)?;
                let usual = within == Within::Payload || self.object.is_none();
                if inner == Within::Usage && value.kind == Kind::Object && usual {
                    self.object = Some(value);
                }
            }
            None => {
                cursor.skip()?;
            }
        }
        Ok(())
    }
}
