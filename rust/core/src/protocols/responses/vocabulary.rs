//! The JSON of the Responses interface: events, items, parts. It is written straight into the stream's bytes.
//!
//! Every event is written whole, with LF, its name equal to its `type`, and without `id` (Open Responses, "Streaming").
//! Text comes spelled, as it stands between the quotes of a JSON string.

use crate::json::string::encode;
use crate::output::Failure;

/// Numbers the events of one response, and writes them, or only numbers nothing where the client wants no events.
#[derive(Debug)]
pub(super) struct Journal {
    shown: bool,
    next: u64,
}

impl Journal {
    /// `shown`: the client wants events.
    pub(super) fn new(shown: bool) -> Self {
        Journal { shown, next: 0 }
    }

    /// Goes on behind the event with this number, which another wrote.
    pub(super) fn after(last: Option<u64>) -> Self {
        Journal {
            shown: true,
            next: last.map_or(0, |last| last.saturating_add(1)),
        }
    }

    /// The number of the next event.
    pub(super) fn following(&self) -> u64 {
        self.next
    }

    pub(super) fn is_shown(&self) -> bool {
        self.shown
    }

    /// Appends one event; `members` appends its members other than `type` and `sequence_number`, each with a comma
    /// before it.
    pub(super) fn event(
        &mut self,
        kind: &str,
        out: &mut Vec<u8>,
        members: impl FnOnce(&mut Vec<u8>),
    ) {
        if !self.shown {
            return;
        }
        out.extend_from_slice(&opening(kind));
        number(self.take_number(), out);
        members(out);
        out.extend_from_slice(b"}\n\n");
    }

    /// Appends the `error` event with the reason why the response fails.
    pub(super) fn error(&mut self, failure: Failure<'_>, out: &mut Vec<u8>) {
        self.event("error", out, |out| {
            key("code", out);
            match failure.code.or(failure.kind) {
                Some(code) => encode(code, out),
                None => out.extend_from_slice(b"null"),
            }
            key("message", out);
            encode(failure.message, out);
            raw("param", b"null", out);
        });
    }

    /// Appends one event of text.
    #[inline]
    pub(super) fn delta(
        &mut self,
        delta: &Delta,
        text: &[u8],
        logprobs: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) {
        if !self.shown {
            return;
        }
        // At once: there is one for each token.
        let tail = if delta.has_logprobs { TAIL } else { SHORT_TAIL };
        out.reserve(delta.head.len() + delta.middle.len() + text.len() + tail.len() + 20);
        out.extend_from_slice(&delta.head);
        number(self.take_number(), out);
        out.extend_from_slice(&delta.middle);
        out.extend_from_slice(text);
        match logprobs {
            Some(logprobs) if delta.has_logprobs => {
                out.extend_from_slice(b"\",\"logprobs\":[");
                out.extend_from_slice(logprobs);
                out.extend_from_slice(b"]}\n\n");
            }
            _ => out.extend_from_slice(tail),
        }
    }

    fn take_number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }
}

const TAIL: &[u8] = b"\",\"logprobs\":[]}\n\n";
const SHORT_TAIL: &[u8] = b"\"}\n\n";

/// An event up to its number.
fn opening(kind: &str) -> Vec<u8> {
    let parts = [
        "event: ",
        kind,
        "\ndata: {\"type\":\"",
        kind,
        "\",\"sequence_number\":",
    ];
    parts.concat().into_bytes()
}

/// What the deltas of one text have in common.
#[derive(Debug)]
pub(super) struct Delta {
    head: Vec<u8>,
    middle: Vec<u8>,
    has_logprobs: bool,
}

impl Delta {
    /// Deltas of type `kind`; `place` has the members that name the item and the part, each with a comma before it.
    pub(super) fn new(kind: &str, place: &[u8]) -> Self {
        Delta {
            head: opening(kind),
            middle: [place, b",\"delta\":\""].concat(),
            has_logprobs: kind == "response.output_text.delta",
        }
    }
}

/// What text is, and how that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    Text,
    Refusal,
    Reasoning,
    Summary,
}

impl PartKind {
    /// The type of its events, up to the last dot.
    pub(super) fn stem(self) -> &'static str {
        match self {
            PartKind::Text => "response.output_text",
            PartKind::Refusal => "response.refusal",
            PartKind::Reasoning => "response.reasoning_text",
            PartKind::Summary => "response.reasoning_summary_text",
        }
    }

    /// The stem of the events that open and close it.
    pub(super) fn frame(self) -> &'static str {
        match self {
            PartKind::Summary => "response.reasoning_summary_part",
            _ => "response.content_part",
        }
    }

    /// What a part's place in its item is called.
    pub(super) fn index(self) -> &'static str {
        match self {
            PartKind::Summary => "summary_index",
            _ => "content_index",
        }
    }

    /// The member of a `done` event that has the whole text.
    pub(super) fn whole(self) -> &'static str {
        match self {
            PartKind::Refusal => "refusal",
            _ => "text",
        }
    }

    /// Appends the part as an object. `annotations` and `logprobs` are what stands between an array's brackets.
    pub(super) fn write(self, text: &[u8], annotations: &[u8], logprobs: &[u8], out: &mut Vec<u8>) {
        let head: &[u8] = match self {
            PartKind::Text => b"{\"type\":\"output_text\",\"text\":\"",
            PartKind::Refusal => b"{\"type\":\"refusal\",\"refusal\":\"",
            PartKind::Reasoning => b"{\"type\":\"reasoning_text\",\"text\":\"",
            PartKind::Summary => b"{\"type\":\"summary_text\",\"text\":\"",
        };
        out.extend_from_slice(head);
        out.extend_from_slice(text);
        out.push(b'"');
        if self == PartKind::Text {
            list("annotations", annotations, out);
            list("logprobs", logprobs, out);
        }
        out.push(b'}');
    }
}

/// How far an item has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    InProgress,
    Completed,
    Incomplete,
}

impl Status {
    pub(super) fn word(self) -> &'static str {
        match self {
            Status::InProgress => "in_progress",
            Status::Completed => "completed",
            Status::Incomplete => "incomplete",
        }
    }
}

/// Appends an item as far as all items are alike: `{"type":…,"id":…,"status":…`.
pub(super) fn item_head(kind: &str, id: &[u8], status: Status, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.push(b'"');
    string("id", id, out);
    string("status", status.word().as_bytes(), out);
}

/// Appends `,"name":"…"`.
pub(super) fn string(name: &str, spelled: &[u8], out: &mut Vec<u8>) {
    key(name, out);
    out.push(b'"');
    out.extend_from_slice(spelled);
    out.push(b'"');
}

/// Appends `,"name":[…]`.
pub(super) fn list(name: &str, interior: &[u8], out: &mut Vec<u8>) {
    key(name, out);
    out.push(b'[');
    out.extend_from_slice(interior);
    out.push(b']');
}

/// Appends `,"name":value`.
pub(super) fn raw(name: &str, value: &[u8], out: &mut Vec<u8>) {
    key(name, out);
    out.extend_from_slice(value);
}

/// Appends `,"name":12`.
pub(super) fn count(name: &str, value: u64, out: &mut Vec<u8>) {
    key(name, out);
    number(value, out);
}

/// Appends `,"name":`.
pub(super) fn key(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Appends a number in decimal digits.
#[inline]
pub(super) fn number(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut length = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
        length += 1;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(20 - length..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        for value in [0, 7, 10, 99, 100, 12_345, u64::MAX] {
            let mut out = Vec::new();
            number(value, &mut out);
            assert_eq!(out, value.to_string().into_bytes());
        }
    }

    #[test]
    fn an_event_has_its_type_as_its_name_and_the_next_number() {
        let mut journal = Journal::new(true);
        let mut out = Vec::new();
        journal.event("a", &mut out, |out| string("b", b"c", out));
        let delta = Delta::new("d", b",\"e\":0");
        journal.delta(&delta, b"f", None, &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "event: a\ndata: {\"type\":\"a\",\"sequence_number\":0,\"b\":\"c\"}\n\n\
             event: d\ndata: {\"type\":\"d\",\"sequence_number\":1,\"e\":0,\"delta\":\"f\"}\n\n"
        );
    }
}
