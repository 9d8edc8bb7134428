//! Tools, and which of them may be called.
//!
//! A tool without a type, or of type `custom`, is the client's own: a function. All others are run by Anthropic, or
//! have a schema that only its models know. They are left out where the client offers functions as well and forces none
//! of them, since agents offer them with every request; the request is refused otherwise.

use std::borrow::Cow;

use crate::input::left_out::LeftOut;
use crate::input::place::{Place, Refusal, Spot, Word, of_kind, spelled};
use crate::input::tools::{Choice, ChoiceKind, MAX_TOOLS, Named, Tool, ToolKind};
use crate::json::node::Node;
use crate::json::scan::Kind;

/// A tool that only Anthropic can run.
struct Hosted<'a> {
    index: usize,
    kind: Cow<'a, str>,
    name: Option<Cow<'a, str>>,
}

/// Reads the tools, `mcp_servers`, and `tool_choice`.
pub(super) fn read<'a>(
    tools: Option<Node<'a>>,
    servers: Option<Node<'a>>,
    choice: Option<Node<'a>>,
    left_out: &mut LeftOut,
) -> Result<(Vec<Tool<'a>>, Choice<'a>), Refusal> {
    let mut functions = Vec::new();
    let mut hosted: Vec<Hosted<'a>> = Vec::new();
    let place = Place::Top("tools");
    if let Some(tools) = tools {
        of_kind(tools, Kind::Array, "an array", &place)?;
    }
    for (index, tool) in tools.iter().flat_map(Node::elements).enumerate() {
        let place = place.element(index);
        of_kind(tool, Kind::Object, "an object", &place)?;
        if index >= MAX_TOOLS {
            return Err(Refusal::new(
                &place,
                format!("More than {MAX_TOOLS} tools are offered."),
            ));
        }
        let [kind, name, description, parameters, strict, examples] = tool.pick([
            "type",
            "name",
            "description",
            "input_schema",
            "strict",
            "input_examples",
        ]);
        if let Some(kind) = kind
            && !kind.is("custom")
        {
            spelled(Some(kind), &place.member("type"))?;
            hosted.push(Hosted {
                index,
                kind: kind.decode().unwrap_or_default(),
                name: name.and_then(|name| name.decode()),
            });
            continue;
        }
        let name = spelled(name, &place.member("name"))?;
        for (member, value, kind, expected) in [
            ("description", description, Kind::String, "a string"),
            ("input_schema", parameters, Kind::Object, "an object"),
        ] {
            if let Some(value) = value {
                of_kind(value, kind, expected, &place.member(member))?;
            }
        }
        if examples.is_some() {
            left_out.add(place.member("input_examples"));
        }
        functions.push(Tool {
            kind: ToolKind::Function {
                name: name.into(),
                description,
                parameters,
                strict: strict.filter(|strict| strict.kind() == Kind::True),
                members: None,
            },
            namespace: None,
            spot: Spot::top(Word::Tools).element(index),
            source: tool,
        });
    }
    let choice = read_choice(choice, &hosted)?;
    let has_servers = servers.is_some_and(|servers| servers.elements().next().is_some());
    if functions.is_empty() && !matches!(choice.kind, ChoiceKind::None) {
        if let Some(tool) = hosted.first() {
            let place = place.element(tool.index);
            return Err(unsupported(&place.member("type"), &tool.kind));
        }
        if has_servers {
            return Err(Refusal::new(
                &Place::Top("mcp_servers"),
                "Servers can't be called for this model: its upstream does not speak Messages.",
            ));
        }
    }
    for tool in &hosted {
        left_out.add_kind(place.element(tool.index), &tool.kind);
    }
    if has_servers {
        left_out.add("mcp_servers");
    }
    Ok((functions, choice))
}

fn unsupported(place: &Place<'_>, kind: &str) -> Refusal {
    Refusal::new(
        place,
        format!(
            "Tools of type '{kind}' can't be used with this model: its upstream does not speak Messages."
        ),
    )
}

fn read_choice<'a>(choice: Option<Node<'a>>, hosted: &[Hosted<'_>]) -> Result<Choice<'a>, Refusal> {
    let Some(choice) = choice else {
        return Ok(Choice::default());
    };
    let place = Place::Top("tool_choice");
    of_kind(choice, Kind::Object, "an object", &place)?;
    let [kind, name, one_call] = choice.pick(["type", "name", "disable_parallel_tool_use"]);
    let kind_place = place.member("type");
    spelled(kind, &kind_place)?;
    let kind = match kind
        .and_then(|kind| kind.decode())
        .unwrap_or_default()
        .as_ref()
    {
        "auto" => ChoiceKind::Auto,
        "any" => ChoiceKind::Required,
        "none" => ChoiceKind::None,
        "tool" => {
            let place = place.member("name");
            spelled(name, &place)?;
            let name = name.and_then(|name| name.decode()).unwrap_or_default();
            let is_hosted = hosted
                .iter()
                .any(|tool| tool.name.as_deref() == Some(name.as_ref()));
            if is_hosted {
                return Err(Refusal::new(
                    &place,
                    format!(
                        "The tool '{name}' can't be used with this model: its upstream does not speak Messages."
                    ),
                ));
            }
            ChoiceKind::Named(Named {
                kind: "function".into(),
                name,
                namespace: None,
                spot: Spot::top(Word::ToolChoice),
            })
        }
        _ => {
            return Err(Refusal::new(
                &kind_place,
                "The type must be 'auto', 'any', 'tool' or 'none'.",
            ));
        }
    };
    Ok(Choice {
        kind,
        source: None,
        one_call: one_call.is_some_and(|it| it.kind() == Kind::True),
    })
}
