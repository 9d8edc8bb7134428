//! Anthropic's names. What was read from and written to the cache comes in addition to `input_tokens`; thinking is a
//! part of the output.
//!
//! Counts are cumulative over a stream's events and may come in parts: `message_start` has the input, `message_delta`
//! the output, and some hosts report the cache only there (`envoyproxy/ai-gateway#2292`).
//!
//! A reply for which the model ran several times (compaction, advisors) has `iterations`. The counts beside them are
//! those of the last run alone, and billed is the sum of the runs of type `compaction` and `message`
//! (<https://platform.claude.com/docs/en/build-with-claude/compaction>). With a run of type `fallback_message` the
//! counts beside them are the whole answer's; an `advisor_message` is another model's, at other prices.

use super::counts::Count;
use super::report::{Meaning, Within};
use super::settle::{Inclusion, Rules};

pub(super) const RULES: Rules = Rules {
    cache: Inclusion::Beside,
    reasoning: Inclusion::Inside,
    unexplained_total_is_reasoning: false,
};

pub(super) fn meaning(within: Within, key: &[u8]) -> Option<Meaning> {
    use Count::{CacheCreation1h, CacheCreation5m, CacheRead, Reasoning};
    Some(match (within, key) {
        (Within::Usage, b"cache_read_input_tokens") => Meaning::Count(CacheRead),
        (Within::Usage, b"cache_creation_input_tokens") => Meaning::Count(Count::CacheCreation),
        (Within::Usage, b"cache_creation") => Meaning::Object(Within::CacheCreation),
        (Within::Usage, b"iterations") => Meaning::Runs,
        (Within::CacheCreation, b"ephemeral_5m_input_tokens") => Meaning::Count(CacheCreation5m),
        (Within::CacheCreation, b"ephemeral_1h_input_tokens") => Meaning::Count(CacheCreation1h),
        (Within::OutputDetails, b"thinking_tokens") => Meaning::Count(Reasoning),
        _ => return None,
    })
}
