//! The tools, and which of them may be called.

use std::borrow::Cow;

use memchr::memmem;

use crate::input::place::{of_kind, spelled};
use crate::input::tools::{Grammar, MAX_TOOLS, Named};
use crate::input::{Choice, ChoiceKind, Place, Refusal, Spot, Tool, ToolKind, Word, read};
use crate::json::node::Node;
use crate::json::scan::Kind;

/// Tools that OpenAI runs itself, and that agents offer with every request.
const SPARE: [&str; 7] = [
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "image_generation",
    "tool_search",
    "programmatic_tool_calling",
];

/// The type of the items in which Codex puts all of its tools.
const ADDITIONAL: &str = "additional_tools";

/// Bytes of a namespace's name, 4,096: it is repeated for each tool in it. OpenAI's own names have at most 64.
const MAX_NAMESPACE: usize = 4096;

/// Whether tools are looked for in the input: not where their type's name is nowhere in it.
pub(super) fn has_additional(input: Option<Node<'_>>) -> bool {
    input.is_some_and(|input| memmem::find(input.bytes(), ADDITIONAL.as_bytes()).is_some())
}

/// Reads the tools, and those in the input.
pub(super) fn read<'a>(
    tools: Option<Node<'a>>,
    input: Option<Node<'a>>,
) -> Result<Vec<Tool<'a>>, Refusal> {
    let mut reading = Reading::default();
    if let Some(tools) = tools {
        let spot = Spot::top(Word::Tools);
        reading.all(tools, None, spot, &Place::Top("tools"))?;
    }
    let input = input.filter(|_| has_additional(input));
    let spot = Spot::top(Word::Input);
    for (index, item) in input.iter().flat_map(Node::elements).enumerate() {
        let [kind, tools] = item.pick(["type", "tools"]);
        if let Some(tools) = tools
            && kind.is_some_and(|kind| kind.is(ADDITIONAL))
        {
            let spot = spot.element(index).member(Word::Tools);
            let item = Place::Top("input");
            let item = item.element(index);
            reading.all(tools, None, spot, &item.member("tools"))?;
        }
    }
    Ok(reading.tools)
}

#[derive(Default)]
struct Reading<'a> {
    tools: Vec<Tool<'a>>,
    /// Tools that were read, namespaces included.
    count: usize,
}

impl<'a> Reading<'a> {
    fn all(
        &mut self,
        tools: Node<'a>,
        namespace: Option<&Cow<'a, str>>,
        spot: Spot,
        place: &Place<'_>,
    ) -> Result<(), Refusal> {
        of_kind(tools, Kind::Array, "an array", place)?;
        for (index, tool) in tools.elements().enumerate() {
            self.tool(tool, namespace, spot.element(index), &place.element(index))?;
        }
        Ok(())
    }

    fn tool(
        &mut self,
        tool: Node<'a>,
        namespace: Option<&Cow<'a, str>>,
        spot: Spot,
        place: &Place<'_>,
    ) -> Result<(), Refusal> {
        of_kind(tool, Kind::Object, "an object", place)?;
        self.count += 1;
        if self.count > MAX_TOOLS {
            return Err(Refusal::new(
                place,
                format!("More than {MAX_TOOLS} tools are offered."),
            ));
        }
        let [kind, tools, name, nested] = tool.pick(["type", "tools", "name", "function"]);
        spelled(kind, &place.member("type"))?;
        let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
        let kind = match kind.as_ref() {
            "function" => function(tool, nested, place)?,
            "custom" => custom(tool, place)?,
            "namespace" if namespace.is_none() => {
                let length = spelled(name, &place.member("name"))?.len();
                if length > MAX_NAMESPACE {
                    return Err(Refusal::new(
                        &place.member("name"),
                        format!("A namespace's name may have {MAX_NAMESPACE} bytes."),
                    ));
                }
                let name = name.and_then(|name| name.decode()).unwrap_or_default();
                let place = place.member("tools");
                let tools = tools.ok_or_else(|| Refusal::missing(&place))?;
                return self.all(tools, Some(&name), spot.member(Word::Tools), &place);
            }
            _ => ToolKind::Hosted {
                spare: SPARE.contains(&kind.as_ref()),
                kind,
            },
        };
        self.tools.push(Tool {
            kind,
            namespace: namespace.cloned(),
            spot,
            source: tool,
        });
        Ok(())
    }
}

/// A function. Clients of Chat Completions often keep its nested form.
fn function<'a>(
    tool: Node<'a>,
    nested: Option<Node<'a>>,
    place: &Place<'_>,
) -> Result<ToolKind<'a>, Refusal> {
    let nested = nested.filter(|it| it.kind() == Kind::Object);
    let inner_place = place.member("function");
    let inner_place = if nested.is_some() {
        &inner_place
    } else {
        place
    };
    let members = nested.unwrap_or(tool);
    let [name, description, parameters, strict] =
        members.pick(["name", "description", "parameters", "strict"]);
    Ok(ToolKind::Function {
        name: spelled(name, &inner_place.member("name"))?.into(),
        description,
        parameters,
        strict,
        members: Some(members),
    })
}

fn custom<'a>(tool: Node<'a>, place: &Place<'_>) -> Result<ToolKind<'a>, Refusal> {
    let [name, description, format] = tool.pick(["name", "description", "format"]);
    let name = spelled(name, &place.member("name"))?;
    if let Some(description) = description {
        let place = place.member("description");
        of_kind(description, Kind::String, "a string", &place)?;
    }
    Ok(ToolKind::Custom {
        name: name.into(),
        description,
        grammar: grammar(format, &place.member("format"))?,
        members: tool,
    })
}

fn grammar<'a>(
    format: Option<Node<'a>>,
    place: &Place<'_>,
) -> Result<Option<Grammar<'a>>, Refusal> {
    let Some(format) = format else {
        return Ok(None);
    };
    let [kind, syntax, definition] = format.pick(["type", "syntax", "definition"]);
    if !kind.is_some_and(|kind| kind.is("grammar")) {
        return Ok(None);
    }
    Ok(Some(Grammar {
        syntax: spelled(syntax, &place.member("syntax"))?.into(),
        definition: spelled(definition, &place.member("definition"))?.into(),
    }))
}

/// Reads `tool_choice`.
pub(super) fn read_choice(source: Option<Node<'_>>) -> Result<Choice<'_>, Refusal> {
    let other_word = |_, place: &Place<'_>| {
        let message = "'tool_choice' must be 'auto', 'none', 'required' or an object.";
        Err(Refusal::new(place, message))
    };
    read::read_choice(source, other_word, object)
}

fn object<'a>(choice: Node<'a>, place: &Place<'_>) -> Result<ChoiceKind<'a>, Refusal> {
    let [kind, allowed, mode] = choice.pick(["type", "allowed_tools", "mode"]);
    spelled(kind, &place.member("type"))?;
    let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
    let spot = Spot::top(Word::ToolChoice);
    match kind.as_ref() {
        "function" | "custom" => Ok(ChoiceKind::Named(named(choice, kind, spot, place)?)),
        "allowed_tools" => {
            // Chat Completions has one more level.
            let inner = allowed.unwrap_or(choice);
            let mode = allowed.map_or(mode, |it| it.get("mode"));
            let required = mode.is_some_and(|mode| mode.is("required"));
            if !required && !mode.is_some_and(|mode| mode.is("auto")) {
                return Err(Refusal::new(
                    &place.member("mode"),
                    "The mode must be 'auto' or 'required'.",
                ));
            }
            let place = place.member("tools");
            let tools = inner.get("tools").ok_or_else(|| Refusal::missing(&place))?;
            let spot = spot.member(Word::Tools);
            let tools = read::read_allowed(tools, spot, &place, allowed_tool)?;
            Ok(ChoiceKind::Allowed { required, tools })
        }
        _ => Ok(ChoiceKind::Own { kind }),
    }
}

fn allowed_tool<'a>(tool: Node<'a>, spot: Spot, place: &Place<'_>) -> Result<Named<'a>, Refusal> {
    let kind = tool.get("type");
    spelled(kind, &place.member("type"))?;
    let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
    if kind == "function" || kind == "custom" {
        named(tool, kind, spot, place)
    } else {
        Ok(Named::hosted(kind, spot))
    }
}

/// The tool that `{type, name}` means.
fn named<'a>(
    choice: Node<'a>,
    kind: Cow<'a, str>,
    spot: Spot,
    place: &Place<'_>,
) -> Result<Named<'a>, Refusal> {
    let nested = choice.get(&kind).filter(|it| it.kind() == Kind::Object);
    let [name, namespace] = nested.unwrap_or(choice).pick(["name", "namespace"]);
    spelled(name, &place.member("name"))?;
    Ok(Named {
        kind,
        name: name.and_then(|name| name.decode()).unwrap_or_default(),
        namespace: namespace.and_then(|it| it.decode()),
        spot,
    })
}
