//! Turns as messages.
//!
//! - Neighbours of one side become one message: what the model said in one go, and what the user answers. The results
//!   of calls stand first in the user's message, in their order, as they must follow their calls at once.
//! - What the operator says in front is the system prompt. What it says later is a text of the user's in its place, or
//!   a message of the system's where the upstream takes one: behind one of the user's, and before one of the model's or
//!   the end.
//! - Empty texts are dropped, and white space alone, too, where there is anything else.
//! - Ids of calls are adapted, and each one is made the only one of its name.

use std::sync::Arc;

use super::parts::{self, beyond, is_blank, trimmed};
use super::target::MessagesTarget;
use crate::api::Api;
use crate::input::block::{Block, Call, Content, Payload, Scope, Seal};
use crate::input::ids::CallIds;
use crate::input::left_out::LeftOut;
use crate::input::names::adapted;
use crate::input::offer::Offer;
use crate::input::place::{Place, Refusal};
use crate::input::{Conversation, Names, Role, Turn};
use crate::json::node::Node;
use crate::json::scan::{self, Kind};
use crate::json::string;
use crate::json::writer::Writer;
use crate::limits::MAX_DEPTH;

/// The longest name of a tool.
pub(super) const MAX_NAME: usize = 128;

/// The longest id of a call. No bound is documented; the API's own have some 30 bytes.
const MAX_CALL_ID: usize = 64;

/// Whose message is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    User,
    Assistant,
}

/// Messages as they are made of turns.
pub(super) struct Messages<'c, 'a> {
    api: Api,
    target: &'c MessagesTarget,
    offer: &'c Offer<'c, 'a>,
    /// The system prompt's texts.
    pub(super) system: Vec<&'c Block<'a>>,
    out: Writer,
    side: Option<Side>,
    results: Vec<&'c Block<'a>>,
    /// The blocks of the message, behind its results.
    blocks: Vec<&'c Block<'a>>,
    /// What the operator says behind the user's message, while it may become a message of its own.
    late: Vec<&'c Block<'a>>,
    ids: CallIds,
    pub(super) names: Names,
    pub(super) left_out: LeftOut,
    /// Whether the model's last message calls tools and does not begin with its thinking.
    lacks_thinking: bool,
    /// Whether the last message has results.
    ends_with_results: bool,
}

impl<'c, 'a> Messages<'c, 'a> {
    pub(super) fn new(
        conversation: &'c Conversation<'a>,
        offer: &'c Offer<'c, 'a>,
        target: &'c MessagesTarget,
    ) -> Self {
        let mut out = Writer::with_capacity(4096);
        out.open(b'[');
        Messages {
            api: conversation.api,
            target,
            offer,
            system: conversation.instructions.iter().collect(),
            out,
            side: None,
            results: Vec::new(),
            blocks: Vec::new(),
            late: Vec::new(),
            ids: CallIds::new(MAX_CALL_ID),
            names: Names::default(),
            left_out: conversation.left_out.clone(),
            lacks_thinking: false,
            ends_with_results: false,
        }
    }

    /// Ends the messages: a JSON array.
    pub(super) fn finish(&mut self) -> Result<Vec<u8>, Refusal> {
        self.flush(true)?;
        self.flush_late()?;
        self.out.close(b']');
        Ok(std::mem::take(&mut self.out).into_bytes())
    }

    /// Whether the model is in the middle of calling tools, and what it thought before is not there.
    pub(super) fn is_open_loop_without_thinking(&self) -> bool {
        self.ends_with_results && self.lacks_thinking
    }

    pub(super) fn turn(&mut self, turn: &'c Turn<'a>) -> Result<(), Refusal> {
        if turn.named {
            self.left_out.add(Place::At(turn.spot).member("name"));
        }
        match turn.role {
            Role::System | Role::Developer => match self.side {
                None => self.system.extend(&turn.blocks),
                Some(Side::User) if self.target.inline_system => self.late.extend(&turn.blocks),
                _ => {
                    self.turn_to(Side::User)?;
                    self.blocks.extend(&turn.blocks);
                }
            },
            Role::User => {
                self.turn_to(Side::User)?;
                self.blocks.append(&mut self.late);
                for block in &turn.blocks {
                    match block.content {
                        Content::Result { .. } => self.results.push(block),
                        _ => self.blocks.push(block),
                    }
                }
            }
            Role::Assistant => {
                self.turn_to(Side::Assistant)?;
                self.flush_late()?;
                self.blocks.extend(&turn.blocks);
            }
        }
        Ok(())
    }

    fn turn_to(&mut self, side: Side) -> Result<(), Refusal> {
        if self.side != Some(side) {
            self.flush(false)?;
            self.side = Some(side);
        }
        Ok(())
    }

    fn flush(&mut self, is_last: bool) -> Result<(), Refusal> {
        let Some(side) = self.side else {
            return Ok(());
        };
        let results = std::mem::take(&mut self.results);
        let blocks = std::mem::take(&mut self.blocks);
        self.ends_with_results = !results.is_empty();
        match side {
            Side::User => self.user(&results, &blocks),
            Side::Assistant => self.assistant(&blocks, is_last),
        }
    }

    /// A message of the system's own.
    fn flush_late(&mut self) -> Result<(), Refusal> {
        let late = std::mem::take(&mut self.late);
        let texts = system_texts(&late)?;
        if texts.is_empty() {
            return Ok(());
        }
        self.out.open(b'{');
        self.out.member_spelled("role", b"system");
        self.out.key("content");
        write_texts(&texts, &mut self.out);
        self.out.close(b'}');
        Ok(())
    }

    fn user(&mut self, results: &[&'c Block<'a>], blocks: &[&'c Block<'a>]) -> Result<(), Refusal> {
        let blocks = without_blanks(blocks, !results.is_empty());
        self.out.open(b'{');
        self.out.member_spelled("role", b"user");
        self.out.key("content");
        let texts = blocks.iter().all(|block| text_of(block).is_some());
        if results.is_empty() && texts && blocks.len() <= 1 {
            write_texts(&blocks, &mut self.out);
        } else {
            self.out.open(b'[');
            for block in results {
                self.result(block)?;
            }
            for block in blocks {
                self.part(block)?;
            }
            self.out.close(b']');
        }
        self.out.close(b'}');
        Ok(())
    }

    /// A text, an image or a file of the user's, or in a result.
    fn part(&mut self, block: &Block<'_>) -> Result<(), Refusal> {
        if let Some(text) = text_of(block) {
            parts::text(text, block.source, &mut self.out);
            return Ok(());
        }
        if let Content::Own(own) = &block.content
            && own.scope == Scope::Trace
        {
            self.left_out.add_kind(Place::At(block.spot), &own.kind);
            return Ok(());
        }
        if let Content::Image(image) = &block.content
            && image.detail.is_some_and(|detail| !detail.is("auto"))
        {
            let place = Place::At(block.spot);
            let inner = place.member("image_url");
            let inner = if image.object.is_some() {
                &inner
            } else {
                &place
            };
            self.left_out.add(inner.member("detail"));
        }
        parts::media(block, self.api, &mut self.out)
    }

    fn result(&mut self, block: &Block<'_>) -> Result<(), Refusal> {
        let Content::Result {
            id,
            failed,
            content,
        } = &block.content
        else {
            return Ok(());
        };
        let Some(id) = self.ids.result(id) else {
            let member = match self.api {
                Api::Chat => "tool_call_id",
                Api::Messages => "tool_use_id",
                _ => "call_id",
            };
            let place = Place::At(block.spot);
            let id = string::decode(id);
            return Err(Refusal::new(
                &place.member(member),
                format!("There is no call '{id}' before this result of it."),
            ));
        };
        self.out.open(b'{');
        self.out.member_spelled("type", b"tool_result");
        self.out.member_spelled("tool_use_id", id.as_bytes());
        if *failed {
            self.out.member("is_error", b"true");
        }
        self.out.key("content");
        let content: Vec<&Block<'_>> = content.iter().collect();
        let content = without_blanks(&content, false);
        match content.as_slice() {
            [] => self.out.spelled(b""),
            [one]
                if one
                    .source
                    .and_then(|it| parts::cache_control(Some(it)))
                    .is_none()
                    && text_of(one).is_some() =>
            {
                self.out.spelled(text_of(one).unwrap_or_default());
            }
            blocks => {
                self.out.open(b'[');
                for block in blocks {
                    self.part(block)?;
                }
                self.out.close(b']');
            }
        }
        // What stands beside the result, and not beside its only text.
        if let Some(cache) = parts::cache_control(block.source) {
            self.out.member("cache_control", cache.bytes());
        }
        self.out.close(b'}');
        Ok(())
    }

    fn assistant(&mut self, blocks: &[&'c Block<'a>], is_last: bool) -> Result<(), Refusal> {
        let mut blocks = without_blanks(blocks, false);
        // A text of white space alone is refused even by itself, and one at the end must not end in it.
        if let [only] = blocks.as_slice()
            && text_of(only).is_some_and(is_blank)
        {
            blocks.clear();
        }
        let last = blocks.len().saturating_sub(1);
        self.out.open(b'{');
        self.out.member_spelled("role", b"assistant");
        self.out.key("content");
        let mut content = Writer::default();
        let mut calls = false;
        for (place, block) in blocks.iter().enumerate() {
            match &block.content {
                Content::Text(_) | Content::Refusal(_) => {
                    let text = text_of(block).unwrap_or_default();
                    let text = if is_last && place == last {
                        trimmed(text)
                    } else {
                        text
                    };
                    parts::text(text, block.source, &mut content);
                }
                Content::Thinking { text, seal } => {
                    self.thinking(block, text, seal.as_ref(), &mut content);
                }
                Content::Call(call) => {
                    calls = true;
                    self.call(call, block, &mut content)?;
                }
                Content::Own(own) if own.scope == Scope::Trace => {
                    self.left_out.add_kind(Place::At(block.spot), &own.kind);
                }
                _ => return Err(beyond(&Place::At(block.spot).member("type"))),
            }
        }
        let content = content.into_bytes();
        self.lacks_thinking = calls
            && !content.starts_with(br#"{"type":"thinking""#)
            && !content.starts_with(br#"{"type":"redacted_thinking""#);
        if content.is_empty() {
            self.out.spelled(b"");
        } else {
            self.out.open(b'[');
            self.out.raw(&content);
            self.out.close(b']');
        }
        self.out.close(b'}');
        Ok(())
    }

    fn call(
        &mut self,
        call: &Call<'_>,
        block: &Block<'_>,
        content: &mut Writer,
    ) -> Result<(), Refusal> {
        let id = self.ids.call(&call.id);
        let called = self
            .offer
            .called(call.namespace.as_deref(), &string::decode(&call.name));
        let name = adapted(&called, MAX_NAME);
        self.names.add(&name, &called);
        content.open(b'{');
        content.member_spelled("type", b"tool_use");
        content.member_spelled("id", id.as_bytes());
        content.member_spelled("name", name.as_bytes());
        content.key("input");
        match &call.input {
            Payload::Object(object) => content.raw(object.bytes()),
            Payload::Text(input) if call.custom => {
                content.open(b'{');
                content.member_spelled("input", input);
                content.close(b'}');
            }
            Payload::Text(arguments) => content.raw(&self.arguments(arguments, block)?),
        }
        if let Some(cache) = parts::cache_control(block.source) {
            content.member("cache_control", cache.bytes());
        }
        content.close(b'}');
        Ok(())
    }

    /// Arguments, a JSON text in a JSON string, as the object that they must be.
    fn arguments(&self, arguments: &[u8], block: &Block<'_>) -> Result<Vec<u8>, Refusal> {
        /// The message, its content, and the block are around it.
        const AROUND: usize = 8;
        let text = string::decode(arguments);
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed == "null" {
            return Ok(b"{}".to_vec());
        }
        match scan::document(trimmed.as_bytes(), MAX_DEPTH - AROUND) {
            Ok(value) if value.kind == Kind::Object => Ok(trimmed.as_bytes().to_vec()),
            _ => {
                let place = Place::At(block.spot);
                let function = place.member("function");
                let place = if self.api == Api::Chat {
                    &function
                } else {
                    &place
                };
                Err(Refusal::new(
                    &place.member("arguments"),
                    "The arguments of a call must be a JSON object: this model's upstream speaks Messages.",
                ))
            }
        }
    }

    /// What the model thought, where the upstream can make something of it.
    fn thinking(
        &mut self,
        block: &Block<'_>,
        text: &[u8],
        seal: Option<&Seal<'_>>,
        content: &mut Writer,
    ) {
        match seal {
            Some(Seal::Signature(signature)) => {
                content.open(b'{');
                content.member_spelled("type", b"thinking");
                content.member_spelled("thinking", text);
                content.member_spelled("signature", signature);
                content.close(b'}');
                return;
            }
            Some(Seal::Redacted(data)) if self.target.signed => {
                content.open(b'{');
                content.member_spelled("type", b"redacted_thinking");
                content.member_spelled("data", data);
                content.close(b'}');
                return;
            }
            Some(seal) => {
                if let Some(blocks) = seal.made_by(Api::Messages) {
                    for block in Node::document(&blocks).iter().flat_map(Node::elements) {
                        let kind = block.get("type");
                        let is = |name: &str| kind.is_some_and(|kind| kind.is(name));
                        if is("thinking") || is("redacted_thinking") && self.target.signed {
                            content.raw(block.bytes());
                        }
                    }
                    return;
                }
            }
            None => {}
        }
        if self.target.signed || text.is_empty() {
            self.left_out.add(Place::At(block.spot));
            return;
        }
        content.open(b'{');
        content.member_spelled("type", b"thinking");
        content.member_spelled("thinking", text);
        content.close(b'}');
    }

    /// The names of tools, where the upstream has others than the client.
    pub(super) fn into_names(self) -> Option<Arc<Names>> {
        (!self.names.is_empty()).then(|| Arc::new(self.names))
    }
}

/// The text of a block, or of a refusal.
fn text_of<'b>(block: &'b Block<'_>) -> Option<&'b [u8]> {
    match &block.content {
        Content::Text(text) | Content::Refusal(text) => Some(text),
        _ => None,
    }
}

fn says_something(block: &Block<'_>) -> bool {
    text_of(block).is_none_or(|text| !is_blank(text))
}

/// The blocks but for empty texts, and for white space alone where there is anything else.
fn without_blanks<'b, 'a>(blocks: &[&'b Block<'a>], among_others: bool) -> Vec<&'b Block<'a>> {
    let any = among_others || blocks.iter().any(|block| says_something(block));
    let stays = |block: &&'b Block<'a>| {
        says_something(block) || !any && text_of(block).is_some_and(|text| !text.is_empty())
    };
    blocks.iter().copied().filter(stays).collect()
}

/// Texts as a content: one as a string, unless something stands beside it, and several as blocks.
pub(super) fn write_texts(texts: &[&Block<'_>], out: &mut Writer) {
    match texts {
        [] => out.spelled(b""),
        [one] if parts::cache_control(one.source).is_none() => {
            out.spelled(text_of(one).unwrap_or_default());
        }
        texts => {
            out.open(b'[');
            for block in texts {
                parts::text(text_of(block).unwrap_or_default(), block.source, out);
            }
            out.close(b']');
        }
    }
}

/// The texts of a system prompt, those that say nothing left out.
pub(super) fn system_texts<'b, 'a>(
    blocks: &[&'b Block<'a>],
) -> Result<Vec<&'b Block<'a>>, Refusal> {
    let mut texts = Vec::new();
    for block in blocks {
        if text_of(block).is_none() {
            return Err(beyond(&Place::At(block.spot).member("type")));
        }
        if says_something(block) {
            texts.push(*block);
        }
    }
    Ok(texts)
}
