//! Gemini. Its own interface counts thoughts beside the candidates, and what its tools have brought into the prompt
//! beside the prompt: the total is the sum of all four. Its OpenAI-like one leaves thoughts out of `completion_tokens`
//! and names them nowhere, so that only `total_tokens` shows them.

use super::counts::Count;
use super::report::{Meaning, Within};
use super::settle::{Inclusion, Rules};

pub(super) const RULES: Rules = Rules {
    cache: Inclusion::Inside,
    reasoning: Inclusion::BesideUnlessTotalSaysInside,
    unexplained_total_is_reasoning: true,
};

pub(super) fn meaning(within: Within, key: &[u8]) -> Option<Meaning> {
    use Within::UsageMetadata;
    Some(match (within, key) {
        (Within::Payload, b"usageMetadata") => Meaning::Object(UsageMetadata),
        (UsageMetadata, b"promptTokenCount") => Meaning::Count(Count::Prompt),
        (UsageMetadata, b"toolUsePromptTokenCount") => Meaning::Count(Count::ToolPrompt),
        (UsageMetadata, b"candidatesTokenCount") => Meaning::Count(Count::Completion),
        (UsageMetadata, b"thoughtsTokenCount") => Meaning::Count(Count::Thoughts),
        (UsageMetadata, b"cachedContentTokenCount") => Meaning::Count(Count::Cached),
        (UsageMetadata, b"totalTokenCount") => Meaning::Count(Count::Total),
        _ => return None,
    })
}
