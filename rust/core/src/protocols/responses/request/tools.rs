//! The tools that a request offers, as functions of Chat Completions.
//!
//! | `type` | for an upstream that speaks Chat Completions |
//! | --- | --- |
//! | `function` | a function; its schema byte for byte |
//! | `custom` | a function with one string argument `input`; a grammar is repeated in the description |
//! | `namespace` | its functions and custom tools, each as `NAMESPACE__NAME` (of the namespace `functions`: `NAME`) |
//! | `web_search`, `web_search_preview`, `image_generation`, `tool_search`, `programmatic_tool_calling` | left out where the client offers other tools as well and forces none of these: agents offer them with every request. Refused otherwise |
//! | any other | refused: it names what the client itself has set up, such as files, a container or a server |
//!
//! Tools may also stand in items `additional_tools` of the input, where Codex puts all of its own.

use std::collections::{BTreeMap, BTreeSet};

use memchr::memmem;

use super::ResponsesRequest;
use crate::input::place::{Place, Refusal, of_kind, spelled};
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::writer::Writer;

/// Tools that one request may offer, 4,096.
///
/// OpenAI allows 128 at a time, agents with many servers offer a few hundred. Each costs a hundred times what it takes to read it.
const MAX_TOOLS: usize = 4096;

/// A tool that the upstream is offered.
#[derive(Clone, Debug)]
pub(in crate::protocols::responses) struct Tool<'a> {
    /// Its name as a function.
    pub(in crate::protocols::responses) function: Box<str>,
    /// Its own name.
    pub(in crate::protocols::responses) name: Box<str>,
    pub(in crate::protocols::responses) namespace: Option<Box<str>>,
    pub(in crate::protocols::responses) custom: bool,
    /// The tool as the client describes it, checked.
    source: Node<'a>,
}

/// All tools of a request.
#[derive(Clone, Debug, Default)]
pub(in crate::protocols::responses) struct Offer<'a> {
    pub(in crate::protocols::responses) tools: Vec<Tool<'a>>,
    /// The places and types of the tools that are not sent to the upstream.
    pub(super) left_out: Vec<(Box<str>, Box<str>)>,
    /// Whether tools were looked for in the input: not where their type's name is nowhere in it.
    pub(super) looked_at_input: bool,
    /// Tools that were read.
    count: usize,
    functions: BTreeSet<Box<str>>,
    /// Of names that several tools would have: the number that the next of them may get.
    numbers: BTreeMap<String, usize>,
    /// Where in `tools` the tool of a namespace and a name stands.
    places: BTreeMap<(Option<Box<str>>, Box<str>), usize>,
}

impl<'a> Offer<'a> {
    /// Collects the tools of `request`.
    pub(in crate::protocols::responses) fn of(
        request: &'a ResponsesRequest,
    ) -> Result<Self, Refusal> {
        let input = request.get("input");
        let mut offer = Offer {
            looked_at_input: input
                .is_some_and(|input| memmem::find(input.bytes(), b"additional_tools").is_some()),
            ..Offer::default()
        };
        if let Some(tools) = request.get("tools") {
            offer.add_all(tools, &Place::Top("tools"))?;
        }
        if !offer.looked_at_input {
            return Ok(offer);
        }
        let input = Place::Top("input");
        for (index, item) in request
            .get("input")
            .iter()
            .flat_map(Node::elements)
            .enumerate()
        {
            let [kind, tools] = item.pick(["type", "tools"]);
            if let Some(tools) = tools
                && kind.is_some_and(|kind| kind.is("additional_tools"))
            {
                offer.add_all(tools, &input.element(index).member("tools"))?;
            }
        }
        Ok(offer)
    }

    fn add_all(&mut self, tools: Node<'a>, place: &Place<'_>) -> Result<(), Refusal> {
        of_kind(tools, Kind::Array, "an array", place)?;
        for (index, tool) in tools.elements().enumerate() {
            self.add(tool, None, &place.element(index))?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        tool: Node<'a>,
        namespace: Option<&str>,
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
        let kind_place = place.member("type");
        spelled(kind, &kind_place)?;
        let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
        match kind.as_ref() {
            "function" => self.add_function(tool, [name, nested], namespace, place),
            "custom" => self.add_custom(tool, namespace, place),
            "namespace" if namespace.is_none() => {
                spelled(name, &place.member("name"))?;
                let name = name.and_then(|name| name.decode()).unwrap_or_default();
                let place = place.member("tools");
                let tools = tools.ok_or_else(|| Refusal::missing(&place))?;
                of_kind(tools, Kind::Array, "an array", &place)?;
                for (index, tool) in tools.elements().enumerate() {
                    self.add(tool, Some(&name), &place.element(index))?;
                }
                Ok(())
            }
            "web_search"
            | "web_search_2025_08_26"
            | "web_search_preview"
            | "web_search_preview_2025_03_11"
            | "image_generation"
            | "tool_search"
            | "programmatic_tool_calling" => {
                let place = place.to_string();
                self.left_out.push((place.into(), kind.as_ref().into()));
                Ok(())
            }
            _ => Err(unsupported(place, &kind)),
        }
    }

    /// Adds a function. Clients of Chat Completions often keep its nested form.
    fn add_function(
        &mut self,
        tool: Node<'a>,
        [name, nested]: [Option<Node<'a>>; 2],
        namespace: Option<&str>,
        place: &Place<'_>,
    ) -> Result<(), Refusal> {
        let nested = nested.filter(|it| it.kind() == Kind::Object);
        let inner_place = place.member("function");
        let inner_place = if nested.is_some() {
            &inner_place
        } else {
            place
        };
        let name = nested.map_or(name, |nested| nested.get("name"));
        spelled(name, &inner_place.member("name"))?;
        let name = name.and_then(|name| name.decode()).unwrap_or_default();
        self.push(tool, &name, namespace, false);
        Ok(())
    }

    fn add_custom(
        &mut self,
        tool: Node<'a>,
        namespace: Option<&str>,
        place: &Place<'_>,
    ) -> Result<(), Refusal> {
        let [name, description] = tool.pick(["name", "description"]);
        spelled(name, &place.member("name"))?;
        if let Some(description) = description {
            let place = place.member("description");
            of_kind(description, Kind::String, "a string", &place)?;
        }
        if let Some(grammar) = grammar(tool) {
            let place = place.member("format");
            for (name, value) in ["syntax", "definition"].into_iter().zip(grammar) {
                spelled(value, &place.member(name))?;
            }
        }
        let name = name.and_then(|name| name.decode()).unwrap_or_default();
        self.push(tool, &name, namespace, true);
        Ok(())
    }

    /// The name for a tool that is being added: no other's, but its own where it was offered before.
    fn function_name(&mut self, namespace: Option<&str>, name: &str) -> Box<str> {
        if let Some(tool) = self.find(namespace, name) {
            return tool.function.clone();
        }
        let plain = plain_name(namespace, name);
        if !self.functions.contains(plain.as_str()) {
            return plain.into();
        }
        // From where the last one of this name got its number: a search from the start for each would cost the square of them.
        let number = self.numbers.entry(plain.clone()).or_insert(2);
        loop {
            let function = format!("{plain}_{number}");
            *number += 1;
            if !self.functions.contains(function.as_str()) {
                return function.into();
            }
        }
    }

    /// Adds a tool; of several that are called the same the last counts, in the first one's place.
    fn push(&mut self, source: Node<'a>, name: &str, namespace: Option<&str>, custom: bool) {
        let function = self.function_name(namespace, name);
        self.functions.insert(function.clone());
        let key = key(namespace, name);
        let tool = Tool {
            function,
            name: name.into(),
            namespace: namespace.map(Into::into),
            custom,
            source,
        };
        let place = *self.places.entry(key).or_insert(self.tools.len());
        match self.tools.get_mut(place) {
            Some(known) => *known = tool,
            None => self.tools.push(tool),
        }
    }

    fn find(&self, namespace: Option<&str>, name: &str) -> Option<&Tool<'a>> {
        self.tools.get(*self.places.get(&key(namespace, name))?)
    }

    /// What a tool is called as a function, also if it is not offered any more.
    pub(super) fn called(&self, namespace: Option<&str>, name: &str) -> String {
        self.find(namespace, name).map_or_else(
            || plain_name(namespace, name),
            |tool| tool.function.to_string(),
        )
    }
}

/// What identifies a tool.
fn key(namespace: Option<&str>, name: &str) -> (Option<Box<str>>, Box<str>) {
    (namespace.map(Into::into), name.into())
}

/// Names of functions are letters, digits, `_` and `-`: two underscores stand where Codex's own names of MCP tools have them.
fn plain_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some("functions") => name.to_owned(),
        Some(namespace) if namespace.ends_with("__") => format!("{namespace}{name}"),
        Some(namespace) => format!("{namespace}__{name}"),
    }
}

impl Tool<'_> {
    /// Writes the tool in the form of Chat Completions.
    pub(super) fn write(&self, writer: &mut Writer) {
        open_function(writer, &self.function);
        if self.custom {
            self.write_custom(writer);
        } else {
            self.write_function(writer);
        }
        writer.close(b'}');
    }

    fn write_function(&self, writer: &mut Writer) {
        let [nested, flat @ ..] =
            (self.source).pick(["function", "description", "parameters", "strict"]);
        let nested = nested.filter(|it| it.kind() == Kind::Object);
        let [description, parameters, strict] = nested.map_or(flat, |nested| {
            nested.pick(["description", "parameters", "strict"])
        });
        if let Some(description) = description {
            writer.member("description", description.bytes());
        }
        let none = &br#"{"type":"object","properties":{}}"#[..];
        writer.member("parameters", parameters.map_or(none, |it| it.bytes()));
        if let Some(strict) = strict {
            writer.member("strict", strict.bytes());
        }
        writer.close(b'}');
        for (key, value) in self.source.members() {
            if !FUNCTION.iter().any(|known| key.is(known)) {
                writer.copy_member(key.bytes(), value.bytes());
            }
        }
    }

    fn write_custom(&self, writer: &mut Writer) {
        let description = self.source.get("description").and_then(|it| it.spelled());
        let description = description.unwrap_or_default();
        writer.key("description");
        match grammar(self.source).map(|found| found.map(|it| it.and_then(|it| it.spelled()))) {
            Some([Some(syntax), Some(definition)]) => {
                let gap: &[u8] = if description.is_empty() {
                    b""
                } else {
                    b"\\n\\n"
                };
                writer.spelled_parts(&[
                    description,
                    gap,
                    b"The input must match this grammar (",
                    syntax,
                    b"):\\n",
                    definition,
                ]);
            }
            _ => writer.spelled(description),
        }
        writer.member("parameters", INPUT);
        writer.close(b'}');
    }
}

/// The parameters of a function that stands for a custom tool.
const INPUT: &[u8] = br#"{"type":"object","properties":{"input":{"type":"string","description":"The input as it is, not as JSON."}},"required":["input"],"additionalProperties":false}"#;

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

/// Syntax and definition of a custom tool's grammar.
fn grammar(tool: Node<'_>) -> Option<[Option<Node<'_>>; 2]> {
    let [kind, syntax, definition] = tool.get("format")?.pick(["type", "syntax", "definition"]);
    kind?.is("grammar").then_some([syntax, definition])
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
pub(super) fn unsupported(place: &Place<'_>, kind: &str) -> Refusal {
    Refusal::new(
        place,
        format!(
            "Tools of type '{kind}' can't be used with this model: its upstream speaks Chat Completions, which has functions only."
        ),
    )
}

/// Which tools the model may call, in the form of Chat Completions.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// `tool_choice`; None: the request has none.
    pub(super) json: Option<Vec<u8>>,
    /// Names of the functions it may call; None: all.
    pub(super) only: Option<BTreeSet<Box<str>>>,
}

impl Choice {
    /// Reads `tool_choice`, which also decides whether tools may be left out of the offer.
    pub(super) fn of(request: &ResponsesRequest, offer: &Offer<'_>) -> Result<Self, Refusal> {
        let place = Place::Top("tool_choice");
        let choice = request.get("tool_choice");
        if let (true, Some((place, kind))) = (offer.tools.is_empty(), offer.left_out.first())
            && !choice.is_some_and(|choice| choice.is("none"))
        {
            return Err(unsupported(&Place::Top(place), kind));
        }
        let Some(choice) = choice else {
            return Ok(Choice::default());
        };
        let mut result = match choice.kind() {
            Kind::String => Choice::word(choice, &place)?,
            Kind::Object => Choice::object(choice, offer, &place)?,
            kind => return Err(Refusal::wrong_type(&place, "a string or an object", kind)),
        };
        if offer.tools.is_empty() {
            if choice.is("auto") || choice.is("none") {
                result.json = None;
            } else {
                return Err(Refusal::new(
                    &place,
                    "'tool_choice' asks for a tool, and 'tools' has none.",
                ));
            }
        }
        Ok(result)
    }

    fn word(choice: Node<'_>, place: &Place<'_>) -> Result<Self, Refusal> {
        if !["auto", "none", "required"].iter().any(|it| choice.is(it)) {
            return Err(Refusal::new(
                place,
                "'tool_choice' must be 'auto', 'none', 'required' or an object.",
            ));
        }
        Ok(Choice {
            json: Some(choice.bytes().to_vec()),
            only: None,
        })
    }

    fn object(choice: Node<'_>, offer: &Offer<'_>, place: &Place<'_>) -> Result<Self, Refusal> {
        let [kind, allowed, mode] = choice.pick(["type", "allowed_tools", "mode"]);
        spelled(kind, &place.member("type"))?;
        let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
        match kind.as_ref() {
            "function" | "custom" => {
                let tool = chosen(choice, &kind, offer, place)?;
                let mut writer = Writer::default();
                open_function(&mut writer, &tool.function);
                writer.close(b'}');
                writer.close(b'}');
                Ok(Choice {
                    json: Some(writer.into_bytes()),
                    only: None,
                })
            }
            "allowed_tools" => {
                // Chat Completions has one more level.
                let inner = allowed.unwrap_or(choice);
                let mode = allowed.map_or(mode, |it| it.get("mode"));
                let mode = mode.filter(|mode| mode.is("auto") || mode.is("required"));
                let mode = mode.ok_or_else(|| {
                    Refusal::new(
                        &place.member("mode"),
                        "The mode must be 'auto' or 'required'.",
                    )
                })?;
                let only = allowed_functions(inner, offer, &place.member("tools"))?;
                Ok(Choice {
                    json: Some(mode.bytes().to_vec()),
                    only: Some(only),
                })
            }
            _ => Err(unsupported(place, &kind)),
        }
    }

    /// Whether the model may call this tool.
    pub(super) fn allows(&self, tool: &Tool<'_>) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| only.contains(&tool.function))
    }
}

/// The tool that `{type, name}` means.
fn chosen<'o>(
    choice: Node<'_>,
    kind: &str,
    offer: &'o Offer<'_>,
    place: &Place<'_>,
) -> Result<&'o Tool<'o>, Refusal> {
    let nested = choice.get(kind).filter(|it| it.kind() == Kind::Object);
    let [name, namespace] = nested.unwrap_or(choice).pick(["name", "namespace"]);
    spelled(name, &place.member("name"))?;
    let name = name.and_then(|name| name.decode()).unwrap_or_default();
    let namespace = namespace.and_then(|it| it.decode());
    offer
        .find(namespace.as_deref(), &name)
        .ok_or_else(|| Refusal::new(place, format!("There is no tool '{name}' in 'tools'.")))
}

fn allowed_functions(
    allowed: Node<'_>,
    offer: &Offer<'_>,
    place: &Place<'_>,
) -> Result<BTreeSet<Box<str>>, Refusal> {
    let tools = allowed
        .get("tools")
        .ok_or_else(|| Refusal::missing(place))?;
    of_kind(tools, Kind::Array, "an array", place)?;
    let mut only = BTreeSet::new();
    let mut hosted = None;
    let left_out: BTreeSet<&str> = offer.left_out.iter().map(|(_, kind)| &**kind).collect();
    for (index, tool) in tools.elements().enumerate() {
        let place = place.element(index);
        let kind = tool.get("type");
        spelled(kind, &place.member("type"))?;
        let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
        if kind == "function" || kind == "custom" {
            let tool = chosen(tool, &kind, offer, &place)?;
            only.insert(tool.function.clone());
        } else if left_out.contains(&*kind) {
            hosted = Some(unsupported(&place, &kind));
        } else {
            return Err(unsupported(&place, &kind));
        }
    }
    match hosted {
        Some(refusal) if only.is_empty() => Err(refusal),
        _ => Ok(only),
    }
}
