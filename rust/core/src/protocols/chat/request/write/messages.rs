//! The turns as messages.
//!
//! - What the model put out in neighbouring turns (reasoning, text, calls) becomes one message of the assistant. A
//!   second text directly behind a first begins another; behind calls, whose outputs must follow at once, it is a
//!   paragraph. Reasoning that nothing follows is left out.
//! - Instructions and the system's or developer's messages behind them become one message, where the role is `system`:
//!   many chat templates take one, and only in front.
//! - A tool's output is text. What else it holds (images, files) goes into a message of the user behind the outputs, as
//!   Chat Completions has no other place for it.

use super::content::{self, ContentPart};
use super::{ChatTarget, InstructionsRole, LateSystem, ReasoningField, tools};
use crate::api::Api;
use crate::input::block::{Seal, Text, says_error};
use crate::input::left_out::LeftOut;
use crate::input::offer::{Offer, custom_arguments};
use crate::input::{Block, Call, Content, Payload, Place, Refusal, Role, Scope, Spot, Turn};
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::string;
use crate::json::writer::Writer;
use crate::output::sealed::with_text;

/// The model's output between two turns of others. Texts stand as between the quotes of a JSON string.
#[derive(Debug, Default)]
struct Reply {
    reasoning: Vec<u8>,
    /// Where the reasoning stands.
    reasoning_spots: Vec<Spot>,
    /// Entries of `reasoning_details`, which the upstream has signed or encrypted.
    details: Writer,
    text: Option<Vec<u8>>,
    refusal: Option<Vec<u8>>,
    calls: Writer,
    ends_with_text: bool,
}

/// Messages as they are written.
pub(super) struct Messages<'c, 'w> {
    client: Api,
    out: &'w mut Writer,
    target: &'c ChatTarget,
    offer: &'c Offer<'c, 'c>,
    /// Text for the system message in front; None once it has been written.
    front: Option<Vec<u8>>,
    reply: Option<Reply>,
    /// Parts of tool outputs that are not text, each behind a line that names its call.
    attached: Vec<ContentPart<'c>>,
    /// Instructions that go into the user's next message.
    late: Vec<ContentPart<'c>>,
    left_out: LeftOut,
}

impl<'c, 'w> Messages<'c, 'w> {
    /// Messages that will be the next value of `out`.
    pub(super) fn new(
        client: Api,
        target: &'c ChatTarget,
        offer: &'c Offer<'c, 'c>,
        out: &'w mut Writer,
    ) -> Self {
        out.open(b'[');
        Messages {
            client,
            out,
            target,
            offer,
            front: (target.instructions_role == InstructionsRole::System).then(Vec::new),
            reply: None,
            attached: Vec::new(),
            late: Vec::new(),
            left_out: LeftOut::default(),
        }
    }

    /// Ends the messages. Gives where what was left out stands.
    pub(super) fn finish(mut self) -> LeftOut {
        self.end_reply();
        self.end_outputs();
        self.end_front();
        self.end_late();
        self.out.close(b']');
        self.left_out
    }

    /// A part of the instructions, which must come first.
    pub(super) fn instructions(&mut self, block: &'c Block<'_>) -> Result<(), Refusal> {
        let parts = content::parts(std::slice::from_ref(block))?;
        self.system(&parts, Role::Developer);
        Ok(())
    }

    /// One turn.
    pub(super) fn turn(&mut self, turn: &'c Turn<'_>) -> Result<(), Refusal> {
        match turn.role {
            Role::System | Role::Developer => {
                let parts = content::parts(&turn.blocks)?;
                let is_late = self.front.is_none() || self.reply.is_some();
                if self.target.late_system == LateSystem::User && is_late {
                    self.late.extend(parts);
                } else {
                    self.system(&parts, turn.role);
                }
            }
            Role::User => self.user(turn)?,
            Role::Assistant => self.assistant(turn)?,
        }
        Ok(())
    }

    /// Outputs of tools go first, as they must follow their calls.
    fn user(&mut self, turn: &'c Turn<'_>) -> Result<(), Refusal> {
        let mut parts = Vec::new();
        let mut has_outputs = false;
        for block in &turn.blocks {
            match &block.content {
                Content::Result {
                    id,
                    failed,
                    content,
                } => {
                    has_outputs = true;
                    self.output(id, *failed, content)?;
                }
                Content::Own(own) if own.scope == Scope::Trace => {
                    self.left_out.add_kind(block.spot, &own.kind);
                }
                _ => content::add(block, &mut parts)?,
            }
        }
        if has_outputs && parts.is_empty() {
            return Ok(());
        }
        if !self.late.is_empty() {
            parts.splice(..0, std::mem::take(&mut self.late));
        }
        // Strict templates want a string, and a client of Messages sends each of its reminders in a block of its own.
        if self.client == Api::Messages
            && let Some(text) = content::joined(&parts, b"\\n\\n")
        {
            self.message(Role::User, &[ContentPart::Text(&text)]);
        } else {
            self.message(Role::User, &parts);
        }
        Ok(())
    }

    fn assistant(&mut self, turn: &'c Turn<'_>) -> Result<(), Refusal> {
        // A message, which has a text, however empty: not reasoning or a call alone.
        let is_message = turn.blocks.iter().any(|block| match &block.content {
            Content::Thinking { .. } | Content::Call(_) | Content::Result { .. } => false,
            Content::Own(own) => own.scope == Scope::Part,
            _ => true,
        });
        if is_message {
            let has_ended = |reply: &Reply| reply.ends_with_text && reply.calls.is_empty();
            if self.reply.as_ref().is_some_and(has_ended) {
                self.end_reply();
            }
            let reply = self.begin_reply();
            let text = reply.text.get_or_insert_default();
            if std::mem::replace(&mut reply.ends_with_text, true) {
                text.extend_from_slice(b"\\n\\n");
            }
        }
        for block in &turn.blocks {
            match &block.content {
                Content::Text(text) => self.say(text),
                Content::Refusal(text) => {
                    let refusal = self.begin_reply().refusal.get_or_insert_default();
                    refusal.extend_from_slice(text);
                }
                Content::Thinking { text, seal } => {
                    self.thinking(text, seal.as_ref(), block, is_message);
                }
                Content::Call(call) => self.call(call),
                Content::Own(own) if own.scope == Scope::Trace => {
                    self.left_out.add_kind(block.spot, &own.kind);
                }
                Content::Own(own) if own.scope == Scope::Item => {
                    return Err(Refusal::new(
                        &Place::At(block.spot).member("type"),
                        format!(
                            "Items of type '{}' can't be given to this model: its upstream speaks Chat Completions.",
                            own.kind
                        ),
                    ));
                }
                // The assistant's messages have texts only.
                _ => content::add(block, &mut Vec::new())?,
            }
        }
        Ok(())
    }

    fn say(&mut self, said: &[u8]) {
        let reply = self.begin_reply();
        let text = reply.text.get_or_insert_default();
        if !std::mem::replace(&mut reply.ends_with_text, true) && !text.is_empty() {
            text.extend_from_slice(b"\\n\\n");
        }
        text.extend_from_slice(said);
    }

    fn thinking(
        &mut self,
        text: &[u8],
        seal: Option<&Seal<'_>>,
        block: &Block<'_>,
        is_message: bool,
    ) {
        let takes_it = self.target.reasoning != ReasoningField::None;
        let sealed = seal.filter(|_| takes_it);
        let sealed = sealed.and_then(|seal| seal.made_by(Api::Chat));
        if text.is_empty() && sealed.is_none() {
            // Only who has made it can read it.
            let kind = block.source.and_then(|source| source.get("type")?.decode());
            let kind = kind.as_deref().unwrap_or("reasoning");
            self.left_out.add_kind(block.spot, kind);
            return;
        }
        let reply = self.begin_reply();
        reply.reasoning.extend_from_slice(text);
        if let Some(sealed) = sealed.as_deref().and_then(Node::document) {
            details(sealed, text, &mut reply.details);
        }
        if !is_message {
            reply.reasoning_spots.push(block.spot);
            reply.ends_with_text = false;
        }
    }

    fn call(&mut self, call: &Call<'_>) {
        let arguments: Text<'_> = match &call.input {
            Payload::Text(input) if call.custom => custom_arguments(input),
            // Upstreams parse the arguments, and an empty text is no JSON.
            Payload::Text(text) if text.is_empty() => Text::Borrowed(b"{}"),
            Payload::Text(text) => Text::Borrowed(text),
            Payload::Object(object) => {
                let mut arguments = Vec::with_capacity(object.bytes().len() + 32);
                string::spell_bytes(object.bytes(), &mut arguments);
                Text::Owned(arguments)
            }
        };
        let name = string::decode(&call.name);
        let called = self.offer.called(call.namespace.as_deref(), &name);
        let called = tools::told(self.client, &called);
        let mut function = Vec::with_capacity(called.len());
        if called == name {
            function.extend_from_slice(&call.name);
        } else {
            string::spell(&called, &mut function);
        }
        let reply = self.begin_reply();
        reply.ends_with_text = false;
        let calls = &mut reply.calls;
        calls.open(b'{');
        calls.member_spelled("id", &call.id);
        calls.member_spelled("type", b"function");
        calls.key("function");
        calls.open(b'{');
        calls.member_spelled("name", &function);
        calls.member_spelled("arguments", &arguments);
        calls.close(b'}');
        // Gemini refuses a call of its own that comes back without its signature.
        if let Some(extra) = call.extra {
            calls.member("extra_content", extra.bytes());
        }
        calls.close(b'}');
    }

    fn output(
        &mut self,
        id: &'c [u8],
        failed: bool,
        content: &'c [Block<'_>],
    ) -> Result<(), Refusal> {
        let parts = content::parts(content)?;
        self.end_reply();
        self.end_front();
        let (texts, others): (Vec<_>, Vec<_>) = parts
            .into_iter()
            .partition(|part| matches!(part, ContentPart::Text(_) | ContentPart::Refusal(_)));
        let mut text = content::joined(&texts, b"\\n").unwrap_or_default();
        if failed {
            text = failure(text);
        }
        if !others.is_empty() {
            if text.is_empty() {
                text.extend_from_slice(b"The output follows in the next message of the user.");
            }
            self.attached.push(ContentPart::OutputOf(id));
            self.attached.extend(others);
        }
        self.out.open(b'{');
        self.out.member_spelled("role", b"tool");
        self.out.member_spelled("tool_call_id", id);
        self.out.member_spelled("content", &text);
        self.out.close(b'}');
        Ok(())
    }

    fn system(&mut self, parts: &[ContentPart<'_>], role: Role) {
        if self.reply.is_none()
            && let Some(front) = &mut self.front
            && let Some(text) = content::joined(parts, b"\\n")
        {
            if !front.is_empty() {
                front.extend_from_slice(b"\\n\\n");
            }
            front.extend_from_slice(&text);
            return;
        }
        let role = match self.target.instructions_role {
            InstructionsRole::System => Role::System,
            InstructionsRole::Developer => role,
        };
        self.message(role, parts);
    }

    fn message(&mut self, role: Role, parts: &[ContentPart<'_>]) {
        self.end_reply();
        self.end_outputs();
        self.end_front();
        self.out.open(b'{');
        self.out.member_spelled("role", role.word().as_bytes());
        self.out.key("content");
        content::write(self.out, parts);
        self.out.close(b'}');
    }

    fn begin_reply(&mut self) -> &mut Reply {
        if self.reply.is_none() {
            self.end_outputs();
            self.end_front();
            self.end_late();
        }
        self.reply.get_or_insert_default()
    }

    fn end_front(&mut self) {
        if let Some(text) = self.front.take().filter(|text| !text.is_empty()) {
            self.out.open(b'{');
            self.out.member_spelled("role", b"system");
            self.out.member_spelled("content", &text);
            self.out.close(b'}');
        }
    }

    /// Instructions that no message of the user's follows.
    fn end_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let late = std::mem::take(&mut self.late);
        self.out.open(b'{');
        self.out.member_spelled("role", b"user");
        self.out.key("content");
        content::write(self.out, &late);
        self.out.close(b'}');
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

    fn end_reply(&mut self) {
        let Some(reply) = self.reply.take() else {
            return;
        };
        let calls = reply.calls.as_bytes();
        if reply.text.is_none() && calls.is_empty() {
            for spot in reply.reasoning_spots {
                self.left_out.add_kind(spot, "reasoning");
            }
            return;
        }
        self.out.open(b'{');
        self.out.member_spelled("role", b"assistant");
        match reply.text {
            Some(text) if !text.is_empty() || calls.is_empty() && reply.refusal.is_none() => {
                self.out.member_spelled("content", &text);
            }
            _ => self.out.member("content", b"null"),
        }
        if let Some(refusal) = reply.refusal {
            self.out.member_spelled("refusal", &refusal);
        }
        let field = match self.target.reasoning {
            ReasoningField::ReasoningContent => Some("reasoning_content"),
            ReasoningField::Reasoning => Some("reasoning"),
            ReasoningField::None => None,
        };
        if let Some(field) = field.filter(|_| !reply.reasoning.is_empty()) {
            self.out.member_spelled(field, &reply.reasoning);
        }
        if !reply.details.as_bytes().is_empty() {
            self.out.key("reasoning_details");
            self.out.open(b'[');
            self.out.raw(reply.details.as_bytes());
            self.out.close(b']');
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

/// Appends what a seal holds: entries with their texts, or one entry whose `text` stands beside the seal.
fn details(sealed: Node<'_>, text: &[u8], out: &mut Writer) {
    if sealed
        .get("type")
        .is_some_and(|kind| kind.is("reasoning.text"))
    {
        let mut detail = Vec::new();
        with_text(sealed.bytes(), text, &mut detail);
        return out.raw(&detail);
    }
    let one = (sealed.kind() == Kind::Object).then_some(sealed);
    for detail in one.into_iter().chain(sealed.elements()) {
        out.raw(detail.bytes());
    }
}

/// The output of a call that failed: the protocol has no member that would say so.
fn failure(text: Vec<u8>) -> Vec<u8> {
    if text.is_empty() {
        return b"Error".to_vec();
    }
    if says_error(&text) {
        return text;
    }
    [b"Error: ", &*text].concat()
}
