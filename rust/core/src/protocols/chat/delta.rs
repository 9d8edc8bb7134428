//! What the members of a chat delta hold, by their names: one table for everything that reads deltas.
//!
//! A delta's `message` is of the same form, where a completion comes whole.

/// Names of reasoning as one string, in the order in which they are preferred: upstreams that send several say the same
/// in each (vllm RFC#27755). `tool_plan` is Cohere's: what the model thinks about the tools that it is about to call.
pub(crate) const REASONING: [&str; 5] = [
    "reasoning_content",
    "reasoning",
    "thinking",
    "reasoning_text",
    "tool_plan",
];

/// What a member of a delta holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeltaMember {
    /// Text of the answer, a string or typed parts.
    Content,
    /// Reasoning as one string; its place in [`REASONING`].
    Reasoning(usize),
    /// Reasoning as typed parts (OpenRouter's `reasoning_details`, `LiteLLM`'s `thinking_blocks`).
    ReasoningParts,
    /// Text of a refusal.
    Refusal,
    /// Images or audio.
    Media,
    /// Tool calls.
    Calls,
    /// The one call of the interface before tool calls.
    FunctionCall,
}

impl DeltaMember {
    /// What the member `name` holds; None for one that is no output.
    #[inline]
    pub(crate) fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"content" => DeltaMember::Content,
            b"refusal" => DeltaMember::Refusal,
            b"tool_calls" => DeltaMember::Calls,
            b"function_call" => DeltaMember::FunctionCall,
            b"reasoning_details" | b"thinking_blocks" => DeltaMember::ReasoningParts,
            b"images" | b"audio" => DeltaMember::Media,
            _ => {
                let place = REASONING.iter().position(|known| known.as_bytes() == name);
                return place.map(DeltaMember::Reasoning);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_of_reasoning_has_its_place() {
        for (place, name) in REASONING.iter().enumerate() {
            assert_eq!(
                DeltaMember::of(name.as_bytes()),
                Some(DeltaMember::Reasoning(place))
            );
        }
        assert_eq!(DeltaMember::of(b"role"), None);
    }
}
