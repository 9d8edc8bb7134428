//! A conversation as a request to `/v1/messages`.
//!
//! | the conversation's | there |
//! | --- | --- |
//! | instructions, turns | `system`, `messages`: see `turns` |
//! | tools | `tools`, as functions; a schema gets the type `object` at its root, which must be there |
//! | choice | `tool_choice`, with `disable_parallel_tool_use`; of allowed tools the others are left out |
//! | format | `output_config.format`; an object of any form is refused, as no schema may stand for it |
//! | reasoning | `thinking` and `output_config.effort`: see `thinking` |
//! | bound on output tokens | `max_tokens`; the target's where there is none |
//! | `temperature`, `top_p` | the same; left out where the model thinks and the value is not what it must be then |
//! | `stop` | `stop_sequences`; those of white space alone are left out |
//! | user | `metadata.user_id` |
//! | `service_tier` | `auto` for `auto` and `priority`, `standard_only` for `default`; others are left out |
//! | several answers, probabilities, seeds, penalties, sound, hosted tools alone | refused |
//! | what a vendor's client adds | the same, or left out where the target says so |

use super::parts::{self, beyond, is_blank};
use super::read::table;
use super::target::{Cache, MessagesTarget, Rest};
use super::thinking::{self, Told};
use super::turns::{self, MAX_NAME, Messages};
use crate::api::Api;
use crate::input::left_out::LeftOut;
use crate::input::names::adapted;
use crate::input::offer::{Function, INPUT, Offer, write_custom_description};
use crate::input::place::{Place, Refusal, of_kind};
use crate::input::settings::{Member, Setting};
use crate::input::tools::{ChoiceKind, Named, ToolKind};
use crate::input::{Conversation, FormatKind, Names, Written};
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::writer::Writer;

/// The request for an upstream that speaks Messages. Nothing of it that changes the answer is left out without a word.
///
/// # Errors
/// What the conversation asks for is beyond such an upstream, or malformed.
pub fn write_request(
    conversation: &Conversation<'_>,
    target: &MessagesTarget,
) -> Result<Written, Refusal> {
    refuse(conversation)?;
    let offer = Offer::of(&conversation.tools);
    let choice = choose(conversation, &offer)?;
    let mut messages = Messages::new(conversation, &offer, target);
    for turn in &conversation.turns {
        messages.turn(turn)?;
    }
    let turns = messages.finish()?;
    let max_tokens = conversation.settings.member(Setting::MaxTokens);
    if let Some(Member { key, value }) = max_tokens {
        let name = key.decode().unwrap_or_default();
        of_kind(value, Kind::Number, "a number", &Place::Top(&name))?;
    }
    let open_loop = messages.is_open_loop_without_thinking();
    let told = thinking::plan(
        conversation,
        target,
        choice.is_forced || open_loop,
        &mut messages.left_out,
    );

    let mut body = Body {
        writer: Writer::with_capacity(turns.len() + 1024),
        written: Vec::new(),
    };
    body.writer.open(b'{');
    if let Some(model) = conversation.settings.get(Setting::Model) {
        body.member("model", model.bytes());
    }
    match (told.max_tokens, max_tokens) {
        (None, Some(given)) => body.member("max_tokens", given.value.bytes()),
        (tokens, _) => {
            let tokens = tokens.unwrap_or(target.max_tokens);
            body.member("max_tokens", tokens.to_string().as_bytes());
        }
    }
    let system = turns::system_texts(&messages.system)?;
    if !system.is_empty() {
        let mut value = Writer::default();
        turns::write_texts(&system, &mut value);
        body.member("system", value.as_bytes());
    }
    body.member("messages", &turns);
    write_tools(&offer, &choice, &mut messages.names, &mut body);
    for hosted in &offer.hosted {
        let ToolKind::Hosted { kind, .. } = &hosted.kind else {
            continue;
        };
        messages.left_out.add_kind(Place::At(hosted.spot), kind);
    }
    write_output_config(conversation, &told, &mut body)?;
    if let Some(thinking) = &told.thinking {
        body.member("thinking", thinking);
    }
    write_settings(conversation, &told, &mut messages.left_out, &mut body)?;
    let cache = match target.cache {
        Cache::Off => None,
        Cache::FiveMinutes => Some(&br#"{"type":"ephemeral"}"#[..]),
        Cache::OneHour => Some(&br#"{"type":"ephemeral","ttl":"1h"}"#[..]),
    };
    if let Some(cache) = cache {
        body.member("cache_control", cache);
    }
    write_rest(
        conversation,
        target,
        &told,
        &mut messages.left_out,
        &mut body,
    );
    body.writer.close(b'}');
    let left_out = std::mem::take(&mut messages.left_out).finish();
    Ok(Written {
        body: body.writer.into_bytes().into(),
        left_out,
        names: messages.into_names(),
    })
}

/// A request as it is written.
struct Body {
    writer: Writer,
    written: Vec<&'static str>,
}

impl Body {
    fn member(&mut self, name: &'static str, json: &[u8]) {
        self.writer.member(name, json);
        self.written.push(name);
    }
}

/// The place of a setting, as the client calls it.
fn refused(member: &Member<'_>) -> Refusal {
    let name = member.name();
    beyond(&Place::Top(&name))
}

/// Refuses what the answer depends on, and no upstream of Messages can do.
fn refuse(conversation: &Conversation<'_>) -> Result<(), Refusal> {
    let settings = &conversation.settings;
    for (setting, member) in settings.members() {
        let value = member.value;
        let Some(setting) = setting else {
            continue;
        };
        let is_asked = value.kind() != Kind::Null && !asks_nothing(*setting, value);
        if is_asked {
            return Err(refused(member));
        }
    }
    if conversation.logprobs {
        let name = if conversation.api == Api::Responses {
            "include"
        } else {
            "logprobs"
        };
        return Err(beyond(&Place::Top(name)));
    }
    Ok(())
}

/// Whether a member does not ask for what Messages has no place for.
fn asks_nothing(setting: Setting, value: Node<'_>) -> bool {
    let is_empty = || value.members().next().is_none() && value.elements().next().is_none();
    match setting {
        Setting::Candidates => value.as_u64() == Some(1),
        Setting::PresencePenalty | Setting::FrequencyPenalty => is_zero(value.bytes()),
        Setting::TopLogprobs => value.as_u64() == Some(0),
        Setting::LogitBias | Setting::Functions => {
            matches!(value.kind(), Kind::Array | Kind::Object) && is_empty()
        }
        Setting::Modalities => {
            value.kind() == Kind::Array && value.elements().all(|modality| modality.is("text"))
        }
        Setting::FunctionCall => value.is("auto") || value.is("none"),
        Setting::Seed | Setting::AudioOutput | Setting::WebSearch | Setting::Needed => false,
        _ => true,
    }
}

/// Whether a number, as it is spelled, is 0.
fn is_zero(number: &[u8]) -> bool {
    let significand = number.split(|byte| matches!(byte, b'e' | b'E')).next();
    significand.is_some_and(|digits| digits.iter().all(|byte| b"-0.".contains(byte)))
}

/// Which tools may be called, in the words of Messages.
#[derive(Default)]
struct Chosen {
    /// The type and the name of the choice; None: the request says nothing.
    kind: Option<(&'static str, Option<Box<str>>)>,
    /// Functions that may be called; None: all.
    only: Option<std::collections::BTreeSet<Box<str>>>,
    one_call: bool,
    is_forced: bool,
}

impl Chosen {
    fn allows(&self, function: &Function<'_, '_>) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| only.contains(&function.function))
    }
}

fn choose(conversation: &Conversation<'_>, offer: &Offer<'_, '_>) -> Result<Chosen, Refusal> {
    let place = Place::Top("tool_choice");
    let choice = &conversation.choice;
    let is_none = matches!(choice.kind, ChoiceKind::None);
    for tool in &offer.hosted {
        if let ToolKind::Hosted { kind, spare } = &tool.kind
            && (!*spare || offer.functions.is_empty() && !is_none)
        {
            return Err(unsupported(&Place::At(tool.spot), kind));
        }
    }
    let mut chosen = Chosen {
        one_call: choice.one_call,
        ..Chosen::default()
    };
    match &choice.kind {
        ChoiceKind::Unsaid => {}
        ChoiceKind::Auto => chosen.kind = Some(("auto", None)),
        ChoiceKind::None => chosen.kind = Some(("none", None)),
        ChoiceKind::Required => chosen.kind = Some(("any", None)),
        ChoiceKind::Named(named) => {
            chosen.kind = Some(("tool", Some(find(offer, named)?.function.clone())));
        }
        ChoiceKind::Allowed { required, tools } => {
            let word = if *required { "any" } else { "auto" };
            chosen.kind = Some((word, None));
            let mut only = std::collections::BTreeSet::new();
            let mut hosted = None;
            for named in tools {
                if named.name.is_empty() {
                    hosted = Some(unsupported(&Place::At(named.spot), &named.kind));
                } else {
                    only.insert(find(offer, named)?.function.clone());
                }
            }
            if let Some(refusal) = hosted.filter(|_| only.is_empty()) {
                return Err(refusal);
            }
            chosen.only = Some(only);
        }
        ChoiceKind::Own { .. } => return Err(beyond(&place)),
    }
    chosen.is_forced = matches!(chosen.kind, Some(("any" | "tool", _)));
    if chosen.is_forced && !offer.functions.iter().any(|it| chosen.allows(it)) {
        return Err(Refusal::new(
            &place,
            "'tool_choice' asks for a tool, and 'tools' has none.",
        ));
    }
    Ok(chosen)
}

fn find<'o, 't, 'a>(
    offer: &'o Offer<'t, 'a>,
    named: &Named<'_>,
) -> Result<&'o Function<'t, 'a>, Refusal> {
    let place = Place::At(named.spot);
    if named.name.is_empty() {
        return Err(unsupported(&place, &named.kind));
    }
    offer.named(named).ok_or_else(|| {
        let name = &named.name;
        Refusal::new(&place, format!("There is no tool '{name}' in 'tools'."))
    })
}

/// A tool that an upstream of Messages can't run.
fn unsupported(place: &Place<'_>, kind: &str) -> Refusal {
    Refusal::new(
        place,
        format!(
            "Tools of type '{kind}' can't be used with this model: its upstream speaks Messages."
        ),
    )
}

fn write_tools(offer: &Offer<'_, '_>, choice: &Chosen, names: &mut Names, body: &mut Body) {
    let functions = || offer.functions.iter().filter(|it| choice.allows(it));
    if functions().next().is_none() {
        return;
    }
    let mut tools = Writer::default();
    tools.open(b'[');
    for function in functions() {
        let name = adapted(&function.function, MAX_NAME);
        names.add(&name, &function.function);
        tools.open(b'{');
        tools.member_spelled("name", name.as_bytes());
        write_function(function, &mut tools);
        if let Some(cache) = parts::cache_control(Some(function.tool.source)) {
            tools.member("cache_control", cache.bytes());
        }
        tools.close(b'}');
    }
    tools.close(b']');
    body.member("tools", tools.as_bytes());
    let kind = match &choice.kind {
        None if choice.one_call => Some(("auto", None)),
        kind => kind.as_ref().map(|(kind, name)| (*kind, name.as_deref())),
    };
    let Some((kind, name)) = kind else {
        return;
    };
    let mut chosen = Writer::default();
    chosen.open(b'{');
    chosen.member_spelled("type", kind.as_bytes());
    if let Some(name) = name {
        chosen.member_spelled("name", adapted(name, MAX_NAME).as_bytes());
    }
    if choice.one_call && kind != "none" {
        chosen.member("disable_parallel_tool_use", b"true");
    }
    chosen.close(b'}');
    body.member("tool_choice", chosen.as_bytes());
}

fn write_function(function: &Function<'_, '_>, writer: &mut Writer) {
    match &function.tool.kind {
        ToolKind::Function {
            description,
            parameters,
            strict,
            ..
        } => {
            if let Some(description) = description {
                writer.member("description", description.bytes());
            }
            write_schema(*parameters, writer);
            if strict.is_some_and(|strict| strict.kind() == Kind::True) {
                writer.member("strict", b"true");
            }
        }
        ToolKind::Custom { .. } => {
            writer.key("description");
            write_custom_description(function.tool, writer);
            writer.member("input_schema", INPUT);
        }
        ToolKind::Hosted { .. } => {}
    }
}

/// The schema of what a function takes, which must be an object's.
fn write_schema(parameters: Option<Node<'_>>, writer: &mut Writer) {
    let parameters =
        parameters.filter(|it| it.kind() == Kind::Object && it.members().next().is_some());
    let Some(parameters) = parameters else {
        return writer.member("input_schema", br#"{"type":"object","properties":{}}"#);
    };
    if parameters.get("type").is_some() {
        return writer.member("input_schema", parameters.bytes());
    }
    writer.key("input_schema");
    writer.open(b'{');
    writer.member_spelled("type", b"object");
    for (key, value) in parameters.members() {
        if !key.is("type") {
            writer.copy_member(key.bytes(), value.bytes());
        }
    }
    writer.close(b'}');
}

fn write_output_config(
    conversation: &Conversation<'_>,
    told: &Told,
    body: &mut Body,
) -> Result<(), Refusal> {
    let mut config = Writer::default();
    config.open(b'{');
    if let Some(effort) = &told.effort {
        config.member("effort", effort);
    }
    let format = &conversation.format;
    let place = Place::At(format.spot);
    match format.kind {
        FormatKind::Text => {}
        FormatKind::Schema { schema, .. } => {
            let place = place.member("schema");
            let schema = schema.ok_or_else(|| Refusal::missing(&place))?;
            config.key("format");
            config.open(b'{');
            config.member_spelled("type", b"json_schema");
            config.member("schema", schema.bytes());
            config.close(b'}');
        }
        FormatKind::Object => {
            return Err(Refusal::new(
                &place.member("type"),
                "An object of any form can't be asked of this model, whose upstream speaks Messages: give a schema.",
            ));
        }
        FormatKind::Own => return Err(beyond(&place.member("type"))),
    }
    if config.as_bytes() != b"{" {
        config.close(b'}');
        body.member("output_config", config.as_bytes());
    }
    Ok(())
}

fn write_settings(
    conversation: &Conversation<'_>,
    told: &Told,
    left_out: &mut LeftOut,
    body: &mut Body,
) -> Result<(), Refusal> {
    let settings = &conversation.settings;
    if let Some(stream) = settings.get(Setting::Stream) {
        body.member("stream", stream.bytes());
    }
    for (setting, name, may_stay) in [
        (
            Setting::Temperature,
            "temperature",
            &is_one as &dyn Fn(f64) -> bool,
        ),
        (Setting::TopP, "top_p", &(|value| value >= 0.95)),
        (Setting::TopK, "top_k", &(|_| false)),
    ] {
        let Some(member) = settings.member(setting) else {
            continue;
        };
        of_kind(
            member.value,
            Kind::Number,
            "a number",
            &Place::Top(&member.name()),
        )?;
        if told.is_on && !may_stay(number(member.value)) {
            left_out.add(member.name());
        } else {
            body.member(name, member.value.bytes());
        }
    }
    if let Some(stop) = settings.member(Setting::Stop) {
        write_stop(&stop, left_out, body)?;
    }
    let user = settings.member(Setting::User);
    if let Some(user) = user.or(settings.member(Setting::SafetyIdentifier)) {
        of_kind(
            user.value,
            Kind::String,
            "a string",
            &Place::Top(&user.name()),
        )?;
        let mut metadata = Writer::default();
        metadata.open(b'{');
        metadata.member("user_id", user.value.bytes());
        metadata.close(b'}');
        body.member("metadata", metadata.as_bytes());
    }
    if let Some(tier) = settings.member(Setting::ServiceTier) {
        let is = |name: &str| tier.value.is(name);
        if is("auto") || is("priority") {
            body.member("service_tier", b"\"auto\"");
        } else if is("default") {
            body.member("service_tier", b"\"standard_only\"");
        } else {
            left_out.add(tier.name());
        }
    }
    for (setting, member) in settings.members() {
        let is_listed = matches!(
            setting,
            Some(
                Setting::Prediction | Setting::Verbosity | Setting::MaxToolCalls | Setting::Spared
            )
        );
        if is_listed && member.value.kind() != Kind::Null {
            left_out.add(member.name());
        }
    }
    if conversation.format.verbosity.is_some() {
        left_out.add("text.verbosity");
    }
    Ok(())
}

fn number(value: Node<'_>) -> f64 {
    let text = std::str::from_utf8(value.bytes()).unwrap_or_default();
    text.parse().unwrap_or(0.0)
}

fn is_one(value: f64) -> bool {
    (value - 1.0).abs() < f64::EPSILON
}

fn write_stop(stop: &Member<'_>, left_out: &mut LeftOut, body: &mut Body) -> Result<(), Refusal> {
    let name = stop.name();
    let place = Place::Top(&name);
    let mut sequences = Writer::default();
    sequences.open(b'[');
    let mut add = |text: Node<'_>, place: &Place<'_>| -> Result<(), Refusal> {
        of_kind(text, Kind::String, "a string", place)?;
        if is_blank(text.spelled().unwrap_or_default()) {
            left_out.add(place);
        } else {
            sequences.raw(text.bytes());
        }
        Ok(())
    };
    match stop.value.kind() {
        Kind::String => add(stop.value, &place)?,
        Kind::Array => {
            for (index, text) in stop.value.elements().enumerate() {
                add(text, &place.element(index))?;
            }
        }
        kind => return Err(Refusal::wrong_type(&place, "a string or an array", kind)),
    }
    if sequences.as_bytes() != b"[" {
        sequences.close(b']');
        body.member("stop_sequences", sequences.as_bytes());
    }
    Ok(())
}

/// Members that the client's protocol does not know.
fn write_rest(
    conversation: &Conversation<'_>,
    target: &MessagesTarget,
    told: &Told,
    left_out: &mut LeftOut,
    body: &mut Body,
) {
    for member in conversation.settings.rest() {
        let name = member.name();
        if member.value.kind() == Kind::Null
            || body.written.iter().any(|written| **written == *name)
        {
            continue;
        }
        // What has a place of its own in Messages is not said in another protocol's words.
        let is_ours = matches!(&*name, "system" | "messages" | "model" | "stop_sequences");
        let is_known = table(&name).is_some();
        let is_refused = told.is_on && name == "top_k";
        if is_ours || is_refused || target.rest == Rest::Drop && !is_known {
            left_out.add(&name);
        } else {
            body.writer
                .copy_member(member.key.bytes(), member.value.bytes());
        }
    }
}
