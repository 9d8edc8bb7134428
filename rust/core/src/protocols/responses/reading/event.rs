//! One event of a response stream: its members, and which text it belongs to.

use crate::json::node::Node;
use crate::json::scan::{Fault, Kind, Members, Value};
use crate::json::string;

use crate::limits::MAX_INDEX;

use super::items::{Name, Sort};

/// The members of an event.
#[derive(Clone, Copy, Default)]
pub(in crate::protocols::responses) struct Event<'a> {
    pub(in crate::protocols::responses) kind: &'a [u8],
    pub(in crate::protocols::responses) item_id: &'a [u8],
    pub(in crate::protocols::responses) output_index: Option<u64>,
    pub(in crate::protocols::responses) content_index: Option<u64>,
    pub(in crate::protocols::responses) summary_index: Option<u64>,
    /// The next part of a text, or all of it: `delta`, `text`, `refusal`, `arguments`, `input`.
    pub(in crate::protocols::responses) delta: Option<Node<'a>>,
    pub(in crate::protocols::responses) whole: Option<Node<'a>>,
    pub(in crate::protocols::responses) logprobs: Option<Node<'a>>,
    pub(in crate::protocols::responses) item: Option<Node<'a>>,
    pub(in crate::protocols::responses) part: Option<Node<'a>>,
    pub(in crate::protocols::responses) annotation: Option<Node<'a>>,
    pub(in crate::protocols::responses) response: Option<Node<'a>>,
    /// `sequence_number`.
    pub(in crate::protocols::responses) number: Option<Value>,
    /// A member that has a type or a value that it cannot have.
    pub(in crate::protocols::responses) misfit: Option<&'static str>,
}

impl<'a> Event<'a> {
    pub(in crate::protocols::responses) fn read(
        text: &'a [u8],
        max_depth: usize,
    ) -> Result<Self, Fault> {
        let mut event = Event::default();
        for member in Members::document(text, max_depth)? {
            let member = member?;
            let value = Node::new(text, member.value);
            match &*string::plain(member.raw_key(text)) {
                b"type" => event.kind = value.spelled().unwrap_or_default(),
                b"item_id" => event.item_id = value.spelled().unwrap_or_default(),
                b"sequence_number" => event.number = Some(member.value),
                b"output_index" => event.output_index = event.index("output_index", value),
                b"content_index" => event.content_index = event.index("content_index", value),
                b"summary_index" => event.summary_index = event.index("summary_index", value),
                b"delta" => event.delta = Some(value),
                b"text" | b"refusal" | b"arguments" | b"input" => event.whole = Some(value),
                b"logprobs" => event.logprobs = Some(value),
                b"item" => event.item = event.object("item", value),
                b"part" => event.part = event.object("part", value),
                b"annotation" => event.annotation = event.object("annotation", value),
                b"response" => event.response = event.object("response", value),
                _ => {}
            }
        }
        Ok(event)
    }

    /// A place among items or parts. One that is no number, or that nothing can have, is a misfit; a negative one is as
    /// none, since there are servers that count from -1.
    fn index(&mut self, name: &'static str, value: Node<'a>) -> Option<u64> {
        let index = value.as_u64();
        let is_negative = value.kind() == Kind::Number && value.bytes().starts_with(b"-");
        if value.kind() != Kind::Null && !is_negative && index.is_none_or(|index| index > MAX_INDEX)
        {
            self.misfit = Some(name);
        }
        index
    }

    fn object(&mut self, name: &'static str, value: Node<'a>) -> Option<Node<'a>> {
        match value.kind() {
            Kind::Object => return Some(value),
            Kind::Null => {}
            _ => self.misfit = Some(name),
        }
        None
    }

    pub(super) fn name(&self) -> Name<'a> {
        Name {
            id: self.item_id,
            call_id: b"",
            output_index: self.output_index,
        }
    }
}

/// The sort of text that an event of this type continues or repeats as a whole; and whether it is a custom tool's
/// input.
pub(in crate::protocols::responses) fn text_event(kind: &[u8]) -> Option<(Sort, bool)> {
    Some(match kind {
        b"response.output_text.delta" | b"response.output_text.done" => (Sort::Text, false),
        b"response.refusal.delta" | b"response.refusal.done" => (Sort::Refusal, false),
        // The second name is that of Open Responses' first schema.
        b"response.reasoning_text.delta"
        | b"response.reasoning_text.done"
        | b"response.reasoning.delta"
        | b"response.reasoning.done" => (Sort::Thinking, false),
        b"response.reasoning_summary_text.delta" | b"response.reasoning_summary_text.done" => {
            (Sort::Summary, false)
        }
        b"response.function_call_arguments.delta" | b"response.function_call_arguments.done" => {
            (Sort::Arguments, false)
        }
        b"response.custom_tool_call_input.delta" | b"response.custom_tool_call_input.done" => {
            (Sort::Arguments, true)
        }
        _ => return None,
    })
}

/// The text that a part of this type holds, and the member that it is in.
pub(in crate::protocols::responses) fn part_text(part: Node<'_>) -> Option<(Sort, &'static str)> {
    Some(match part.filled("type")? {
        b"output_text" | b"text" => (Sort::Text, "text"),
        b"refusal" => (Sort::Refusal, "refusal"),
        b"reasoning_text" => (Sort::Thinking, "text"),
        b"summary_text" => (Sort::Summary, "text"),
        _ => return None,
    })
}
