//! From a reply's bytes to the events that are kept: checked, numbered, with the response's own id.
//!
//! Numbers are given here, whatever the frames say: kept events count 0, 1, 2 … without a gap, over those that the
//! gateway itself puts before an upstream's and over a second attempt.

mod check;

use std::borrow::Cow;
use std::fmt::Write as _;

use bytes::Bytes;

use super::fold::readable;
use super::members::with_members;
use super::reading::event::Event;
use crate::error::Error;
use crate::json::node::Node;
use crate::json::scan::{Kind, skip_space};
use crate::json::splice::Splice;
use crate::json::string;
use crate::limits::Limits;
use crate::sse::event::RawEvent;
use crate::sse::splitter::Splitter;

use check::Check;

/// The members of a Response object that only the upstream knows. The others say what was asked for: they are the same
/// from the first event to the last.
const UPSTREAMS: [&str; 8] = [
    "status",
    "output",
    "usage",
    "error",
    "incomplete_details",
    "completed_at",
    "model",
    "service_tier",
];

/// The event that ended a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// `completed`, `incomplete` or `failed`.
    pub status: &'static str,
    /// The object in it, JSON.
    pub response: Vec<u8>,
}

/// An error that an upstream has reported, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported {
    /// A word for programs; `server_error` where it says none.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

impl Reported {
    /// Of an `error` event or an error body, in the form of `OpenAI`'s servers (`{"error":{…}}`) or flat. What is no
    /// such thing says nothing.
    #[must_use]
    pub fn of(said: Option<Node<'_>>) -> Self {
        let nested = said
            .and_then(|said| said.get("error"))
            .filter(|error| error.kind() == Kind::Object);
        let [code, message] = nested
            .or(said)
            .map_or([None; 2], |said| said.pick(["code", "message"]));
        let filled = |value: Option<Node<'_>>| {
            let text = value.and_then(|value| value.decode());
            text.filter(|text| !text.is_empty()).map(Cow::into_owned)
        };
        Reported {
            code: filled(code).unwrap_or_else(|| "server_error".into()),
            message: filled(message).unwrap_or_else(|| "The upstream reported an error.".into()),
        }
    }
}

/// Why no more of a reply is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It has failed with items that nobody closed: that end is not among the events.
    Unclosed(Reported),
    /// An event that no client could read: a sentence that says which.
    Malformed(String),
}

/// Takes a reply's bytes, gives its events as they are kept.
///
/// ```
/// use bytes::Bytes;
/// use sluicegate_core::limits::Limits;
/// use sluicegate_core::protocols::responses::numbering::Numbering;
///
/// let mut numbering = Numbering::new(3, Some(br#"{"id":"resp_1","output":[]}"#), &Limits::default());
/// let mut kept = Vec::new();
/// let reply = concat!(
///     "data: {\"type\":\"response.created\",\"response\":{\"id\":\"theirs\"}}\n\n",
///     "data: {\"type\":\"response.completed\",\"response\":{\"id\":\"theirs\",\"status\":\"completed\"}}\n\n",
/// );
/// numbering.feed(Bytes::from_static(reply.as_bytes()), 7, &mut kept)?;
/// assert_eq!(String::from_utf8(kept).unwrap(), concat!(
///     "event: response.completed\ndata: {\"sequence_number\":3,\"type\":\"response.completed\",",
///     "\"response\":{\"id\":\"resp_1\",\"status\":\"completed\",\"completed_at\":7}}\n\n",
/// ));
/// assert_eq!(numbering.following(), 4);
/// assert_eq!(numbering.ending().unwrap().status, "completed");
/// # Ok::<(), sluicegate_core::error::Error>(())
/// ```
#[derive(Debug)]
pub struct Numbering {
    splitter: Splitter,
    max_depth: usize,
    following: u64,
    /// JSON by name.
    own: Option<Vec<(String, Vec<u8>)>>,
    check: Check,
    ending: Option<Ending>,
    broken: Option<Broken>,
    error: Option<Reported>,
    /// The data of an `error` event, which waits for the end that must follow it.
    waiting: Option<Vec<u8>>,
}

impl Numbering {
    /// `own` is the Response object as the client knows it: its members are put in place of the upstream's, but for
    /// those that only an upstream knows, and the reply's first events, which the client has been sent, are left out.
    /// None: a client has seen these very events, so nothing but a number that is wrong or missing is changed.
    #[must_use]
    pub fn new(following: u64, own: Option<&[u8]>, limits: &Limits) -> Self {
        let members = |object: &[u8]| {
            let members = Node::document(object).into_iter().flat_map(|it| {
                it.members()
                    .map(|(key, value)| (key.decode().map(Cow::into_owned), value.bytes().to_vec()))
                    .collect::<Vec<_>>()
            });
            members
                .filter_map(|(name, value)| Some((name?, value)))
                .filter(|(name, _)| !UPSTREAMS.contains(&&**name))
                .collect()
        };
        Numbering {
            splitter: Splitter::new(limits),
            max_depth: limits.max_depth,
            following,
            own: own.map(members),
            check: Check::default(),
            ending: None,
            broken: None,
            error: None,
            waiting: None,
        }
    }

    /// The number of the next event.
    #[must_use]
    pub fn following(&self) -> u64 {
        self.following
    }

    /// How the response ended, once it has.
    #[must_use]
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Why no more is kept of it.
    #[must_use]
    pub fn broken(&self) -> Option<&Broken> {
        self.broken.as_ref()
    }

    /// What an `error` event said.
    #[must_use]
    pub fn error(&self) -> Option<&Reported> {
        self.error.as_ref()
    }

    /// Appends the events that `data` completes. `now`: seconds since 1970, when a response has completed that does not
    /// say when.
    ///
    /// # Errors
    /// [`ErrorKind::EventTooLarge`](crate::error::ErrorKind::EventTooLarge), behind the events before that one.
    pub fn feed(&mut self, data: Bytes, now: u64, out: &mut Vec<u8>) -> Result<(), Error> {
        let (batch, fed) = self.splitter.feed(data);
        for event in batch.events() {
            self.take(&event, now, out);
        }
        fed
    }

    /// Appends the event that the reply ended in, if any.
    pub fn finish(&mut self, now: u64, out: &mut Vec<u8>) {
        if let Some(tail) = self.splitter.finish() {
            self.take(&RawEvent::parse(&tail.rest), now, out);
        }
    }

    fn take(&mut self, raw: &RawEvent<'_>, now: u64, out: &mut Vec<u8>) {
        if self.ending.is_some() || self.broken.is_some() {
            return;
        }
        let Some(data) = raw.data() else {
            return;
        };
        let payload = readable(&data);
        // A comment's, `[DONE]`, or nothing that a client could read.
        let Ok(event) = Event::read(&payload, self.max_depth) else {
            return;
        };
        let Ok(kind) = std::str::from_utf8(event.kind) else {
            return;
        };
        let is_ours = self.own.is_some();
        if kind.is_empty() || (is_ours && is_beginning(kind)) {
            return;
        }
        if is_ours && let Err(why) = self.check.take(&event) {
            let mut said = String::from("The upstream sent an event that is malformed: ");
            let _ = write!(said, "{}: {why}.", kind.get(..80).unwrap_or(kind));
            self.broken = Some(Broken::Malformed(said));
            return;
        }
        if let Some(status) = ending(kind) {
            return self.end(status, kind, &payload, &event, now, out);
        }
        if is_ours && kind == "error" {
            self.error = Some(Reported::of(Node::document(&payload)));
            self.waiting = Some(payload.into_owned());
            return;
        }
        self.write(kind, &payload, &event, None, out);
    }

    fn end(
        &mut self,
        status: &'static str,
        kind: &str,
        payload: &[u8],
        event: &Event<'_>,
        now: u64,
        out: &mut Vec<u8>,
    ) {
        let response = event.response.map_or(&b"null"[..], |it| it.bytes());
        let Some(own) = &self.own else {
            let response = response.to_vec();
            self.ending = Some(Ending { status, response });
            return self.write(kind, payload, event, None, out);
        };
        if status == "failed" && self.check.has_open() {
            // Whoever made this knew only that the upstream was gone: its items must still be closed. An `error` event
            // before it has a code of its own, where a response has only those of a closed list.
            let error = event.response.and_then(|response| response.get("error"));
            let reported = self.error.take().unwrap_or_else(|| Reported::of(error));
            self.broken = Some(Broken::Unclosed(reported));
            return;
        }
        let response = ended(status, response, own, now);
        if let Some(said) = self.waiting.take()
            && let Ok(event) = Event::read(&said, self.max_depth)
        {
            self.write("error", &said, &event, None, out);
        }
        self.write(kind, payload, event, Some(&response), out);
        self.ending = Some(Ending { status, response });
    }

    /// Appends an event with the next number, and with another Response object where one is given.
    fn write(
        &mut self,
        kind: &str,
        payload: &[u8],
        event: &Event<'_>,
        response: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) {
        let number = self.following.to_string();
        self.following = self.following.saturating_add(1);
        let mut splice = Splice::new();
        match event.number {
            Some(value) => splice.replace(value.range(), number),
            None => {
                let behind = skip_space(payload, 0) + 1;
                splice.insert(behind, format!("\"sequence_number\":{number},"));
            }
        }
        if let (Some(response), Some(range)) = (response, event.response.map(|it| it.range())) {
            splice.replace(range, Bytes::copy_from_slice(response));
        }
        let size = payload.len() + kind.len() + response.map_or(0, <[u8]>::len);
        out.reserve(size + 48);
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\ndata: ");
        let start = out.len();
        splice.apply(payload.trim_ascii_end(), out);
        // Only between members can JSON have line ends.
        if memchr::memchr2(b'\n', b'\r', payload).is_some() {
            for byte in out.iter_mut().skip(start) {
                if matches!(byte, b'\n' | b'\r') {
                    *byte = b' ';
                }
            }
        }
        out.extend_from_slice(b"\n\n");
    }
}

/// Whether the gateway has sent this event itself, before there was an upstream.
fn is_beginning(kind: &str) -> bool {
    matches!(
        kind,
        "response.created" | "response.queued" | "response.in_progress"
    )
}

fn ending(kind: &str) -> Option<&'static str> {
    match kind {
        "response.completed" => Some("completed"),
        "response.incomplete" => Some("incomplete"),
        "response.failed" => Some("failed"),
        _ => None,
    }
}

/// The Response object with our members, and with what its end demands.
fn ended(status: &str, response: &[u8], own: &[(String, Vec<u8>)], now: u64) -> Vec<u8> {
    let mut spelled = Vec::new();
    string::encode(status, &mut spelled);
    let now = now.to_string();
    let mut members: Vec<(&str, &[u8])> = Vec::with_capacity(own.len() + 2);
    members.extend(own.iter().map(|(name, value)| (&**name, &**value)));
    members.push(("status", &spelled));
    let completed_at = Node::document(response).and_then(|it| it.get("completed_at"));
    if status == "completed" && completed_at.is_none() {
        members.push(("completed_at", now.as_bytes()));
    }
    with_members(response, &members)
}

#[cfg(test)]
mod tests;
