//! Pieces of output → the events of a response, or the response alone.
//!
//! # States
//!
//! One item is open at most, calls excepted, whose pieces may come mixed. A piece that does not belong to what is open
//! closes it and opens what it belongs to:
//!
//! | what is open | reasoning | text | refusal | call |
//! | --- | --- | --- | --- | --- |
//! | nothing | opens | opens | opens | opens |
//! | reasoning | goes on | closes, opens | closes, opens | closes, opens |
//! | message | closes, opens | goes on | closes, opens | closes, opens |
//! | refusal (a message) | closes, opens | closes, opens | goes on | closes, opens |
//! | calls | closes, opens | closes, opens | closes, opens | goes on, or opens one more |
//!
//! [`Piece::Part`] ends a part and leaves its item open, so that a message may hold text and a refusal;
//! [`Piece::Break`] closes what is open.
//!
//! Empty text changes nothing. White space behind reasoning, or while calls are open, waits for what comes next: many
//! models write a line or two between their reasoning and a tool call, which make no message. It is dropped there and
//! nowhere else.
//!
//! What is open is closed by the next piece or by the end of the reply, not by the finish reason: some upstreams send
//! it twice, with the last text or before it.

mod calls;
pub(super) mod heading;
mod item;
pub(crate) mod renamed;

use std::sync::Arc;

use super::chat_members;
use super::echo::Echo;
use super::vocabulary::{Journal, PartKind, Status, key, string as member};
use crate::api::{Api, DONE};
use crate::json::fields::compact;
use crate::output::spelled::is_white_space;
use crate::output::{
    Annotation, Ending, Failure, Phase, Piece, Reason, Reasoning, Sealed, Spelled, Spent, Text,
    Writer,
};

use calls::Calls;
use heading::{End, Heading};
use item::{Items, OpenItem};

/// Writes one response.
///
/// ```
/// use std::sync::Arc;
/// use sluicegate_core::output::{Ending, Finish, Piece, Reason, Text, Writer};
/// use sluicegate_core::protocols::responses::echo::Echo;
/// use sluicegate_core::protocols::responses::writing::ResponsesWriter;
///
/// let mut writer = ResponsesWriter::new(Arc::new(Echo::new("resp_1", 7, "m")), None, true);
/// let mut events = Vec::new();
/// writer.write(&Piece::Text(Text { text: b"Hi", ..Text::default() }), &mut events);
/// writer.write(&Piece::Finish(Finish::of(Reason::Stop)), &mut events);
/// writer.end(Ending::Regular, None, None, &mut events);
/// let events = String::from_utf8(events).unwrap();
/// let names: Vec<_> = events.lines().filter_map(|line| line.strip_prefix("event: response.")).collect();
/// assert_eq!(names, [
///     "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
///     "output_text.done", "content_part.done", "output_item.done", "completed",
/// ]);
/// assert!(events.ends_with("data: [DONE]\n\n"));
/// ```
#[derive(Debug)]
pub struct ResponsesWriter {
    heading: Heading,
    journal: Journal,
    items: Items,
    state: WriterState,
    calls: Calls,
    /// White space that is written only if text follows it.
    waiting: Option<Waiting>,
    /// A piece of text came, even if it was empty.
    spoke: bool,
    finish: Option<Finish>,
    begun: bool,
    ended: bool,
    /// Bytes of text so far.
    taken: usize,
}

/// What the last piece left open.
#[derive(Debug)]
enum WriterState {
    Nothing,
    Item(Box<OpenItem>),
    Calls,
}

#[derive(Debug, Default)]
struct Waiting {
    text: Vec<u8>,
    logprobs: Vec<u8>,
    phase: Option<Phase>,
}

/// The status of the response that the finish reason leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    Completed,
    Incomplete(&'static str),
    /// The upstream stopped because of an error.
    Failed,
}

impl Finish {
    fn of(reason: Reason) -> Self {
        match reason {
            Reason::Length | Reason::Context => Finish::Incomplete("max_output_tokens"),
            Reason::Filter => Finish::Incomplete("content_filter"),
            Reason::Failed => Finish::Failed,
            Reason::Stop | Reason::Sequence | Reason::Calls | Reason::Pause | Reason::Other => {
                Finish::Completed
            }
        }
    }
}

impl ResponsesWriter {
    /// A writer for the response to the request that `echo` was made from. `model` replaces the upstream's name of the
    /// model. `shown`: the client gets events; otherwise the response is written as one JSON object when it ends.
    #[must_use]
    pub fn new(echo: Arc<Echo>, model: Option<&str>, shown: bool) -> Self {
        ResponsesWriter {
            items: Items::new(&echo.response_id),
            calls: Calls::new(Arc::clone(&echo)),
            heading: Heading::new(echo, model),
            journal: Journal::new(shown),
            state: WriterState::Nothing,
            waiting: None,
            spoke: false,
            finish: None,
            begun: false,
            ended: false,
            taken: 0,
        }
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        for kind in ["response.created", "response.in_progress"] {
            self.journal.event(kind, out, |out| {
                key("response", out);
                self.heading.write(End::InProgress, &[], None, None, out);
            });
        }
    }

    // === transitions ===

    /// Says `text` in the item that it belongs to.
    #[inline]
    fn say(
        &mut self,
        kind: PartKind,
        phase: Option<Phase>,
        text: Spelled<'_>,
        logprobs: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) {
        if !matches!(&self.state, WriterState::Item(item) if item.takes(kind, phase)) {
            self.open(kind, phase, out);
        }
        if let WriterState::Item(item) = &mut self.state {
            item.say(kind, text, logprobs, &mut self.journal, out);
        }
    }

    /// Closes what is open and opens an item that takes this kind.
    fn open(&mut self, kind: PartKind, phase: Option<Phase>, out: &mut Vec<u8>) {
        self.close(Status::Completed, out);
        let item = self.items.open(kind, phase, &mut self.journal, out);
        self.state = WriterState::Item(Box::new(item));
    }

    fn close(&mut self, status: Status, out: &mut Vec<u8>) {
        match std::mem::replace(&mut self.state, WriterState::Nothing) {
            WriterState::Nothing => {}
            WriterState::Item(item) => item.close(status, &mut self.items, &mut self.journal, out),
            WriterState::Calls => {
                self.calls
                    .close(status, &mut self.items, &mut self.journal, out);
            }
        }
    }

    fn think(&mut self, reasoning: Reasoning<'_>, out: &mut Vec<u8>) {
        let (kind, text) = match reasoning {
            Reasoning::Text(text) => (PartKind::Reasoning, text),
            Reasoning::Summary(text) => (PartKind::Summary, text),
            Reasoning::Sealed(sealed) => return self.seal(&sealed, out),
        };
        if !text.is_empty() {
            self.settle_waiting(out);
            self.say(kind, None, text, None, out);
        }
    }

    /// Reasoning that nobody can read is a member of its item.
    fn seal(&mut self, sealed: &Sealed<'_>, out: &mut Vec<u8>) {
        self.settle_waiting(out);
        let kind = PartKind::Reasoning;
        let fits = |item: &OpenItem| item.takes(kind, None) && item.takes_seal(sealed.api);
        if !matches!(&self.state, WriterState::Item(item) if fits(item)) {
            self.open(kind, None, out);
        }
        if let WriterState::Item(item) = &mut self.state {
            item.seal(sealed, &mut self.journal, out);
        }
    }

    fn speak(&mut self, text: &Text<'_>, out: &mut Vec<u8>) {
        self.spoke = true;
        let mut logprobs = Vec::new();
        if let Some(list) = text.logprobs {
            chat_members::logprobs(list, &mut logprobs);
        }
        if text.text.is_empty() && logprobs.is_empty() {
            return;
        }
        let is_open =
            matches!(&self.state, WriterState::Item(item) if item.takes(PartKind::Text, None));
        if !is_open && is_white_space(text.text) && self.may_wait() {
            let waiting = self.waiting.get_or_insert_default();
            waiting.text.extend_from_slice(text.text);
            if !waiting.logprobs.is_empty() && !logprobs.is_empty() {
                waiting.logprobs.push(b',');
            }
            waiting.logprobs.append(&mut logprobs);
            waiting.phase = waiting.phase.or(text.phase);
            return;
        }
        self.settle_waiting(out);
        let logprobs = Some(&*logprobs).filter(|list| !list.is_empty());
        self.say(PartKind::Text, text.phase, text.text, logprobs, out);
    }

    fn may_wait(&self) -> bool {
        matches!(self.state, WriterState::Calls) || self.items.last_was_reasoning()
    }

    /// What waited is a message after all.
    #[inline]
    fn settle_waiting(&mut self, out: &mut Vec<u8>) {
        if let Some(waiting) = self.waiting.take() {
            let logprobs = Some(&*waiting.logprobs).filter(|list| !list.is_empty());
            self.say(PartKind::Text, waiting.phase, &waiting.text, logprobs, out);
        }
    }

    fn call(&mut self, piece: &crate::output::Call<'_>, out: &mut Vec<u8>) {
        if !matches!(self.state, WriterState::Calls) {
            if self.calls.know(piece) {
                return;
            }
            if self.items.last_was_reasoning() {
                self.waiting = None;
            }
            self.settle_waiting(out);
            self.close(Status::Completed, out);
            self.state = WriterState::Calls;
            self.calls.open();
        }
        self.calls
            .push(piece, &mut self.items, &mut self.journal, out);
    }

    /// One annotation of the text that is open.
    fn annotate(&mut self, annotation: &Annotation<'_>, out: &mut Vec<u8>) {
        let known = annotation.known_to_openai();
        let Some(annotation) = known.and_then(|known| chat_members::annotation(&known)) else {
            return;
        };
        self.settle_waiting(out);
        if !matches!(&self.state, WriterState::Item(item) if item.takes(PartKind::Text, None)) {
            self.open(PartKind::Text, None, out);
        }
        if let WriterState::Item(item) = &mut self.state {
            item.annotate(&annotation, &mut self.journal, out);
        }
    }

    // === the end ===

    fn finish(
        &mut self,
        finish: Finish,
        spent: Option<Spent<'_>>,
        now: Option<u64>,
        out: &mut Vec<u8>,
    ) {
        let (status, kind, end) = match finish {
            Finish::Incomplete(reason) => (
                Status::Incomplete,
                "response.incomplete",
                End::Incomplete(reason),
            ),
            _ => (Status::Completed, "response.completed", End::Completed),
        };
        self.settle_waiting(out);
        if status == Status::Completed
            && self.spoke
            && self.items.count() == 0
            && self.calls.is_empty()
        {
            // An answer of no words is an answer.
            self.say(PartKind::Text, None, b"", None, out);
        }
        self.close(status, out);
        self.conclude(kind, end, spent, now, out);
    }

    fn fail(&mut self, failure: Failure<'_>, spent: Option<Spent<'_>>, out: &mut Vec<u8>) {
        self.settle_waiting(out);
        self.close(Status::Incomplete, out);
        self.journal.error(failure, out);
        self.conclude("response.failed", End::Failed(failure), spent, None, out);
    }

    fn conclude(
        &mut self,
        kind: &str,
        end: End<'_>,
        spent: Option<Spent<'_>>,
        now: Option<u64>,
        out: &mut Vec<u8>,
    ) {
        let output = self.items.closed();
        if self.journal.is_shown() {
            let heading = &self.heading;
            self.journal.event(kind, out, |out| {
                key("response", out);
                heading.write(end, output, spent, now, out);
            });
            out.extend_from_slice(DONE);
        } else {
            self.heading.write(end, output, spent, now, out);
        }
    }
}

impl Writer for ResponsesWriter {
    fn write(&mut self, piece: &Piece<'_>, out: &mut Vec<u8>) {
        if self.ended {
            return;
        }
        if let Piece::Head(head) = piece {
            self.heading.note(head, self.begun);
        }
        self.begin(out);
        match piece {
            Piece::Head(_) => {}
            Piece::Text(text) => {
                self.taken += text.text.len() + text.logprobs.map_or(0, <[u8]>::len);
                self.speak(text, out);
            }
            Piece::Reasoning(reasoning) => {
                self.taken += match reasoning {
                    Reasoning::Text(text) | Reasoning::Summary(text) => text.len(),
                    Reasoning::Sealed(sealed) => sealed.data.len(),
                };
                self.think(*reasoning, out);
            }
            Piece::Refusal(text) => {
                self.taken += text.len();
                if !text.is_empty() {
                    self.settle_waiting(out);
                    self.say(PartKind::Refusal, None, text, None, out);
                }
            }
            Piece::Annotation(annotation) => {
                self.taken += annotation.json.len();
                self.annotate(annotation, out);
            }
            Piece::Call(piece) => {
                let extra = piece.extra.map_or(0, <[u8]>::len) + piece.fallback.len();
                self.taken += piece.name.len() + piece.arguments.len() + extra;
                self.call(piece, out);
            }
            Piece::Item(item) => {
                self.settle_waiting(out);
                self.close(Status::Completed, out);
                if item.api == Api::Responses {
                    let mut json = Vec::with_capacity(item.json.len());
                    compact(item.json, &mut json);
                    self.items.pass(&json, &mut self.journal, out);
                }
            }
            Piece::Part => {
                if let WriterState::Item(item) = &mut self.state {
                    item.close_part(&mut self.journal, out);
                }
            }
            Piece::Break => self.close(Status::Completed, out),
            Piece::Finish(finish) => {
                if self.finish.is_some() {
                    return;
                }
                self.finish = Some(Finish::of(finish.reason));
                if finish.reason == Reason::Filter
                    && let Some(explanation) = finish.explanation()
                {
                    self.write(&Piece::Refusal(explanation), out);
                }
            }
        }
    }

    fn end(
        &mut self,
        ending: Ending<'_>,
        spent: Option<Spent<'_>>,
        now: Option<u64>,
        out: &mut Vec<u8>,
    ) {
        if self.ended {
            return;
        }
        self.begin(out);
        match (ending, self.finish.unwrap_or(Finish::Completed)) {
            (Ending::Failed(failure), _) => self.fail(failure, spent, out),
            (Ending::Regular, Finish::Failed) => {
                let failure = Failure {
                    message: "the upstream gave up before its answer was complete",
                    ..Failure::default()
                };
                self.fail(failure, spent, out);
            }
            (Ending::Regular, finish) => self.finish(finish, spent, now, out),
        }
        self.ended = true;
    }

    fn held(&self) -> usize {
        self.taken + self.items.closed().len() + self.calls.held()
    }
}
