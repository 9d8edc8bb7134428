//! Where events end in raw bytes, found from either side.
//!
//! An event ends with a blank line, and whether a line is blank can be told from the byte before its ending. So the
//! last event end of a read is found from the back, without looking at what lies before it, and the event around a
//! search hit without an index. All slices here begin at an event's start, behind a stream's byte-order mark.

use std::ops::Range;

use super::line::{CR, LF, behind_end, is_end};

/// Offset behind the first event of `bytes`; None when no event is whole.
///
/// The line feed of a CRLF belongs to the event where it is there; a CR that is the last byte ends the event all the
/// same.
#[must_use]
pub fn first_end(bytes: &[u8]) -> Option<usize> {
    first_end_after(None, bytes)
}

/// Like [`first_end`], where part of the event, with `before` as its last byte, lies ahead of `bytes`. None: nothing
/// lies ahead.
pub(super) fn first_end_after(before: Option<u8>, bytes: &[u8]) -> Option<usize> {
    let continues_crlf = before == Some(CR) && bytes.first() == Some(&LF);
    let mut at = usize::from(continues_crlf);
    let mut at_line_start = before.is_none_or(is_end);
    loop {
        let rest = bytes.get(at..)?;
        if at_line_start && is_end(*rest.first()?) {
            return Some(behind_end(bytes, at));
        }
        at = behind_end(bytes, at + memchr::memchr2(LF, CR, rest)?);
        at_line_start = true;
    }
}

/// Offset behind the last event of `bytes`; 0 when no event is whole. Reads from the back, only as far as that end.
///
/// ```
/// use sluicegate_core::sse::boundary::last_end;
///
/// let read = b"data: 1\n\ndata: 2\r\n\r\ndata: 3\n";
/// assert_eq!(last_end(read), 20);
/// ```
#[must_use]
pub fn last_end(bytes: &[u8]) -> usize {
    let mut end = bytes.len();
    while let Some(at) = bytes
        .get(..end)
        .and_then(|head| memchr::memrchr2(LF, CR, head))
    {
        let before = |at: usize| at.checked_sub(1).and_then(|i| bytes.get(i)).copied();
        let ends_crlf = bytes.get(at) == Some(&LF) && before(at) == Some(CR);
        let start = if ends_crlf { at - 1 } else { at };
        if before(start).is_none_or(is_end) {
            return at + 1;
        }
        end = start;
    }
    0
}

/// The event that holds the byte at `at`, as a range of `bytes`; None when that event is not whole or `at` lies
/// outside.
///
/// ```
/// use sluicegate_core::sse::boundary::event_around;
///
/// let read = b"data: 1\n\ndata: needle\n\ndata: 3\n\n";
/// let hit = memchr::memmem::find(read, b"needle").unwrap();
/// assert_eq!(&read[event_around(read, hit).unwrap()], b"data: needle\n\n");
/// ```
#[must_use]
pub fn event_around(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let inside_crlf =
        bytes.get(at) == Some(&LF) && at.checked_sub(1).is_some_and(|i| bytes.get(i) == Some(&CR));
    let start = last_end(bytes.get(..at - usize::from(inside_crlf))?);
    let end = start + first_end(bytes.get(start..)?)?;
    (at < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Event ends by the letter of the specification: lines from the start, one by one.
    fn ends(bytes: &[u8]) -> Vec<usize> {
        let (mut ends, mut at, mut line) = (Vec::new(), 0, 0);
        while at < bytes.len() {
            if !is_end(bytes[at]) {
                at += 1;
                continue;
            }
            let blank = at == line;
            at = behind_end(bytes, at);
            line = at;
            if blank {
                ends.push(at);
            }
        }
        ends
    }

    #[test]
    fn every_mix_of_line_endings_ends_an_event() {
        for (read, first, last) in [
            (&b"a\n\nb"[..], Some(3), 3),
            (b"a\r\n\r\nb\r\n\r\n", Some(5), 10),
            (b"a\r\rb\r\r", Some(3), 6),
            (b"a\n\r", Some(3), 3),
            (b"a\n\r\nb", Some(4), 4),
            (b"a\r\n\nb", Some(4), 4),
            (b"a\r\r\nb", Some(4), 4),
            (b"a\r\nb\r\n", None, 0),
            (b"a\r\n", None, 0),
            (b"\n", Some(1), 1),
            (b"\r\n", Some(2), 2),
            (b"\n\n\na", Some(1), 3),
            (b"\r\n\r\na", Some(2), 4),
            (b"", None, 0),
            (b"a", None, 0),
        ] {
            assert_eq!(
                first_end(read),
                first,
                "{:?}",
                read.escape_ascii().to_string()
            );
            assert_eq!(
                last_end(read),
                last,
                "{:?}",
                read.escape_ascii().to_string()
            );
        }
    }

    #[test]
    fn an_offset_outside_or_in_the_rest_has_no_event() {
        assert_eq!(event_around(b"a\n\nb", 3), None);
        assert_eq!(event_around(b"a\n\n", 3), None);
        assert_eq!(event_around(b"a\n\n", 4), None);
        assert_eq!(event_around(b"", 0), None);
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop::sample::select(b"\n\r\n\ra:".to_vec()), 0..40)
    }

    proptest! {
        #[test]
        fn both_directions_agree_with_reading_line_by_line(bytes in stream()) {
            let ends = ends(&bytes);
            prop_assert_eq!(first_end(&bytes), ends.first().copied());
            prop_assert_eq!(last_end(&bytes), ends.last().copied().unwrap_or(0));
            for at in 0..bytes.len() {
                let expected = ends.iter().position(|&end| at < end).map(|i| {
                    let start = i.checked_sub(1).map_or(0, |i| ends[i]);
                    start..ends[i]
                });
                prop_assert_eq!(event_around(&bytes, at), expected, "at {}", at);
            }
        }

        #[test]
        fn a_first_end_is_found_across_a_cut(bytes in stream(), cut in any::<prop::sample::Index>()) {
            let cut = cut.index(bytes.len() + 1);
            let (head, tail) = bytes.split_at(cut);
            if first_end(head).is_none() {
                let found = first_end_after(head.last().copied(), tail);
                prop_assert_eq!(found.map(|end| end + cut), first_end(&bytes));
            }
        }
    }
}
