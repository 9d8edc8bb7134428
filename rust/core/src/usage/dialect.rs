//! The dialects: a row each.

use std::str::FromStr;

use super::report::{Meaning, Within};
use super::settle::Rules;

/// Makes what has to know all dialects. A row is the name here, the name in configurations, and the module with its
/// `RULES` and its `meaning`.
macro_rules! dialects {
    ($($(#[$doc:meta])+ $name:ident, $text:literal, $module:ident;)+) => {
        /// Whose way of reporting usage an upstream follows, where that has to be known in advance.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Dialect {
            $($(#[$doc])+ $name,)+
        }

        impl Dialect {
            /// Every dialect, in the order of declaration.
            pub const ALL: &[Dialect] = &[$(Dialect::$name),+];

            /// The name used in configuration.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Dialect::$name => $text,)+
                }
            }

            pub(super) fn rules(self) -> Rules {
                match self {
                    $(Dialect::$name => super::$module::RULES,)+
                }
            }
        }

        /// What a member means. Every dialect's names are known everywhere: an aggregator passes on whatever its own
        /// upstream wrote.
        pub(super) fn meaning(within: Within, key: &[u8]) -> Option<Meaning> {
            None$(.or_else(|| super::$module::meaning(within, key)))+
        }
    };
}

dialects! {
    /// OpenAI and those who report like it (vLLM, SGLang, TGI, Together, Fireworks …).
    OpenAi, "openai", openai;
    /// Anthropic: cache reads and writes come in addition to the input.
    Anthropic, "anthropic", anthropic;
    /// Groq: the same numbers in `x_groq.usage`.
    Groq, "groq", groq;
    /// Ollama's own counts: `prompt_eval_count`, `eval_count`.
    Ollama, "ollama", ollama;
    /// xAI: reasoning comes in addition to `completion_tokens`.
    Xai, "xai", xai;
    /// Perplexity: reasoning comes in addition to `completion_tokens`; running totals.
    Perplexity, "perplexity", perplexity;
    /// Mistral: `num_cached_tokens`.
    Mistral, "mistral", mistral;
    /// DeepSeek: `prompt_cache_hit_tokens`.
    DeepSeek, "deepseek", deepseek;
    /// llama.cpp: `timings.cache_n`.
    LlamaCpp, "llama.cpp", llama_cpp;
    /// Gemini: thoughts come in addition to the candidates.
    Gemini, "gemini", gemini;
    /// Cohere: `tokens` and `billed_units`.
    Cohere, "cohere", cohere;
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
