//! A request to Chat Completions of what a client of another protocol asks for.
//!
//! | what is asked for | there |
//! | --- | --- |
//! | instructions, turns | `messages` |
//! | tools, choice | functions, named as [`offer`](crate::input::offer) says; not those that are not allowed |
//! | whether several tools may be called at once | `parallel_tool_calls`, where there are tools |
//! | format, verbosity | `response_format`, `verbosity` |
//! | reasoning | `reasoning_effort`; a vendor's own members stay in `reasoning` |
//! | reasoning of earlier turns | the upstream's member for it; what such an upstream has signed: `reasoning_details` |
//! | the bound on tokens | `max_tokens` |
//! | logprobs | `logprobs`, `top_logprobs` |
//! | settings of the same name | the same |
//! | `store`, `metadata`, `stream_options`, and what is [`Setting::Silent`] | nothing: the gateway's own business |
//! | `max_tool_calls`, the other `include`s, what to show of reasoning | not sent: no such upstream has that output |
//! | `truncation` | nothing: an input that is too long is the upstream's error then, as with `disabled` |
//! | what is [`Setting::Needed`] | refused |
//! | a vendor's own (`top_k`, `chat_template_kwargs`) | the same |

mod content;
mod messages;
mod tools;

use std::sync::Arc;

use self::messages::Messages;
use self::tools::Chosen;
use crate::api::Api;
use crate::input::left_out::LeftOut;
use crate::input::offer::Offer;
use crate::input::settings::Member;
use crate::input::{
    Conversation, Format, FormatKind, Names, Place, Refusal, Setting, Thinking, Written,
};
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::writer::Writer;

/// The role of `instructions`, and of a developer's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstructionsRole {
    /// `system`, which every upstream and every chat template knows.
    #[default]
    System,
    /// `developer`, which OpenAI's reasoning models prefer.
    Developer,
}

/// Where reasoning of earlier turns goes in a message of the assistant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningField {
    /// `reasoning_content`: DeepSeek, SGLang, llama.cpp, and vLLM, which reads both.
    #[default]
    ReasoningContent,
    /// `reasoning`: OpenRouter, Groq.
    Reasoning,
    /// Nowhere.
    None,
}

/// Where instructions of the system's go that stand between other messages. A client of Messages sends them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LateSystem {
    /// They stay messages of the system's.
    #[default]
    System,
    /// Into the user's next message, for chat templates that allow one of the system's only in front.
    User,
}

/// How an upstream is told that its model is not to think.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThinkingOff {
    /// It is not.
    #[default]
    Nothing,
    /// `reasoning_effort: none`.
    Effort,
    /// `chat_template_kwargs: {"enable_thinking": false}`, a switch that the templates of Qwen's and others' have.
    Template,
}

/// Efforts, the least first.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// The highest effort that an upstream knows, a word of the protocol's. A client of Messages may ask for more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffortCeiling(pub Box<str>);

impl Default for EffortCeiling {
    fn default() -> Self {
        EffortCeiling("high".into())
    }
}

/// What an upstream that speaks Chat Completions wants to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatTarget {
    /// The role of instructions.
    pub instructions_role: InstructionsRole,
    /// Where reasoning goes.
    pub reasoning: ReasoningField,
    /// Where late instructions go.
    pub late_system: LateSystem,
    /// The highest effort that it knows.
    pub effort_ceiling: EffortCeiling,
    /// How it is told that its model is not to think.
    pub thinking_off: ThinkingOff,
}

/// Settings that have the same meaning in Chat Completions, in the order in which they are written.
const SAME: [(Setting, &str); 12] = [
    (Setting::Temperature, "temperature"),
    (Setting::TopP, "top_p"),
    (Setting::TopK, "top_k"),
    (Setting::Stop, "stop"),
    (Setting::PresencePenalty, "presence_penalty"),
    (Setting::FrequencyPenalty, "frequency_penalty"),
    (Setting::ServiceTier, "service_tier"),
    (Setting::User, "user"),
    (Setting::SafetyIdentifier, "safety_identifier"),
    (Setting::CacheKey, "prompt_cache_key"),
    (Setting::CacheRetention, "prompt_cache_retention"),
    (Setting::Verbosity, "verbosity"),
];

/// Writes the request for an upstream that speaks Chat Completions. Nothing of it that changes the answer is left out
/// without a word.
///
/// # Errors
/// What the request asks for is beyond such an upstream.
pub fn write_request(
    conversation: &Conversation<'_>,
    target: &ChatTarget,
) -> Result<Written, Refusal> {
    let settings = &conversation.settings;
    let mut spared = conversation.left_out.clone();
    for (setting, member) in settings.members() {
        let is_given = member.value.kind() != Kind::Null;
        match setting {
            Some(Setting::Needed) if is_given => return Err(beyond(&member.name())),
            Some(Setting::Spared) if is_given => spared.add(member.name()),
            _ => {}
        }
    }
    let offer = Offer::of(&conversation.tools);
    let chosen = Chosen::of(conversation, &offer)?;
    let mut chat = Chat {
        writer: Writer::with_capacity(settings.size() + 256),
        written: Vec::new(),
    };
    chat.writer.open(b'{');
    if let Some(model) = settings.get(Setting::Model) {
        chat.member("model", model.bytes());
    }
    chat.writer.key("messages");
    chat.written.push("messages");
    let mut messages = Messages::new(conversation.api, target, &offer, &mut chat.writer);
    for block in &conversation.instructions {
        messages.instructions(block)?;
    }
    for turn in &conversation.turns {
        messages.turn(turn)?;
    }
    let mut left_out = messages.finish();
    if let Some(stream) = settings.get(Setting::Stream) {
        chat.member("stream", stream.bytes());
    }
    let mut names = Names::default();
    write_tools(conversation, &offer, &chosen, &mut names, &mut chat);
    for tool in &offer.hosted {
        left_out.add_kind(tool.spot, tool.kind.hosted().unwrap_or_default());
    }
    write_format(&conversation.format, &mut chat);
    write_reasoning(conversation, target, &mut left_out, &mut chat);
    let top = settings.get(Setting::TopLogprobs);
    let top = top.filter(|top| top.as_u64() != Some(0));
    if conversation.logprobs || top.is_some() {
        chat.member("logprobs", b"true");
    }
    if let Some(top) = top {
        chat.member("top_logprobs", top.bytes());
    }
    if let Some(tokens) = settings.get(Setting::MaxTokens) {
        chat.member("max_tokens", tokens.bytes());
    }
    for (setting, name) in SAME {
        if let Some(value) = settings.get(setting) {
            chat.member(name, value.bytes());
        }
    }
    for member in settings.rest() {
        chat.copy(member);
    }
    chat.writer.close(b'}');
    left_out.append(spared);
    Ok(Written {
        body: chat.writer.into_bytes().into(),
        left_out: left_out.finish(),
        names: (!names.is_empty()).then(|| Arc::new(names)),
    })
}

/// A member that asks for what such an upstream can't do.
fn beyond(name: &str) -> Refusal {
    Refusal::new(
        &Place::Top(name),
        format!("'{name}' can't be used with this model: its upstream speaks Chat Completions."),
    )
}

fn write_tools(
    conversation: &Conversation<'_>,
    offer: &Offer<'_, '_>,
    chosen: &Chosen,
    names: &mut Names,
    chat: &mut Chat,
) {
    let allowed = || {
        let functions = offer.functions.iter();
        functions.filter(|function| chosen.allows(function))
    };
    if allowed().next().is_none() {
        return;
    }
    chat.writer.key("tools");
    chat.written.push("tools");
    chat.writer.open(b'[');
    for function in allowed() {
        let name = tools::told(conversation.api, &function.function);
        names.add(&name, &function.function);
        tools::write(function, &name, &mut chat.writer);
    }
    chat.writer.close(b']');
    if let Some(choice) = &chosen.json {
        chat.member("tool_choice", choice);
    }
    match conversation.settings.get(Setting::ParallelCalls) {
        Some(parallel) => chat.member("parallel_tool_calls", parallel.bytes()),
        None if conversation.choice.one_call => chat.member("parallel_tool_calls", b"false"),
        None => {}
    }
}

/// Writes the form of the answer and its length, in the order in which the client says them.
fn write_format(format: &Format<'_>, chat: &mut Chat) {
    let start = |node: Option<Node<'_>>| node.map_or(usize::MAX, |node| node.range().start);
    let is_first = start(format.verbosity) < start(format.source);
    if let Some(verbosity) = format.verbosity.filter(|_| is_first) {
        chat.member("verbosity", verbosity.bytes());
    }
    if let Some(format) = response_format(format) {
        chat.member("response_format", &format);
    }
    if let Some(verbosity) = format.verbosity.filter(|_| !is_first) {
        chat.member("verbosity", verbosity.bytes());
    }
}

/// A schema's members stand in an object of their own. None for plain text, which goes without saying.
fn response_format(format: &Format<'_>) -> Option<Vec<u8>> {
    let source = || format.source.map(|source| source.bytes().to_vec());
    let FormatKind::Schema {
        schema, members, ..
    } = format.kind
    else {
        return match format.kind {
            FormatKind::Text => None,
            _ => source(),
        };
    };
    if format.is_nested() {
        return source();
    }
    let size = format.source.map_or(0, |source| source.bytes().len());
    let mut writer = Writer::with_capacity(size + 48);
    writer.open(b'{');
    writer.member_spelled("type", b"json_schema");
    writer.key("json_schema");
    writer.open(b'{');
    match members {
        Some(members) => {
            for (key, value) in members.members() {
                if !key.is("type") {
                    writer.copy_member(key.bytes(), value.bytes());
                }
            }
        }
        None => {
            writer.member_spelled("name", b"output");
            if let Some(schema) = schema {
                writer.member("schema", schema.bytes());
            }
            writer.member("strict", b"true");
        }
    }
    writer.close(b'}');
    writer.close(b'}');
    Some(writer.into_bytes())
}

fn write_reasoning(
    conversation: &Conversation<'_>,
    target: &ChatTarget,
    left_out: &mut LeftOut,
    chat: &mut Chat,
) {
    let reasoning = &conversation.reasoning;
    let is_messages = conversation.api == Api::Messages;
    if is_messages && reasoning.mode == Thinking::Off {
        match target.thinking_off {
            ThinkingOff::Nothing => {}
            ThinkingOff::Effort => chat.member("reasoning_effort", b"\"none\""),
            ThinkingOff::Template => {
                chat.member("chat_template_kwargs", br#"{"enable_thinking":false}"#);
            }
        }
        return;
    }
    let rank = |word: &str| EFFORTS.iter().position(|known| *known == word);
    let asked = reasoning.effort.and_then(|effort| rank(&effort.decode()?));
    let ceiling = &target.effort_ceiling.0;
    if is_messages && asked > rank(ceiling) {
        left_out.add("output_config.effort");
        let mut lowered = Writer::default();
        lowered.text(ceiling);
        chat.member("reasoning_effort", lowered.as_bytes());
    } else if let Some(effort) = reasoning.effort {
        chat.member("reasoning_effort", effort.bytes());
    } else if let Some(budget) = reasoning.budget.filter(|_| reasoning.mode == Thinking::On) {
        let effort: &[u8] = match budget.as_u64() {
            Some(..4096) => b"\"low\"",
            Some(4096..16384) => b"\"medium\"",
            _ => b"\"high\"",
        };
        chat.member("reasoning_effort", effort);
    }
    let mut vendor = Writer::default();
    for (key, value) in reasoning.members.iter().flat_map(Node::members) {
        if !["effort", "summary", "generate_summary", "context", "mode"]
            .iter()
            .any(|known| key.is(known))
        {
            vendor.copy_member(key.bytes(), value.bytes());
        }
    }
    if !vendor.is_empty() {
        chat.member("reasoning", &[b"{", vendor.as_bytes(), b"}"].concat());
    }
}

/// A chat request as it is written.
struct Chat {
    writer: Writer,
    written: Vec<&'static str>,
}

impl Chat {
    /// The first of several members of a name counts.
    fn member(&mut self, name: &'static str, json: &[u8]) {
        if self.written.contains(&name) {
            return;
        }
        self.writer.member(name, json);
        self.written.push(name);
    }

    /// A member that is the vendor's own.
    fn copy(&mut self, Member { key, value }: Member<'_>) {
        if !self.written.iter().any(|name| key.is(name)) {
            self.writer.copy_member(key.bytes(), value.bytes());
        }
    }
}
