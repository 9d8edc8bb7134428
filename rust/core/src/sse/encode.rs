//! Writing events.
//!
//! `id` and `retry` are never written: a client that has seen an id takes a later comment for an event
//! (`openai-python#2722`).

use super::line::Lines;

/// Appends one event with `data`, and with `name` as its type unless that is empty.
///
/// Data of several lines becomes several `data` lines; a reader gets LF for each of its line endings, whatever they
/// were. Line endings in `name` would begin another field and are left out.
pub fn event(name: &str, data: &[u8], out: &mut Vec<u8>) {
    out.reserve(data.len() + name.len() + 24);
    if !name.is_empty() {
        out.extend_from_slice(b"event: ");
        out.extend(name.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')));
        out.push(b'\n');
    }
    prefixed_lines(b"data: ", data, out);
    out.push(b'\n');
}

/// Appends one comment, which readers pass over: a keep-alive.
pub fn comment(text: &str, out: &mut Vec<u8>) {
    prefixed_lines(b": ", text.as_bytes(), out);
    out.push(b'\n');
}

fn prefixed_lines(prefix: &[u8], text: &[u8], out: &mut Vec<u8>) {
    for line in Lines::new(text) {
        out.extend_from_slice(prefix);
        out.extend_from_slice(text.get(line).unwrap_or_default());
        out.push(b'\n');
    }
    // `Lines` has no line for what is behind the last ending when that is empty, but the reader's data would lack its
    // LF.
    if text.last().is_none_or(|byte| matches!(byte, b'\r' | b'\n')) {
        out.extend_from_slice(prefix);
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sse::event::{Events, Interpreter, RawEvent};
    use proptest::prelude::*;

    fn encoded(name: &str, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        event(name, data, &mut out);
        out
    }

    #[test]
    fn events_are_written_as_others_write_them() {
        assert_eq!(encoded("", b"{}"), b"data: {}\n\n");
        assert_eq!(encoded("ping", b"{}"), b"event: ping\ndata: {}\n\n");
        assert_eq!(encoded("", b"a\nb"), b"data: a\ndata: b\n\n");
        assert_eq!(encoded("", b""), b"data: \n\n");
        assert_eq!(encoded("", b" a\n"), b"data:  a\ndata: \n\n");
    }

    #[test]
    fn nothing_breaks_out_of_a_name_or_a_comment() {
        assert_eq!(
            encoded("a\r\ndata: b", b"1"),
            b"event: adata: b\ndata: 1\n\n"
        );
        let mut out = Vec::new();
        comment("a\ndata: 1\r\n\r\nb", &mut out);
        assert_eq!(out, b": a\n: data: 1\n: \n: b\n\n");
        assert!(RawEvent::parse(&out).is_comment_only());
        out.clear();
        comment("", &mut out);
        assert!(RawEvent::parse(&out).is_comment_only());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            events in proptest::collection::vec(("[a-z.]{0,9}", "([ -~]|\n|\u{e9}|\u{1F600}|\u{FEFF})*"), 0..6),
        ) {
            let mut stream = Vec::new();
            for (name, data) in &events {
                comment(data, &mut stream);
                event(name, data.as_bytes(), &mut stream);
            }
            let mut interpreter = Interpreter::default();
            let mut read = Vec::new();
            for raw in Events::new(&stream) {
                if let Some(event) = interpreter.dispatch(&raw) {
                    let name = if event.name == b"message" { &b""[..] } else { event.name };
                    read.push((name.to_vec(), event.data.to_vec()));
                }
            }
            let written: Vec<_> = events.into_iter().map(|(name, data)| (name.into_bytes(), data.into_bytes())).collect();
            prop_assert_eq!(read, written);
        }

        #[test]
        fn any_data_keeps_its_framing(data in proptest::collection::vec(any::<u8>(), 0..60)) {
            let out = encoded("", &data);
            let mut events = Events::new(&out);
            let read = events.next().unwrap().data().unwrap().into_bytes().into_owned();
            prop_assert!(events.next().is_none() && events.rest().is_empty());
            let lf_only = String::from_utf8_lossy(&data).replace("\r\n", "\n").replace('\r', "\n");
            prop_assert_eq!(String::from_utf8_lossy(&read), lf_only);
        }
    }
}
