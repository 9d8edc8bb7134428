//! Token usage in one normal form, whatever dialect the upstream speaks.

mod anthropic;
mod cohere;
mod counts;
mod deepseek;
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

use std::str::FromStr;

pub(crate) use counts::Count;
pub(crate) use report::{Report, Within, counted};
pub(crate) use tally::Tally;

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
    /// The member that held it (`cost`, `cost_in_usd_ticks`, …), which says its unit.
    pub upstream_cost_field: Option<&'static str>,
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

/// Whose way of reporting usage an upstream follows, where that has to be known in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI and those who report like it (vLLM, SGLang, TGI, Together, Fireworks …).
    OpenAi,
    /// Anthropic: cache reads and writes come in addition to the input.
    Anthropic,
    /// Groq: the same numbers in `x_groq.usage`.
    Groq,
    /// Ollama's own counts: `prompt_eval_count`, `eval_count`.
    Ollama,
    /// xAI: reasoning comes in addition to `completion_tokens`.
    Xai,
    /// Perplexity: reasoning comes in addition to `completion_tokens`; running totals.
    Perplexity,
    /// Mistral: `num_cached_tokens`.
    Mistral,
    /// DeepSeek: `prompt_cache_hit_tokens`.
    DeepSeek,
    /// llama.cpp: `timings.cache_n`.
    LlamaCpp,
    /// Gemini: thoughts come in addition to the candidates.
    Gemini,
    /// Cohere: `tokens` and `billed_units`.
    Cohere,
}

impl Dialect {
    /// Every dialect, in the order of declaration.
    pub const ALL: &[Dialect] = &[
        Dialect::OpenAi,
        Dialect::Anthropic,
        Dialect::Groq,
        Dialect::Ollama,
        Dialect::Xai,
        Dialect::Perplexity,
        Dialect::Mistral,
        Dialect::DeepSeek,
        Dialect::LlamaCpp,
        Dialect::Gemini,
        Dialect::Cohere,
    ];

    /// The name used in configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Dialect::OpenAi => "openai",
            Dialect::Anthropic => "anthropic",
            Dialect::Groq => "groq",
            Dialect::Ollama => "ollama",
            Dialect::Xai => "xai",
            Dialect::Perplexity => "perplexity",
            Dialect::Mistral => "mistral",
            Dialect::DeepSeek => "deepseek",
            Dialect::LlamaCpp => "llama.cpp",
            Dialect::Gemini => "gemini",
            Dialect::Cohere => "cohere",
        }
    }
}

impl std::fmt::Display for Dialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is no dialect's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDialect;

impl std::fmt::Display for UnknownDialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("unknown dialect; known are")?;
        for (i, dialect) in Dialect::ALL.iter().enumerate() {
            write!(f, "{} {dialect}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownDialect {}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(name: &str) -> Result<Self, UnknownDialect> {
        Dialect::ALL
            .iter()
            .copied()
            .find(|dialect| dialect.as_str() == name)
            .ok_or(UnknownDialect)
    }
}
