//! Token usage in one normal form, whatever dialect the upstream speaks.

mod anthropic;
mod cohere;
mod counts;
mod deepseek;
mod dialect;
mod gemini;
mod groq;
mod llama_cpp;
mod mistral;
mod ollama;
mod openai;
mod perplexity;
mod report;
mod settle;
mod tally;
mod values;
mod xai;

pub(crate) use counts::Count;
pub use dialect::{Dialect, UnknownDialect};
pub(crate) use report::{Report, Within, counted};
pub(crate) use tally::Tally;

/// The most tokens of one kind that a reply is believed to have, 100 million.
///
/// The largest context that a model is served with has 10 million (Llama 4 Scout), and no tokenizer makes more tokens
/// of a text than it has bytes, of which a request has at most [`MAX_DOCUMENT`](crate::limits::MAX_DOCUMENT). What is
/// above is made up, and taken for not reported: it is priced, charged and learnt from nowhere.
pub const MOST_TOKENS: u64 = 100_000_000;

/// Token counts of one reply. Input includes what was read from and written to the cache, output includes reasoning.
/// `None` is "not reported", which is not zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub input_tokens: Option<u64>,
    /// The part of the input that was read from a cache.
    pub cached_input_tokens: Option<u64>,
    /// The part of the input that was written to a cache.
    pub cache_write_tokens: Option<u64>,
    /// The part of `cache_write_tokens` that is kept for an hour.
    pub cache_write_1h_tokens: Option<u64>,
    /// Tokens of the answer, reasoning included.
    pub output_tokens: Option<u64>,
    /// The part of the output that is reasoning.
    pub reasoning_tokens: Option<u64>,
    /// The part of the input that is audio.
    pub input_audio_tokens: Option<u64>,
    /// The part of the output that is audio.
    pub output_audio_tokens: Option<u64>,
    /// The part of the input that is images.
    pub input_image_tokens: Option<u64>,
    /// The part of the output that is images.
    pub output_image_tokens: Option<u64>,
    /// The cost that the upstream itself reported, digit for digit as it wrote the number.
    pub upstream_cost: Option<Box<str>>,
    /// The member that held it (`cost`, `cost_in_usd_ticks`, …), which gives its unit.
    pub upstream_cost_field: Option<&'static str>,
    /// Some count was above [`MOST_TOKENS`]: it is None here.
    pub implausible: bool,
}

impl Usage {
    /// Input and output together; `None` where neither was reported.
    #[must_use]
    pub fn total_tokens(&self) -> Option<u64> {
        match (self.input_tokens, self.output_tokens) {
            (None, None) => None,
            (input, output) => Some(input.unwrap_or(0).saturating_add(output.unwrap_or(0))),
        }
    }
}
