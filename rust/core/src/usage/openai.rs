//! OpenAI's names, which most others share: `prompt_tokens` and `completion_tokens` in chat and completions,
//! `input_tokens` and `output_tokens` in Responses. Cached tokens are a part of the input, reasoning is a part of the
//! output.

use super::counts::Count;
use super::report::{Meaning, Within};
use super::settle::{Inclusion, Rules};

pub(super) const RULES: Rules = Rules {
    cache: Inclusion::Inside,
    reasoning: Inclusion::Inside,
    unexplained_total_is_reasoning: false,
};

pub(super) fn meaning(within: Within, key: &[u8]) -> Option<Meaning> {
    use Count::*;
    use Within::{InputDetails, OutputDetails, Payload, Usage};
    Some(match (within, key) {
        (Usage, b"prompt_tokens") => Meaning::Count(Prompt),
        (Usage, b"completion_tokens") => Meaning::Count(Completion),
        (Usage, b"total_tokens") => Meaning::Count(Total),
        (Usage, b"input_tokens") => Meaning::Count(Input),
        (Usage, b"output_tokens") => Meaning::Count(Output),
        // SGLang and Azure AI Foundry put it flat.
        (Usage, b"reasoning_tokens") => Meaning::Count(Reasoning),
        // Moonshot puts it flat.
        (Usage, b"cached_tokens") => Meaning::Count(Cached),
        // Transcriptions have the third.
        (Usage, b"prompt_tokens_details" | b"input_tokens_details" | b"input_token_details") => {
            Meaning::Object(InputDetails)
        }
        (Usage, b"completion_tokens_details" | b"output_tokens_details") => {
            Meaning::Object(OutputDetails)
        }
        (InputDetails, b"cached_tokens") => Meaning::Count(Cached),
        (InputDetails, b"cache_write_tokens") => Meaning::Count(CacheWrite),
        (InputDetails, b"audio_tokens") => Meaning::Count(InputAudio),
        (InputDetails, b"image_tokens") => Meaning::Count(InputImage),
        (OutputDetails, b"reasoning_tokens") => Meaning::Count(Reasoning),
        (OutputDetails, b"audio_tokens") => Meaning::Count(OutputAudio),
        (OutputDetails, b"image_tokens") => Meaning::Count(OutputImage),
        // OpenRouter, in US dollars.
        (Usage, b"cost") => Meaning::Cost("cost"),
        // DeepInfra, in US dollars.
        (Usage, b"estimated_cost") => Meaning::Cost("estimated_cost"),
        (Payload, b"usage") => Meaning::Object(Usage),
        _ => return None,
    })
}
