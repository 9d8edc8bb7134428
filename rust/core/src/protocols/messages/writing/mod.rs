//! Pieces of output → the events of a message, or the message alone.
//!
//! Blocks come strictly one behind the other, each with an index of its own, and are closed before the next begins: the
//! SDKs' accumulators read the last block only, and Claude Code stops reading at a part of one that is not open. A
//! piece that does not belong to what is open closes it and opens what it belongs to:
//!
//! | what is open | thinking | text | refusal | call |
//! | --- | --- | --- | --- | --- |
//! | nothing | opens | opens | opens | opens |
//! | thinking | goes on | closes, opens | closes, opens | closes, opens |
//! | text | closes, opens | goes on | closes, opens | closes, opens |
//! | refusal (a text block) | closes, opens | closes, opens | goes on | closes, opens |
//! | calls | closes, opens | closes, opens | closes, opens | goes on, or waits for its turn |
//!
//! Thinking ends with one signature: its upstream's, what an upstream of another protocol sealed ([`Sealed::wrapped`]),
//! or the mark that nobody signed it. [`Piece::Part`] ends a text block; inside thinking it begins a paragraph, since
//! what seals an item seals all of its parts.
//!
//! Blocks of white space are refused when they come back, and many models write a line or two in front of a call: white
//! space opens no block, and is dropped where no text follows it. A message of nothing else has it.

mod blocks;
mod calls;
mod usage;

use std::borrow::Cow;
use std::sync::Arc;

use crate::api::Api;
use crate::json::fields::compact;
use crate::json::string;
use crate::output::spelled::{is_white_space, note_first};
use crate::output::{
    Ending, Failure, Finish, Head, Piece, Reason, Reasoning, Sealed, Spelled, Spent, Text, Writer,
};

use crate::usage::Usage;

use super::taken::TakenIds;
use super::vocabulary;
use blocks::{BlockKind, Blocks};
use calls::Calls;

/// What the client asked for.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// It wants an event stream; otherwise the message is written when it ends, as a JSON object.
    pub streams: bool,
    /// The name of the model that the client asked for; None: the upstream's. Clients may not take thinking from
    /// another model.
    pub model: Option<Box<str>>,
    /// What else is known of the message.
    pub known: KnownMessage,
}

/// What is known of a message before its upstream says anything.
#[derive(Clone, Debug, Default)]
pub struct KnownMessage {
    /// The message's id, `msg_…`; None: the upstream's.
    pub id: Option<Box<str>>,
    /// Ids of the calls that the client's conversation holds: no new call has one of them.
    pub taken_ids: Arc<TakenIds>,
    /// About how many tokens the request has. A stream begins with them where its upstream counts them at the end:
    /// Claude Code takes a conversation whose input is 0 for one that never fills the context.
    pub input_tokens: u64,
}

/// What bridges an upstream's silence: clients count events, and some of them no comments.
pub const PING: &[u8] = b"event: ping\ndata: {\"type\":\"ping\"}\n\n";

/// Writes one message.
///
/// ```
/// use sluicegate_core::output::{Ending, Finish, Piece, Reason, Text, Writer};
/// use sluicegate_core::protocols::messages::writing::{MessagesWriter, Written};
///
/// let asked = Written { streams: true, ..Written::default() };
/// let mut writer = MessagesWriter::new(asked);
/// let mut stream = Vec::new();
/// writer.write(&Piece::Text(Text { text: b"Hi", ..Text::default() }), &mut stream);
/// writer.write(&Piece::Finish(Finish::of(Reason::Stop)), &mut stream);
/// writer.end(Ending::Regular, None, None, &mut stream);
/// let stream = String::from_utf8(stream).unwrap();
/// let names: Vec<_> = stream.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
/// assert_eq!(names, [
///     "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop",
/// ]);
/// ```
#[derive(Debug)]
pub struct MessagesWriter {
    asked: Written,
    /// The upstream's, spelled.
    id: Vec<u8>,
    model: Vec<u8>,
    blocks: Blocks,
    calls: Calls,
    /// White space that is written only if text follows it.
    waiting: Vec<u8>,
    /// What is thought next begins a paragraph of the thinking that is open.
    paragraph: bool,
    refused: bool,
    /// What the upstream has counted before it said anything.
    foreseen: Option<Usage>,
    finish: Option<Stopped>,
    begun: bool,
    ended: bool,
}

/// Why the model stopped, kept for the end.
#[derive(Debug, Default)]
struct Stopped {
    reason: Reason,
    sequence: Option<Vec<u8>>,
    details: Vec<u8>,
}

impl Stopped {
    fn at(finish: &Finish<'_>) -> Self {
        let mut details = Vec::new();
        compact(finish.details.unwrap_or_default(), &mut details);
        Stopped {
            reason: finish.reason,
            sequence: finish.sequence.map(<[u8]>::to_vec),
            details,
        }
    }
}

impl MessagesWriter {
    /// A writer for one message.
    #[must_use]
    pub fn new(asked: Written) -> Self {
        MessagesWriter {
            blocks: Blocks::new(asked.streams),
            calls: Calls::new(Arc::clone(&asked.known.taken_ids)),
            asked,
            id: Vec::new(),
            model: Vec::new(),
            waiting: Vec::new(),
            paragraph: false,
            refused: false,
            foreseen: None,
            finish: None,
            begun: false,
            ended: false,
        }
    }

    fn note_head(&mut self, head: &Head<'_>) {
        note_first(&mut self.id, head.id);
        note_first(&mut self.model, head.model);
    }

    /// The message up to its content.
    fn heading(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"id\":\"");
        match &self.asked.known.id {
            Some(id) => string::spell(id, out),
            None if self.id.is_empty() => out.extend_from_slice(b"msg_0"),
            None => out.extend_from_slice(&self.id),
        }
        out.extend_from_slice(b"\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"");
        match &self.asked.model {
            Some(model) => string::spell(model, out),
            None => out.extend_from_slice(&self.model),
        }
        out.extend_from_slice(b"\",\"content\":[");
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        match &self.asked.known.id {
            Some(id) => self.calls.name_after(id),
            None => self.calls.name_after(&string::decode(&self.id)),
        }
        if !self.asked.streams {
            return;
        }
        out.extend_from_slice(
            b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":",
        );
        self.heading(out);
        out.extend_from_slice(b"],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
        let estimate = Usage {
            input_tokens: Some(self.asked.known.input_tokens),
            ..Usage::default()
        };
        usage::begin(self.foreseen.as_ref().unwrap_or(&estimate), out);
        out.extend_from_slice(b"}}\n\n");
    }

    /// Says `text` in a block of this kind.
    #[inline]
    fn say(&mut self, kind: BlockKind, text: Spelled<'_>, out: &mut Vec<u8>) {
        if self.blocks.kind() != Some(kind) {
            self.calls.end(&mut self.blocks, out);
            self.blocks.begin(kind, out);
            self.paragraph = false;
        }
        self.blocks.say(text, out);
    }

    fn speak(&mut self, kind: BlockKind, text: Spelled<'_>, out: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        if self.blocks.kind() != Some(kind) {
            if is_white_space(text) {
                self.waiting.extend_from_slice(text);
                return;
            }
            if !self.waiting.is_empty() {
                let waiting = std::mem::take(&mut self.waiting);
                self.say(kind, &waiting, out);
            }
        }
        self.say(kind, text, out);
    }

    fn think(&mut self, reasoning: &Reasoning<'_>, out: &mut Vec<u8>) {
        let text = match reasoning {
            Reasoning::Text(text) | Reasoning::Summary(text) => text,
            Reasoning::Sealed(sealed) => return self.seal(sealed, out),
        };
        if text.is_empty() {
            return;
        }
        self.waiting.clear();
        let goes_on = self.blocks.kind() == Some(BlockKind::Thinking);
        if std::mem::take(&mut self.paragraph) && goes_on {
            self.say(BlockKind::Thinking, b"\\n\\n", out);
        }
        self.say(BlockKind::Thinking, text, out);
    }

    /// Reasoning that only its maker can read or check: the signature of the thinking that is open, or a block of its
    /// own.
    fn seal(&mut self, sealed: &Sealed<'_>, out: &mut Vec<u8>) {
        self.waiting.clear();
        let is_thinking = self.blocks.kind() == Some(BlockKind::Thinking);
        let (signs, data) = match sealed.api {
            Api::Messages => (sealed.signs_text, Cow::Borrowed(sealed.data)),
            _ => (
                is_thinking || sealed.signs_text,
                Cow::Owned(sealed.wrapped()),
            ),
        };
        if !is_thinking {
            self.calls.end(&mut self.blocks, out);
        }
        if signs {
            if !is_thinking {
                self.blocks.begin(BlockKind::Thinking, out);
            }
            self.blocks.sign(&data, out);
            return;
        }
        let block: [&[u8]; 3] = [
            b"{\"type\":\"redacted_thinking\",\"data\":\"",
            &data,
            b"\"}",
        ];
        self.blocks.pass(&block.concat(), out);
    }

    fn call(&mut self, call: &crate::output::Call<'_>, out: &mut Vec<u8>) {
        if !self.calls.know(call) {
            self.waiting.clear();
            self.calls.push(call, &mut self.blocks, out);
        }
    }

    /// What is open ends; a block follows, or the end.
    fn close(&mut self, out: &mut Vec<u8>) {
        self.calls.end(&mut self.blocks, out);
        self.blocks.close(out);
    }

    // === the end ===

    fn finish(&mut self, spent: Option<Spent<'_>>, out: &mut Vec<u8>) {
        self.begin(out);
        self.close(out);
        if self.blocks.count() == 0 && !self.waiting.is_empty() {
            let waiting = std::mem::take(&mut self.waiting);
            self.say(BlockKind::Text, &waiting, out);
            self.blocks.close(out);
        }
        if self.asked.streams {
            out.extend_from_slice(
                b"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{",
            );
            self.stop(out);
            out.extend_from_slice(b"},\"usage\":");
            usage::write(spent, out);
            out.extend_from_slice(
                b"}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            );
        } else {
            self.heading(out);
            out.extend_from_slice(self.blocks.content());
            out.extend_from_slice(b"],");
            self.stop(out);
            out.extend_from_slice(b",\"usage\":");
            usage::write(spent, out);
            out.push(b'}');
        }
    }

    /// The members that say why the message ends.
    fn stop(&self, out: &mut Vec<u8>) {
        let nothing = Stopped::default();
        let finish = self.finish.as_ref().unwrap_or(&nothing);
        let reason = match finish.reason {
            Reason::Stop | Reason::Other if self.refused => Reason::Filter,
            reason => reason,
        };
        let has_calls = !self.calls.is_empty();
        let word = vocabulary::stop_reason(reason, has_calls, finish.sequence.is_some());
        out.extend_from_slice(b"\"stop_reason\":\"");
        out.extend_from_slice(word.as_bytes());
        out.extend_from_slice(b"\",\"stop_sequence\":");
        match finish.sequence.as_ref().filter(|_| word == "stop_sequence") {
            Some(sequence) => {
                out.push(b'"');
                out.extend_from_slice(sequence);
                out.push(b'"');
            }
            None => out.extend_from_slice(b"null"),
        }
        if !finish.details.is_empty() {
            out.extend_from_slice(b",\"stop_details\":");
            out.extend_from_slice(&finish.details);
        }
    }

    /// What is open stays open: a client that closed it would take it for whole.
    fn fail(&self, failure: &Failure<'_>, out: &mut Vec<u8>) {
        if self.asked.streams {
            out.extend_from_slice(b"event: error\ndata: ");
        }
        error(failure, out);
        if self.asked.streams {
            out.extend_from_slice(b"\n\n");
        }
    }
}

/// Appends an error as the body of a reply: `{"type":"error","error":{…}}`.
pub fn error(failure: &Failure<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"error\",\"error\":{\"type\":\"");
    out.extend_from_slice(vocabulary::type_of(failure).as_bytes());
    out.extend_from_slice(b"\",\"message\":");
    string::encode(failure.message, out);
    out.extend_from_slice(b"}}");
}

impl Writer for MessagesWriter {
    fn foresee(&mut self, usage: &Usage) {
        if usage.input_tokens.is_some_and(|tokens| tokens > 0) {
            self.foreseen = Some(usage.clone());
        }
    }

    fn write(&mut self, piece: &Piece<'_>, out: &mut Vec<u8>) {
        if self.ended {
            return;
        }
        if let Piece::Head(head) = piece {
            self.note_head(head);
        }
        self.begin(out);
        match piece {
            Piece::Head(_) => {}
            Piece::Text(Text { text, .. }) => self.speak(BlockKind::Text, text, out),
            Piece::Refusal(text) => {
                self.refused |= !text.is_empty();
                self.speak(BlockKind::Refusal, text, out);
            }
            Piece::Reasoning(reasoning) => self.think(reasoning, out),
            Piece::Call(call) => self.call(call, out),
            Piece::Annotation(annotation) => {
                // A citation of another protocol lacks what this one's clients have to give back.
                if annotation.api == Api::Messages {
                    self.say(BlockKind::Text, b"", out);
                    self.blocks.cite(annotation.json, out);
                }
            }
            Piece::Item(item) => {
                self.close(out);
                if item.api == Api::Messages {
                    let mut block = Vec::with_capacity(item.json.len());
                    compact(item.json, &mut block);
                    self.blocks.pass(&block, out);
                }
            }
            Piece::Part if self.blocks.kind() == Some(BlockKind::Thinking) => {
                self.paragraph = true;
            }
            Piece::Part | Piece::Break => self.close(out),
            Piece::Finish(finish) => {
                self.finish.get_or_insert_with(|| Stopped::at(finish));
            }
        }
    }

    fn end(
        &mut self,
        ending: Ending<'_>,
        spent: Option<Spent<'_>>,
        _now: Option<u64>,
        out: &mut Vec<u8>,
    ) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let gave_up = || self.finish.as_ref().map(|finish| finish.reason) == Some(Reason::Failed);
        match ending {
            Ending::Failed(failure) => self.fail(&failure, out),
            Ending::Regular if gave_up() => {
                let failure = Failure {
                    message: "the upstream gave up before its answer was complete",
                    ..Failure::default()
                };
                self.fail(&failure, out);
            }
            Ending::Regular => self.finish(spent, out),
        }
    }

    fn held(&self) -> usize {
        self.blocks.held() + self.calls.held() + self.waiting.len()
    }
}

#[cfg(test)]
mod tests;
