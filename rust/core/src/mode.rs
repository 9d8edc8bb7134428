//! What an upstream's reply is, told from its first byte.
//!
//! The bytes decide, not the `Content-Type`: upstreams send event streams as `text/plain` and `application/json`, and JSON as
//! `text/event-stream`.

use bytes::Bytes;

use crate::limits::MAX_UNDECIDED;

/// How a reply's bytes are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// An event stream (WHATWG HTML, server-sent events).
    Sse,
    /// One JSON document, or several back to back.
    Json,
    /// Anything else: forwarded untouched.
    Opaque,
}

impl Mode {
    /// The mode that a reply's first byte behind white space and byte-order marks tells.
    ///
    /// An event stream begins with one of its field names (`data`, `event`, `id`, `retry`) or a comment.
    #[must_use]
    pub const fn from_first_byte(byte: u8) -> Self {
        match byte {
            b'd' | b'e' | b'i' | b'r' | b':' => Mode::Sse,
            b'{' | b'[' => Mode::Json,
            _ => Mode::Opaque,
        }
    }
}

/// Tells a reply's mode, and holds the bytes that came before that was possible.
///
/// ```
/// use bytes::Bytes;
/// use sluicegate_core::mode::{Mode, ModeDetector};
///
/// let mut detector = ModeDetector::default();
/// assert_eq!(detector.feed(Bytes::from_static(b"\n\n")), None);
/// let (mode, bytes) = detector.feed(Bytes::from_static(b" {}")).unwrap();
/// assert_eq!((mode, &bytes[..]), (Mode::Json, &b"\n\n {}"[..]));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ModeDetector {
    held: Vec<u8>,
    /// Bytes of a byte-order mark at the end of `held`, 0 to 2.
    mark: usize,
}

impl ModeDetector {
    /// Takes in a read. Some: the mode, and everything that came so far, to be read in that mode; the detector is then spent.
    /// The read itself is handed back uncopied where nothing was held.
    ///
    /// More white space than [`MAX_UNDECIDED`] bytes is opaque.
    pub fn feed(&mut self, input: Bytes) -> Option<(Mode, Bytes)> {
        let mode = match self.first_byte(&input) {
            // However the bytes were cut: what would have been too late by itself is too late behind white space as well.
            Some((at, _)) if self.held.len() + at > MAX_UNDECIDED => Mode::Opaque,
            Some((_, byte)) => Mode::from_first_byte(byte),
            None if self.held.len() + input.len() > MAX_UNDECIDED => Mode::Opaque,
            None => {
                self.held.extend_from_slice(&input);
                return None;
            }
        };
        if self.held.is_empty() {
            return Some((mode, input));
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(&input);
        Some((mode, all.into()))
    }

    /// The reply ended undecided: what was held, which is opaque. Empty where nothing came.
    #[must_use]
    pub fn finish(self) -> Bytes {
        self.held.into()
    }

    /// The first byte that is neither white space nor of a byte-order mark, and where in `input` that was clear. A broken mark's first
    /// byte counts as one of its own.
    fn first_byte(&mut self, input: &[u8]) -> Option<(usize, u8)> {
        const MARK: &[u8; 3] = b"\xEF\xBB\xBF";
        for (at, &byte) in input.iter().enumerate() {
            if MARK.get(self.mark) == Some(&byte) {
                self.mark = (self.mark + 1) % MARK.len();
            } else if self.mark > 0 {
                return Some((at, MARK[0]));
            } else if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some((at, byte));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told<'a>(reads: impl IntoIterator<Item = &'a [u8]>) -> (Option<Mode>, Vec<u8>) {
        let mut detector = ModeDetector::default();
        let mut reads = reads.into_iter();
        for read in reads.by_ref() {
            if let Some((mode, bytes)) = detector.feed(Bytes::copy_from_slice(read)) {
                let rest: Vec<u8> = reads.flatten().copied().collect();
                return (Some(mode), [&bytes[..], &rest].concat());
            }
        }
        (None, detector.finish().to_vec())
    }

    #[test]
    fn the_first_byte_tells_the_mode() {
        for (body, mode) in [
            (&b"data: {}\n\n"[..], Mode::Sse),
            (b"event: x", Mode::Sse),
            (b"id: 1", Mode::Sse),
            (b"retry: 1", Mode::Sse),
            (b": ping", Mode::Sse),
            (b"{}", Mode::Json),
            (b"[1]", Mode::Json),
            (b" \t\r\n{", Mode::Json),
            (b"\xEF\xBB\xBFdata", Mode::Sse),
            (b"\xEF\xBB\xBF\xEF\xBB\xBF{", Mode::Json),
            (b"\n\xEF\xBB\xBF\n:", Mode::Sse),
            (b"<html>", Mode::Opaque),
            (b"\"text\"", Mode::Opaque),
            (b"\xEF\xBBdata", Mode::Opaque),
            (b"\xEF\xBB\n", Mode::Opaque),
            (b"\x1F\x8B", Mode::Opaque),
        ] {
            assert_eq!(told([body]), (Some(mode), body.to_vec()));
        }
        for undecided in [&b""[..], b" \n", b"\xEF\xBB\xBF", b"\xEF\xBB"] {
            assert_eq!(told([undecided]), (None, undecided.to_vec()));
        }
    }

    #[test]
    fn a_deciding_read_is_handed_back_uncopied() {
        let read = Bytes::from_static(b"\ndata: 1\n\n");
        let (_, bytes) = ModeDetector::default().feed(read.clone()).unwrap();
        assert_eq!(bytes.as_ptr(), read.as_ptr());
    }

    #[test]
    fn white_space_is_not_held_without_end() {
        let mut detector = ModeDetector::default();
        let read = Bytes::from(vec![b'\n'; 1000]);
        let mut reads = 1;
        let (mode, bytes) = loop {
            match detector.feed(read.clone()) {
                Some(told) => break told,
                None => reads += 1,
            }
        };
        assert_eq!(mode, Mode::Opaque);
        assert_eq!(bytes.len(), reads * 1000);
        assert!(bytes.len() > MAX_UNDECIDED && bytes.len() <= MAX_UNDECIDED + 1000);
    }

    #[test]
    fn the_bound_on_white_space_does_not_depend_on_cuts() {
        for (before, mode) in [
            (MAX_UNDECIDED, Mode::Json),
            (MAX_UNDECIDED + 1, Mode::Opaque),
        ] {
            let mut body = vec![b' '; before];
            body.push(b'{');
            for size in [1, 7, 4096, body.len()] {
                assert_eq!(told(body.chunks(size)), (Some(mode), body.clone()));
            }
        }
    }

    proptest! {
        #[test]
        fn any_cut_tells_the_same_and_loses_nothing(
            body in proptest::collection::vec(prop::sample::select(b" \n\xEF\xBB\xBF\xEF\xBB\xBF{d<".to_vec()), 0..12),
            at in any::<prop::sample::Index>(),
        ) {
            let whole = told([&body[..]]);
            prop_assert_eq!(&whole.1, &body);
            let (head, tail) = body.split_at(at.index(body.len() + 1));
            prop_assert_eq!(&told([head, tail]), &whole);
            prop_assert_eq!(&told(body.chunks(1)), &whole);
        }
    }
}
