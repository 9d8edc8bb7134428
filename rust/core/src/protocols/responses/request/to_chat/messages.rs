//! The input as messages.
//!
//! - What the model put out in one turn (reasoning, text, calls) becomes one message of the assistant. A second text directly behind a
//!   first begins another; behind calls, whose outputs must follow at once, it is a paragraph. Reasoning that nothing follows is left out.
//! - Instructions and the system's or developer's messages behind them become one message, where the role is `system`: many chat
//!   templates take one, and only in front.
//! - A tool's output is text. What else it holds (images, files) goes into a message of the user behind the outputs, as Chat Completions
//!   has no other place for it.

use super::super::tools::Offer;
use super::content::{self, ContentPart};
use super::{ChatTarget, InstructionsRole, ReasoningField};
use crate::input::left_out::LeftOut;
use crate::input::place::{Place, Refusal, of_kind, spelled};
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::string;
use crate::json::writer::Writer;

/// The model's output between two items of others. Texts stand as between the quotes of a JSON string.
#[derive(Debug, Default)]
struct Turn {
    reasoning: Vec<u8>,
    /// Where the reasoning stands.
    reasoning_items: Vec<Box<str>>,
    text: Option<Vec<u8>>,
    refusal: Option<Vec<u8>>,
    calls: Writer,
    ends_with_text: bool,
}

/// Members of an item, read in one pass.
struct InputItem<'r> {
    kind: Option<Node<'r>>,
    role: Option<Node<'r>>,
    content: Option<Node<'r>>,
    summary: Option<Node<'r>>,
    call_id: Option<Node<'r>>,
    name: Option<Node<'r>>,
    namespace: Option<Node<'r>>,
    arguments: Option<Node<'r>>,
    input: Option<Node<'r>>,
    output: Option<Node<'r>>,
    extra_content: Option<Node<'r>>,
    reasoning_content: Option<Node<'r>>,
}

impl<'r> InputItem<'r> {
    fn read(item: Node<'r>) -> Self {
        let [
            kind,
            role,
            content,
            summary,
            call_id,
            name,
            namespace,
            arguments,
            input,
            output,
            extra_content,
            reasoning_content,
        ] = item.pick([
            "type",
            "role",
            "content",
            "summary",
            "call_id",
            "name",
            "namespace",
            "arguments",
            "input",
            "output",
            "extra_content",
            "reasoning_content",
        ]);
        InputItem {
            kind,
            role,
            content,
            summary,
            call_id,
            name,
            namespace,
            arguments,
            input,
            output,
            extra_content,
            reasoning_content,
        }
    }
}

/// Messages as they are written.
pub(super) struct Messages<'r, 'w> {
    out: &'w mut Writer,
    target: &'r ChatTarget,
    offer: &'r Offer<'r>,
    /// Text for the system message in front; None once it has been written.
    front: Option<Vec<u8>>,
    turn: Option<Turn>,
    /// Parts of tool outputs that are not text, each behind a line that names its call.
    attached: Vec<ContentPart<'r>>,
    left_out: LeftOut,
}

impl<'r, 'w> Messages<'r, 'w> {
    /// Messages that will be the next value of `out`.
    pub(super) fn new(target: &'r ChatTarget, offer: &'r Offer<'r>, out: &'w mut Writer) -> Self {
        out.open(b'[');
        Messages {
            out,
            target,
            offer,
            front: (target.instructions_role == InstructionsRole::System).then(Vec::new),
            turn: None,
            attached: Vec::new(),
            left_out: LeftOut::default(),
        }
    }

    /// Ends the messages. Gives where what was left out stands.
    pub(super) fn finish(mut self) -> LeftOut {
        self.end_turn();
        self.end_outputs();
        self.end_front();
        self.out.close(b']');
        self.left_out
    }

    /// The request's instructions, which must come first.
    pub(super) fn instructions(&mut self, text: &'r [u8]) {
        self.system(vec![ContentPart::Text(text)], "developer");
    }

    /// An input that is a string.
    pub(super) fn user(&mut self, text: &'r [u8]) {
        self.message("user", &[ContentPart::Text(text)]);
    }

    /// One item of the input.
    pub(super) fn item(&mut self, item: Node<'r>, place: &Place<'_>) -> Result<(), Refusal> {
        of_kind(item, Kind::Object, "an object", place)?;
        let item = InputItem::read(item);
        let Some(kind) = item.kind else {
            if item.role.is_none() {
                return Err(reference(place));
            }
            return self.message_item(&item, place);
        };
        let kind_place = place.member("type");
        spelled(Some(kind), &kind_place)?;
        let kind = kind.decode().unwrap_or_default();
        match kind.as_ref() {
            "message" => self.message_item(&item, place),
            "agent_message" => {
                let parts = content::parts(item.content, &place.member("content"))?;
                match content::joined(&parts, b"") {
                    Some(text) => self.message("user", &[ContentPart::Text(&text)]),
                    None => self.message("user", &parts),
                }
                Ok(())
            }
            "function_call" => self.call(&item, false, place),
            "custom_tool_call" => self.call(&item, true, place),
            "function_call_output" | "custom_tool_call_output" => self.output(&item, place),
            "reasoning" => self.reasoning(&item, place),
            "additional_tools" if self.offer.looked_at_input => Ok(()),
            // What came of these is in the text that the model made of it.
            "web_search_call" | "file_search_call" | "mcp_list_tools" | "tool_search_call"
            | "tool_search_output" => {
                self.left_out.add_kind(place, &kind);
                Ok(())
            }
            "item_reference" => Err(reference(place)),
            kind => Err(Refusal::new(
                &kind_place,
                format!(
                    "Items of type '{kind}' can't be given to this model: its upstream speaks Chat Completions."
                ),
            )),
        }
    }

    fn message_item(&mut self, item: &InputItem<'r>, place: &Place<'_>) -> Result<(), Refusal> {
        let InputItem { role, content, .. } = *item;
        let role_place = place.member("role");
        spelled(role, &role_place)?;
        let role = role.and_then(|role| role.decode()).unwrap_or_default();
        let content_place = place.member("content");
        if content.is_none() && role != "assistant" {
            return Err(Refusal::missing(&content_place));
        }
        let parts = content::parts(content, &content_place)?;
        match role.as_ref() {
            "assistant" => self.reply(item, &parts),
            "user" => self.message("user", &parts),
            "system" | "developer" => self.system(parts, &role),
            _ => {
                return Err(Refusal::new(
                    &role_place,
                    "The role must be 'user', 'assistant', 'system' or 'developer'.",
                ));
            }
        }
        Ok(())
    }

    /// Text of the assistant.
    fn reply(&mut self, item: &InputItem<'r>, parts: &[ContentPart<'r>]) {
        let ended = |turn: &Turn| turn.ends_with_text && turn.calls.is_empty();
        if self.turn.as_ref().is_some_and(ended) {
            self.end_turn();
        }
        let reasoning = item.reasoning_content.and_then(|it| it.spelled());
        let turn = self.begin_turn();
        if std::mem::replace(&mut turn.ends_with_text, true) {
            turn.text
                .get_or_insert_default()
                .extend_from_slice(b"\\n\\n");
        }
        turn.reasoning
            .extend_from_slice(reasoning.unwrap_or_default());
        let text = turn.text.get_or_insert_default();
        for part in parts {
            match part {
                ContentPart::Text(part) => text.extend_from_slice(part),
                ContentPart::Refusal(part) => {
                    turn.refusal.get_or_insert_default().extend_from_slice(part);
                }
                _ => {}
            }
        }
    }

    fn reasoning(&mut self, item: &InputItem<'r>, place: &Place<'_>) -> Result<(), Refusal> {
        let mut parts = content::parts(item.content, &place.member("content"))?;
        if parts.is_empty() {
            parts = content::parts(item.summary, &place.member("summary"))?;
        }
        let text = content::joined(&parts, b"\\n\\n").unwrap_or_default();
        if text.is_empty() {
            // It is encrypted, for another upstream.
            self.left_out.add_kind(place, "reasoning");
            return Ok(());
        }
        let turn = self.begin_turn();
        turn.reasoning.extend_from_slice(&text);
        turn.reasoning_items.push(place.to_string().into());
        turn.ends_with_text = false;
        Ok(())
    }

    fn call(
        &mut self,
        item: &InputItem<'r>,
        custom: bool,
        place: &Place<'_>,
    ) -> Result<(), Refusal> {
        let (payload_name, payload) = if custom {
            ("input", item.input)
        } else {
            ("arguments", item.arguments)
        };
        let call_id = spelled(item.call_id, &place.member("call_id"))?;
        let spelled_name = spelled(item.name, &place.member("name"))?;
        let payload_place = place.member(payload_name);
        let payload = payload.ok_or_else(|| Refusal::missing(&payload_place))?;
        let name = item.name.and_then(|name| name.decode()).unwrap_or_default();
        let namespace = item.namespace.and_then(|it| it.decode());
        let mut arguments = Vec::with_capacity(payload.bytes().len() + 32);
        if custom {
            let input = spelled(Some(payload), &payload_place)?;
            arguments.extend_from_slice(br#"{\"input\":\""#);
            string::spell_bytes(input, &mut arguments);
            arguments.extend_from_slice(br#"\"}"#);
        } else if payload.kind() == Kind::Object {
            string::spell_bytes(payload.bytes(), &mut arguments);
        } else {
            let text = spelled(Some(payload), &payload_place)?;
            // Upstreams parse the arguments, and an empty text is no JSON.
            let text = if text.is_empty() { b"{}" } else { text };
            arguments.extend_from_slice(text);
        }
        let called = self.offer.called(namespace.as_deref(), &name);
        let mut function = Vec::with_capacity(called.len());
        if called == name {
            function.extend_from_slice(spelled_name);
        } else {
            string::spell(&called, &mut function);
        }
        let turn = self.begin_turn();
        turn.ends_with_text = false;
        let calls = &mut turn.calls;
        calls.open(b'{');
        calls.member_spelled("id", call_id);
        calls.member_spelled("type", b"function");
        calls.key("function");
        calls.open(b'{');
        calls.member_spelled("name", &function);
        calls.member_spelled("arguments", &arguments);
        calls.close(b'}');
        // Gemini refuses a call of its own that comes back without its signature.
        if let Some(extra) = item.extra_content {
            calls.member("extra_content", extra.bytes());
        }
        calls.close(b'}');
        Ok(())
    }

    fn output(&mut self, item: &InputItem<'r>, place: &Place<'_>) -> Result<(), Refusal> {
        let call_id = spelled(item.call_id, &place.member("call_id"))?;
        let output_place = place.member("output");
        let output = item.output.ok_or_else(|| Refusal::missing(&output_place))?;
        let parts = content::parts(Some(output), &output_place)?;
        self.end_turn();
        self.end_front();
        let (texts, others): (Vec<_>, Vec<_>) = parts
            .into_iter()
            .partition(|part| matches!(part, ContentPart::Text(_) | ContentPart::Refusal(_)));
        let mut text = content::joined(&texts, b"\\n").unwrap_or_default();
        if !others.is_empty() {
            if text.is_empty() {
                text.extend_from_slice(b"The output follows in the next message of the user.");
            }
            self.attached.push(ContentPart::OutputOf(call_id));
            self.attached.extend(others);
        }
        self.out.open(b'{');
        self.out.member_spelled("role", b"tool");
        self.out.member_spelled("tool_call_id", call_id);
        self.out.member_spelled("content", &text);
        self.out.close(b'}');
        Ok(())
    }

    fn system(&mut self, parts: Vec<ContentPart<'r>>, role: &str) {
        if self.turn.is_none()
            && let Some(front) = &mut self.front
            && let Some(text) = content::joined(&parts, b"\\n")
        {
            if !front.is_empty() {
                front.extend_from_slice(b"\\n\\n");
            }
            front.extend_from_slice(&text);
            return;
        }
        let role = match self.target.instructions_role {
            InstructionsRole::System => "system",
            InstructionsRole::Developer => role,
        };
        self.message(role, &parts);
    }

    fn message(&mut self, role: &str, parts: &[ContentPart<'_>]) {
        self.end_turn();
        self.end_outputs();
        self.end_front();
        self.out.open(b'{');
        self.out.member_spelled("role", role.as_bytes());
        self.out.key("content");
        content::write(self.out, parts);
        self.out.close(b'}');
    }

    fn begin_turn(&mut self) -> &mut Turn {
        if self.turn.is_none() {
            self.end_outputs();
            self.end_front();
        }
        self.turn.get_or_insert_default()
    }

    fn end_front(&mut self) {
        if let Some(text) = self.front.take().filter(|text| !text.is_empty()) {
            self.out.open(b'{');
            self.out.member_spelled("role", b"system");
            self.out.member_spelled("content", &text);
            self.out.close(b'}');
        }
    }

    fn end_outputs(&mut self) {
        if self.attached.is_empty() {
            return;
        }
        let attached = std::mem::take(&mut self.attached);
        self.out.open(b'{');
        self.out.member_spelled("role", b"user");
        self.out.key("content");
        content::write(self.out, &attached);
        self.out.close(b'}');
    }

    fn end_turn(&mut self) {
        let Some(turn) = self.turn.take() else {
            return;
        };
        let calls = turn.calls.as_bytes();
        if turn.text.is_none() && calls.is_empty() {
            for place in turn.reasoning_items {
                self.left_out.add_kind(place, "reasoning");
            }
            return;
        }
        self.out.open(b'{');
        self.out.member_spelled("role", b"assistant");
        match turn.text {
            Some(text) if !text.is_empty() || calls.is_empty() && turn.refusal.is_none() => {
                self.out.member_spelled("content", &text);
            }
            _ => self.out.member("content", b"null"),
        }
        if let Some(refusal) = turn.refusal {
            self.out.member_spelled("refusal", &refusal);
        }
        let field = match self.target.reasoning {
            ReasoningField::ReasoningContent => Some("reasoning_content"),
            ReasoningField::Reasoning => Some("reasoning"),
            ReasoningField::None => None,
        };
        if let Some(field) = field.filter(|_| !turn.reasoning.is_empty()) {
            self.out.member_spelled(field, &turn.reasoning);
        }
        if !calls.is_empty() {
            self.out.key("tool_calls");
            self.out.open(b'[');
            self.out.raw(calls);
            self.out.close(b']');
        }
        self.out.close(b'}');
    }
}

fn reference(place: &Place<'_>) -> Refusal {
    Refusal::new(
        place,
        "The item that is referred to is not known here: send the item itself.",
    )
}
