//! Reading the members of one payload that forwarding needs: one pass over its JSON, no tree; only positions are kept.

use std::borrow::Cow;

use crate::json::cursor::Cursor;
use crate::json::scan::{Fault, Kind, Value};
use crate::json::string;
use crate::record;
use crate::usage::{Count, Report, Within, counted};

use super::StreamError;

/// Places that are noted of one payload. An event with more has no shape that is worth to be remembered.
pub(crate) const MAX_HOLES: usize = 64;

/// A place in a payload whose content changes from event to event while its type and meaning stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    /// First byte of the content: behind the opening quote of a string.
    pub(crate) start: usize,
    /// Behind its last byte.
    pub(crate) end: usize,
    /// What may stand there.
    pub(crate) kind: HoleKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoleKind {
    /// A string's content; where it is not empty the event bears output.
    Output,
    /// A string's content that means nothing.
    Padding,
    /// An unsigned integer that numbers the event.
    Sequence,
    /// An unsigned integer that counts tokens.
    Count(Count),
}

/// The payload's `choices`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Choices {
    #[default]
    Absent,
    /// `[]`, or something that is no array.
    Empty,
    Some,
}

/// What was found. Positions are in the payload's text.
#[derive(Debug, Default)]
pub(crate) struct Payload {
    pub(crate) report: Report,
    pub(crate) choices: Choices,
    /// The first finish reason that is neither null nor empty.
    pub(crate) finish: Option<Value>,
    /// Text, reasoning, a refusal or a tool call is there, whatever the holes hold.
    pub(crate) bears_output: bool,
    pub(crate) holes: Vec<Hole>,
    /// There are more than are noted.
    has_more_holes: bool,
    /// The model's names, strings.
    pub(crate) models: [Option<Value>; 2],
    pub(crate) id: Option<Value>,
    pub(crate) created: Option<Value>,
    pub(crate) sequence: Option<u64>,
    /// Top-level `type`.
    pub(crate) event_type: Option<Value>,
    /// Top-level `object` or that of `response`.
    pub(crate) object: Option<Value>,
    /// `status` of a response.
    pub(crate) status: Option<Value>,
    /// `type` of the item or content block.
    pub(crate) part_type: Option<Value>,
    /// `error`, unless it is null or empty; or the payload itself if it is an error object.
    pub(crate) error: Option<StreamError>,
    /// Top-level `message`.
    pub(crate) message: Option<Value>,
    code: Option<Value>,
    error_type: Option<Value>,
}

impl Payload {
    /// Reads `text`, one whole JSON document. `member` takes each of its members, and leaves to
    /// [`read_member`](Self::read_member) those that mean the same in every protocol.
    ///
    /// # Errors
    /// It is none; what was found until then must not be used.
    pub(crate) fn read(
        &mut self,
        text: &[u8],
        max_depth: usize,
        mut member: impl FnMut(&mut Payload, &mut Cursor<'_>, Value) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let holes = std::mem::take(&mut self.holes);
        *self = Payload {
            holes,
            ..Payload::default()
        };
        self.holes.clear();
        let mut cursor = Cursor::new(text, max_depth);
        cursor.members(|cursor, key| member(self, cursor, key))?;
        cursor.end()
    }

    /// Reads a member, called `name`, that stands at the top of a payload.
    pub(crate) fn read_member(
        &mut self,
        cursor: &mut Cursor<'_>,
        text: &[u8],
        key: Value,
        name: &[u8],
    ) -> Result<(), Fault> {
        match name {
            b"error" => self.read_error(cursor, text)?,
            b"item" | b"content_block" => {
                cursor.members(|cursor, key| match &*name_of(key, text) {
                    b"type" => note(&mut self.part_type, cursor.skip()?),
                    _ => cursor.skip().map(drop),
                })?;
            }
            b"message" => {
                let message = cursor.members(|cursor, key| match &*name_of(key, text) {
                    b"id" => note(&mut self.id, cursor.skip()?),
                    _ => cursor.skip().map(drop),
                })?;
                self.message = Some(message);
            }
            b"model" => self.read_model(cursor, 0)?,
            b"id" => note(&mut self.id, cursor.skip()?)?,
            b"created" => note(&mut self.created, cursor.skip()?)?,
            b"type" => note(&mut self.event_type, cursor.skip()?)?,
            b"object" => note(&mut self.object, cursor.skip()?)?,
            b"status" => note(&mut self.status, cursor.skip()?)?,
            b"code" => note(&mut self.code, cursor.skip()?)?,
            b"error_type" => note(&mut self.error_type, cursor.skip()?)?,
            b"sequence_number" => {
                let number = cursor.skip()?;
                self.sequence = number.as_u64(text);
                if self.sequence.is_some() {
                    self.push_hole(number.start, number.end, HoleKind::Sequence);
                }
            }
            // OpenAI's padding against guessing text from packet sizes: random in each event.
            b"obfuscation" => {
                let padding = cursor.skip()?;
                self.push_string_hole(padding, HoleKind::Padding);
            }
            _ => return self.read_usage(cursor, text, key),
        }
        Ok(())
    }

    /// Reads a member that may be, or hold, usage.
    pub(crate) fn read_usage(
        &mut self,
        cursor: &mut Cursor<'_>,
        text: &[u8],
        key: Value,
    ) -> Result<(), Fault> {
        self.report.read_member(cursor, text, Within::Payload, key)
    }

    pub(crate) fn read_model(
        &mut self,
        cursor: &mut Cursor<'_>,
        place: usize,
    ) -> Result<(), Fault> {
        let model = cursor.skip()?;
        if model.kind == Kind::String
            && let Some(slot) = self.models.get_mut(place)
        {
            *slot = Some(model);
        }
        Ok(())
    }

    /// A reason for which the model stopped.
    pub(crate) fn read_finish(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        let reason = cursor.skip()?;
        // `""` is how some say "not yet" (`ollama#4357`).
        if reason.kind == Kind::String && reason.end - reason.start > 2 && self.finish.is_none() {
            self.finish = Some(reason);
        }
        Ok(())
    }

    /// An `error` member; only the first counts.
    pub(crate) fn read_error(&mut self, cursor: &mut Cursor<'_>, text: &[u8]) -> Result<(), Fault> {
        let error = Self::error_in(cursor, text)?;
        if self.error.is_none() {
            self.error = error;
        }
        Ok(())
    }

    /// None where it is falsy, as SDKs see it: null, false, zero, or empty.
    fn error_in(cursor: &mut Cursor<'_>, text: &[u8]) -> Result<Option<StreamError>, Fault> {
        let mut message = None;
        let mut error = StreamError::default();
        let value = cursor.members(|cursor, key| {
            let value = cursor.skip()?;
            match &*name_of(key, text) {
                b"message" => message = plain(value, text),
                b"code" => error.code = plain(value, text),
                b"type" => error.kind = plain(value, text),
                _ => {}
            }
            Ok(())
        })?;
        if !is_truthy(value, text) {
            return Ok(None);
        }
        error.message = message.unwrap_or_else(|| match value.decode(text) {
            Some(text) => text.into(),
            None => record::cut_bytes(value.bytes(text)),
        });
        Ok(Some(error))
    }

    /// Errors without an `error` object: Cerebras, old vLLM (`"object":"error"`), the Responses event `error`. Where
    /// `error` is a mere string, its code stands beside it (xAI), or its type (TGI). `unnamed`: also where nothing but
    /// its members tells that it is an error.
    pub(crate) fn find_flat_error(&mut self, text: &[u8], unnamed: bool) {
        let word = |value: Option<Value>| value.and_then(|value| plain(value, text));
        if let Some(error) = &mut self.error {
            if error.code.is_none() {
                error.code = word(self.code);
            }
            if error.kind.is_none() {
                error.kind = word(self.error_type);
            }
            return;
        }
        let is_message = self
            .message
            .is_some_and(|message| message.kind == Kind::String);
        let says_error = |value: Option<Value>| {
            value.is_some_and(|value| value.content(text).ends_with(b"error"))
        };
        let has = |value: Option<Value>| value.is_some_and(|value| value.kind != Kind::Null);
        let is = |value: Option<Value>, word: &[u8]| {
            value.is_some_and(|value| value.content(text) == word)
        };
        let named = is(self.object, b"error") || is(self.event_type, b"error");
        let unnamed = unnamed
            && self.choices == Choices::Absent
            && self.object.is_none()
            && (has(self.code) || says_error(self.event_type));
        if is_message && (named || unnamed) {
            self.error = Some(StreamError {
                message: word(self.message).unwrap_or_default(),
                code: word(self.code),
                kind: word(self.event_type),
            });
        }
    }

    /// A member that is output unless it is null or empty.
    pub(crate) fn note_output(&mut self, value: Value, text: &[u8]) {
        if value.kind == Kind::String {
            self.push_string_hole(value, HoleKind::Output);
        } else {
            self.bears_output |= is_filled(value, text);
        }
    }

    pub(crate) fn push_string_hole(&mut self, value: Value, kind: HoleKind) {
        if value.kind == Kind::String {
            self.push_hole(value.start + 1, value.end - 1, kind);
        }
    }

    fn push_hole(&mut self, start: usize, end: usize, kind: HoleKind) {
        if self.holes.len() < MAX_HOLES {
            self.holes.push(Hole { start, end, kind });
            return;
        }
        self.has_more_holes = true;
        self.bears_output |= kind == HoleKind::Output && end > start;
    }

    /// Makes holes of the numbers in the usage object, so that another event may have others. False: there are counts
    /// that it does not hold, or a charge, or more holes than are noted.
    pub(crate) fn open_counts(&mut self, text: &[u8]) -> bool {
        let report = &self.report;
        if self.has_more_holes || report.elsewhere || report.cost.is_some() {
            return false;
        }
        if let Some(object) = report.object {
            let counts = counted(text, object, Within::Usage).into_iter();
            self.holes.extend(counts.map(|(count, range)| Hole {
                start: range.start,
                end: range.end,
                kind: HoleKind::Count(count),
            }));
            self.holes.sort_by_key(|hole| hole.start);
        }
        true
    }

    /// Whether an output string is there that is not empty.
    pub(crate) fn holds_text(&self) -> bool {
        self.holes
            .iter()
            .any(|hole| hole.kind == HoleKind::Output && hole.end > hole.start)
    }
}

/// A member's name.
pub(crate) fn name_of<'a>(key: Value, text: &'a [u8]) -> Cow<'a, [u8]> {
    string::plain(key.content(text))
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the arms around it read values that may be malformed"
)]
pub(crate) fn note(slot: &mut Option<Value>, value: Value) -> Result<(), Fault> {
    *slot = Some(value);
    Ok(())
}

/// Whether an object or array holds anything.
pub(crate) fn is_filled(value: Value, text: &[u8]) -> bool {
    let inner = value.bytes(text);
    matches!(value.kind, Kind::Object | Kind::Array)
        && inner
            .get(1..inner.len().saturating_sub(1))
            .is_some_and(|inner| !inner.trim_ascii().is_empty())
}

/// What Python takes for true, and so the SDKs that test `error` with `if`.
fn is_truthy(value: Value, text: &[u8]) -> bool {
    match value.kind {
        Kind::Null | Kind::False => false,
        Kind::True => true,
        Kind::String => !value.content(text).is_empty(),
        Kind::Number => value.as_u64(text) != Some(0),
        Kind::Object | Kind::Array => is_filled(value, text),
    }
}

/// A string decoded, a number written out; nothing else.
fn plain(value: Value, text: &[u8]) -> Option<Box<str>> {
    match value.kind {
        Kind::String => value.decode(text).map(Into::into),
        Kind::Number => Some(record::cut_bytes(value.bytes(text))),
        _ => None,
    }
}
