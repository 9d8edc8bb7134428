//! A message → pieces of output: its events, or the whole object.
//!
//! The kind of an event stands in its data; the names of events are not read. A block is known by its index. Servers
//! break the protocol:
//!
//! - blocks that are closed at the end only, so that the next begins while one is open, and a signature comes behind
//!   the next block's text (llama.cpp): a delta says by its own type what it is, and a signature that comes late signs
//!   nothing;
//! - `tool_use` without `input` (llama.cpp), or with all of it in the event that opens the block (recorded): what the
//!   arguments are if none follow;
//! - no signature (Ollama, SGLang), or an empty one: the thinking is unsigned;
//! - a second `message_start`: with the same id it says nothing, with another one these are two replies;
//! - events and data that nobody knows (an upstream's metrics): they are passed over.
//!
//! Blocks with a meaning of their own (`server_tool_use`, `web_search_tool_result`, `compaction`, …) are given whole
//! when they end.

use std::collections::BTreeSet;

use crate::api::Api;
use crate::error::ErrorKind;
use crate::json::fields::compact;
use crate::json::node::Node;
use crate::json::scan::{Fault, Kind, Members};
use crate::json::string;
use crate::json::writer::Writer as Json;
use crate::limits::{Limits, MAX_ITEMS};
use crate::output::{Annotation, Call, Finish, Head, Item, Piece, Reader, Reasoning, Sealed, Text};

use super::vocabulary;

/// Reads the events of one message, or the message as one object.
///
/// ```
/// use sluicegate_core::limits::Limits;
/// use sluicegate_core::output::{Piece, Reader, Text};
/// use sluicegate_core::protocols::messages::reading::MessageEvents;
///
/// let mut reader = MessageEvents::new(Limits::default());
/// let mut texts = Vec::new();
/// for event in [
///     &br#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#[..],
///     br#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}"#,
/// ] {
///     reader.read(event, &mut |piece| {
///         if let Piece::Text(Text { text, .. }) = piece {
///             texts.push(text.to_vec());
///         }
///     })?;
/// }
/// assert_eq!(texts, [b"Hello"]);
/// # Ok::<(), sluicegate_core::json::scan::Fault>(())
/// ```
#[derive(Debug)]
pub struct MessageEvents {
    limits: Limits,
    /// The reply's id, once it has begun.
    begun: Option<Box<[u8]>>,
    /// The index of the block that was opened last.
    latest: Option<u64>,
    /// Blocks that were opened.
    blocks: u64,
    last: Last,
    /// A block of the protocol's own that is open.
    own: Option<Own>,
    /// The indexes of such blocks: what comes for them is no output.
    silent: BTreeSet<u64>,
    finished: bool,
    fault: Option<ErrorKind>,
    remembers: bool,
}

/// What the block that was opened last is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Other,
    Text,
    /// Thinking that has no signature yet.
    Thinking,
    /// A call that has not ended.
    Call,
}

/// A block without pieces, in the making.
#[derive(Debug)]
struct Own {
    index: u64,
    /// As it was opened.
    block: Vec<u8>,
    /// Its `input` in parts, decoded.
    input: String,
    /// Its `content` in parts, spelled.
    content: Vec<u8>,
}

impl Default for MessageEvents {
    fn default() -> Self {
        MessageEvents::new(Limits::default())
    }
}

type Give<'g> = dyn FnMut(&Piece<'_>) + 'g;

/// Whether this is the type of an event that a reader knows.
#[must_use]
pub fn is_event(kind: &[u8]) -> bool {
    kind == b"ping" || kind.starts_with(b"message_") || kind.starts_with(b"content_block_")
}

/// The members of an event.
#[derive(Clone, Copy, Default)]
struct Event<'a> {
    kind: &'a [u8],
    index: Option<u64>,
    message: Option<Node<'a>>,
    block: Option<Node<'a>>,
    delta: Option<Node<'a>>,
}

impl<'a> Event<'a> {
    fn read(text: &'a [u8], max_depth: usize) -> Result<Self, Fault> {
        let mut event = Event::default();
        for member in Members::document(text, max_depth)? {
            let member = member?;
            let value = Node::new(text, member.value);
            match &*string::plain(member.raw_key(text)) {
                b"type" => event.kind = value.spelled().unwrap_or_default(),
                b"index" => event.index = value.as_u64(),
                b"message" => event.message = Some(value),
                b"content_block" => event.block = Some(value),
                b"delta" => event.delta = Some(value),
                _ => {}
            }
        }
        Ok(event)
    }
}

impl MessageEvents {
    /// A reader that refuses events with more than `limits.max_depth` open containers. `limits.max_document` bounds
    /// what is kept of a block.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        MessageEvents {
            limits,
            begun: None,
            latest: None,
            blocks: 0,
            last: Last::Other,
            own: None,
            silent: BTreeSet::new(),
            finished: false,
            fault: None,
            remembers: true,
        }
    }

    fn begin(&mut self, message: Node<'_>, give: &mut Give<'_>) {
        let [id, content] = message.pick(["id", "content"]);
        let id = id.and_then(|id| id.spelled()).unwrap_or_default();
        match &self.begun {
            Some(begun) if **begun == *id => return,
            Some(_) => {
                self.fault = Some(ErrorKind::SecondReply);
                return;
            }
            None => self.begun = Some(id.into()),
        }
        give(&Piece::Head(Head {
            id: message.filled("id"),
            model: message.filled("model"),
            ..Head::default()
        }));
        for block in content.iter().flat_map(Node::elements) {
            let index = self.blocks;
            self.open(index, block, give);
            self.close(index, give);
        }
    }

    /// A block begins; another may be open still.
    fn open(&mut self, index: u64, block: Node<'_>, give: &mut Give<'_>) {
        self.end_own(give);
        self.silent.remove(&index);
        self.latest = Some(index);
        self.blocks += 1;
        let last = std::mem::replace(&mut self.last, Last::Other);
        if last == Last::Call {
            give(&Piece::Break);
        }
        match block.filled("type").unwrap_or_default() {
            b"text" => {
                if last == Last::Text {
                    give(&Piece::Part);
                }
                self.last = Last::Text;
                let citations = block.get("citations");
                for citation in citations.iter().flat_map(Node::elements) {
                    annotate(citation, give);
                }
                if let Some(text) = block.filled("text") {
                    give(&Piece::Text(said(text)));
                }
            }
            b"thinking" => {
                if last == Last::Thinking {
                    give(&Piece::Break);
                }
                self.last = Last::Thinking;
                if let Some(text) = block.filled("thinking") {
                    give(&Piece::Reasoning(Reasoning::Text(text)));
                }
                if let Some(signature) = block.filled("signature") {
                    self.sign(index, signature, give);
                }
            }
            b"redacted_thinking" => {
                if let Some(data) = block.filled("data") {
                    give(&sealed(data, false));
                }
            }
            b"tool_use" => {
                self.last = Last::Call;
                let input = block.get("input");
                let input = input.filter(|input| input.kind() == Kind::Object);
                let mut fallback = Vec::new();
                match input {
                    Some(input) => {
                        let mut line = Vec::new();
                        compact(input.bytes(), &mut line);
                        string::spell_bytes(&line, &mut fallback);
                    }
                    None => fallback.extend_from_slice(b"{}"),
                }
                give(&Piece::Call(Call {
                    index: Some(index),
                    id: block.filled("id").unwrap_or_default(),
                    name: block.filled("name").unwrap_or_default(),
                    fallback: &fallback,
                    ..Call::default()
                }));
            }
            _ => self.keep(index, block),
        }
    }

    /// Keeps a block that has no pieces until it ends.
    fn keep(&mut self, index: u64, block: Node<'_>) {
        if self.silent.len() >= MAX_ITEMS {
            self.fault = Some(ErrorKind::TooManyItems);
            return;
        }
        self.silent.insert(index);
        let mut kept = Vec::new();
        compact(block.bytes(), &mut kept);
        if block.kind() == Kind::Object {
            self.own = Some(Own {
                index,
                block: kept,
                input: String::new(),
                content: Vec::new(),
            });
        }
    }

    /// The part of a block. Whether what it gives depends on what came before.
    fn read_delta(&mut self, index: u64, delta: Node<'_>, give: &mut Give<'_>) -> bool {
        let kind = delta.filled("type").unwrap_or_default();
        if self.silent.contains(&index) {
            self.add_to_own(index, kind, delta);
            return true;
        }
        let words = |name| delta.get(name).and_then(|text| text.spelled());
        match kind {
            b"text_delta" => give(&Piece::Text(said(words("text").unwrap_or_default()))),
            b"thinking_delta" => {
                let text = words("thinking").unwrap_or_default();
                give(&Piece::Reasoning(Reasoning::Text(text)));
            }
            b"input_json_delta" => give(&Piece::Call(Call {
                index: Some(index),
                arguments: words("partial_json").unwrap_or_default(),
                ..Call::default()
            })),
            b"signature_delta" => {
                if let Some(signature) = delta.filled("signature") {
                    self.sign(index, signature, give);
                }
                return true;
            }
            b"citations_delta" => {
                if let Some(citation) = delta.get("citation") {
                    annotate(citation, give);
                }
            }
            _ => {}
        }
        false
    }

    fn sign(&mut self, index: u64, signature: &[u8], give: &mut Give<'_>) {
        if self.latest == Some(index) {
            self.last = Last::Other;
            give(&sealed(signature, true));
        }
    }

    fn add_to_own(&mut self, index: u64, kind: &[u8], delta: Node<'_>) {
        let Some(own) = self.own.as_mut().filter(|own| own.index == index) else {
            return;
        };
        match kind {
            b"input_json_delta" => {
                let part = delta.get("partial_json").and_then(|part| part.decode());
                own.input.push_str(&part.unwrap_or_default());
            }
            b"compaction_delta" => {
                let part = delta.filled("content").unwrap_or_default();
                own.content.extend_from_slice(part);
            }
            _ => {}
        }
        if own.block.len() + own.input.len() + own.content.len() > self.limits.max_document {
            self.own = None;
            self.fault = Some(ErrorKind::DocumentTooLarge);
        }
    }

    fn close(&mut self, index: u64, give: &mut Give<'_>) {
        if self.own.as_ref().is_some_and(|own| own.index == index) {
            self.end_own(give);
        }
        if self.latest == Some(index) && self.last == Last::Call {
            self.last = Last::Other;
            give(&Piece::Break);
        }
    }

    fn end_own(&mut self, give: &mut Give<'_>) {
        if let Some(own) = self.own.take() {
            give(&Piece::Item(Item {
                api: Api::Messages,
                json: &own.whole(),
            }));
        }
    }

    /// Why the model stopped; `message` or what changes of it at the end.
    fn finish(&mut self, message: Node<'_>, give: &mut Give<'_>) {
        self.end_own(give);
        let Some(word) = message.filled("stop_reason") else {
            return;
        };
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        let details = message.get("stop_details");
        let details = details.filter(|details| details.kind() == Kind::Object);
        give(&Piece::Finish(Finish {
            reason: vocabulary::reason(word),
            word,
            sequence: message.filled("stop_sequence"),
            details: details.map(|details| details.bytes()),
        }));
    }
}

impl Own {
    /// The block as it is when it ends.
    fn whole(&self) -> Vec<u8> {
        let Some(block) = Node::document(&self.block) else {
            return self.block.clone();
        };
        let is_input = crate::json::scan::document(self.input.as_bytes(), MAX_INPUT_DEPTH)
            .is_ok_and(|input| input.kind == Kind::Object);
        let mut out = Json::with_capacity(self.block.len() + self.input.len() + self.content.len());
        let mut has_content = false;
        out.open(b'{');
        for (key, value) in block.members() {
            if key.is("input") && is_input {
                out.member("input", self.input.as_bytes());
            } else if key.is("content") && !self.content.is_empty() {
                has_content = true;
                out.member_spelled("content", &self.content);
            } else {
                out.copy_member(key.bytes(), value.bytes());
            }
        }
        if !self.content.is_empty() && !has_content {
            out.member_spelled("content", &self.content);
        }
        out.close(b'}');
        let mut line = Vec::new();
        compact(out.as_bytes(), &mut line);
        line
    }
}

/// Open containers of the input of a hosted tool.
const MAX_INPUT_DEPTH: usize = 64;

fn said(text: &[u8]) -> Text<'_> {
    Text {
        text,
        ..Text::default()
    }
}

fn sealed(data: &[u8], signs_text: bool) -> Piece<'_> {
    Piece::Reasoning(Reasoning::Sealed(Sealed {
        api: Api::Messages,
        data,
        signs_text,
        item: None,
    }))
}

fn annotate(citation: Node<'_>, give: &mut Give<'_>) {
    if citation.kind() == Kind::Object {
        give(&Piece::Annotation(Annotation {
            api: Api::Messages,
            json: citation.bytes(),
        }));
    }
}

impl Reader for MessageEvents {
    fn read(&mut self, payload: &[u8], give: &mut dyn FnMut(&Piece<'_>)) -> Result<(), Fault> {
        self.remembers = true;
        let event = Event::read(payload, self.limits.max_depth)?;
        if self.fault.is_some() {
            return Ok(());
        }
        match event.kind {
            b"message_start" => {
                if let Some(message) = event.message {
                    self.begin(message, give);
                }
            }
            b"content_block_start" => {
                if let Some(block) = event.block {
                    let index = event.index.unwrap_or(self.blocks);
                    self.open(index, block, give);
                }
            }
            b"content_block_delta" => {
                let index = event.index.or(self.latest).unwrap_or_default();
                if let Some(delta) = event.delta {
                    self.remembers = self.read_delta(index, delta, give);
                }
            }
            b"content_block_stop" => {
                if let Some(index) = event.index.or(self.latest) {
                    self.close(index, give);
                }
            }
            b"message_delta" => {
                if let Some(delta) = event.delta {
                    self.finish(delta, give);
                }
            }
            // A message by itself.
            b"message" => {
                let document = crate::json::scan::document(payload, self.limits.max_depth)?;
                let message = Node::new(payload, document);
                self.begin(message, give);
                self.finish(message, give);
            }
            b"ping" => self.remembers = false,
            _ => {}
        }
        Ok(())
    }

    fn remembers(&self) -> bool {
        self.remembers
    }

    fn fault(&self) -> Option<ErrorKind> {
        self.fault
    }

    fn end(&mut self, give: &mut dyn FnMut(&Piece<'_>)) {
        self.end_own(give);
    }
}

#[cfg(test)]
mod tests;
