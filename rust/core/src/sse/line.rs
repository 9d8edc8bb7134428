//! Lines of an event stream and the fields they hold (WHATWG HTML, section 9.2, "Server-sent events").
//!
//! A line ends with LF, CRLF or a lone CR. Whether a byte ends a line can be told from the byte before it alone, so
//! lines can be found from any place in a stream, forwards and backwards.

use std::ops::Range;

/// Line feed.
pub(super) const LF: u8 = b'\n';
/// Carriage return.
pub(super) const CR: u8 = b'\r';
/// The byte-order mark that may begin a stream (U+FEFF as UTF-8).
pub(super) const BOM: &[u8; 3] = b"\xEF\xBB\xBF";

/// Whether `byte` is CR or LF.
#[must_use]
pub(super) const fn is_end(byte: u8) -> bool {
    byte == LF || byte == CR
}

/// Offset behind the line ending whose first byte, CR or LF, is at `at`.
pub(super) fn behind_end(bytes: &[u8], at: usize) -> usize {
    if bytes.get(at) == Some(&CR) && bytes.get(at + 1) == Some(&LF) {
        at + 2
    } else {
        at + 1
    }
}

/// How a line ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineEnd {
    /// `\n`
    #[default]
    Lf,
    /// `\r\n`
    CrLf,
    /// `\r`
    Cr,
}

impl LineEnd {
    /// The bytes of the ending.
    #[must_use]
    pub const fn as_bytes(self) -> &'static [u8] {
        match self {
            LineEnd::Lf => b"\n",
            LineEnd::CrLf => b"\r\n",
            LineEnd::Cr => b"\r",
        }
    }
}

/// The lines of `bytes`, as ranges without their endings. A last line without an ending is a line too; an empty one is
/// not.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    /// The lines of `bytes`, which must begin at a line's start.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Lines { bytes, at: 0 }
    }
}

impl Iterator for Lines<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        let start = self.at;
        match memchr::memchr2(LF, CR, rest) {
            Some(len) => {
                self.at = behind_end(self.bytes, start + len);
                Some(start..start + len)
            }
            None => {
                self.at = self.bytes.len();
                Some(start..self.bytes.len())
            }
        }
    }
}

/// One parsed line. The slices borrow from the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// Nothing: the event ends here.
    Blank,
    /// A line that begins with a colon; the text behind the colon, nothing dropped.
    Comment(&'a [u8]),
    /// Any other line.
    Field {
        /// What stands before the first colon, or the whole line. Compared exactly, case included.
        name: &'a [u8],
        /// What stands behind the colon, less one leading space. Empty where there is no colon.
        value: &'a [u8],
    },
}

impl<'a> Line<'a> {
    /// Reads a line, given without its ending.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Self {
        if line.is_empty() {
            return Line::Blank;
        }
        match memchr::memchr(b':', line) {
            Some(0) => Line::Comment(line.get(1..).unwrap_or_default()),
            Some(colon) => {
                let (name, rest) = line.split_at(colon);
                let value = rest.get(1..).unwrap_or_default();
                Line::Field {
                    name,
                    value: value.strip_prefix(b" ").unwrap_or(value),
                }
            }
            None => Line::Field {
                name: line,
                value: &[],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(bytes: &[u8]) -> Vec<&[u8]> {
        Lines::new(bytes).map(|range| &bytes[range]).collect()
    }

    #[test]
    fn lf_crlf_and_a_lone_cr_end_a_line() {
        assert_eq!(texts(b"a\nb\r\nc\rd"), [&b"a"[..], b"b", b"c", b"d"]);
        assert_eq!(texts(b"\r\n\n\r\r"), [&b""[..], b"", b"", b""]);
        assert_eq!(texts(b"a\n\r"), [&b"a"[..], b""]);
        assert!(texts(b"").is_empty());
    }

    #[test]
    fn a_field_loses_one_space_and_only_one() {
        let field = |name, value| Line::Field { name, value };
        assert_eq!(Line::parse(b"data:x"), field(b"data", b"x"));
        assert_eq!(Line::parse(b"data: x"), field(b"data", b"x"));
        assert_eq!(Line::parse(b"data:  x "), field(b"data", b" x "));
        assert_eq!(Line::parse(b"data:\tx"), field(b"data", b"\tx"));
        assert_eq!(Line::parse(b"data: a: b"), field(b"data", b"a: b"));
        assert_eq!(Line::parse(b" data:x"), field(b" data", b"x"));
        assert_eq!(Line::parse(b"data"), field(b"data", b""));
        assert_eq!(Line::parse(b"data:"), field(b"data", b""));
    }

    #[test]
    fn a_line_that_begins_with_a_colon_is_a_comment() {
        assert_eq!(Line::parse(b": ping"), Line::Comment(b" ping"));
        assert_eq!(Line::parse(b":"), Line::Comment(b""));
        assert_eq!(Line::parse(b""), Line::Blank);
    }
}
