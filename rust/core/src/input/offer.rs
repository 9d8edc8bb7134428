//! All tools of a request as functions, for upstreams that have nothing else.
//!
//! | tool | function |
//! | --- | --- |
//! | a function | the same |
//! | a custom tool | a function with one string argument `input`; a grammar is repeated in the description |
//! | one in a namespace | `NAMESPACE__NAME` (in the namespace `functions`: `NAME`) |
//! | one that the provider runs | none: see [`Offer::hosted`] |

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::tools::{Named, Tool, ToolKind};
use crate::json::string;
use crate::json::writer::Writer;

/// The parameters of a function that stands for a custom tool.
pub const INPUT: &[u8] = br#"{"type":"object","properties":{"input":{"type":"string","description":"The input as it is, not as JSON."}},"required":["input"],"additionalProperties":false}"#;

/// A tool that the upstream is offered as a function.
#[derive(Clone, Debug)]
pub struct Function<'t, 'a> {
    /// The function's name. No two have the same.
    pub function: Box<str>,
    /// The tool's own name, decoded.
    pub name: Box<str>,
    /// Whether it is a custom tool: see [`INPUT`].
    pub custom: bool,
    /// The tool.
    pub tool: &'t Tool<'a>,
}

/// All tools of a request as functions.
#[derive(Clone, Debug, Default)]
pub struct Offer<'t, 'a> {
    /// The functions, in the order of the tools.
    pub functions: Vec<Function<'t, 'a>>,
    /// The tools that the provider runs, in their order.
    pub hosted: Vec<&'t Tool<'a>>,
    taken: BTreeSet<Box<str>>,
    /// Of names that several tools would have: the number that the next of them may get.
    numbers: BTreeMap<String, usize>,
    /// Where in `functions` the tool of a namespace and a name stands.
    places: BTreeMap<(Option<Box<str>>, Box<str>), usize>,
}

impl<'t, 'a> Offer<'t, 'a> {
    /// Names the functions. Of several tools that are called the same the last counts, in the first one's place.
    #[must_use]
    pub fn of(tools: &'t [Tool<'a>]) -> Self {
        let mut offer = Offer::default();
        for tool in tools {
            match &tool.kind {
                ToolKind::Function { name, .. } => offer.add(tool, &string::decode(name), false),
                ToolKind::Custom { name, .. } => offer.add(tool, &string::decode(name), true),
                ToolKind::Hosted { .. } => offer.hosted.push(tool),
            }
        }
        offer
    }

    /// The function of a tool; None where it is not offered as one.
    #[must_use]
    pub fn find(&self, namespace: Option<&str>, name: &str) -> Option<&Function<'t, 'a>> {
        self.functions.get(*self.places.get(&key(namespace, name))?)
    }

    /// The function of a tool that is named.
    #[must_use]
    pub fn named(&self, named: &Named<'_>) -> Option<&Function<'t, 'a>> {
        self.find(named.namespace.as_deref(), &named.name)
    }

    /// What a tool is called as a function, also if it is not offered any more.
    #[must_use]
    pub fn called(&self, namespace: Option<&str>, name: &str) -> String {
        self.find(namespace, name).map_or_else(
            || plain_name(namespace, name),
            |function| function.function.to_string(),
        )
    }

    fn add(&mut self, tool: &'t Tool<'a>, name: &str, custom: bool) {
        let namespace = tool.namespace.as_deref();
        let function = Function {
            function: self.function_name(namespace, name),
            name: name.into(),
            custom,
            tool,
        };
        self.taken.insert(function.function.clone());
        let next = self.functions.len();
        let place = *self.places.entry(key(namespace, name)).or_insert(next);
        match self.functions.get_mut(place) {
            Some(known) => *known = function,
            None => self.functions.push(function),
        }
    }

    /// The name for a tool that is being added: no other's, but its own where it was offered before.
    fn function_name(&mut self, namespace: Option<&str>, name: &str) -> Box<str> {
        if let Some(known) = self.find(namespace, name) {
            return known.function.clone();
        }
        let plain = plain_name(namespace, name);
        if !self.taken.contains(plain.as_str()) {
            return plain.into();
        }
        // From where the last one of this name got its number: a search from the start for each would cost the square
        // of them.
        let number = self.numbers.entry(plain.clone()).or_insert(2);
        loop {
            let function = format!("{plain}_{number}");
            *number += 1;
            if !self.taken.contains(function.as_str()) {
                return function.into();
            }
        }
    }
}

/// What identifies a tool.
fn key(namespace: Option<&str>, name: &str) -> (Option<Box<str>>, Box<str>) {
    (namespace.map(Into::into), name.into())
}

/// Names of functions are letters, digits, `_` and `-`: two underscores stand where Codex's own names of MCP tools have
/// them.
fn plain_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some("functions") => name.to_owned(),
        Some(namespace) if namespace.ends_with("__") => format!("{namespace}{name}"),
        Some(namespace) => format!("{namespace}__{name}"),
    }
}

/// The description of a function that stands for a custom tool, as a JSON string: the tool's own, and its grammar
/// behind it.
pub fn write_custom_description(tool: &Tool<'_>, writer: &mut Writer) {
    let ToolKind::Custom {
        description,
        grammar,
        ..
    } = &tool.kind
    else {
        return writer.spelled(b"");
    };
    let description = description.and_then(|it| it.spelled()).unwrap_or_default();
    let Some(grammar) = grammar else {
        return writer.spelled(description);
    };
    let gap: &[u8] = if description.is_empty() {
        b""
    } else {
        b"\\n\\n"
    };
    writer.spelled_parts(&[
        description,
        gap,
        b"The input must match this grammar (",
        &grammar.syntax,
        b"):\\n",
        &grammar.definition,
    ]);
}

/// The arguments of a function that stands for a custom tool, `{"input":"…"}`, as the content of a JSON string: `input`
/// is the content of a JSON string, too.
#[must_use]
pub fn custom_arguments(input: &[u8]) -> Cow<'static, [u8]> {
    let mut arguments = Vec::with_capacity(input.len() + 32);
    arguments.extend_from_slice(br#"{\"input\":\""#);
    string::spell_bytes(input, &mut arguments);
    arguments.extend_from_slice(br#"\"}"#);
    Cow::Owned(arguments)
}
