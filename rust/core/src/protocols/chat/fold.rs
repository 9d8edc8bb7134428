//! The chunks of a streamed chat completion → one `chat.completion`.
//!
//! ```
//! use sluicegate_core::protocols::chat::fold::fold_chat;
//! use sluicegate_core::limits::Limits;
//!
//! let stream = concat!(
//!     r#"data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#, "\n\n",
//!     r#"data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}"#, "\n\n",
//!     r#"data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}"#, "\n\n",
//!     "data: [DONE]\n\n",
//! );
//! assert_eq!(
//!     fold_chat(stream.as_bytes(), Limits::default()).unwrap(),
//!     br#"{"id":"c1","object":"chat.completion","created":7,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}]}"#,
//! );
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::choice::Choice;
use super::error::reported_error;
use super::merge::{Input, MEMBER_COST, Object, Slot, write_key};
use super::rules::Level;
use crate::error::{Error, ErrorKind};
use crate::json::fields::{Field, elements, fields, find};
use crate::json::scan::{self, Kind, Problem, Value};
use crate::limits::{Limits, MAX_CHOICES};
use crate::sse::event::{Events, RawEvent};
use crate::sse::line::Line;

/// A completion in the making.
///
/// ```
/// use sluicegate_core::protocols::chat::fold::ChatFold;
/// use sluicegate_core::limits::Limits;
///
/// let mut fold = ChatFold::new(Limits::default());
/// fold.push(br#"{"id":"t","object":"text_completion","choices":[{"text":"on","index":0,"finish_reason":null}]}"#).unwrap();
/// fold.push(br#"{"id":"t","object":"text_completion","choices":[{"text":"ce","index":0,"finish_reason":"stop"}]}"#).unwrap();
/// assert_eq!(
///     fold.finish().unwrap(),
///     br#"{"id":"t","object":"text_completion","choices":[{"index":0,"text":"once","finish_reason":"stop"}]}"#,
/// );
/// ```
#[derive(Debug)]
pub struct ChatFold {
    limits: Limits,
    held: usize,
    chunks: u64,
    /// Members of the completion; `object` and `choices` are there as marks of their places.
    members: Object,
    choices: BTreeMap<u64, Choice>,
    says_text: bool,
    failure: Option<Error>,
    reported: Option<Vec<u8>>,
}

impl ChatFold {
    /// An empty fold. `limits.max_document` bounds what it holds, in bytes: text, and a fixed cost for each member and
    /// part.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        ChatFold {
            limits,
            held: 0,
            chunks: 0,
            members: Object::default(),
            choices: BTreeMap::new(),
            says_text: false,
            failure: None,
            reported: None,
        }
    }

    /// Adds one event's data: a chunk, or a whole completion (an upstream that streams in one piece). White space and
    /// `[DONE]` are nothing; so is an object that is no chunk (mistral.rs reports its agents' progress between chunks).
    ///
    /// # Errors
    /// Offsets are within `data`.
    /// - [`ErrorKind::UnexpectedByte`], [`UnexpectedEnd`](ErrorKind::UnexpectedEnd),
    ///   [`TrailingBytes`](ErrorKind::TrailingBytes), [`TooDeep`](ErrorKind::TooDeep),
    ///   [`NotAnObject`](ErrorKind::NotAnObject): `data` is no chunk; the fold is as it was, and the caller may go on.
    /// - [`ErrorKind::ReportedError`]: the upstream reports an error in its stream; [`error`](Self::error) has it. The
    ///   fold has failed.
    /// - [`ErrorKind::DocumentTooLarge`], [`TooManyItems`](ErrorKind::TooManyItems): the completion does not fit the
    ///   limit, or has more than [`MAX_CHOICES`]. The fold has failed.
    ///
    /// A fold that has failed gives the same error for ever.
    pub fn push(&mut self, data: &[u8]) -> Result<(), Error> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if matches!(data.trim_ascii(), b"" | b"[DONE]") {
            return Ok(());
        }
        let (text, payload) = self.read(data)?;
        let text = &*text;
        let members = fields(text, payload);
        if let Some(error) = reported_error(text, payload, &members) {
            self.reported = Some(error.bytes(text).to_vec());
            return self.fail(ErrorKind::ReportedError, error.start);
        }
        let is_chunk = ["choices", "usage", "object"]
            .into_iter()
            .any(|key| find(&members, key).is_some());
        if !is_chunk {
            return Ok(());
        }
        self.chunks += 1;
        let mut input = Input {
            text,
            held: self.held,
            limit: self.limits.max_document,
        };
        self.merge(&members, &mut input);
        self.held = input.held;
        if input.is_over() {
            return self.fail(ErrorKind::DocumentTooLarge, 0);
        }
        if self.choices.len() > MAX_CHOICES {
            return self.fail(ErrorKind::TooManyItems, 0);
        }
        Ok(())
    }

    /// Bytes that it holds, as the limit counts them.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// The error that the upstream reported in its stream: the value of `error`, or the whole payload where it has no
    /// such wrapper, as JSON text.
    #[must_use]
    pub fn error(&self) -> Option<&[u8]> {
        self.reported.as_deref()
    }

    /// The completion, as JSON text.
    ///
    /// # Errors
    /// The error that made the fold fail, or [`ErrorKind::NoCompletion`] when no chunk came.
    pub fn finish(self) -> Result<Vec<u8>, Error> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if self.chunks == 0 {
            return Err(Error::new(ErrorKind::NoCompletion, 0));
        }
        let mut all = self.choices.values();
        let is_text = self.says_text || all.len() > 0 && all.all(Choice::is_text);
        let mut out = Vec::with_capacity(self.held.saturating_add(256));
        out.push(b'{');
        let mut choices = self.choices;
        for (i, (key, slot)) in self.members.iter().enumerate() {
            write_key(i == 0, key, &mut out);
            match key {
                b"object" if is_text => out.extend_from_slice(b"\"text_completion\""),
                b"object" => out.extend_from_slice(b"\"chat.completion\""),
                b"choices" => {
                    out.push(b'[');
                    for (i, (index, choice)) in std::mem::take(&mut choices).into_iter().enumerate()
                    {
                        if i > 0 {
                            out.push(b',');
                        }
                        choice.write(index, is_text, &mut out);
                    }
                    out.push(b']');
                }
                _ => slot.write(&mut out),
            }
        }
        out.push(b'}');
        Ok(out)
    }

    /// Checks `data` and gives its text: bytes that are not UTF-8 are replaced, as the decoder of an event stream does
    /// (WHATWG HTML 9.2.6: the stream is decoded with "UTF-8 decode").
    fn read<'a>(&self, data: &'a [u8]) -> Result<(Cow<'a, [u8]>, Value), Error> {
        let (text, found) = match scan::document(data, self.limits.max_depth) {
            Err(fault) if fault.problem == Problem::InvalidUtf8 => {
                let text = String::from_utf8_lossy(data).into_owned().into_bytes();
                let found = scan::document(&text, self.limits.max_depth);
                (Cow::Owned(text), found)
            }
            found => (Cow::Borrowed(data), found),
        };
        let payload = found.map_err(Error::from)?;
        if payload.kind != Kind::Object {
            return Err(Error::new(ErrorKind::NotAnObject, payload.start as u64));
        }
        Ok((text, payload))
    }

    fn fail(&mut self, kind: ErrorKind, offset: usize) -> Result<(), Error> {
        let error = Error::new(kind, offset as u64);
        self.failure = Some(error);
        Err(error)
    }

    fn merge(&mut self, members: &[Field<'_>], input: &mut Input<'_>) {
        for field in members {
            match &*field.key {
                b"object" => {
                    let object = field.value.content(input.text);
                    self.says_text |= object.starts_with(b"text_completion");
                    self.mark(b"object");
                }
                b"choices" => {
                    self.mark(b"object");
                    self.mark(b"choices");
                    for (place, choice) in elements(input.text, field.value).enumerate() {
                        self.merge_choice(place, choice, input);
                    }
                }
                key => self
                    .members
                    .merge_member(Level::Chunk, key, field.value, input),
            }
        }
        self.mark(b"object");
        self.mark(b"choices");
    }

    fn mark(&mut self, key: &[u8]) {
        self.members.set_default(key, || Slot::Raw(Vec::new()));
    }

    /// A choice without an index is told by its place in the chunk.
    fn merge_choice(&mut self, place: usize, choice: Value, input: &mut Input<'_>) {
        if choice.kind != Kind::Object {
            return;
        }
        if input.is_over() || self.choices.len() > MAX_CHOICES {
            return;
        }
        let members = fields(input.text, choice);
        let index = find(&members, "index").and_then(|index| index.as_u64(input.text));
        let index = index.unwrap_or(place as u64);
        let choice = self.choices.entry(index).or_insert_with(|| {
            input.held += MEMBER_COST;
            Choice::default()
        });
        choice.merge(&members, input);
    }
}

/// Folds a whole event stream.
///
/// Events whose data is no chunk are passed over, as long as there are others.
///
/// # Errors
/// Offsets are within `stream`.
/// - [`ErrorKind::EventTooLarge`], [`DocumentTooLarge`](ErrorKind::DocumentTooLarge),
///   [`TooManyItems`](ErrorKind::TooManyItems): a limit is reached.
/// - [`ErrorKind::ReportedError`]: the upstream reports an error in its stream.
/// - What [`ChatFold::push`] said of the first event that is no chunk, or [`ErrorKind::NoCompletion`], when there is no
///   chunk at all.
pub fn fold_chat(stream: &[u8], limits: Limits) -> Result<Vec<u8>, Error> {
    let body = stream.strip_prefix("\u{feff}".as_bytes()).unwrap_or(stream);
    let mut fold = ChatFold::new(limits);
    let mut first_fault = None;
    let mut take = |event: RawEvent<'_>, at: usize| {
        if event.bytes().len() > limits.max_event {
            let offset = at + limits.max_event;
            return Err(Error::new(ErrorKind::EventTooLarge, offset as u64));
        }
        // llama.cpp before September 2025: a field `error` instead of data (llama.cpp#16104).
        if let Some(Line::Field { name: b"error", .. }) = event.lines().next() {
            return Err(Error::new(ErrorKind::ReportedError, at as u64));
        }
        let Some(data) = event.data() else {
            return Ok(());
        };
        let Err(error) = fold.push(&data) else {
            return Ok(());
        };
        let within = usize::try_from(error.offset).unwrap_or(usize::MAX);
        let offset = at + data.raw_offset(within.min(data.len()));
        let error = Error::new(error.kind, offset as u64);
        if fold.failure.is_some() {
            return Err(error);
        }
        first_fault.get_or_insert(error);
        Ok(())
    };
    let body_at = stream.len() - body.len();
    let mut events = Events::new(body);
    for event in events.by_ref() {
        let at = body_at + event.range().start;
        take(event, at)?;
    }
    // The last blank line may be missing (llama.cpp: apogee#139).
    let rest = events.rest();
    take(RawEvent::parse(rest), stream.len() - rest.len())?;
    match (fold.chunks, first_fault) {
        (0, Some(fault)) => Err(fault),
        _ => fold.finish(),
    }
}

#[cfg(test)]
mod tests;
