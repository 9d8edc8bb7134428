//! A request to `/v1/messages` as a conversation.
//!
//! | member | there |
//! | --- | --- |
//! | `system`, `messages` | instructions and turns: see `blocks` |
//! | `tools`, `tool_choice`, `mcp_servers` | tools and choice: see `tools` |
//! | `thinking`, `output_config.effort` | reasoning; a budget without an effort becomes one |
//! | `output_config.format`, `output_format` (its old name) | the format |
//! | `metadata.user_id` | the user, where it has at most 64 characters, as OpenAI takes them; left out otherwise |
//! | `service_tier` | the tier in the words of OpenAI: `standard_only` is `default` |
//! | `model`, `stream`, `max_tokens`, `temperature`, `top_p`, `top_k`, `stop_sequences` | the settings of these names |
//! | `context_management`, `fallbacks` | left out |
//! | `cache_control`, `inference_geo`, `speed`, `diagnostics`, … | nothing: they speak of cost and storage |
//! | `container` | refused, unless it is null |
//! | any other | a vendor's own |
//!
//! Sources: the types of the `anthropic` package (`message_create_params.py`, and those in `beta`), and Anthropic's API
//! reference.

use super::blocks::Blocks;
use super::tools;
use crate::api::Api;
use crate::input::left_out::LeftOut;
use crate::input::place::{Place, Refusal, Spot, Word, of_kind, spelled};
use crate::input::settings::{Member, Setting, Settings};
use crate::input::{Conversation, Format, FormatKind, Reasoning, Shown, Thinking};
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::request::Request;

/// The longest name of a user that is passed on, in characters: OpenAI refuses longer ones.
const MAX_USER: usize = 64;

/// From how many tokens of thinking on an effort is `medium`, and `high`.
const BUDGETS: [(u64, &str); 2] = [(16_384, "\"high\""), (4_096, "\"medium\"")];

/// What a member of this name is; None for a vendor's own.
pub(super) fn table(name: &str) -> Option<Setting> {
    Some(match name {
        "model" => Setting::Model,
        "stream" => Setting::Stream,
        "max_tokens" => Setting::MaxTokens,
        "temperature" => Setting::Temperature,
        "top_p" => Setting::TopP,
        "top_k" => Setting::TopK,
        "stop_sequences" => Setting::Stop,
        "service_tier" => Setting::ServiceTier,
        "system" | "messages" | "tools" | "tool_choice" | "mcp_servers" | "thinking"
        | "output_config" | "output_format" | "metadata" | "context_management" | "fallbacks" => {
            Setting::Read
        }
        "container" => Setting::Needed,
        "cache_control"
        | "inference_geo"
        | "speed"
        | "diagnostics"
        | "fallback_credit_token"
        | "anthropic_version"
        | "anthropic_beta" => Setting::Silent,
        _ => return None,
    })
}

/// Reads a request, which is not to be forwarded to an upstream that speaks Messages.
///
/// # Errors
/// It is malformed, or asks for what only Anthropic has.
pub fn read_request(request: &Request) -> Result<Conversation<'_>, Refusal> {
    let root = request.root();
    let [
        system,
        messages,
        offered,
        choice,
        servers,
        thinking,
        output,
        old_format,
        metadata,
    ] = root.pick([
        "system",
        "messages",
        "tools",
        "tool_choice",
        "mcp_servers",
        "thinking",
        "output_config",
        "output_format",
        "metadata",
    ]);
    let mut blocks = Blocks::default();
    let instructions = blocks.system(system)?;
    let place = Place::Top("messages");
    let messages = messages.ok_or_else(|| Refusal::missing(&place))?;
    of_kind(messages, Kind::Array, "an array", &place)?;
    let mut turns = Vec::new();
    for (index, message) in messages.elements().enumerate() {
        turns.push(blocks.message(message, Spot::top(Word::Messages).element(index))?);
    }
    let mut left_out = blocks.left_out;
    let (tools, choice) = tools::read(offered, servers, choice, &mut left_out)?;
    if let Some(output) = output {
        of_kind(
            output,
            Kind::Object,
            "an object",
            &Place::Top("output_config"),
        )?;
    }
    let format = output.and_then(|it| it.get("format"));
    let spot = match format {
        Some(_) => Spot::top(Word::OutputConfig).member(Word::Format),
        None => Spot::top(Word::OutputFormat),
    };
    let format = format.or(old_format);
    let mut settings = Settings::read(root, table)?;
    if choice.one_call {
        settings.set(
            Setting::ParallelCalls,
            made("\"disable_parallel_tool_use\"", "false"),
        );
    }
    if settings
        .get(Setting::ServiceTier)
        .is_some_and(|tier| tier.is("standard_only"))
    {
        let tier = made("\"service_tier\"", "\"default\"");
        settings.set(Setting::ServiceTier, tier);
    }
    settings.set(Setting::User, user(metadata, &mut left_out)?);
    add_without_place(root, &mut left_out);
    Ok(Conversation {
        api: Api::Messages,
        instructions,
        turns,
        tools,
        choice,
        format: read_format(format, spot)?,
        reasoning: read_reasoning(thinking, output)?,
        logprobs: false,
        settings,
        left_out,
    })
}

/// A member that stands for one of the request's.
fn made(key: &'static str, value: &'static str) -> Option<Member<'static>> {
    let key = Node::document(key.as_bytes())?;
    let value = Node::document(value.as_bytes())?;
    Some(Member { key, value })
}

/// `metadata.user_id`.
fn user<'a>(
    metadata: Option<Node<'a>>,
    left_out: &mut LeftOut,
) -> Result<Option<Member<'a>>, Refusal> {
    let Some(metadata) = metadata else {
        return Ok(None);
    };
    let place = Place::Top("metadata");
    of_kind(metadata, Kind::Object, "an object", &place)?;
    let id = metadata
        .members()
        .filter(|(key, value)| key.is("user_id") && value.kind() != Kind::Null)
        .last();
    let Some((key, value)) = id else {
        return Ok(None);
    };
    let place = place.member("user_id");
    of_kind(value, Kind::String, "a string", &place)?;
    let id = value.decode().unwrap_or_default();
    if id.chars().nth(MAX_USER).is_some() {
        left_out.add(place);
        return Ok(None);
    }
    Ok(Some(Member { key, value }))
}

/// Lists what no other protocol has a place for, and an answer does not need.
fn add_without_place(root: Node<'_>, left_out: &mut LeftOut) {
    let [management, fallbacks] = root.pick(["context_management", "fallbacks"]);
    if let Some(management) = management {
        let place = Place::Top("context_management");
        let edits = management.get("edits");
        let mut any = false;
        let place = place.member("edits");
        for (index, edit) in edits.iter().flat_map(Node::elements).enumerate() {
            let kind = edit.get("type").and_then(|kind| kind.decode());
            left_out.add_kind(place.element(index), &kind.unwrap_or_default());
            any = true;
        }
        if !any && edits.is_none() {
            left_out.add("context_management");
        }
    }
    if fallbacks.is_some_and(|it| it.elements().next().is_some()) {
        left_out.add("fallbacks");
    }
}

fn read_format(format: Option<Node<'_>>, spot: Spot) -> Result<Format<'_>, Refusal> {
    let Some(format) = format else {
        return Ok(Format::default());
    };
    let place = Place::At(spot);
    of_kind(format, Kind::Object, "an object", &place)?;
    let [kind, schema] = format.pick(["type", "schema"]);
    let kind_place = place.member("type");
    spelled(kind, &kind_place)?;
    if !kind.is_some_and(|kind| kind.is("json_schema")) {
        return Err(Refusal::new(
            &kind_place,
            "The format must be 'json_schema'.",
        ));
    }
    let place = place.member("schema");
    let schema = schema.ok_or_else(|| Refusal::missing(&place))?;
    of_kind(schema, Kind::Object, "an object", &place)?;
    Ok(Format {
        kind: FormatKind::Schema {
            schema: Some(schema),
            name: None,
            members: None,
        },
        source: Some(format),
        spot,
        ..Format::default()
    })
}

fn read_reasoning<'a>(
    thinking: Option<Node<'a>>,
    output: Option<Node<'a>>,
) -> Result<Reasoning<'a>, Refusal> {
    let mut reasoning = Reasoning::default();
    if let Some(effort) = output.and_then(|it| it.get("effort")) {
        let place = Place::Top("output_config");
        spelled(Some(effort), &place.member("effort"))?;
        reasoning.effort = Some(effort);
    }
    let Some(thinking) = thinking else {
        return Ok(reasoning);
    };
    let place = Place::Top("thinking");
    of_kind(thinking, Kind::Object, "an object", &place)?;
    let [kind, budget, display] = thinking.pick(["type", "budget_tokens", "display"]);
    spelled(kind, &place.member("type"))?;
    let is = |name: &str| kind.is_some_and(|kind| kind.is(name));
    let is_display = |name: &str| display.is_some_and(|it| it.is(name));
    if is_display("summarized") {
        reasoning.shown = Shown::Summary(None);
    } else if is_display("omitted") {
        reasoning.shown = Shown::Nothing;
    }
    if is("disabled") {
        reasoning.mode = Thinking::Off;
        reasoning.effort = None;
        return Ok(reasoning);
    }
    if !is("enabled") {
        reasoning.mode = Thinking::Adaptive;
        return Ok(reasoning);
    }
    reasoning.mode = Thinking::On;
    let place = place.member("budget_tokens");
    let budget = budget.ok_or_else(|| Refusal::missing(&place))?;
    reasoning.budget = Some(of_kind(budget, Kind::Number, "a number", &place)?);
    if reasoning.effort.is_none() {
        let tokens = budget.as_u64().unwrap_or(0);
        let effort = BUDGETS.iter().find(|(least, _)| tokens >= *least);
        let effort = effort.map_or("\"low\"", |(_, effort)| effort);
        reasoning.effort = Node::document(effort.as_bytes());
    }
    Ok(reasoning)
}
