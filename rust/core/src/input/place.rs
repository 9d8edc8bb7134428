//! Why a request cannot be translated for an upstream.

use std::fmt;

use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::record::cut;

/// The error that the client gets, with status 400 and the type `invalid_request_error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The member that is at fault, `tools[2]` or `input[3].content[0].type`.
    pub param: Box<str>,
    /// A sentence for people.
    pub message: Box<str>,
}

impl Refusal {
    pub(crate) fn new(place: &Place<'_>, message: impl AsRef<str>) -> Self {
        Refusal {
            param: cut(&place.to_string()).into(),
            message: cut(message.as_ref()).into(),
        }
    }

    /// A member that must be there and is not.
    pub(crate) fn missing(place: &Place<'_>) -> Self {
        Refusal::new(place, format!("'{place}' is required."))
    }

    /// A value of a type that the member can't have; `expected` with its article.
    pub(crate) fn wrong_type(place: &Place<'_>, expected: &str, found: Kind) -> Self {
        let found = match found {
            Kind::Object => "an object",
            Kind::Array => "an array",
            Kind::String => "a string",
            Kind::Number => "a number",
            Kind::True | Kind::False => "a boolean",
            Kind::Null => "null",
        };
        Refusal::new(
            place,
            format!("'{place}' must be {expected}, and is {found}."),
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.param)
    }
}

impl std::error::Error for Refusal {}

/// A place in a request, turned into text only when an error names it.
///
/// ```
/// use sluicegate_core::input::place::{Place, Spot, Word};
///
/// let spot = Spot::top(Word::Messages).element(3).member(Word::Content).element(0);
/// let place = Place::At(spot);
/// assert_eq!(place.member("source").to_string(), "messages[3].content[0].source");
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Place<'p> {
    /// A member of the request.
    Top(&'p str),
    /// A place that has been kept.
    At(Spot),
    /// A member of an object.
    Member(&'p Place<'p>, &'p str),
    /// An element of an array.
    Element(&'p Place<'p>, usize),
}

impl Place<'_> {
    /// A member of the object here.
    #[must_use]
    pub fn member<'p>(&'p self, name: &'p str) -> Place<'p> {
        Place::Member(self, name)
    }

    /// An element of the array here.
    #[must_use]
    pub fn element(&self, index: usize) -> Place<'_> {
        Place::Element(self, index)
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Top(name) => f.write_str(name),
            Place::At(spot) => spot.fmt(f),
            Place::Member(parent, name) => write!(f, "{parent}.{name}"),
            Place::Element(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// The names of members that lead to what a [`Spot`] stands for. A protocol adds those that it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Word {
    /// No member.
    #[default]
    None,
    /// `allowed_tools`
    AllowedTools,
    /// `audio`
    Audio,
    /// `content`
    Content,
    /// `effort`
    Effort,
    /// `format`
    Format,
    /// `function_call`
    FunctionCall,
    /// `input`
    Input,
    /// `instructions`
    Instructions,
    /// `messages`
    Messages,
    /// `output`
    Output,
    /// `output_config`
    OutputConfig,
    /// `output_format`
    OutputFormat,
    /// `reasoning`
    Reasoning,
    /// `reasoning_content`
    ReasoningContent,
    /// `reasoning_details`
    ReasoningDetails,
    /// `reasoning_text`
    ReasoningText,
    /// `refusal`
    Refusal,
    /// `response_format`
    ResponseFormat,
    /// `source`
    Source,
    /// `summary`
    Summary,
    /// `system`
    System,
    /// `text`
    Text,
    /// `thinking`
    Thinking,
    /// `thinking_blocks`
    ThinkingBlocks,
    /// `tool_calls`
    ToolCalls,
    /// `tool_choice`
    ToolChoice,
    /// `tool_plan`
    ToolPlan,
    /// `tools`
    Tools,
}

impl Word {
    /// As it stands in a request.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Word::None => "",
            Word::AllowedTools => "allowed_tools",
            Word::Audio => "audio",
            Word::Content => "content",
            Word::Effort => "effort",
            Word::Format => "format",
            Word::FunctionCall => "function_call",
            Word::Input => "input",
            Word::Instructions => "instructions",
            Word::Messages => "messages",
            Word::Output => "output",
            Word::OutputConfig => "output_config",
            Word::OutputFormat => "output_format",
            Word::Reasoning => "reasoning",
            Word::ReasoningContent => "reasoning_content",
            Word::ReasoningDetails => "reasoning_details",
            Word::ReasoningText => "reasoning_text",
            Word::Refusal => "refusal",
            Word::ResponseFormat => "response_format",
            Word::Source => "source",
            Word::Summary => "summary",
            Word::System => "system",
            Word::Text => "text",
            Word::Thinking => "thinking",
            Word::ThinkingBlocks => "thinking_blocks",
            Word::ToolCalls => "tool_calls",
            Word::ToolChoice => "tool_choice",
            Word::ToolPlan => "tool_plan",
            Word::Tools => "tools",
        }
    }
}

/// Members on the way to a [`Spot`].
const DEPTH: usize = 4;

/// A place in a request that is kept with what stands there: up to four members, each with the index of an element in
/// it. It says what the client wrote, so that whoever refuses it names it as the client did. A way that is longer ends
/// where there is no more room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    members: [Word; DEPTH],
    /// Of each member the index in it, and one more; 0 where the member itself is meant.
    indexes: [u32; DEPTH],
}

impl Spot {
    /// A member of the request.
    #[must_use]
    pub const fn top(member: Word) -> Self {
        let none = Word::None;
        Spot {
            members: [member, none, none, none],
            indexes: [0; DEPTH],
        }
    }

    /// A member of the object here.
    #[must_use]
    pub fn member(mut self, member: Word) -> Self {
        if let Some(slot) = self.members.iter_mut().find(|it| **it == Word::None) {
            *slot = member;
        }
        self
    }

    /// An element of the array here, which is a member.
    #[must_use]
    pub fn element(mut self, index: usize) -> Self {
        let members = self.members.iter().filter(|it| **it != Word::None).count();
        if let Some(slot) = self.indexes.get_mut(members.saturating_sub(1)) {
            *slot = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
        }
        self
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (member, index)) in self.members.iter().zip(self.indexes).enumerate() {
            if *member == Word::None {
                break;
            }
            if place > 0 {
                f.write_str(".")?;
            }
            f.write_str(member.as_str())?;
            if let Some(index) = index.checked_sub(1) {
                write!(f, "[{index}]")?;
            }
        }
        Ok(())
    }
}

/// A string's content as it is spelled.
pub(crate) fn spelled<'a>(node: Option<Node<'a>>, place: &Place<'_>) -> Result<&'a [u8], Refusal> {
    let node = node.ok_or_else(|| Refusal::missing(place))?;
    node.spelled()
        .ok_or_else(|| Refusal::wrong_type(place, "a string", node.kind()))
}

/// A value of one kind.
pub(crate) fn of_kind<'a>(
    node: Node<'a>,
    kind: Kind,
    expected: &str,
    place: &Place<'_>,
) -> Result<Node<'a>, Refusal> {
    if node.kind() == kind {
        Ok(node)
    } else {
        Err(Refusal::wrong_type(place, expected, node.kind()))
    }
}
