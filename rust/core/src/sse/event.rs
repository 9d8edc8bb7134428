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
    /// Reads `bytes` as one event, ended by a blank line or not (the rest at a stream's end). What follows a blank line is not read.
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
    /// Where the data's byte `offset` lies in [`RawEvent::bytes`]. The data's end, and a LF that joins two lines, are at their line's end.
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(bytes: &[u8]) -> RawEvent<'_> {
        let mut events = Events::new(bytes);
        let event = events.next().unwrap();
        assert!(events.rest().is_empty());
        event
    }

    #[test]
    fn one_data_line_is_borrowed() {
        let stream = b"data: {\"a\":1}\n\n";
        let data = one(stream).data().unwrap();
        assert!(matches!(
            data.clone().into_bytes(),
            Cow::Borrowed(b"{\"a\":1}")
        ));
        assert_eq!(data.raw_offset(0), 6);
        assert_eq!(data.raw_offset(data.len()), 13);
    }

    #[test]
    fn several_data_lines_join_with_lf_and_keep_their_places() {
        let stream = b"data: ab\r\n: c\r\ndata:cd\r\ndata\r\nevent: e\r\n\r\n";
        let event = one(stream);
        let data = event.data().unwrap();
        assert_eq!(&*data, b"ab\ncd\n");
        assert_eq!(event.name(), b"e");
        assert_eq!(event.comments(), 1);
        for (offset, byte) in data.iter().enumerate() {
            let raw = event.bytes()[data.raw_offset(offset)];
            assert_eq!(raw, if *byte == LF { CR } else { *byte });
        }
        assert_eq!(data.raw_offset(data.len()), 28);
    }

    #[test]
    fn what_an_event_holds_is_told_apart() {
        assert!(one(b": ping\n\n").is_comment_only());
        assert!(!one(b": ping\ndata\n\n").is_comment_only());
        assert!(!one(b": ping\nunknown: 1\n\n").is_comment_only());
        assert!(!one(b"\n").is_comment_only());
        assert!(one(b"\r\n").is_blank());
        assert!(!one(b":\n\n").is_blank());
        assert!(one(b"data\n\n").has_data());
        assert!(!one(b"event: keepalive\n\n").has_data());
        assert!(one(b"event: keepalive\n\n").data().is_none());
    }

    #[test]
    fn the_last_of_several_names_counts() {
        assert_eq!(one(b"event: a\nevent: b\ndata\n\n").name(), b"b");
        assert_eq!(one(b"event: a\nevent\ndata\n\n").name(), b"");
    }

    #[test]
    fn an_event_without_its_end_can_be_read() {
        let event = RawEvent::parse(b"data: [DONE]");
        assert_eq!(&*event.data().unwrap(), b"[DONE]");
        assert_eq!(event.bytes(), b"data: [DONE]");
        assert_eq!(
            RawEvent::parse(b"data: 1\r").data().unwrap().raw_offset(0),
            6
        );
        assert_eq!(
            RawEvent::parse(b"data: 1\n\ndata: 2\n\n").bytes(),
            b"data: 1\n\n"
        );
        assert!(RawEvent::parse(b"").is_blank());
    }

    #[test]
    fn ranges_are_places_in_the_slice() {
        let stream = b"\ndata: 1\n\n: 2\r\rdata: 3\r\n\r\nrest";
        let mut events = Events::new(stream);
        let ranges: Vec<_> = events.by_ref().map(|event| event.range()).collect();
        assert_eq!(ranges, [0..1, 1..10, 10..15, 15..26]);
        assert_eq!(events.rest(), b"rest");
    }

    #[test]
    fn ids_outlive_events_and_retry_wants_digits() {
        let mut interpreter = Interpreter::default();
        let mut id = |bytes| {
            let event = RawEvent::parse(bytes);
            interpreter.dispatch(&event).map(|event| event.id.to_vec())
        };
        assert_eq!(id(b"data\n\n"), Some(vec![]));
        assert_eq!(id(b"id: 1\n\n"), None);
        assert_eq!(id(b"data\n\n"), Some(b"1".to_vec()));
        assert_eq!(id(b"id: 2\0\ndata\n\n"), Some(b"1".to_vec()));
        assert_eq!(id(b"id\ndata\n\n"), Some(vec![]));
        assert_eq!(interpreter.retry(), None);
        for (line, expected) in [
            (&b"retry: 1000\n\n"[..], 1000),
            (b"retry: 1s\n\n", 1000),
            (b"retry: +1\n\n", 1000),
            (b"retry\n\n", 1000),
            (b"retry: 99999999999999999999\n\n", 1000),
            (b"retry:007\n\n", 7),
        ] {
            assert!(interpreter.dispatch(&RawEvent::parse(line)).is_none());
            assert_eq!(interpreter.retry(), Some(expected));
        }
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop::sample::select(vec![
            "data", ":", " ", "x", "event", "id", "retry", "1", "\n", "\n", "\r", "\r\n",
        ]);
        proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat().into_bytes())
    }

    proptest! {
        #[test]
        fn walking_over_events_and_reading_one_agree(bytes in stream()) {
            let mut events = Events::new(&bytes);
            let mut at = 0;
            for event in events.by_ref() {
                prop_assert_eq!(event.range().start, at);
                at = event.range().end;
                let alone = RawEvent::parse(event.bytes());
                prop_assert_eq!(alone.bytes(), event.bytes());
                prop_assert_eq!(alone.name(), event.name());
                prop_assert_eq!(alone.comments(), event.comments());
                prop_assert_eq!(alone.is_blank(), event.is_blank());
                prop_assert_eq!(alone.data().map(Data::into_bytes), event.data().map(Data::into_bytes));
            }
            prop_assert_eq!(at, boundary::last_end(&bytes));
            prop_assert_eq!(events.rest(), &bytes[at..]);
        }

        #[test]
        fn bytes_put_in_at_a_raw_offset_appear_at_that_offset_of_the_data(bytes in stream(), at in any::<prop::sample::Index>()) {
            let event = RawEvent::parse(&bytes);
            if let Some(data) = event.data() {
                let offset = at.index(data.len() + 1);
                let mut edited = event.bytes().to_vec();
                edited.insert(data.raw_offset(offset), b'Z');
                let mut expected = data.to_vec();
                expected.insert(offset, b'Z');
                let edited = RawEvent::parse(&edited);
                // A line `data` without a colon has no place for a value.
                if edited.lines().filter(|line| matches!(line, Line::Field { name: b"data", .. })).count() == event.data_lines {
                    prop_assert_eq!(&*edited.data().unwrap(), &expected);
                }
            }
        }
    }
}
