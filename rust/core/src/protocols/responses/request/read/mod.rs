//! A request for a response, read: what it asks for, whatever protocol its upstream speaks.
//!
//! | member | there |
//! | --- | --- |
//! | `input`, `instructions` | turns, one for each message and item; instructions |
//! | `tools`, items `additional_tools` | tools |
//! | `tool_choice`, `parallel_tool_calls` | choice |
//! | `text.format`, `text.verbosity` | format |
//! | `reasoning` | reasoning |
//! | `include: ["message.output_text.logprobs"]` | logprobs |
//! | `previous_response_id`, items that refer to others | refused: whoever has them has put them in place |
//! | the others in [`NAMES`](super::NAMES) | settings |
//! | any other | a vendor's own |
//!
//! Sources: the types of the `openai` package, version 3, and OpenAI's API reference.

mod content;
mod items;
mod tools;

use self::items::Items;
use crate::api::Api;
use crate::input::left_out::LeftOut;
use crate::input::place::{of_kind, spelled};
use crate::input::{
    Block, Choice, Conversation, Format, FormatKind, Place, Reasoning, Refusal, Setting, Settings,
    Shown, Spot, Thinking, Tool, Turn, Word,
};
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::request::Request;

/// The types that settings must have.
const TYPES: [(Setting, Kind, &str); 16] = [
    (Setting::Temperature, Kind::Number, "a number"),
    (Setting::TopP, Kind::Number, "a number"),
    (Setting::PresencePenalty, Kind::Number, "a number"),
    (Setting::FrequencyPenalty, Kind::Number, "a number"),
    (Setting::ServiceTier, Kind::String, "a string"),
    (Setting::User, Kind::String, "a string"),
    (Setting::SafetyIdentifier, Kind::String, "a string"),
    (Setting::CacheKey, Kind::String, "a string"),
    (Setting::CacheRetention, Kind::String, "a string"),
    (Setting::Verbosity, Kind::String, "a string"),
    (Setting::MaxToolCalls, Kind::Number, "a number"),
    (Setting::Metadata, Kind::Object, "an object"),
    (Setting::Truncation, Kind::String, "a string"),
    (Setting::StreamOptions, Kind::Object, "an object"),
    (Setting::Include, Kind::Array, "an array"),
    (Setting::TopLogprobs, Kind::Number, "a number"),
];

/// Reads a request for a response.
///
/// # Errors
/// What is malformed, and what stands for something that is not in the request.
pub fn read_request(request: &Request) -> Result<Conversation<'_>, Refusal> {
    let settings = Settings::read(request.root(), super::setting)?;
    check(&settings)?;
    let input = settings.find("input");
    let tools = tools::read(settings.find("tools"), input)?;
    let choice = choice(&settings)?;
    let (instructions, turns) = turns(&settings, input)?;
    let format = format(settings.find("text"))?;
    let reasoning = reasoning(settings.find("reasoning"));
    let logprobs = wants_logprobs(&settings)?;
    if let Some(tokens) = settings.get(Setting::MaxTokens) {
        let place = Place::Top("max_output_tokens");
        of_kind(tokens, Kind::Number, "a number", &place)?;
    }
    Ok(Conversation {
        api: Api::Responses,
        instructions,
        turns,
        tools,
        choice,
        format,
        reasoning,
        logprobs,
        settings,
        left_out: LeftOut::default(),
    })
}

/// The tools that a request offers.
///
/// # Errors
/// As [`read_request`] gives them.
pub(in crate::protocols::responses) fn read_tools<'a>(
    tools: Option<Node<'a>>,
    input: Option<Node<'a>>,
) -> Result<Vec<Tool<'a>>, Refusal> {
    tools::read(tools, input)
}

/// Refuses values of wrong types, and what only the store of responses knows.
fn check(settings: &Settings<'_>) -> Result<(), Refusal> {
    if settings.find("previous_response_id").is_some() {
        return Err(Refusal::new(
            &Place::Top("previous_response_id"),
            "The previous response is not known here: send its items as 'input'.",
        ));
    }
    for (setting, kind, expected) in TYPES {
        if let Some(member) = settings.member(setting) {
            of_kind(member.value, kind, expected, &Place::Top(&member.name()))?;
        }
    }
    if let Some(reasoning) = settings.find("reasoning") {
        of_kind(
            reasoning,
            Kind::Object,
            "an object",
            &Place::Top("reasoning"),
        )?;
    }
    if let Some(truncation) = settings.get(Setting::Truncation)
        && !truncation.is("auto")
        && !truncation.is("disabled")
    {
        return Err(Refusal::new(
            &Place::Top("truncation"),
            "'truncation' must be 'auto' or 'disabled'.",
        ));
    }
    Ok(())
}

fn choice<'a>(settings: &Settings<'a>) -> Result<Choice<'a>, Refusal> {
    let mut choice = tools::read_choice(settings.find("tool_choice"))?;
    if let Some(parallel) = settings.get(Setting::ParallelCalls) {
        let place = Place::Top("parallel_tool_calls");
        choice.one_call = match parallel.kind() {
            Kind::True => false,
            Kind::False => true,
            kind => return Err(Refusal::wrong_type(&place, "a boolean", kind)),
        };
    }
    Ok(choice)
}

type Turns<'a> = (Vec<Block<'a>>, Vec<Turn<'a>>);

fn turns<'a>(settings: &Settings<'a>, input: Option<Node<'a>>) -> Result<Turns<'a>, Refusal> {
    let mut instructions = Vec::new();
    if let Some(given) = settings.find("instructions") {
        let text = spelled(Some(given), &Place::Top("instructions"))?;
        let spot = Spot::top(Word::Instructions);
        instructions.push(Block::text(text, spot, Some(given)));
    }
    let place = Place::Top("input");
    let input = input.ok_or_else(|| Refusal::missing(&place))?;
    let mut items = Items::new(tools::has_additional(Some(input)));
    match input.kind() {
        Kind::String => items.text(input, &place)?,
        Kind::Array => {
            for (index, item) in input.elements().enumerate() {
                items.item(item, index, &place.element(index))?;
            }
        }
        kind => return Err(Refusal::wrong_type(&place, "a string or an array", kind)),
    }
    Ok((instructions, items.turns))
}

fn format(text: Option<Node<'_>>) -> Result<Format<'_>, Refusal> {
    let spot = Spot::top(Word::Text).member(Word::Format);
    let mut format = Format {
        spot,
        ..Format::default()
    };
    let Some(text) = text else {
        return Ok(format);
    };
    let place = Place::Top("text");
    of_kind(text, Kind::Object, "an object", &place)?;
    for (key, value) in text.members() {
        let is_given = value.kind() != Kind::Null;
        if key.is("format") {
            format.source = is_given.then_some(value);
        } else if key.is("verbosity") {
            format.verbosity = is_given.then_some(value);
        } else {
            let name = key.decode().unwrap_or_default();
            let place = place.member(&name);
            return Err(Refusal::new(&place, format!("'{place}' is not known.")));
        }
    }
    if let Some(verbosity) = format.verbosity {
        spelled(Some(verbosity), &place.member("verbosity"))?;
    }
    if let Some(source) = format.source {
        format.kind = format_kind(source, &place.member("format"))?;
    }
    Ok(format)
}

fn format_kind<'a>(format: Node<'a>, place: &Place<'_>) -> Result<FormatKind<'a>, Refusal> {
    of_kind(format, Kind::Object, "an object", place)?;
    let [kind, nested, name, schema] = format.pick(["type", "json_schema", "name", "schema"]);
    let kind_place = place.member("type");
    spelled(kind, &kind_place)?;
    let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
    match (kind.as_ref(), nested) {
        ("text", _) => Ok(FormatKind::Text),
        ("json_object", _) => Ok(FormatKind::Object),
        ("json_schema", None) => {
            for (member, value) in [("name", name), ("schema", schema)] {
                if value.is_none() {
                    return Err(Refusal::missing(&place.member(member)));
                }
            }
            Ok(FormatKind::Schema {
                schema,
                name,
                members: Some(format),
            })
        }
        // Clients of Chat Completions often keep its form.
        ("json_schema", Some(nested)) => {
            let [name, schema] = nested.pick(["name", "schema"]);
            Ok(FormatKind::Schema {
                schema,
                name,
                members: Some(nested),
            })
        }
        _ => Err(Refusal::new(
            &kind_place,
            "The format must be 'text', 'json_object' or 'json_schema'.",
        )),
    }
}

fn reasoning(members: Option<Node<'_>>) -> Reasoning<'_> {
    let Some(object) = members else {
        return Reasoning::default();
    };
    let [effort, summary] = object.pick(["effort", "summary"]);
    Reasoning {
        mode: match effort {
            Some(effort) if effort.is("none") => Thinking::Off,
            _ => Thinking::Unsaid,
        },
        effort,
        budget: None,
        shown: match summary {
            Some(length) => Shown::Summary(Some(length)),
            None => Shown::Unsaid,
        },
        members,
    }
}

fn wants_logprobs(settings: &Settings<'_>) -> Result<bool, Refusal> {
    let place = Place::Top("include");
    let include = settings.get(Setting::Include);
    let mut wanted = false;
    for (index, name) in include.iter().flat_map(Node::elements).enumerate() {
        of_kind(name, Kind::String, "a string", &place.element(index))?;
        wanted |= name.is("message.output_text.logprobs");
    }
    let top = settings.get(Setting::TopLogprobs);
    Ok(wanted || top.is_some_and(|top| top.as_u64() != Some(0)))
}
