//! What is written as an event is read back, and nothing breaks out of a name, a comment or the data.

use sluicegate_core::sse::encode;
use sluicegate_core::sse::event::{Events, Interpreter};

/// Checks the property on one input.
pub fn check(input: &[u8]) {
    let Some(input) = super::read::<(&str, &str, &[u8])>(input) else {
        return;
    };
    let (text, name, data) = input;
    let mut stream = Vec::new();
    encode::comment(text, &mut stream);
    encode::event(name, data, &mut stream);
    let mut events = Events::new(&stream);
    let comment = events.next().expect("a comment was written");
    assert!(comment.is_comment_only());
    let raw = events.next().expect("an event was written");
    assert!(events.next().is_none() && events.rest().is_empty());
    let mut interpreter = Interpreter::default();
    let event = interpreter.dispatch(&raw).expect("an event has data");
    let name: String = name
        .chars()
        .filter(|char| !matches!(char, '\r' | '\n'))
        .collect();
    let expected = if name.is_empty() {
        b"message"
    } else {
        name.as_bytes()
    };
    assert_eq!(event.name, expected);
    let mut lines = Vec::new();
    let mut at = 0;
    while let Some(&byte) = data.get(at) {
        at += if data[at..].starts_with(b"\r\n") {
            2
        } else {
            1
        };
        lines.push(if byte == b'\r' { b'\n' } else { byte });
    }
    assert_eq!(*event.data, lines);
}
