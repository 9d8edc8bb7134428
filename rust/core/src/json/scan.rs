//! A strict JSON scanner (RFC 8259): finds where things are, builds nothing.
//!
//! That a text is UTF-8 is checked where it is read as a document of its own. In an event's payload, which is read
//! value by value, it is not: "UTF-8 decode", by which clients read an event stream, replaces such bytes, and what they
//! see then is JSON.
//!
//! It never recurses and never allocates: the open containers are one bit each on the stack, so the depth is bounded by
//! [`MAX_DEPTH`] whatever the caller allows. All positions are byte offsets into the text that was given.
//!
//! ```
//! use sluicegate_core::json::scan::{Kind, Members};
//!
//! let text = br#" {"model": "m", "us\u0061ge": {"prompt_tokens": 3}} "#;
//! let mut members = Members::document(text, 64).unwrap();
//! let model = members.next().unwrap().unwrap();
//! assert!(model.key_is(text, "model"));
//! assert_eq!(model.value.kind, Kind::String);
//! let usage = members.next().unwrap().unwrap();
//! assert!(usage.key_is(text, "usage"));
//! assert_eq!(usage.value.bytes(text), br#"{"prompt_tokens": 3}"#);
//! assert!(members.next().is_none());
//! ```

use std::ops::Range;

use super::string;
use crate::error::{Error, ErrorKind};

/// Containers that may be open at once. A bit each, 64 bytes of stack; real payloads stay below 32.
pub const MAX_DEPTH: usize = 512;

/// What a value is, told from its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// A number in RFC 8259's grammar.
    Number,
    /// `true`
    True,
    /// `false`
    False,
    /// `null`
    Null,
}

/// Where a value is. `start..end` covers it whole, quotes and brackets included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// What it is.
    pub kind: Kind,
    /// Offset of its first byte.
    pub start: usize,
    /// Offset behind its last byte.
    pub end: usize,
}

impl Value {
    /// The value's own bytes.
    #[must_use]
    pub fn bytes<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        text.get(self.start..self.end).unwrap_or_default()
    }

    /// A string's content between the quotes, escapes untouched. Empty for anything else.
    #[must_use]
    pub fn content<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        if self.kind != Kind::String {
            return &[];
        }
        text.get(self.start + 1..self.end.saturating_sub(1))
            .unwrap_or_default()
    }

    /// The value's range.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// A string without escapes, or with: decoded. None for anything else.
    #[must_use]
    pub fn decode<'a>(&self, text: &'a [u8]) -> Option<std::borrow::Cow<'a, str>> {
        (self.kind == Kind::String).then(|| string::decode(self.content(text)))
    }

    /// An unsigned integer that fits 64 bits, written without fraction or exponent. None for anything else.
    #[must_use]
    pub fn as_u64(&self, text: &[u8]) -> Option<u64> {
        if self.kind != Kind::Number {
            return None;
        }
        let mut total = 0u64;
        for &digit in self.bytes(text) {
            if !digit.is_ascii_digit() {
                return None;
            }
            total = total
                .checked_mul(10)?
                .checked_add(u64::from(digit - b'0'))?;
        }
        Some(total)
    }
}

/// One member of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The key with its quotes.
    pub key: Value,
    /// The value.
    pub value: Value,
}

impl Member {
    /// Whether the key names `name`, escapes decoded (`"us\u0061ge"` is `usage`).
    #[must_use]
    pub fn key_is(&self, text: &[u8], name: &str) -> bool {
        string::equals(self.key.content(text), name)
    }

    /// The key between its quotes, escapes untouched.
    #[must_use]
    pub fn raw_key<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        self.key.content(text)
    }
}

/// Why a text is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The text ends where more must come.
    UnexpectedEnd,
    /// A byte that the grammar does not allow here.
    UnexpectedByte,
    /// A string holds bytes that are not UTF-8.
    InvalidUtf8,
    /// More containers are open than allowed.
    TooDeep,
    /// Something other than white space follows the document.
    TrailingBytes,
}

/// A problem and where it is, in bytes from the text's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub problem: Problem,
    /// Offset of the byte that shows it.
    pub offset: usize,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.problem {
            Problem::UnexpectedEnd => "the JSON text ends too early",
            Problem::UnexpectedByte => "unexpected byte in JSON",
            Problem::InvalidUtf8 => "a JSON string is not UTF-8",
            Problem::TooDeep => "JSON nested too deeply",
            Problem::TrailingBytes => "bytes after the JSON document",
        };
        write!(f, "{what} at byte {}", self.offset)
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for Error {
    /// The same problem; the offset counts from the text's start.
    fn from(fault: Fault) -> Self {
        let kind = match fault.problem {
            Problem::UnexpectedEnd => ErrorKind::UnexpectedEnd,
            Problem::UnexpectedByte => ErrorKind::UnexpectedByte,
            Problem::InvalidUtf8 => ErrorKind::InvalidUtf8,
            Problem::TooDeep => ErrorKind::TooDeep,
            Problem::TrailingBytes => ErrorKind::TrailingBytes,
        };
        Error::new(kind, fault.offset as u64)
    }
}

fn fault<T>(problem: Problem, offset: usize) -> Result<T, Fault> {
    Err(Fault { problem, offset })
}

/// Offset of the first byte at or behind `at` that is not JSON white space.
#[must_use]
pub fn skip_space(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = text.get(at) {
        at += 1;
    }
    at
}

/// Reads the one document that `text` holds, white space around it allowed. `max_depth` counts open containers.
///
/// # Errors
/// [`Fault`] when `text` is not exactly one JSON document.
pub fn document(text: &[u8], max_depth: usize) -> Result<Value, Fault> {
    let value = value(text, 0, max_depth)?;
    let rest = skip_space(text, value.end);
    if rest < text.len() {
        return fault(Problem::TrailingBytes, rest);
    }
    check_utf8(text)?;
    Ok(value)
}

fn check_utf8(text: &[u8]) -> Result<(), Fault> {
    simdutf8::compat::from_utf8(text)
        .map(drop)
        .or_else(|error| fault(Problem::InvalidUtf8, error.valid_up_to()))
}

/// Reads one value that begins at or behind `at` (white space is skipped), checking all of it but whether it is UTF-8.
/// What follows it is not looked at.
///
/// # Errors
/// [`Fault`] when there is no whole value.
pub fn value(text: &[u8], at: usize, max_depth: usize) -> Result<Value, Fault> {
    let start = skip_space(text, at);
    let Some(&first) = text.get(start) else {
        return fault(Problem::UnexpectedEnd, start);
    };
    let (kind, end) = match first {
        b'"' => (Kind::String, string::skip(text, start)?),
        b'{' => (Kind::Object, skip_container(text, start, max_depth)?),
        b'[' => (Kind::Array, skip_container(text, start, max_depth)?),
        b't' => (Kind::True, skip_word(text, start, b"true")?),
        b'f' => (Kind::False, skip_word(text, start, b"false")?),
        b'n' => (Kind::Null, skip_word(text, start, b"null")?),
        _ => (Kind::Number, skip_number(text, start)?),
    };
    Ok(Value { kind, start, end })
}

fn skip_word(text: &[u8], start: usize, word: &[u8]) -> Result<usize, Fault> {
    for (i, &expected) in word.iter().enumerate() {
        match text.get(start + i) {
            Some(&byte) if byte == expected => {}
            Some(_) => return fault(Problem::UnexpectedByte, start + i),
            None => return fault(Problem::UnexpectedEnd, start + i),
        }
    }
    Ok(start + word.len())
}

/// Offset of the first byte at or behind `at` that is no digit. Eight at once: embeddings are nothing but digits.
fn digits_end(text: &[u8], mut at: usize) -> usize {
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    // What a digit's value, and no larger one, can be added to without reaching the high bit.
    const ROOM: u64 = 0x7676_7676_7676_7676;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    while let Some(Ok(bytes)) = text.get(at..at + 8).map(<[u8; 8]>::try_from) {
        let values = u64::from_le_bytes(bytes) ^ ZEROS;
        // Exact up to the first that is no digit: a carry can only reach later bytes.
        let others = (values.wrapping_add(ROOM) | values) & HIGH;
        if others != 0 {
            return at + others.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while text.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    at
}

fn skip_digits(text: &[u8], start: usize) -> Result<usize, Fault> {
    let at = digits_end(text, start);
    if at > start {
        return Ok(at);
    }
    match text.get(at) {
        Some(_) => fault(Problem::UnexpectedByte, at),
        None => fault(Problem::UnexpectedEnd, at),
    }
}

/// RFC 8259 section 6: `[ minus ] int [ frac ] [ exp ]`, no leading zero.
fn skip_number(text: &[u8], start: usize) -> Result<usize, Fault> {
    let mut at = start;
    if text.get(at) == Some(&b'-') {
        at += 1;
    }
    if text.get(at) == Some(&b'0') {
        at += 1;
    } else {
        at = skip_digits(text, at)?;
    }
    if text.get(at) == Some(&b'.') {
        at = skip_digits(text, at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = text.get(at) {
            at += 1;
        }
        at = skip_digits(text, at)?;
    }
    Ok(at)
}

/// The open containers, innermost last: a set bit is an object.
struct Open {
    bits: [u64; MAX_DEPTH / 64],
    depth: usize,
    max: usize,
}

impl Open {
    fn new(max_depth: usize) -> Self {
        Open {
            bits: [0; MAX_DEPTH / 64],
            depth: 0,
            max: max_depth.min(MAX_DEPTH),
        }
    }

    fn push(&mut self, is_object: bool, at: usize) -> Result<(), Fault> {
        if self.depth >= self.max {
            return fault(Problem::TooDeep, at);
        }
        let (word, bit) = (self.depth / 64, self.depth % 64);
        if let Some(bits) = self.bits.get_mut(word) {
            *bits = (*bits & !(1 << bit)) | (u64::from(is_object) << bit);
        }
        self.depth += 1;
        Ok(())
    }

    fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    fn in_object(&self) -> bool {
        let top = self.depth.saturating_sub(1);
        self.bits
            .get(top / 64)
            .is_some_and(|bits| bits >> (top % 64) & 1 == 1)
    }
}

/// Skips the object or array that begins at `start`; returns the offset behind it.
fn skip_container(text: &[u8], start: usize, max_depth: usize) -> Result<usize, Fault> {
    let mut open = Open::new(max_depth);
    let mut at = start;
    // At the head of this loop a value must begin at `at`.
    'value: loop {
        at = skip_space(text, at);
        match text.get(at) {
            Some(b'{') => {
                open.push(true, at)?;
                at = skip_space(text, at + 1);
                if text.get(at) != Some(&b'}') {
                    at = skip_key(text, at)?;
                    continue 'value;
                }
            }
            Some(b'[') => {
                open.push(false, at)?;
                at = skip_space(text, at + 1);
                if text.get(at) != Some(&b']') {
                    continue 'value;
                }
            }
            Some(b'"') => at = string::skip(text, at)?,
            Some(b't') => at = skip_word(text, at, b"true")?,
            Some(b'f') => at = skip_word(text, at, b"false")?,
            Some(b'n') => at = skip_word(text, at, b"null")?,
            Some(_) => at = skip_number(text, at)?,
            None => return fault(Problem::UnexpectedEnd, at),
        }
        // Here a value, or the opening of an empty container, lies before `at`.
        loop {
            at = skip_space(text, at);
            match (text.get(at), open.in_object()) {
                (Some(b','), true) => {
                    at = skip_key(text, skip_space(text, at + 1))?;
                    continue 'value;
                }
                (Some(b','), false) => {
                    at += 1;
                    continue 'value;
                }
                (Some(b'}'), true) | (Some(b']'), false) => {
                    at += 1;
                    open.pop();
                    if open.depth == 0 {
                        return Ok(at);
                    }
                }
                (Some(_), _) => return fault(Problem::UnexpectedByte, at),
                (None, _) => return fault(Problem::UnexpectedEnd, at),
            }
        }
    }
}

/// A member's key and colon; returns the offset behind the colon.
fn skip_key(text: &[u8], at: usize) -> Result<usize, Fault> {
    match text.get(at) {
        Some(b'"') => {}
        Some(_) => return fault(Problem::UnexpectedByte, at),
        None => return fault(Problem::UnexpectedEnd, at),
    }
    let at = skip_space(text, string::skip(text, at)?);
    match text.get(at) {
        Some(b':') => Ok(at + 1),
        Some(_) => fault(Problem::UnexpectedByte, at),
        None => fault(Problem::UnexpectedEnd, at),
    }
}

/// An object's members in their order, each value checked and skipped as it is passed.
///
/// After an error the iterator ends. When it ends without one, the object was well formed.
pub struct Members<'a> {
    text: &'a [u8],
    at: usize,
    max_depth: usize,
    state: MembersState,
    document: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum MembersState {
    First,
    Later,
    Ended,
}

impl<'a> Members<'a> {
    /// The members of `text`'s one document, which must be an object; bytes behind it other than white space are a
    /// fault.
    ///
    /// # Errors
    /// [`Fault`] when the document does not begin an object.
    pub fn document(text: &'a [u8], max_depth: usize) -> Result<Self, Fault> {
        let mut members = Self::at(text, skip_space(text, 0), max_depth)?;
        members.document = true;
        Ok(members)
    }

    /// The members of the object whose `{` is at `start`.
    ///
    /// # Errors
    /// [`Fault`] when no object begins there.
    pub fn at(text: &'a [u8], start: usize, max_depth: usize) -> Result<Self, Fault> {
        match text.get(start) {
            Some(b'{') if max_depth > 0 => Ok(Members {
                text,
                at: start + 1,
                // The object itself is one of the open containers.
                max_depth: max_depth - 1,
                state: MembersState::First,
                document: false,
            }),
            Some(b'{') => fault(Problem::TooDeep, start),
            Some(_) => fault(Problem::UnexpectedByte, start),
            None => fault(Problem::UnexpectedEnd, start),
        }
    }

    /// Offset behind the last byte read: behind the closing brace once the iterator has ended without a fault.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at
    }

    fn advance(&mut self) -> Result<Option<Member>, Fault> {
        let text = self.text;
        let mut at = skip_space(text, self.at);
        match (text.get(at), self.state) {
            (Some(b'}'), _) => {
                self.state = MembersState::Ended;
                self.at = at + 1;
                if self.document {
                    let rest = skip_space(text, at + 1);
                    if rest < text.len() {
                        return fault(Problem::TrailingBytes, rest);
                    }
                    check_utf8(text)?;
                }
                return Ok(None);
            }
            (Some(b','), MembersState::Later) => at = skip_space(text, at + 1),
            (Some(_), MembersState::Later) => return fault(Problem::UnexpectedByte, at),
            (Some(_), _) => {}
            (None, _) => return fault(Problem::UnexpectedEnd, at),
        }
        let colon = skip_key(text, at)?;
        // The key ends at its closing quote; white space may stand between it and the colon.
        let mut key_end = colon - 1;
        while text.get(key_end.wrapping_sub(1)) != Some(&b'"') {
            key_end -= 1;
        }
        let key = Value {
            kind: Kind::String,
            start: at,
            end: key_end,
        };
        let value = value(text, colon, self.max_depth)?;
        self.at = value.end;
        self.state = MembersState::Later;
        Ok(Some(Member { key, value }))
    }
}

impl Iterator for Members<'_> {
    type Item = Result<Member, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == MembersState::Ended {
            return None;
        }
        let step = self.advance().transpose();
        if matches!(step, Some(Err(_))) {
            self.state = MembersState::Ended;
        }
        step
    }
}

/// An array's values in their order, checked and skipped as they are passed. Ends after a fault.
pub struct Elements<'a> {
    text: &'a [u8],
    at: usize,
    max_depth: usize,
    state: MembersState,
}

impl<'a> Elements<'a> {
    /// The values of the array whose `[` is at `start`.
    ///
    /// # Errors
    /// [`Fault`] when no array begins there.
    pub fn at(text: &'a [u8], start: usize, max_depth: usize) -> Result<Self, Fault> {
        match text.get(start) {
            Some(b'[') if max_depth > 0 => Ok(Elements {
                text,
                at: start + 1,
                max_depth: max_depth - 1,
                state: MembersState::First,
            }),
            Some(b'[') => fault(Problem::TooDeep, start),
            Some(_) => fault(Problem::UnexpectedByte, start),
            None => fault(Problem::UnexpectedEnd, start),
        }
    }

    fn advance(&mut self) -> Result<Option<Value>, Fault> {
        let mut at = skip_space(self.text, self.at);
        match (self.text.get(at), self.state) {
            (Some(b']'), _) => {
                self.state = MembersState::Ended;
                self.at = at + 1;
                return Ok(None);
            }
            (Some(b','), MembersState::Later) => at += 1,
            (Some(_), MembersState::Later) => return fault(Problem::UnexpectedByte, at),
            (Some(_), _) => {}
            (None, _) => return fault(Problem::UnexpectedEnd, at),
        }
        let value = value(self.text, at, self.max_depth)?;
        self.at = value.end;
        self.state = MembersState::Later;
        Ok(Some(value))
    }
}

impl Iterator for Elements<'_> {
    type Item = Result<Value, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == MembersState::Ended {
            return None;
        }
        let step = self.advance().transpose();
        if matches!(step, Some(Err(_))) {
            self.state = MembersState::Ended;
        }
        step
    }
}

#[cfg(test)]
mod tests;
