//! Events are those that WHATWG HTML, section 9.2.6, dispatches, read here slowly and by the letter.

use bytes::Bytes;
use sluicegate_core::limits::Limits;
use sluicegate_core::sse::event::Interpreter;
use sluicegate_core::sse::splitter::Splitter;

use super::Cut;

#[derive(Debug, Default, PartialEq)]
struct Reading {
    /// Type, data and last event id.
    events: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>,
}

fn lines(body: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut line = Vec::new();
    let mut bytes = body.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\r' => {
                bytes.next_if_eq(&b'\n');
                lines.push(std::mem::take(&mut line));
            }
            b'\n' => lines.push(std::mem::take(&mut line)),
            _ => line.push(byte),
        }
    }
    lines
}

fn standard(body: &[u8]) -> Reading {
    let mut reading = Reading::default();
    let (mut data, mut name, mut id) = (Vec::new(), Vec::new(), Vec::new());
    for line in lines(body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body)) {
        if line.is_empty() {
            if !data.is_empty() {
                data.pop();
                let name = if name.is_empty() {
                    b"message".to_vec()
                } else {
                    name
                };
                reading.events.push((name, data, id.clone()));
            }
            (data, name) = (Vec::new(), Vec::new());
            continue;
        }
        let (field, value) = match line.iter().position(|&byte| byte == b':') {
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (&line[..], &b""[..]),
        };
        match field {
            b"event" => name = value.to_vec(),
            b"data" => {
                data.extend_from_slice(value);
                data.push(b'\n');
            }
            b"id" if !value.contains(&0) => id = value.to_vec(),
            _ => {}
        }
    }
    reading
}

fn ours(reads: &[Bytes]) -> Reading {
    let mut splitter = Splitter::new(&Limits::default());
    let mut interpreter = Interpreter::default();
    let mut reading = Reading::default();
    for read in reads {
        let (batch, fed) = splitter.feed(read.clone());
        fed.expect("inputs are small");
        for raw in batch.events() {
            if let Some(event) = interpreter.dispatch(&raw) {
                reading
                    .events
                    .push((event.name.to_vec(), event.data.to_vec(), event.id.to_vec()));
            }
        }
    }
    reading
}

/// Checks the property on one input.
pub fn check(input: &[u8]) {
    let Some(cut) = super::read::<Cut<'_>>(input) else {
        return;
    };
    assert_eq!(ours(&cut.reads()), standard(cut.body()));
}
