//! The tools, and which of them may be called.

use std::borrow::Cow;

use crate::input::place::{of_kind, spelled};
use crate::input::tools::{Grammar, MAX_TOOLS, Named};
use crate::input::{Choice, ChoiceKind, MAX_BLOCKS, Place, Refusal, Spot, Tool, ToolKind, Word};
use crate::json::node::Node;
use crate::json::scan::Kind;

/// Reads the tools.
pub(super) fn read(tools: Option<Node<'_>>) -> Result<Vec<Tool<'_>>, Refusal> {
    let Some(tools) = tools else {
        return Ok(Vec::new());
    };
    let place = Place::Top("tools");
    of_kind(tools, Kind::Array, "an array", &place)?;
    let mut read = Vec::new();
    for (index, tool) in tools.elements().enumerate() {
        let place = place.element(index);
        if index == MAX_TOOLS {
            let message = format!("More than {MAX_TOOLS} tools are offered.");
            return Err(Refusal::new(&place, message));
        }
        read.push(Tool {
            kind: tool_kind(tool, &place)?,
            namespace: None,
            spot: Spot::top(Word::Tools).element(index),
            source: tool,
        });
    }
    Ok(read)
}

fn tool_kind<'a>(tool: Node<'a>, place: &Place<'_>) -> Result<ToolKind<'a>, Refusal> {
    of_kind(tool, Kind::Object, "an object", place)?;
    let [kind, function, custom] = tool.pick(["type", "function", "custom"]);
    spelled(kind, &place.member("type"))?;
    let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
    let (member, inner) = match (function, custom) {
        (Some(function), _) => ("function", function),
        (None, Some(custom)) => ("custom", custom),
        (None, None) => ("", tool),
    };
    if kind != member {
        return Ok(ToolKind::Hosted { kind, spare: false });
    }
    let place = place.member(member);
    of_kind(inner, Kind::Object, "an object", &place)?;
    let [name, description] = inner.pick(["name", "description"]);
    let name = spelled(name, &place.member("name"))?;
    if member == "custom" {
        return Ok(ToolKind::Custom {
            name: name.into(),
            description,
            grammar: inner.get("format").and_then(grammar),
            members: inner,
        });
    }
    let [parameters, strict] = inner.pick(["parameters", "strict"]);
    Ok(ToolKind::Function {
        name: name.into(),
        description,
        parameters,
        strict,
        members: Some(inner),
    })
}

fn grammar(format: Node<'_>) -> Option<Grammar<'_>> {
    let [syntax, definition] = format.get("grammar")?.pick(["syntax", "definition"]);
    Some(Grammar {
        syntax: syntax?.spelled()?.into(),
        definition: definition?.spelled()?.into(),
    })
}

/// Reads `tool_choice`. One in a form that is not known is the upstream's to refuse.
pub(super) fn read_choice(source: Option<Node<'_>>) -> Result<Choice<'_>, Refusal> {
    let place = Place::Top("tool_choice");
    let kind = match source.map(|source| (source, source.kind())) {
        None => ChoiceKind::Unsaid,
        Some((source, Kind::String)) => word(source),
        Some((source, Kind::Object)) => object(source, &place)?,
        Some((_, kind)) => {
            return Err(Refusal::wrong_type(&place, "a string or an object", kind));
        }
    };
    Ok(Choice {
        kind,
        source,
        one_call: false,
    })
}

fn word(choice: Node<'_>) -> ChoiceKind<'_> {
    let word = choice.decode().unwrap_or_default();
    match word.as_ref() {
        "auto" => ChoiceKind::Auto,
        "none" => ChoiceKind::None,
        "required" => ChoiceKind::Required,
        _ => ChoiceKind::Own { kind: word },
    }
}

fn object<'a>(choice: Node<'a>, place: &Place<'_>) -> Result<ChoiceKind<'a>, Refusal> {
    let [kind, allowed] = choice.pick(["type", "allowed_tools"]);
    spelled(kind, &place.member("type"))?;
    let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
    let spot = Spot::top(Word::ToolChoice);
    if kind != "allowed_tools" {
        let named = named(choice, spot, place)?;
        return Ok(named.map_or(ChoiceKind::Own { kind }, ChoiceKind::Named));
    }
    let Some(allowed) = allowed else {
        return Ok(ChoiceKind::Own { kind });
    };
    let place = place.member("allowed_tools");
    of_kind(allowed, Kind::Object, "an object", &place)?;
    let [mode, given] = allowed.pick(["mode", "tools"]);
    let mut tools = Vec::new();
    if let Some(given) = given {
        let place = place.member("tools");
        of_kind(given, Kind::Array, "an array", &place)?;
        let spot = spot.member(Word::AllowedTools).member(Word::Tools);
        for (index, tool) in given.elements().enumerate() {
            let place = place.element(index);
            if index == MAX_BLOCKS {
                let message = format!("More than {MAX_BLOCKS} tools are allowed.");
                return Err(Refusal::new(&place, message));
            }
            of_kind(tool, Kind::Object, "an object", &place)?;
            let kind = spelled(tool.get("type"), &place.member("type"))?;
            let spot = spot.element(index);
            let hosted = || Named {
                kind: crate::json::string::decode(kind),
                name: Cow::Borrowed(""),
                namespace: None,
                spot,
            };
            tools.push(named(tool, spot, &place)?.unwrap_or_else(hosted));
        }
    }
    Ok(ChoiceKind::Allowed {
        required: mode.is_some_and(|mode| mode.is("required")),
        tools,
    })
}

/// The tool that `{type, function: {name}}` means; None for one that the provider runs.
fn named<'a>(
    choice: Node<'a>,
    spot: Spot,
    place: &Place<'_>,
) -> Result<Option<Named<'a>>, Refusal> {
    let [kind, function, custom, name] = choice.pick(["type", "function", "custom", "name"]);
    let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
    let name = match function.or(custom) {
        Some(inner) => {
            of_kind(inner, Kind::Object, "an object", place)?;
            let name = inner.get("name");
            spelled(name, &place.member("name"))?;
            name
        }
        // In the form of Responses.
        None => name.filter(|_| kind == "function" || kind == "custom"),
    };
    Ok(name.and_then(|name| name.decode()).map(|name| Named {
        kind,
        name,
        namespace: None,
        spot,
    }))
}
