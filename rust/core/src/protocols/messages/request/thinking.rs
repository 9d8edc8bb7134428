//! How much a model is to think, in the words of Messages.
//!
//! | the client's effort | adaptive | as a budget |
//! | --- | --- | --- |
//! | none | `thinking: disabled` | the same |
//! | minimal, low | effort `low` | 2,048 tokens |
//! | medium | the same | 8,192 |
//! | high and above | the same | 24,576 |
//!
//! A budget is below the client's bound on output tokens, and added to the target's own. It is left out where it does
//! not fit, where a tool is forced, and in the middle of a loop of calls whose thinking is not there: the API refuses
//! all three.

use super::target::{MessagesTarget, ThinkingForm};
use crate::api::Api;
use crate::input::left_out::LeftOut;
use crate::input::settings::Setting;
use crate::input::{Conversation, Shown, Thinking};

/// The least budget that the API takes.
const LEAST_BUDGET: u64 = 1024;

/// What an upstream is told.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// `thinking`, JSON.
    pub(super) thinking: Option<Vec<u8>>,
    /// `output_config.effort`, JSON.
    pub(super) effort: Option<Vec<u8>>,
    /// `max_tokens`, where it is not what the client or the target says.
    pub(super) max_tokens: Option<u64>,
    /// Whether the model thinks.
    pub(super) is_on: bool,
}

/// What an upstream is told of `conversation`'s reasoning. `is_in_the_way`: a budget can't be given.
pub(super) fn plan(
    conversation: &Conversation<'_>,
    target: &MessagesTarget,
    is_in_the_way: bool,
    left_out: &mut LeftOut,
) -> Told {
    let reasoning = &conversation.reasoning;
    let effort = reasoning.effort.and_then(|effort| effort.decode());
    let effort = effort.as_deref();
    let mut told = Told::default();
    if reasoning.mode == Thinking::Off || effort == Some("none") {
        if target.thinking != ThinkingForm::None {
            told.thinking = Some(br#"{"type":"disabled"}"#.to_vec());
        }
        return told;
    }
    if effort.is_none() && reasoning.budget.is_none() && reasoning.mode == Thinking::Unsaid {
        return told;
    }
    let display = match reasoning.shown {
        Shown::Summary(_) => r#","display":"summarized""#,
        Shown::Nothing | Shown::Unsaid => "",
    };
    match target.thinking {
        ThinkingForm::None => left_out.add(place(conversation)),
        ThinkingForm::Adaptive => {
            told.is_on = true;
            told.thinking = Some(format!(r#"{{"type":"adaptive"{display}}}"#).into());
            told.effort = match effort {
                Some("minimal") => Some(b"\"low\"".to_vec()),
                _ => reasoning.effort.map(|effort| effort.bytes().to_vec()),
            };
        }
        ThinkingForm::Budget => {
            let wanted = reasoning.budget.and_then(|budget| budget.as_u64());
            let wanted = wanted.unwrap_or(match effort {
                Some("minimal" | "low") => 2048,
                Some("medium") | None => 8192,
                Some(_) => 24_576,
            });
            let bound = conversation.settings.get(Setting::MaxTokens);
            let budget = match bound.and_then(|bound| bound.as_u64()) {
                Some(bound) if bound <= LEAST_BUDGET => None,
                Some(bound) => Some(wanted.min(bound - 1)),
                None => {
                    told.max_tokens = Some(target.max_tokens.saturating_add(wanted));
                    Some(wanted)
                }
            };
            let Some(budget) = budget.filter(|_| !is_in_the_way) else {
                told.max_tokens = None;
                left_out.add(place(conversation));
                return told;
            };
            told.is_on = true;
            let budget = budget.max(LEAST_BUDGET);
            told.thinking =
                Some(format!(r#"{{"type":"enabled","budget_tokens":{budget}{display}}}"#).into());
        }
    }
    told
}

/// Where the client says it.
fn place(conversation: &Conversation<'_>) -> &'static str {
    match conversation.api {
        Api::Responses => "reasoning.effort",
        Api::Messages => "thinking",
        _ if conversation.settings.find("reasoning_effort").is_some() => "reasoning_effort",
        _ => "reasoning",
    }
}
