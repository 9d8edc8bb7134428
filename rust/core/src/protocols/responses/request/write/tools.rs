//! Tools, and which of them may be called.

use super::super::write_choice;
use super::items::MAX_NAME;
use super::{beyond, forces};
use crate::input::left_out::LeftOut;
use crate::input::names::{adapted, cut};
use crate::input::tools::Named;
use crate::input::{ChoiceKind, Conversation, Names, Place, Refusal, Tool, ToolKind};
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::string;
use crate::json::writer::Writer;

/// Members that a tool has for itself or in its inner object.
const OWN: [&str; 8] = [
    "type",
    "function",
    "custom",
    "name",
    "description",
    "parameters",
    "strict",
    "format",
];

/// The parameters of a function that has none.
const NO_PARAMETERS: &[u8] = br#"{"type":"object","properties":{}}"#;

/// Writes `tools` and `tool_choice`.
pub(super) fn write(
    conversation: &Conversation<'_>,
    left_out: &mut LeftOut,
    names: &mut Names,
    writer: &mut Writer,
) -> Result<(), Refusal> {
    let tools = &conversation.tools;
    let choice = &conversation.choice;
    let is_openai = conversation.api != crate::api::Api::Messages;
    if is_openai {
        if conversation.settings.find("tools").is_some() {
            writer.key("tools");
            writer.open(b'[');
            for tool in tools {
                write_tool(tool, writer);
            }
            writer.close(b']');
        }
        if let Some(choice) = choice.source {
            writer.key("tool_choice");
            write_choice(choice, writer)?;
        }
        return Ok(());
    }
    // A tool of another protocol's provider is left out where it is not needed.
    let own = |tool: &&Tool<'_>| tool.kind.hosted().is_none();
    for tool in tools.iter().filter(|tool| !own(tool)) {
        let is_spare = matches!(tool.kind, ToolKind::Hosted { spare: true, .. });
        if !is_spare
            || !tools.iter().any(|tool| own(&tool)) && !matches!(choice.kind, ChoiceKind::None)
        {
            return Err(beyond(&Place::At(tool.spot)));
        }
        left_out.add_kind(tool.spot, tool.kind.hosted().unwrap_or_default());
    }
    if !tools.iter().any(|tool| own(&tool)) {
        return match forces(&choice.kind) {
            true => Err(Refusal::new(
                &Place::Top("tool_choice"),
                "'tool_choice' asks for a tool, and 'tools' has none.",
            )),
            false => Ok(()),
        };
    }
    writer.key("tools");
    writer.open(b'[');
    for tool in tools.iter().filter(own) {
        let name = string::decode(tool.kind.name().map_or(b"", |name| name));
        if name.len() > MAX_NAME {
            names.add(&adapted(&name, MAX_NAME), &name);
        }
        write_tool(tool, writer);
    }
    writer.close(b']');
    write_neutral(&choice.kind, writer)
}

fn write_neutral(choice: &ChoiceKind<'_>, writer: &mut Writer) -> Result<(), Refusal> {
    let word: &[u8] = match choice {
        ChoiceKind::Unsaid => return Ok(()),
        ChoiceKind::Auto => b"auto",
        ChoiceKind::None => b"none",
        ChoiceKind::Required => b"required",
        ChoiceKind::Named(named) => {
            writer.key("tool_choice");
            write_named(named, writer);
            return Ok(());
        }
        ChoiceKind::Allowed { required, tools } => {
            writer.key("tool_choice");
            writer.open(b'{');
            writer.member_spelled("type", b"allowed_tools");
            writer.member_spelled("mode", if *required { b"required" } else { b"auto" });
            writer.key("tools");
            writer.open(b'[');
            for named in tools {
                write_named(named, writer);
            }
            writer.close(b']');
            writer.close(b'}');
            return Ok(());
        }
        ChoiceKind::Own { .. } => return Err(beyond(&Place::Top("tool_choice"))),
    };
    writer.member_spelled("tool_choice", word);
    Ok(())
}

fn write_named(named: &Named<'_>, writer: &mut Writer) {
    writer.open(b'{');
    writer.key("type");
    writer.text(&named.kind);
    writer.key("name");
    if named.name.len() > MAX_NAME {
        writer.text(&adapted(&named.name, MAX_NAME));
    } else {
        writer.text(&named.name);
    }
    writer.close(b'}');
}

fn write_tool(tool: &Tool<'_>, writer: &mut Writer) {
    match &tool.kind {
        ToolKind::Function {
            members: Some(members),
            ..
        } if is_nested(tool, *members) => write_flat(tool, "function", *members, writer),
        ToolKind::Custom { members, .. } if is_nested(tool, *members) => {
            write_flat(tool, "custom", *members, writer);
        }
        ToolKind::Function {
            name,
            description,
            parameters,
            strict,
            members: None,
        } => {
            writer.open(b'{');
            writer.member_spelled("type", b"function");
            writer.member_spelled("name", &cut(name, MAX_NAME));
            if let Some(description) = description {
                writer.member("description", description.bytes());
            }
            let parameters = parameters.map_or(NO_PARAMETERS, |it| it.bytes());
            writer.member("parameters", parameters);
            let is_strict = strict.is_some_and(|it| it.kind() == Kind::True);
            writer.member("strict", if is_strict { b"true" } else { b"false" });
            writer.close(b'}');
        }
        // An upstream's own, or in the form of Responses already.
        _ => writer.raw(tool.source.bytes()),
    }
}

/// Whether a tool's members stand in an object of their own, as in Chat Completions.
fn is_nested(tool: &Tool<'_>, members: Node<'_>) -> bool {
    tool.source.range() != members.range()
}

/// Writes a tool one level flatter.
fn write_flat(tool: &Tool<'_>, kind: &str, inner: Node<'_>, writer: &mut Writer) {
    writer.open(b'{');
    writer.member_spelled("type", kind.as_bytes());
    let (mut has_parameters, mut has_strict) = (false, false);
    for (key, value) in inner.members() {
        if value.kind() == Kind::Null || key.is("type") {
            continue;
        }
        has_parameters |= key.is("parameters");
        has_strict |= key.is("strict");
        if kind == "custom" && key.is("format") {
            writer.raw_key(key.bytes());
            write_custom_format(value, writer);
        } else {
            writer.copy_member(key.bytes(), value.bytes());
        }
    }
    if kind == "function" {
        if !has_parameters {
            writer.member("parameters", NO_PARAMETERS);
        }
        if !has_strict {
            // Responses would try to be.
            writer.member("strict", b"false");
        }
    }
    for (key, value) in tool.source.members() {
        if !OWN.iter().any(|own| key.is(own)) {
            writer.copy_member(key.bytes(), value.bytes());
        }
    }
    writer.close(b'}');
}

fn write_custom_format(format: Node<'_>, writer: &mut Writer) {
    let Some(grammar) = format.get("grammar").filter(|it| it.kind() == Kind::Object) else {
        return writer.raw(format.bytes());
    };
    writer.open(b'{');
    writer.member_spelled("type", b"grammar");
    for (key, value) in grammar.members() {
        if !key.is("type") {
            writer.copy_member(key.bytes(), value.bytes());
        }
    }
    writer.close(b'}');
}
