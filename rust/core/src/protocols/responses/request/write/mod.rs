//! A request for a response of what a client of another protocol asks for, for upstreams that only speak Responses.
//!
//! | what is asked for | there |
//! | --- | --- |
//! | instructions, turns | `instructions`, `input` |
//! | tools, choice | the same; a function is not strict unless the client says so, as everywhere else |
//! | format, verbosity | `text.format`, `text.verbosity` |
//! | reasoning | `reasoning`, beside what a client's own `reasoning` says |
//! | the bound on tokens | `max_output_tokens` |
//! | logprobs | `include: ["message.output_text.logprobs"]` |
//! | `store` | the same, and false where the client says nothing, as in other protocols |
//! | `stream_options.include_obfuscation` | the same; the other options nothing, as usage comes by itself |
//! | `prediction` | left out: it makes an answer faster, not another one |
//! | `top_k` of a protocol that has it, and what is [`Setting::Spared`] | left out |
//! | `n`, `stop`, `seed`, `logit_bias`, penalties | refused, unless they ask for nothing (`n: 1`, `stop: null`) |
//! | `modalities`, `audio`, `web_search_options`, `functions`, `function_call` | refused, unless they ask for nothing |
//! | what is [`Setting::Needed`] | refused |
//! | any other (`temperature`, `parallel_tool_calls`, `service_tier`, a vendor's own) | the same |

mod items;
mod tools;

use std::sync::Arc;

use self::items::Items;
use crate::api::Api;
use crate::input::settings::Member;
use crate::input::{
    ChoiceKind, Content, Conversation, FormatKind, Names, Place, Refusal, Setting, Shown, Thinking,
    Written,
};
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::writer::Writer;

/// What an upstream that speaks Responses wants to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponsesTarget {
    /// Whether it takes reasoning of earlier turns as text (vLLM does; OpenAI's own takes only what it has encrypted
    /// itself).
    pub takes_reasoning: bool,
}

/// Settings that a response has, too, with their names there.
const SAME: [(Setting, &str); 13] = [
    (Setting::Model, "model"),
    (Setting::Stream, "stream"),
    (Setting::Temperature, "temperature"),
    (Setting::TopP, "top_p"),
    (Setting::TopLogprobs, "top_logprobs"),
    (Setting::ParallelCalls, "parallel_tool_calls"),
    (Setting::ServiceTier, "service_tier"),
    (Setting::User, "user"),
    (Setting::SafetyIdentifier, "safety_identifier"),
    (Setting::CacheKey, "prompt_cache_key"),
    (Setting::CacheRetention, "prompt_cache_retention"),
    (Setting::Store, "store"),
    (Setting::Metadata, "metadata"),
];

/// Writes the request for an upstream that speaks Responses. Nothing of it that changes the answer is left out without
/// a word.
///
/// # Errors
/// What the request asks for is beyond such an upstream, or of a form that is not known.
pub fn write_request(
    conversation: &Conversation<'_>,
    target: &ResponsesTarget,
) -> Result<Written, Refusal> {
    let settings = &conversation.settings;
    let mut spared = conversation.left_out.clone();
    let mut response = Response {
        conversation,
        writer: Writer::with_capacity(settings.size() + 256),
    };
    response.writer.open(b'{');
    for (setting, member) in settings.members() {
        if member.value.kind() == Kind::Null {
            continue;
        }
        let name = member.name();
        match setting {
            None => response.copy(member),
            Some(Setting::Needed) => return Err(beyond(&Place::Top(&name))),
            Some(Setting::Spared) => spared.add(&name),
            Some(setting) => response.setting(*setting, member)?,
        }
    }
    response.settings_from_elsewhere();
    response.instructions()?;
    response.writer.key("input");
    let mut items = Items::new(target, &mut response.writer);
    for turn in &conversation.turns {
        items.turn(turn)?;
    }
    let mut left_out = items.finish();
    if settings.get(Setting::Store).is_none() {
        response.writer.member("store", b"false");
    }
    let mut names = Names::default();
    tools::write(
        conversation,
        &mut left_out,
        &mut names,
        &mut response.writer,
    )?;
    response.text();
    response.reasoning();
    response.include();
    if let Some(tokens) = settings.get(Setting::MaxTokens) {
        let writer = &mut response.writer;
        writer.member("max_output_tokens", tokens.bytes());
    }
    let options = settings.get(Setting::StreamOptions);
    if let Some(padding) = options.and_then(|it| it.get("include_obfuscation")) {
        let writer = &mut response.writer;
        writer.key("stream_options");
        writer.open(b'{');
        writer.member("include_obfuscation", padding.bytes());
        writer.close(b'}');
    }
    for (setting, name) in [
        (Setting::Prediction, "prediction"),
        (Setting::TopK, "top_k"),
    ] {
        if settings.get(setting).is_some() {
            left_out.add(name);
        }
    }
    response.writer.close(b'}');
    left_out.append(spared);
    Ok(Written {
        body: response.writer.into_bytes().into(),
        left_out: left_out.finish(),
        names: (!names.is_empty()).then(|| Arc::new(names)),
    })
}

/// What an upstream that speaks Responses has no place for.
fn beyond(place: &Place<'_>) -> Refusal {
    Refusal::new(
        place,
        format!("'{place}' can't be used with this model: its upstream speaks Responses."),
    )
}

/// Whether a setting that Responses has no place for asks for nothing. None for any other.
fn asks_nothing(setting: Setting, value: Node<'_>) -> Option<bool> {
    let is_empty =
        |value: Node<'_>| value.members().next().is_none() && value.elements().next().is_none();
    Some(match setting {
        Setting::Candidates => value.as_u64() == Some(1),
        Setting::PresencePenalty | Setting::FrequencyPenalty => is_zero(value.bytes()),
        Setting::Stop | Setting::LogitBias | Setting::Functions => {
            matches!(value.kind(), Kind::Array | Kind::Object) && is_empty(value)
        }
        Setting::Modalities => {
            value.kind() == Kind::Array && value.elements().all(|modality| modality.is("text"))
        }
        Setting::FunctionCall => value.is("auto") || value.is("none"),
        Setting::Seed | Setting::AudioOutput | Setting::WebSearch => false,
        _ => return None,
    })
}

/// Whether a number, as it is spelled, is 0.
fn is_zero(number: &[u8]) -> bool {
    let significand = number.split(|byte| matches!(byte, b'e' | b'E')).next();
    significand.is_some_and(|digits| digits.iter().all(|byte| b"-0.".contains(byte)))
}

/// A request for a response as it is written.
struct Response<'c, 'a> {
    conversation: &'c Conversation<'a>,
    writer: Writer,
}

impl Response<'_, '_> {
    fn copy(&mut self, member: &Member<'_>) {
        let (key, value) = (member.key.bytes(), member.value.bytes());
        self.writer.copy_member(key, value);
    }

    /// A member of the request's own object that is known, in its place among the others.
    fn setting(&mut self, setting: Setting, member: &Member<'_>) -> Result<(), Refusal> {
        let counts = self.conversation.settings.member(setting);
        let is_last = counts.is_some_and(|it| it.key.range() == member.key.range());
        if !is_last {
            return Ok(());
        }
        if let Some(asks_nothing) = asks_nothing(setting, member.value) {
            return match asks_nothing {
                true => Ok(()),
                false => Err(beyond(&Place::Top(&member.name()))),
            };
        }
        let name = SAME.iter().find(|(known, _)| *known == setting);
        if let Some((_, name)) = name {
            if member.key.is(name) {
                self.copy(member);
            } else {
                self.writer.member(name, member.value.bytes());
            }
        }
        Ok(())
    }

    /// Settings that the client says in other members than those of the request's own object.
    fn settings_from_elsewhere(&mut self) {
        let settings = &self.conversation.settings;
        for (setting, name) in SAME {
            let Some(member) = settings.member(setting) else {
                continue;
            };
            let is_own =
                |(_, own): &(Option<Setting>, Member<'_>)| own.key.range() == member.key.range();
            // A client of Messages names its user for the provider's sake alone.
            let name = match setting {
                Setting::User if self.conversation.api == Api::Messages => "safety_identifier",
                _ => name,
            };
            if !settings.members().iter().any(is_own) {
                self.writer.member(name, member.value.bytes());
            }
        }
        if settings.get(Setting::ParallelCalls).is_none() && self.conversation.choice.one_call {
            self.writer.member("parallel_tool_calls", b"false");
        }
    }

    fn instructions(&mut self) -> Result<(), Refusal> {
        let mut texts: Vec<&[u8]> = Vec::new();
        for block in &self.conversation.instructions {
            let Content::Text(text) = &block.content else {
                return Err(beyond(&Place::At(block.spot)));
            };
            if !texts.is_empty() {
                texts.push(b"\\n\\n");
            }
            texts.push(text);
        }
        if !texts.is_empty() {
            self.writer.key("instructions");
            self.writer.spelled_parts(&texts);
        }
        Ok(())
    }

    fn text(&mut self) {
        let settings = &self.conversation.settings;
        let format = &self.conversation.format;
        let mut inner = Writer::default();
        if format.source.is_some() {
            inner.key("format");
            write_format(self.conversation, &mut inner);
        }
        let verbosity = format.verbosity.or(settings.get(Setting::Verbosity));
        if let Some(verbosity) = verbosity {
            inner.member("verbosity", verbosity.bytes());
        }
        let own = settings.get(Setting::TextOptions);
        self.object("text", inner, own, &["format", "verbosity"]);
    }

    fn reasoning(&mut self) {
        let reasoning = &self.conversation.reasoning;
        let mut inner = Writer::default();
        let is_own = |effort: &Node<'_>| {
            let own = reasoning.members.map(|own| own.range());
            own.is_some_and(|own| own.contains(&effort.range().start))
        };
        if let Some(effort) = reasoning.effort.filter(|effort| !is_own(effort)) {
            inner.member("effort", effort.bytes());
        } else if reasoning.members.is_none() {
            match (reasoning.mode, reasoning.budget) {
                (Thinking::Off, _) => inner.member_spelled("effort", b"none"),
                (Thinking::On, Some(budget)) => {
                    let effort: &[u8] = match budget.as_u64() {
                        Some(..4096) => b"low",
                        Some(4096..16384) => b"medium",
                        _ => b"high",
                    };
                    inner.member_spelled("effort", effort);
                }
                _ => {}
            }
        }
        if reasoning.members.is_none()
            && let Shown::Summary(length) = reasoning.shown
        {
            let length = length.map_or(&b"\"auto\""[..], |length| length.bytes());
            inner.member("summary", length);
        }
        self.object("reasoning", inner, reasoning.members, &["effort"]);
    }

    /// An object made of what other protocols have elsewhere, and of what the client gave in the object itself.
    fn object(
        &mut self,
        name: &'static str,
        mut inner: Writer,
        own: Option<Node<'_>>,
        said: &[&str],
    ) {
        let is_said = !inner.is_empty();
        for (key, value) in own.iter().flat_map(Node::members) {
            if !is_said || !said.iter().any(|said| key.is(said)) {
                inner.copy_member(key.bytes(), value.bytes());
            }
        }
        if !inner.is_empty() {
            let inner = [b"{", inner.as_bytes(), b"}"].concat();
            self.writer.member(name, &inner);
        }
    }

    fn include(&mut self) {
        let wanted = self.conversation.logprobs;
        let own = self.conversation.settings.get(Setting::Include);
        let own = own.filter(|include| include.kind() == Kind::Array);
        if !wanted && own.is_none() {
            return;
        }
        self.writer.key("include");
        self.writer.open(b'[');
        for name in own.iter().flat_map(Node::elements) {
            self.writer.raw(name.bytes());
        }
        if wanted {
            self.writer.spelled(b"message.output_text.logprobs");
        }
        self.writer.close(b']');
    }
}

fn write_format(conversation: &Conversation<'_>, writer: &mut Writer) {
    let format = &conversation.format;
    let FormatKind::Schema {
        schema, members, ..
    } = format.kind
    else {
        return writer.raw(
            format
                .source
                .map_or(b"{\"type\":\"text\"}", |it| it.bytes()),
        );
    };
    if members.is_some() && !format.is_nested() {
        return writer.raw(format.source.map_or(b"{}", |it| it.bytes()));
    }
    writer.open(b'{');
    writer.member_spelled("type", b"json_schema");
    match members {
        Some(members) => {
            for (key, value) in members.members() {
                if !key.is("type") && value.kind() != Kind::Null {
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
}

/// Whether no tool may be left out: the choice asks for one, or for one that is not known.
fn forces(choice: &ChoiceKind<'_>) -> bool {
    !matches!(
        choice,
        ChoiceKind::Unsaid | ChoiceKind::Auto | ChoiceKind::None
    )
}
