//! Reading a JSON text once, from front to back, going into the objects and arrays that matter and skipping the rest.
//!
//! As strict as [`scan`](super::scan) is of values, and as frugal: no allocation, and no recursion but the caller's
//! own.

use super::scan::{Fault, Kind, Problem, Value, skip_space, value};
use super::string;

/// A place in a text, in front of a value.
///
/// ```
/// use sluicegate_core::json::cursor::Cursor;
///
/// let text = br#"{"choices": [{"index": 0}, {"index": 1}], "model": "m"}"#;
/// let mut choices = 0;
/// let mut cursor = Cursor::new(text, 64);
/// cursor.members(|cursor, key| {
///     if key.content(text) == b"choices" {
///         cursor.elements(|cursor| {
///             choices += 1;
///             cursor.skip().map(drop)
///         })
///     } else {
///         cursor.skip()
///     }
///     .map(drop)
/// })?;
/// cursor.end()?;
/// assert_eq!(choices, 2);
/// # Ok::<(), sluicegate_core::json::scan::Fault>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    room: usize,
}

impl<'a> Cursor<'a> {
    /// At the start of `text`; at most `max_depth` containers may be open.
    #[must_use]
    pub fn new(text: &'a [u8], max_depth: usize) -> Self {
        Cursor {
            text,
            at: 0,
            room: max_depth,
        }
    }

    /// Offset of the next byte to read.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at
    }

    fn fault<T>(&self, problem: Problem) -> Result<T, Fault> {
        Err(Fault {
            problem,
            offset: self.at,
        })
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Result<u8, Fault> {
        self.at = skip_space(self.text, self.at);
        match self.text.get(self.at) {
            Some(&byte) => Ok(byte),
            None => self.fault(Problem::UnexpectedEnd),
        }
    }

    /// What the next value is, by its first byte.
    ///
    /// # Errors
    /// The text ends, or no value begins here.
    pub fn kind(&mut self) -> Result<Kind, Fault> {
        match self.peek()? {
            b'{' => Ok(Kind::Object),
            b'[' => Ok(Kind::Array),
            b'"' => Ok(Kind::String),
            b't' => Ok(Kind::True),
            b'f' => Ok(Kind::False),
            b'n' => Ok(Kind::Null),
            b'-' | b'0'..=b'9' => Ok(Kind::Number),
            _ => self.fault(Problem::UnexpectedByte),
        }
    }

    /// Passes over the next value, whatever it holds.
    ///
    /// # Errors
    /// The value is malformed.
    #[inline]
    pub fn skip(&mut self) -> Result<Value, Fault> {
        let value = value(self.text, self.at, self.room)?;
        self.at = value.end;
        Ok(value)
    }

    /// Passes over the next value; where it is an object, `visit` is called in front of each member's value, with its
    /// key, and must pass over that value.
    ///
    /// # Errors
    /// The value is malformed, or `visit` says so.
    #[inline]
    pub fn members(
        &mut self,
        mut visit: impl FnMut(&mut Self, Value) -> Result<(), Fault>,
    ) -> Result<Value, Fault> {
        if self.peek()? != b'{' {
            return self.skip();
        }
        let start = self.enter()?;
        if self.peek()? == b'}' {
            return Ok(self.leave(Kind::Object, start));
        }
        loop {
            if self.peek()? != b'"' {
                return self.fault(Problem::UnexpectedByte);
            }
            let key = Value {
                kind: Kind::String,
                start: self.at,
                end: string::skip(self.text, self.at)?,
            };
            self.at = key.end;
            if self.peek()? != b':' {
                return self.fault(Problem::UnexpectedByte);
            }
            self.at += 1;
            visit(self, key)?;
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => return Ok(self.leave(Kind::Object, start)),
                _ => return self.fault(Problem::UnexpectedByte),
            }
        }
    }

    /// Passes over the next value; where it is an array, `visit` is called in front of each of its values and must pass
    /// over it.
    ///
    /// # Errors
    /// The value is malformed, or `visit` says so.
    #[inline]
    pub fn elements(
        &mut self,
        mut visit: impl FnMut(&mut Self) -> Result<(), Fault>,
    ) -> Result<Value, Fault> {
        if self.peek()? != b'[' {
            return self.skip();
        }
        let start = self.enter()?;
        if self.peek()? == b']' {
            return Ok(self.leave(Kind::Array, start));
        }
        loop {
            visit(self)?;
            match self.peek()? {
                b',' => self.at += 1,
                b']' => return Ok(self.leave(Kind::Array, start)),
                _ => return self.fault(Problem::UnexpectedByte),
            }
        }
    }

    fn enter(&mut self) -> Result<usize, Fault> {
        let Some(room) = self.room.checked_sub(1) else {
            return self.fault(Problem::TooDeep);
        };
        self.room = room;
        self.at += 1;
        Ok(self.at - 1)
    }

    fn leave(&mut self, kind: Kind, start: usize) -> Value {
        self.room += 1;
        self.at += 1;
        Value {
            kind,
            start,
            end: self.at,
        }
    }

    /// Checks that nothing but white space is left.
    ///
    /// # Errors
    /// Something is.
    pub fn end(mut self) -> Result<(), Fault> {
        self.at = skip_space(self.text, self.at);
        if self.at < self.text.len() {
            return self.fault(Problem::TrailingBytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::scan::document;
    use super::*;
    use proptest::prelude::*;

    /// Goes into every container, by recursion: the reading that must agree with [`document`].
    fn walk(cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        match cursor.kind()? {
            Kind::Object => cursor.members(|cursor, _| walk(cursor)),
            Kind::Array => cursor.elements(walk),
            _ => cursor.skip(),
        }
        .map(drop)
    }

    fn read(text: &[u8], max_depth: usize) -> Result<(), Fault> {
        let mut cursor = Cursor::new(text, max_depth);
        walk(&mut cursor)?;
        cursor.end()
    }

    #[test]
    fn a_value_that_is_no_container_is_passed_over() {
        let mut cursor = Cursor::new(b" 12 ", 1);
        let value = cursor.members(|_, _| Ok(())).unwrap();
        assert_eq!((value.kind, value.range()), (Kind::Number, 1..3));
        cursor.end().unwrap();
    }

    #[test]
    fn a_visitor_that_passes_over_nothing_is_a_fault() {
        assert!(Cursor::new(b"{\"a\":1}", 8).members(|_, _| Ok(())).is_err());
        assert!(Cursor::new(b"[1]", 8).elements(|_| Ok(())).is_err());
    }

    #[test]
    fn depth_is_bounded() {
        assert!(read(b"[{\"a\":[]}]", 3).is_ok());
        let fault = read(b"[{\"a\":[]}]", 2).unwrap_err();
        assert_eq!((fault.problem, fault.offset), (Problem::TooDeep, 6));
    }

    proptest! {
        #[test]
        fn agrees_with_the_scanner(text in proptest::collection::vec(prop::sample::select(br#"{}[]:,"\ utrefalsn01-.e "#.to_vec()), 0..24)) {
            let scanned = document(&text, 8).map(drop);
            prop_assert_eq!(read(&text, 8), scanned);
        }

        #[test]
        fn agrees_with_the_scanner_on_damage(at in 0usize..70, byte in any::<u8>()) {
            let mut text = br#"{"a":[1,2.5e3,{"b":null,"c":[true,false,"x\u00e9"]}],"d":{},"e":[]}"#.to_vec();
            let at = at % text.len();
            text[at] = byte;
            let scanned = document(&text, 8).map(drop);
            // Whether a text is UTF-8 is asked of a whole document only.
            let is_other = |fault: &Fault| fault.problem != Problem::InvalidUtf8;
            let scanned = scanned.or_else(|fault| if is_other(&fault) { Err(fault) } else { Ok(()) });
            prop_assert_eq!(read(&text, 8), scanned);
        }
    }
}
