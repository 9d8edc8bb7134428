//! Events: a raw event's fields, and the event-stream interpretation that turns them into dispatched events.

use std::borrow::Cow;
use std::ops::{Deref, Range};

use super::boundary;
use super::line::{CR, LF, Line, Lines, behind_end, is_end};

/// One raw event, and where its fields are. Made by [`Events`] in the pass that finds where it ends.
///
/// It borrows from the bytes it was read from and holds no copy.
#[derive(Clone, Copy, Debug)]
pub struct RawEvent<'a> {
    bytes: &'a [u8],
    start: usize,
    data: (usize, usize),
    data_lines: usize,
    name: &'a [u8],
    has_fields: bool,
    comments: usize,
    has_id_or_retry: bool,
}

impl<'a> RawEvent<'a> {
    /// Reads `bytes` as one event, ended by a blank line or not (the rest at a stream's end). What follows a blank line
    /// is not read.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Self {
        let end = boundary::first_end(bytes).unwrap_or(bytes.len());
        let mut event = RawEvent::new(bytes.get(..end).unwrap_or_default(), 0);
        for line in Lines::new(event.bytes) {
            event.add_line(line.start, line.end);
        }
        event
    }

    fn new(bytes: &'a [u8], start: usize) -> Self {
        RawEvent {
            bytes,
            start,
            data: (0, 0),
            data_lines: 0,
            name: &[],
            has_fields: false,
            comments: 0,
            has_id_or_retry: false,
        }
    }

    /// Takes in the line `start..end` of the event's bytes.
    #[inline]
    fn add_line(&mut self, start: usize, end: usize) {
        let line = self.bytes.get(start..end).unwrap_or_default();
        // Nearly every line is this one, and needs no search for its colon.
        if let Some(value) = line.strip_prefix(b"data:") {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            self.add_data(end - value.len(), end);
        } else {
            self.add_other_line(Line::parse(line), end);
        }
    }

    fn add_other_line(&mut self, line: Line<'a>, end: usize) {
        match line {
            Line::Blank => return,
            Line::Comment(_) => {
                self.comments += 1;
                return;
            }
            Line::Field { name: b"data", .. } => self.add_data(end, end),
            Line::Field {
                name: b"event",
                value,
            } => self.name = value,
            Line::Field {
                name: b"id" | b"retry",
                ..
            } => self.has_id_or_retry = true,
            Line::Field { .. } => {}
        }
        self.has_fields = true;
    }

    #[inline]
    fn add_data(&mut self, start: usize, end: usize) {
        if self.data_lines == 0 {
            self.data = (start, end);
        }
        self.data_lines += 1;
        self.has_fields = true;
    }

    /// The event as it came, its blank line included.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where the event lies in the bytes that [`Events`] was given.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes.len()
    }

    /// The value of the last `event` field; empty where there is none.
    #[must_use]
    pub fn name(&self) -> &'a [u8] {
        self.name
    }

    /// Whether there is at least one `data` line, so that a reader is given an event.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.data_lines > 0
    }

    /// The `data` lines' values, joined with LF. Borrowed where there is one line; None where there is none.
    #[must_use]
    pub fn data(&self) -> Option<Data<'a>> {
        match self.data_lines {
            0 => None,
            1 => Some(Data {
                bytes: Cow::Borrowed(self.bytes.get(self.data.0..self.data.1).unwrap_or_default()),
                at: self.data.0,
                later_lines: Vec::new(),
            }),
            _ => Some(self.join_data()),
        }
    }

    fn join_data(&self) -> Data<'a> {
        let mut joined = Vec::with_capacity(self.bytes.len());
        let mut later_lines = Vec::with_capacity(self.data_lines - 1);
        let mut first = true;
        for range in Lines::new(self.bytes) {
            let line = self.bytes.get(range.clone()).unwrap_or_default();
            if let Line::Field {
                name: b"data",
                value,
            } = Line::parse(line)
            {
                if !first {
                    joined.push(LF);
                    later_lines.push((joined.len(), range.end - value.len()));
                }
                first = false;
                joined.extend_from_slice(value);
            }
        }
        Data {
            bytes: Cow::Owned(joined),
            at: self.data.0,
            later_lines,
        }
    }

    /// The event's lines in their order, the blank one left out.
    pub fn lines(&self) -> impl Iterator<Item = Line<'a>> + use<'a> {
        let bytes = self.bytes;
        Lines::new(bytes)
            .map(|range| Line::parse(bytes.get(range).unwrap_or_default()))
            .filter(|line| *line != Line::Blank)
    }

    /// Comment lines, whatever else the event holds.
    #[must_use]
    pub fn comments(&self) -> usize {
        self.comments
    }

    /// Whether it holds comments and nothing else: a keep-alive.
    #[must_use]
    pub fn is_comment_only(&self) -> bool {
        self.comments > 0 && !self.has_fields
    }

    /// Whether it holds no line at all: a blank line more than the last event needed.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.comments == 0 && !self.has_fields
    }
}

/// An event's data: the bytes, and where each of them lies in the raw event.
#[derive(Clone, Debug)]
pub struct Data<'a> {
    bytes: Cow<'a, [u8]>,
    at: usize,
    /// For each data line but the first: where it begins in the joined data and in the raw event.
    later_lines: Vec<(usize, usize)>,
}

impl<'a> Data<'a> {
    /// Where the data's byte `offset` lies in [`RawEvent::bytes`]. The data's end, and a LF that joins two lines, are
    /// at their line's end.
    ///
    /// What is inserted into the raw event there, free of line ends, is inserted into the data at `offset`.
    #[must_use]
    pub fn raw_offset(&self, offset: usize) -> usize {
        let line = self
            .later_lines
            .partition_point(|&(joined, _)| joined <= offset);
        match line.checked_sub(1).and_then(|i| self.later_lines.get(i)) {
            Some(&(joined, raw)) => raw + offset - joined,
            None => self.at + offset,
        }
    }

    /// The bytes, borrowed from the raw event where it has one data line.
    #[must_use]
    pub fn into_bytes(self) -> Cow<'a, [u8]> {
        self.bytes
    }
}

impl Deref for Data<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The whole events of `bytes`, in one pass over them. What is left behind the last one is [`Events::rest`].
#[derive(Clone, Debug)]
pub struct Events<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Events<'a> {
    /// The events of `bytes`, which must begin at an event's start, behind a stream's byte-order mark.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Events { bytes, at: 0 }
    }

    /// What no event was read from yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = RawEvent<'a>;

    #[inline]
    fn next(&mut self) -> Option<RawEvent<'a>> {
        let rest = self.bytes.get(self.at..)?;
        let mut event = RawEvent::new(rest, self.at);
        let mut line = 0;
        loop {
            let end = line + memchr::memchr2(LF, CR, rest.get(line..)?)?;
            let next = behind_end(rest, end);
            if end > line {
                event.add_line(line, end);
            }
            // Asking for the blank line here spares a search of its own.
            let blank = if end == line {
                Some(next)
            } else if is_end(*rest.get(next)?) {
                Some(behind_end(rest, next))
            } else {
                None
            };
            if let Some(event_end) = blank {
                event.bytes = rest.get(..event_end)?;
                self.at += event_end;
                return Some(event);
            }
            line = next;
        }
    }
}

/// An event as a reader is given it.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// The event's type: its `event` field, or `message`.
    pub name: &'a [u8],
    /// Its data.
    pub data: Cow<'a, [u8]>,
    /// The last event id, of this event or an earlier one; empty where there is none.
    pub id: &'a [u8],
}

/// The event-stream interpretation of WHATWG HTML, section 9.2.6: what outlives one event.
///
/// Bytes are not decoded: the names and data of a stream that is not UTF-8 are handed on as they are.
///
/// ```
/// use sluicegate_core::sse::event::{Events, Interpreter};
///
/// let mut interpreter = Interpreter::default();
/// let stream = b": hello\n\nid: 7\nevent: greeting\ndata: a\ndata: b\n\n";
/// let mut seen = Vec::new();
/// for raw in Events::new(stream) {
///     if let Some(event) = interpreter.dispatch(&raw) {
///         seen.push((event.name.to_vec(), event.data.to_vec(), event.id.to_vec()));
///     }
/// }
/// assert_eq!(seen, [(b"greeting".to_vec(), b"a\nb".to_vec(), b"7".to_vec())]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Interpreter {
    last_event_id: Vec<u8>,
    retry: Option<u64>,
}

impl Interpreter {
    /// Takes in one whole raw event. None where it has no data: its id and retry time count all the same.
    pub fn dispatch<'a>(&'a mut self, raw: &RawEvent<'a>) -> Option<Event<'a>> {
        if raw.has_id_or_retry {
            self.take_id_and_retry(raw);
        }
        let data = raw.data()?.into_bytes();
        Some(Event {
            name: if raw.name.is_empty() {
                b"message"
            } else {
                raw.name
            },
            data,
            id: &self.last_event_id,
        })
    }

    fn take_id_and_retry(&mut self, raw: &RawEvent<'_>) {
        for line in raw.lines() {
            match line {
                Line::Field { name: b"id", value } if !value.contains(&0) => {
                    self.last_event_id.clear();
                    self.last_event_id.extend_from_slice(value);
                }
                Line::Field {
                    name: b"retry",
                    value,
                } => {
                    let all_digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
                    let text = std::str::from_utf8(value).ok().filter(|_| all_digits);
                    if let Some(time) = text.and_then(|text| text.parse().ok()) {
                        self.retry = Some(time);
                    }
                }
                _ => {}
            }
        }
    }

    /// The id of the last event that set one; empty where there is none.
    #[must_use]
    pub fn last_event_id(&self) -> &[u8] {
        &self.last_event_id
    }

    /// The reconnection time in milliseconds, where the stream set one.
    #[must_use]
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }
}

#[cfg(test)]
mod tests;
