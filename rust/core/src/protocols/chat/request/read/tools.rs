//! The tools, and which of them may be called.

use crate::input::place::{of_kind, spelled};
use crate::input::tools::{Grammar, MAX_TOOLS, Named};
use crate::input::{Choice, ChoiceKind, Place, Refusal, Spot, Tool, ToolKind, Word, read};
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::string;

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
    read::read_choice(source, |word, _| Ok(ChoiceKind::Own { kind: word }), object)
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
    let tools = match given {
        Some(given) => {
            let spot = spot.member(Word::AllowedTools).member(Word::Tools);
            read::read_allowed(given, spot, &place.member("tools"), allowed_tool)?
        }
        None => Vec::new(),
    };
    Ok(ChoiceKind::Allowed {
        required: mode.is_some_and(|mode| mode.is("required")),
        tools,
    })
}

/// A tool that is allowed. One that the provider runs has a type only.
fn allowed_tool<'a>(tool: Node<'a>, spot: Spot, place: &Place<'_>) -> Result<Named<'a>, Refusal> {
    of_kind(tool, Kind::Object, "an object", place)?;
    let kind = spelled(tool.get("type"), &place.member("type"))?;
    let hosted = || Named::hosted(string::decode(kind), spot);
    Ok(named(tool, spot, place)?.unwrap_or_else(hosted))
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
