//! A request to Chat Completions, read: what it asks for, whatever protocol its upstream speaks.
//!
//! | member | there |
//! | --- | --- |
//! | `messages` | turns |
//! | `tools`, `tool_choice`, `parallel_tool_calls` | tools, choice |
//! | `response_format` | format |
//! | `reasoning_effort`, and what a client's `reasoning` says | reasoning |
//! | `max_completion_tokens`, `max_tokens` | the bound on tokens; the first where both are there |
//! | `logprobs` | logprobs |
//! | `input`, `instructions` | refused: they belong to Responses |
//! | any other that is known | a setting |
//! | any other | a vendor's own |

mod content;
mod messages;
mod tools;

use self::messages::Messages;
use crate::api::Api;
use crate::input::left_out::LeftOut;
use crate::input::place::{of_kind, spelled};
use crate::input::{
    Choice, Conversation, Format, FormatKind, Place, Reasoning, Refusal, Setting, Settings, Shown,
    Spot, Thinking, Turn, Word,
};
use crate::json::scan::Kind;
use crate::request::Request;

/// What a member of this name is.
fn setting(name: &str) -> Option<Setting> {
    Some(match name {
        "messages" | "tools" | "tool_choice" | "response_format" | "reasoning"
        | "reasoning_effort" | "logprobs" | "input" | "instructions" => Setting::Read,
        "model" => Setting::Model,
        "stream" => Setting::Stream,
        "stream_options" => Setting::StreamOptions,
        "max_tokens" | "max_completion_tokens" => Setting::MaxTokens,
        "temperature" => Setting::Temperature,
        "top_p" => Setting::TopP,
        "seed" => Setting::Seed,
        "stop" => Setting::Stop,
        "n" => Setting::Candidates,
        "presence_penalty" => Setting::PresencePenalty,
        "frequency_penalty" => Setting::FrequencyPenalty,
        "logit_bias" => Setting::LogitBias,
        "top_logprobs" => Setting::TopLogprobs,
        "parallel_tool_calls" => Setting::ParallelCalls,
        "service_tier" => Setting::ServiceTier,
        "user" => Setting::User,
        "safety_identifier" => Setting::SafetyIdentifier,
        "prompt_cache_key" => Setting::CacheKey,
        "prompt_cache_retention" => Setting::CacheRetention,
        "verbosity" => Setting::Verbosity,
        "store" => Setting::Store,
        "metadata" => Setting::Metadata,
        "prediction" => Setting::Prediction,
        "modalities" => Setting::Modalities,
        "audio" => Setting::AudioOutput,
        "web_search_options" => Setting::WebSearch,
        "functions" => Setting::Functions,
        "function_call" => Setting::FunctionCall,
        "include" => Setting::Include,
        "text" => Setting::TextOptions,
        _ => return None,
    })
}

/// Reads a request to Chat Completions.
///
/// # Errors
/// What is malformed.
pub fn read_request(request: &Request) -> Result<Conversation<'_>, Refusal> {
    let mut settings = Settings::read(request.root(), setting)?;
    for name in ["input", "instructions"] {
        if settings.find(name).is_some() {
            return Err(Refusal::new(
                &Place::Top(name),
                format!("'{name}' belongs to Responses: send 'messages'."),
            ));
        }
    }
    prefer_completion_tokens(&mut settings)?;
    let (turns, left_out) = turns(&settings)?;
    let tools = tools::read(settings.find("tools"))?;
    let choice = choice(&settings)?;
    let format = format(&settings)?;
    let reasoning = reasoning(&settings)?;
    if let Some(options) = settings.get(Setting::TextOptions) {
        of_kind(options, Kind::Object, "an object", &Place::Top("text"))?;
    }
    let logprobs = match settings.find("logprobs").map(|wanted| wanted.kind()) {
        None | Some(Kind::False) => false,
        Some(Kind::True) => true,
        Some(kind) => {
            let place = Place::Top("logprobs");
            return Err(Refusal::wrong_type(&place, "a boolean", kind));
        }
    };
    Ok(Conversation {
        api: Api::Chat,
        instructions: Vec::new(),
        turns,
        tools,
        choice,
        format,
        reasoning,
        logprobs,
        settings,
        left_out,
    })
}

/// `max_tokens` is the older name.
fn prefer_completion_tokens(settings: &mut Settings<'_>) -> Result<(), Refusal> {
    for name in ["max_completion_tokens", "max_tokens"] {
        if let Some(member) = settings.find_member(name) {
            of_kind(member.value, Kind::Number, "a number", &Place::Top(name))?;
            settings.set(Setting::MaxTokens, Some(member));
            return Ok(());
        }
    }
    settings.set(Setting::MaxTokens, None);
    Ok(())
}

fn turns<'a>(settings: &Settings<'a>) -> Result<(Vec<Turn<'a>>, LeftOut), Refusal> {
    let place = Place::Top("messages");
    let messages = settings.find("messages");
    let messages = messages.ok_or_else(|| Refusal::missing(&place))?;
    of_kind(messages, Kind::Array, "an array", &place)?;
    let mut reading = Messages::default();
    for (index, message) in messages.elements().enumerate() {
        reading.message(message, index, &place.element(index))?;
    }
    Ok((reading.turns, reading.left_out))
}

fn choice<'a>(settings: &Settings<'a>) -> Result<Choice<'a>, Refusal> {
    let mut choice = tools::read_choice(settings.find("tool_choice"))?;
    let parallel = settings.get(Setting::ParallelCalls);
    choice.one_call = parallel.is_some_and(|parallel| parallel.kind() == Kind::False);
    Ok(choice)
}

fn format<'a>(settings: &Settings<'a>) -> Result<Format<'a>, Refusal> {
    let spot = Spot::top(Word::ResponseFormat);
    let Some(source) = settings.find("response_format") else {
        return Ok(Format {
            spot,
            ..Format::default()
        });
    };
    let place = Place::Top("response_format");
    of_kind(source, Kind::Object, "an object", &place)?;
    let [kind, nested] = source.pick(["type", "json_schema"]);
    spelled(kind, &place.member("type"))?;
    let is = |word: &str| kind.is_some_and(|kind| kind.is(word));
    let kind = if let Some(nested) = nested.filter(|_| is("json_schema")) {
        of_kind(
            nested,
            Kind::Object,
            "an object",
            &place.member("json_schema"),
        )?;
        let [name, schema] = nested.pick(["name", "schema"]);
        FormatKind::Schema {
            schema,
            name,
            members: Some(nested),
        }
    } else if is("text") {
        FormatKind::Text
    } else if is("json_object") {
        FormatKind::Object
    } else {
        FormatKind::Own
    };
    Ok(Format {
        kind,
        source: Some(source),
        spot,
        verbosity: None,
    })
}

fn reasoning<'a>(settings: &Settings<'a>) -> Result<Reasoning<'a>, Refusal> {
    let members = settings.find("reasoning");
    let mut effort = settings.find("reasoning_effort");
    let mut shown = Shown::Unsaid;
    let mut budget = None;
    if let Some(members) = members {
        of_kind(members, Kind::Object, "an object", &Place::Top("reasoning"))?;
        let [own_effort, summary, tokens] = members.pick(["effort", "summary", "max_tokens"]);
        effort = effort.or(own_effort);
        budget = tokens;
        if summary.is_some() {
            shown = Shown::Summary(summary);
        }
    }
    Ok(Reasoning {
        mode: match effort {
            Some(effort) if effort.is("none") => Thinking::Off,
            _ => Thinking::Unsaid,
        },
        effort,
        budget,
        shown,
        members,
    })
}
