//! Whether an upstream's reply is an event stream or JSON, recognised by the first bytes of its body.
//!
//! The bytes decide before the `Content-Type`: upstreams send event streams as `text/plain` and `application/json`, and
//! JSON as `text/event-stream`. What neither shows to be JSON or an event stream is no reply of the API: the HTML page
//! of a wrong base URL, a proxy's plain text.

use bytes::Bytes;

use crate::error::{Error, ErrorKind};
use crate::limits::{MAX_QUOTE, MAX_UNDECIDED};

/// How a reply's bytes are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// An event stream (WHATWG HTML, server-sent events).
    Sse,
    /// One JSON document, or several back to back.
    Json,
    /// Bytes that nobody reads on the way: audio, subtitles, a file.
    Bytes,
}

/// A body that is no reply of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// How it begins, for people: at most [`MAX_QUOTE`] characters and an ellipsis, without control characters and runs
    /// of white space. Empty where more than [`MAX_UNDECIDED`] bytes of white space came.
    pub quote: Box<str>,
    /// Bytes of the body to the first that is neither white space nor of a byte-order mark.
    pub offset: u64,
}

impl From<&Foreign> for Error {
    fn from(foreign: &Foreign) -> Self {
        Error::new(ErrorKind::NotAReply, foreign.offset)
    }
}

/// Bytes that hold [`MAX_QUOTE`] characters, whatever they are.
const QUOTED_BYTES: usize = 4 * MAX_QUOTE;

const MARK: &[u8; 3] = b"\xEF\xBB\xBF";

/// Tells a reply's mode, and holds the bytes that came before that was possible.
///
/// ```
/// use bytes::Bytes;
/// use sluicegate_core::mode::{Mode, ModeDetector};
///
/// let mut detector = ModeDetector::new(false);
/// assert_eq!(detector.feed(Bytes::from_static(b"\n\n")), Ok(None));
/// let (mode, bytes) = detector.feed(Bytes::from_static(b" {}"))?.unwrap();
/// assert_eq!((mode, &bytes[..]), (Mode::Json, &b"\n\n {}"[..]));
///
/// let mut detector = ModeDetector::new(false);
/// assert_eq!(detector.feed(Bytes::from_static(b"it works\n")), Ok(None));
/// assert_eq!(&*detector.finish().unwrap_err().quote, "it works");
/// # Ok::<(), sluicegate_core::mode::Foreign>(())
/// ```
#[derive(Clone, Debug)]
pub struct ModeDetector {
    declared_stream: bool,
    held: Vec<u8>,
    /// Bytes of a byte-order mark at the end of `held`, 0 to 2.
    mark: usize,
    /// Where the text behind white space and marks begins, once it has.
    begin: Option<usize>,
}

impl ModeDetector {
    /// A detector for one body. `declared_stream`: its `Content-Type` is `text/event-stream`, so that it is one unless
    /// it is JSON.
    #[must_use]
    pub const fn new(declared_stream: bool) -> Self {
        ModeDetector {
            declared_stream,
            held: Vec::new(),
            mark: 0,
            begin: None,
        }
    }

    /// Takes in a read. Some: the mode, and everything that came so far, to be read in that mode; the detector is then
    /// spent. The read itself is handed back uncopied where nothing was held.
    ///
    /// # Errors
    /// What came is no reply of the API, and enough of it came to quote; or more than [`MAX_UNDECIDED`] bytes of white
    /// space did.
    pub fn feed(&mut self, input: Bytes) -> Result<Option<(Mode, Bytes)>, Foreign> {
        let before = self.held.len();
        self.find_begin(&input);
        if before > 0 {
            self.held.extend_from_slice(&input);
        }
        let so_far = if before > 0 {
            &self.held[..]
        } else {
            &input[..]
        };
        // However the bytes were cut: an unfinished mark may still prove to be the beginning.
        let space = self.begin.unwrap_or(so_far.len() - self.mark);
        let is_late = space > MAX_UNDECIDED;
        let text = &so_far[self.begin.unwrap_or(so_far.len())..];
        let told = match (is_late, text) {
            (false, b"") => None,
            (false, text) => self.told(text),
            (true, _) => self.declared_stream.then_some(Mode::Sse),
        };
        if let Some(mode) = told {
            let all = if before > 0 {
                std::mem::take(&mut self.held).into()
            } else {
                input
            };
            return Ok(Some((mode, all)));
        }
        if is_late {
            return Err(Foreign {
                quote: "".into(),
                offset: MAX_UNDECIDED as u64,
            });
        }
        if text.len() >= QUOTED_BYTES {
            return Err(self.foreign(space, &text[..QUOTED_BYTES]));
        }
        if before == 0 {
            self.held.extend_from_slice(&input);
        }
        Ok(None)
    }

    /// The reply ended undecided: what was held, which is nothing but white space and byte-order marks.
    ///
    /// # Errors
    /// It is no reply of the API.
    pub fn finish(self) -> Result<Bytes, Foreign> {
        match self.begin {
            Some(begin) => Err(self.foreign(begin, &self.held[begin..])),
            None => Ok(self.held.into()),
        }
    }

    /// The mode of a body whose text begins like this. None: it is none, or more must come to tell.
    fn told(&self, text: &[u8]) -> Option<Mode> {
        const FIELDS: [&[u8]; 4] = [b"data", b"event", b"id", b"retry"];
        match text.first() {
            Some(b'{' | b'[') => return Some(Mode::Json),
            Some(b':') => return Some(Mode::Sse),
            _ if self.declared_stream => return Some(Mode::Sse),
            _ => {}
        }
        FIELDS
            .iter()
            .filter_map(|field| text.strip_prefix(*field)?.first())
            .any(|next| matches!(next, b':' | b'\n' | b'\r'))
            .then_some(Mode::Sse)
    }

    fn foreign(&self, offset: usize, text: &[u8]) -> Foreign {
        Foreign {
            quote: quote(text),
            offset: offset as u64,
        }
    }

    /// Looks for the first byte that is neither white space nor of a byte-order mark. A broken mark's first byte is
    /// one.
    fn find_begin(&mut self, input: &[u8]) {
        if self.begin.is_some() {
            return;
        }
        let before = self.held.len();
        for (at, &byte) in input.iter().enumerate() {
            if MARK.get(self.mark) == Some(&byte) {
                self.mark = (self.mark + 1) % MARK.len();
            } else if self.mark > 0 || !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                self.begin = Some(before + at - self.mark);
                return;
            }
        }
    }
}

/// The beginning of `text` as one line for people.
fn quote(text: &[u8]) -> Box<str> {
    let text = String::from_utf8_lossy(text);
    let line = text
        .split(|c: char| c.is_control() || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    match line.char_indices().nth(MAX_QUOTE) {
        Some((end, _)) => format!("{}…", &line[..end]).into(),
        None => line.into(),
    }
}

#[cfg(test)]
mod tests;
