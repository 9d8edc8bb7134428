//! A request for a response as a request to Chat Completions.
//!
//! | member | there |
//! | --- | --- |
//! | `input`, `instructions` | `messages` |
//! | `tools`, `tool_choice` | functions of the same names: the table stands with the tools; `allowed_tools` leaves the others out |
//! | `parallel_tool_calls` | the same, where there are tools |
//! | `text.format`, `text.verbosity` | `response_format`, `verbosity` |
//! | `reasoning.effort` | `reasoning_effort`; a vendor's own members stay in `reasoning` |
//! | `max_output_tokens` | `max_tokens` or `max_completion_tokens` |
//! | `top_logprobs`, `include: ["message.output_text.logprobs"]` | `top_logprobs`, `logprobs` |
//! | `model`, `stream`, `temperature`, `top_p`, `presence_penalty`, `frequency_penalty`, `service_tier`, `user`, `safety_identifier`, `prompt_cache_key`, `prompt_cache_retention`, `verbosity` | the same |
//! | `store`, `background`, `background_options`, `metadata`, `stream_options`, `client_metadata` | nothing: the gateway's own business |
//! | `max_tool_calls`, the other `include`s, `reasoning.summary` | not sent: they concern output that such an upstream never makes |
//! | `truncation` | nothing: an input that is too long is the upstream's error then, as with `disabled` |
//! | `conversation`, `prompt`, `context_management`, `previous_response_id`, `messages` | refused |
//! | any other | the same: it is the vendor's own (`top_k`, `chat_template_kwargs`) |
//!
//! Sources: the types of the `openai` package, version 3, and OpenAI's API reference.

mod content;
mod messages;

use bytes::Bytes;

use self::messages::Messages;
use super::tools::{Choice, Offer};
use super::{ResponsesRequest, number};
use crate::input::left_out::LeftOut;
use crate::input::place::{Place, Refusal, of_kind, spelled};
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

/// The name of the bound on output tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxTokensField {
    /// `max_tokens`, which all servers take but OpenAI's for its reasoning models, and those speak Responses.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
}

/// What an upstream that speaks Chat Completions wants to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatTarget {
    /// The role of instructions.
    pub instructions_role: InstructionsRole,
    /// Where reasoning goes.
    pub reasoning: ReasoningField,
    /// The name of the bound on output tokens.
    pub max_tokens: MaxTokensField,
    /// Members of the chat request not to send, for upstreams that refuse what they don't know (`prompt_cache_key`).
    pub omit: Vec<Box<str>>,
}

/// A request to Chat Completions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToChat {
    /// One JSON object.
    pub body: Bytes,
    /// The parts that are not sent to the upstream, and on which the answer does not depend: `tools[2] (web_search)`. At most 16 of at most 64 bytes, and behind
    /// them how many more there are.
    pub left_out: Vec<Box<str>>,
}

/// Members that keep their name and their meaning, with the type that they must have.
const SAME: [(&str, &[Kind], &str); 10] = [
    ("temperature", &[Kind::Number], "a number"),
    ("top_p", &[Kind::Number], "a number"),
    ("presence_penalty", &[Kind::Number], "a number"),
    ("frequency_penalty", &[Kind::Number], "a number"),
    ("service_tier", &[Kind::String], "a string"),
    ("user", &[Kind::String], "a string"),
    ("safety_identifier", &[Kind::String], "a string"),
    ("prompt_cache_key", &[Kind::String], "a string"),
    ("prompt_cache_retention", &[Kind::String], "a string"),
    ("verbosity", &[Kind::String], "a string"),
];

/// Members that are not sent to the upstream, with the type that they must have.
const OWN: [(&str, &[Kind], &str); 6] = [
    ("max_tool_calls", &[Kind::Number], "a number"),
    ("metadata", &[Kind::Object], "an object"),
    ("truncation", &[Kind::String], "a string"),
    ("stream_options", &[Kind::Object], "an object"),
    ("include", &[Kind::Array], "an array"),
    ("reasoning", &[Kind::Object], "an object"),
];

/// Members that ask for what such an upstream can't do.
const UNSUPPORTED: [&str; 4] = ["conversation", "prompt", "context_management", "messages"];

impl ResponsesRequest {
    /// The request for an upstream that speaks Chat Completions. Nothing of it that changes the answer is left out without a word.
    ///
    /// # Errors
    /// What the request asks for is beyond such an upstream, or malformed.
    pub fn to_chat(&self, target: &ChatTarget) -> Result<ToChat, Refusal> {
        self.check()?;
        let offer = Offer::of(self)?;
        let choice = Choice::of(self, &offer)?;
        let mut chat = Chat {
            writer: Writer::with_capacity(self.body().len() + 256),
            omit: &target.omit,
            written: Vec::new(),
        };
        chat.writer.open(b'{');
        if let Some(model) = self.get("model") {
            chat.member("model", model.bytes());
        }
        chat.writer.key("messages");
        chat.written.push("messages");
        let mut left_out = self.write_messages(target, &offer, &mut chat.writer)?;
        if let Some(stream) = self.get("stream") {
            chat.member("stream", stream.bytes());
        }
        self.write_tools(&offer, &choice, &mut chat)?;
        for (place, kind) in &offer.left_out {
            left_out.add_kind(place, kind);
        }
        self.write_text(&mut chat)?;
        self.write_reasoning(&mut chat);
        self.write_logprobs(&mut chat)?;
        if let Some(tokens) = self.get("max_output_tokens") {
            let place = Place::Top("max_output_tokens");
            let tokens = of_kind(tokens, Kind::Number, "a number", &place)?;
            let name = match target.max_tokens {
                MaxTokensField::MaxTokens => "max_tokens",
                MaxTokensField::MaxCompletionTokens => "max_completion_tokens",
            };
            chat.member(name, tokens.bytes());
        }
        for (name, ..) in SAME {
            if let Some(value) = self.get(name) {
                chat.member(name, value.bytes());
            }
        }
        for (key, value) in self.root().members() {
            if number(key).is_none() {
                chat.copy(key, value);
            }
        }
        chat.writer.close(b'}');
        Ok(ToChat {
            body: chat.writer.into_bytes().into(),
            left_out: left_out.finish(),
        })
    }

    /// Refuses what no upstream of Chat Completions can do, and values of wrong types.
    fn check(&self) -> Result<(), Refusal> {
        for name in UNSUPPORTED {
            if self.get(name).is_some() {
                let place = Place::Top(name);
                return Err(Refusal::new(
                    &place,
                    format!(
                        "'{name}' can't be used with this model: its upstream speaks Chat Completions."
                    ),
                ));
            }
        }
        if self.get("previous_response_id").is_some() {
            return Err(Refusal::new(
                &Place::Top("previous_response_id"),
                "The previous response is not known here: send its items as 'input'.",
            ));
        }
        for (name, kinds, expected) in SAME.into_iter().chain(OWN) {
            if let Some(value) = self.get(name)
                && !kinds.contains(&value.kind())
            {
                let place = Place::Top(name);
                return Err(Refusal::wrong_type(&place, expected, value.kind()));
            }
        }
        if let Some(truncation) = self.get("truncation")
            && !truncation.is("auto")
            && !truncation.is("disabled")
        {
            let place = Place::Top("truncation");
            return Err(Refusal::new(
                &place,
                "'truncation' must be 'auto' or 'disabled'.",
            ));
        }
        Ok(())
    }

    /// Writes the messages. Gives where what was left out stands.
    fn write_messages(
        &self,
        target: &ChatTarget,
        offer: &Offer<'_>,
        writer: &mut Writer,
    ) -> Result<LeftOut, Refusal> {
        let mut messages = Messages::new(target, offer, writer);
        if let Some(instructions) = self.get("instructions") {
            messages.instructions(spelled(Some(instructions), &Place::Top("instructions"))?);
        }
        let place = Place::Top("input");
        let input = self.get("input").ok_or_else(|| Refusal::missing(&place))?;
        match input.kind() {
            Kind::String => messages.user(spelled(Some(input), &place)?),
            Kind::Array => {
                for (index, item) in input.elements().enumerate() {
                    messages.item(item, &place.element(index))?;
                }
            }
            kind => return Err(Refusal::wrong_type(&place, "a string or an array", kind)),
        }
        Ok(messages.finish())
    }

    fn write_tools(
        &self,
        offer: &Offer<'_>,
        choice: &Choice,
        chat: &mut Chat<'_>,
    ) -> Result<(), Refusal> {
        let parallel = self.get("parallel_tool_calls");
        let place = Place::Top("parallel_tool_calls");
        if let Some(parallel) = parallel
            && !matches!(parallel.kind(), Kind::True | Kind::False)
        {
            return Err(Refusal::wrong_type(&place, "a boolean", parallel.kind()));
        }
        if !offer.tools.iter().any(|tool| choice.allows(tool)) {
            return Ok(());
        }
        chat.writer.key("tools");
        chat.written.push("tools");
        chat.writer.open(b'[');
        for tool in offer.tools.iter().filter(|tool| choice.allows(tool)) {
            tool.write(&mut chat.writer);
        }
        chat.writer.close(b']');
        if let Some(choice) = &choice.json {
            chat.member("tool_choice", choice);
        }
        if let Some(parallel) = parallel {
            chat.member("parallel_tool_calls", parallel.bytes());
        }
        Ok(())
    }

    fn write_text(&self, chat: &mut Chat<'_>) -> Result<(), Refusal> {
        let Some(text) = self.get("text") else {
            return Ok(());
        };
        let place = Place::Top("text");
        of_kind(text, Kind::Object, "an object", &place)?;
        for (key, value) in text.members() {
            if key.is("format") && value.kind() != Kind::Null {
                if let Some(format) = response_format(value, &place.member("format"))? {
                    chat.member("response_format", &format);
                }
            } else if key.is("verbosity") && value.kind() != Kind::Null {
                spelled(Some(value), &place.member("verbosity"))?;
                chat.member("verbosity", value.bytes());
            } else if !key.is("format") && !key.is("verbosity") {
                let name = key.decode().unwrap_or_default();
                let place = place.member(&name);
                return Err(Refusal::new(&place, format!("'{place}' is not known.")));
            }
        }
        Ok(())
    }

    fn write_reasoning(&self, chat: &mut Chat<'_>) {
        let Some(reasoning) = self.get("reasoning") else {
            return;
        };
        let mut vendor = Writer::default();
        for (key, value) in reasoning.members() {
            if key.is("effort") {
                if value.kind() != Kind::Null {
                    chat.member("reasoning_effort", value.bytes());
                }
            } else if !["summary", "generate_summary", "context", "mode"]
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

    fn write_logprobs(&self, chat: &mut Chat<'_>) -> Result<(), Refusal> {
        let place = Place::Top("include");
        let mut wanted = false;
        for (index, name) in self
            .get("include")
            .iter()
            .flat_map(Node::elements)
            .enumerate()
        {
            of_kind(name, Kind::String, "a string", &place.element(index))?;
            wanted |= name.is("message.output_text.logprobs");
        }
        let place = Place::Top("top_logprobs");
        let top = self.get("top_logprobs");
        if let Some(top) = top {
            of_kind(top, Kind::Number, "a number", &place)?;
        }
        let top = top.filter(|top| top.as_u64() != Some(0));
        if wanted || top.is_some() {
            chat.member("logprobs", b"true");
        }
        if let Some(top) = top {
            chat.member("top_logprobs", top.bytes());
        }
        Ok(())
    }
}

/// A chat request as it is written.
struct Chat<'t> {
    writer: Writer,
    omit: &'t [Box<str>],
    written: Vec<&'static str>,
}

impl Chat<'_> {
    /// The first of several members of a name counts.
    fn member(&mut self, name: &'static str, json: &[u8]) {
        if self.written.contains(&name) || self.omit.iter().any(|omitted| **omitted == *name) {
            return;
        }
        self.writer.member(name, json);
        self.written.push(name);
    }

    /// A member that is the vendor's own.
    fn copy(&mut self, key: Node<'_>, value: Node<'_>) {
        let is_written = self.written.iter().any(|name| key.is(name));
        if !is_written && !self.omit.iter().any(|omitted| key.is(omitted)) {
            self.writer.copy_member(key.bytes(), value.bytes());
        }
    }
}

/// `text.format` as `response_format`: a schema's members stand one level deeper. None for plain text, which goes without saying.
fn response_format(format: Node<'_>, place: &Place<'_>) -> Result<Option<Vec<u8>>, Refusal> {
    of_kind(format, Kind::Object, "an object", place)?;
    let [kind, nested] = format.pick(["type", "json_schema"]);
    let kind_place = place.member("type");
    spelled(kind, &kind_place)?;
    let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
    match kind.as_ref() {
        "json_schema" if nested.is_none() => {
            for name in ["name", "schema"] {
                if format.get(name).is_none() {
                    return Err(Refusal::missing(&place.member(name)));
                }
            }
            let mut writer = Writer::with_capacity(format.bytes().len() + 48);
            writer.open(b'{');
            writer.member_spelled("type", b"json_schema");
            writer.key("json_schema");
            writer.open(b'{');
            for (key, value) in format.members() {
                if !key.is("type") {
                    writer.copy_member(key.bytes(), value.bytes());
                }
            }
            writer.close(b'}');
            writer.close(b'}');
            Ok(Some(writer.into_bytes()))
        }
        "text" => Ok(None),
        "json_object" | "json_schema" => Ok(Some(format.bytes().to_vec())),
        _ => Err(Refusal::new(
            &kind_place,
            "The format must be 'text', 'json_object' or 'json_schema'.",
        )),
    }
}
