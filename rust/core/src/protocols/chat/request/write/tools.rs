//! The tools as functions, and which of them the model may call.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::api::Api;
use crate::input::names::adapted;
use crate::input::offer::{Function, INPUT, Offer, write_custom_description};
use crate::input::tools::Named;
use crate::input::{ChoiceKind, Conversation, Place, Refusal, Tool, ToolKind};
use crate::json::scan::Kind;
use crate::json::writer::Writer;

/// Members of a function's tool that are the function's, or have no meaning where no server runs tools.
const FUNCTION: [&str; 10] = [
    "type",
    "function",
    "name",
    "description",
    "parameters",
    "strict",
    "allowed_callers",
    "async",
    "defer_loading",
    "output_schema",
];

/// The parameters of a function that has none.
const NO_PARAMETERS: &[u8] = br#"{"type":"object","properties":{}}"#;

/// The longest name of a function that servers take.
const MAX_NAME: usize = 64;

/// What an upstream is told for a function's name. A tool of a client of Messages may have a longer one.
pub(super) fn told(client: Api, name: &str) -> Cow<'_, str> {
    if client == Api::Messages {
        adapted(name, MAX_NAME)
    } else {
        Cow::Borrowed(name)
    }
}

/// Writes a tool under this name.
pub(super) fn write(function: &Function<'_, '_>, name: &str, writer: &mut Writer) {
    open_function(writer, name);
    match &function.tool.kind {
        ToolKind::Function {
            description,
            parameters,
            strict,
            members,
            ..
        } => {
            if let Some(description) = description {
                writer.member("description", description.bytes());
            }
            let parameters = parameters.map_or(NO_PARAMETERS, |it| it.bytes());
            writer.member("parameters", parameters);
            // Chat Completions is not strict where nothing is said.
            let strict = strict.filter(|it| members.is_some() || it.kind() == Kind::True);
            if let Some(strict) = strict {
                writer.member("strict", strict.bytes());
            }
            writer.close(b'}');
            if members.is_some() {
                for (key, value) in function.tool.source.members() {
                    if !FUNCTION.iter().any(|known| key.is(known)) {
                        writer.copy_member(key.bytes(), value.bytes());
                    }
                }
            }
        }
        _ => {
            writer.key("description");
            write_custom_description(function.tool, writer);
            writer.member("parameters", INPUT);
            writer.close(b'}');
        }
    }
    writer.close(b'}');
}

fn open_function(writer: &mut Writer, name: &str) {
    writer.open(b'{');
    writer.member_spelled("type", b"function");
    writer.key("function");
    writer.open(b'{');
    writer.key("name");
    writer.text(name);
}

/// A tool that an upstream of Chat Completions can't run.
fn unsupported(place: &Place<'_>, kind: &str) -> Refusal {
    Refusal::new(
        place,
        format!(
            "Tools of type '{kind}' can't be used with this model: its upstream speaks Chat Completions, which has functions only."
        ),
    )
}

/// Which tools the model may call.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    /// `tool_choice`; None: the request has none.
    pub(super) json: Option<Vec<u8>>,
    /// Names of the functions it may call; None: all.
    only: Option<BTreeSet<Box<str>>>,
}

impl Chosen {
    /// What the choice is, which also decides whether tools may be left out of the offer.
    pub(super) fn of(
        conversation: &Conversation<'_>,
        offer: &Offer<'_, '_>,
    ) -> Result<Self, Refusal> {
        let choice = &conversation.choice.kind;
        let place = Place::Top("tool_choice");
        let is_needed =
            |tool: &&Tool<'_>| !matches!(tool.kind, ToolKind::Hosted { spare: true, .. });
        let mut missing = offer.hosted.iter().find(|tool| is_needed(tool));
        // Agents offer some with every request, though they need none of them.
        if offer.functions.is_empty() && !matches!(choice, ChoiceKind::None) {
            missing = missing.or(offer.hosted.first());
        }
        if let Some(tool) = missing {
            let kind = tool.kind.hosted().unwrap_or_default();
            return Err(unsupported(&Place::At(tool.spot), kind));
        }
        let mut only = None;
        let json = match choice {
            ChoiceKind::Unsaid => None,
            ChoiceKind::Auto => Some(b"\"auto\"".to_vec()),
            ChoiceKind::None => Some(b"\"none\"".to_vec()),
            ChoiceKind::Required => Some(b"\"required\"".to_vec()),
            ChoiceKind::Named(named) => {
                let mut writer = Writer::default();
                let function = chosen(named, offer)?;
                open_function(&mut writer, &told(conversation.api, &function.function));
                writer.close(b'}');
                writer.close(b'}');
                Some(writer.into_bytes())
            }
            ChoiceKind::Allowed { required, tools } => {
                only = Some(allowed_functions(tools, offer)?);
                let mode: &[u8] = if *required {
                    b"\"required\""
                } else {
                    b"\"auto\""
                };
                Some(mode.to_vec())
            }
            ChoiceKind::Own { kind } => return Err(unsupported(&place, kind)),
        };
        if !offer.functions.is_empty() {
            return Ok(Chosen { json, only });
        }
        match choice {
            ChoiceKind::Unsaid | ChoiceKind::Auto | ChoiceKind::None => Ok(Chosen::default()),
            _ => Err(Refusal::new(
                &place,
                "'tool_choice' asks for a tool, and 'tools' has none.",
            )),
        }
    }

    /// Whether the model may call this function.
    pub(super) fn allows(&self, function: &Function<'_, '_>) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| only.contains(&function.function))
    }
}

/// The function of the tool that is named.
fn chosen<'o, 't, 'a>(
    named: &Named<'_>,
    offer: &'o Offer<'t, 'a>,
) -> Result<&'o Function<'t, 'a>, Refusal> {
    offer.named(named).ok_or_else(|| {
        Refusal::new(
            &Place::At(named.spot),
            format!("There is no tool '{}' in 'tools'.", named.name),
        )
    })
}

fn allowed_functions(
    tools: &[Named<'_>],
    offer: &Offer<'_, '_>,
) -> Result<BTreeSet<Box<str>>, Refusal> {
    let hosted: BTreeSet<&str> = offer
        .hosted
        .iter()
        .filter_map(|it| it.kind.hosted())
        .collect();
    let mut only = BTreeSet::new();
    let mut refusal = None;
    for named in tools {
        if named.kind == "function" || named.kind == "custom" {
            only.insert(chosen(named, offer)?.function.clone());
            continue;
        }
        let unsupported = unsupported(&Place::At(named.spot), &named.kind);
        if !hosted.contains(named.kind.as_ref()) {
            return Err(unsupported);
        }
        refusal = Some(unsupported);
    }
    match refusal {
        Some(refusal) if only.is_empty() => Err(refusal),
        _ => Ok(only),
    }
}
