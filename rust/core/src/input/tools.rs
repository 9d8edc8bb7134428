//! The tools that the model may call.

use std::borrow::Cow;

use super::block::Text;
use super::place::Spot;
use crate::json::node::Node;

/// Tools that one request may offer, 4,096.
///
/// OpenAI allows 128 at a time, agents with many servers offer a few hundred. Each costs a hundred times what it takes
/// to read it.
pub const MAX_TOOLS: usize = 4096;

/// A tool that is offered. Those of a namespace are tools of their own; of several with one name, a writer takes the
/// last.
#[derive(Clone, Debug)]
pub struct Tool<'a> {
    /// What it is.
    pub kind: ToolKind<'a>,
    /// The namespace that it is in, decoded. Responses only.
    pub namespace: Option<Cow<'a, str>>,
    /// Where it stands: `tools[2]`, `tools[2].tools[0]`, `input[4].tools[0]`.
    pub spot: Spot,
    /// As the client wrote it.
    pub source: Node<'a>,
}

/// What a tool is.
#[derive(Clone, Debug)]
pub enum ToolKind<'a> {
    /// A function, which takes a JSON object.
    Function {
        /// Its name.
        name: Text<'a>,
        /// A string, where there is one.
        description: Option<Node<'a>>,
        /// The schema of what it takes: `parameters`, `input_schema`.
        parameters: Option<Node<'a>>,
        /// Whether the model must keep to the schema.
        strict: Option<Node<'a>>,
        /// The object that holds `name`, `description`, `parameters` and `strict` as both protocols of OpenAI spell
        /// them, with members that nobody here knows: the tool itself, or its `function`. None of Messages.
        members: Option<Node<'a>>,
    },
    /// A custom tool, which takes a text.
    Custom {
        /// Its name.
        name: Text<'a>,
        /// A string, where there is one.
        description: Option<Node<'a>>,
        /// The grammar that the text must match.
        grammar: Option<Grammar<'a>>,
        /// The object that holds `name`, `description` and `format`: the tool itself, or its `custom`.
        members: Node<'a>,
    },
    /// A tool that the provider runs, or one that only the client's protocol knows.
    Hosted {
        /// What it is called there: `web_search`, `bash_20250124`.
        kind: Cow<'a, str>,
        /// Whether agents offer it with every request, so that it may be left out where there are other tools and none
        /// of these is forced. Others name what the client itself has set up, such as files, a container or a server.
        spare: bool,
    },
}

impl<'a> ToolKind<'a> {
    /// The name of a function or of a custom tool.
    #[must_use]
    pub fn name(&self) -> Option<&Text<'a>> {
        match self {
            ToolKind::Function { name, .. } | ToolKind::Custom { name, .. } => Some(name),
            ToolKind::Hosted { .. } => None,
        }
    }

    /// What the client's protocol calls a tool that the provider runs.
    #[must_use]
    pub fn hosted(&self) -> Option<&str> {
        match self {
            ToolKind::Hosted { kind, .. } => Some(kind),
            _ => None,
        }
    }
}

/// A grammar.
#[derive(Clone, Debug)]
pub struct Grammar<'a> {
    /// `lark`, `regex`.
    pub syntax: Text<'a>,
    /// The grammar itself.
    pub definition: Text<'a>,
}

/// Which tools may be called.
#[derive(Clone, Debug, Default)]
pub struct Choice<'a> {
    /// Which.
    pub kind: ChoiceKind<'a>,
    /// `tool_choice` as the client wrote it, in the form of one of OpenAI's protocols; none of Messages.
    pub source: Option<Node<'a>>,
    /// Whether only one may be called at once: `parallel_tool_calls: false`, `disable_parallel_tool_use: true`.
    pub one_call: bool,
}

/// Which tools may be called. Each tool that is named stands with where it does.
#[derive(Clone, Debug, Default)]
pub enum ChoiceKind<'a> {
    /// The request does not say.
    #[default]
    Unsaid,
    /// Any, or none.
    Auto,
    /// None.
    None,
    /// At least one: `required`, `any`.
    Required,
    /// This one.
    Named(Named<'a>),
    /// Only these.
    Allowed {
        /// Whether at least one of them must be called.
        required: bool,
        /// Which.
        tools: Vec<Named<'a>>,
    },
    /// A word or a form that only the client's protocol has, or that is not known. `kind` is its type, empty where it
    /// has none.
    Own {
        /// Its type, or the word.
        kind: Cow<'a, str>,
    },
}

/// A tool that is named.
#[derive(Clone, Debug)]
pub struct Named<'a> {
    /// `function`, `custom`, or the type of a tool that the provider runs.
    pub kind: Cow<'a, str>,
    /// Its name, decoded; empty of a tool that the provider runs.
    pub name: Cow<'a, str>,
    /// The namespace that it is in, decoded.
    pub namespace: Option<Cow<'a, str>>,
    /// Where it is named: `tool_choice`, `tool_choice.tools[0]`.
    pub spot: Spot,
}

impl<'a> Named<'a> {
    /// One that the provider runs.
    #[must_use]
    pub fn hosted(kind: Cow<'a, str>, spot: Spot) -> Self {
        Named {
            kind,
            name: Cow::Borrowed(""),
            namespace: None,
            spot,
        }
    }
}
