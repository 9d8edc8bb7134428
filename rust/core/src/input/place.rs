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
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'p> {
    /// A member of the request.
    Top(&'p str),
    /// A member of an object.
    Member(&'p Place<'p>, &'p str),
    /// An element of an array.
    Element(&'p Place<'p>, usize),
}

impl Place<'_> {
    pub(crate) fn member<'p>(&'p self, name: &'p str) -> Place<'p> {
        Place::Member(self, name)
    }

    pub(crate) fn element(&self, index: usize) -> Place<'_> {
        Place::Element(self, index)
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Top(name) => f.write_str(name),
            Place::Member(parent, name) => write!(f, "{parent}.{name}"),
            Place::Element(parent, index) => write!(f, "{parent}[{index}]"),
        }
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
