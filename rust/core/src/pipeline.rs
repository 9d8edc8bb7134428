//! One reply's whole journey, from the upstream's bytes to the client's: what it is, where its events end, what it used, what it costs.

use bytes::Bytes;

use crate::error::Error;
use crate::limits::Limits;
use crate::mode::Mode;
use crate::usage::{Dialect, Usage};

/// Which protocol a reply speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages`
    Messages,
}

/// What is known about a reply before its first byte.
#[derive(Clone, Debug)]
pub struct ReplyPlan {
    /// The protocol that client and upstream speak.
    pub api: Api,
    /// The client asked for an event stream.
    pub client_streams: bool,
    /// Take usage-only chunks out: the client streams and did not ask for usage, the gateway did.
    pub hide_usage_chunk: bool,
    /// The client asked for a usage chunk.
    pub include_usage: bool,
    /// The upstream's way of reporting usage; `None`: told from the numbers.
    pub dialect: Option<Dialect>,
    /// Shown as `model` instead of the upstream's name.
    pub reply_model: Option<Box<str>>,
    /// Bounds.
    pub limits: Limits,
}

impl ReplyPlan {
    /// A plan that changes nothing: default bounds, no dialect, the upstream's own model name, usage shown.
    #[must_use]
    pub fn new(api: Api, client_streams: bool) -> Self {
        ReplyPlan {
            api,
            client_streams,
            hide_usage_chunk: false,
            include_usage: client_streams,
            dialect: None,
            reply_model: None,
            limits: Limits::default(),
        }
    }
}

/// Puts a price on usage.
pub trait Pricer {
    /// Called for each usage object that will reach the client, running totals aside. Returns the JSON members to add to the object
    /// (`"cost":0.1,"cost_details":{…}`, without braces), or None to leave it as it is.
    fn price(&mut self, usage: &Usage) -> Option<Bytes>;
}

/// Leaves every usage object as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unpriced;

impl Pricer for Unpriced {
    fn price(&mut self, _usage: &Usage) -> Option<Bytes> {
        None
    }
}

/// An error that the upstream sent inside its reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamError {
    /// What it says.
    pub message: Box<str>,
    /// Its `code`, a number written out.
    pub code: Option<Box<str>>,
    /// Its `type`.
    pub kind: Option<Box<str>>,
}

/// What is known about a reply so far. Independent of how the bytes were cut into reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// What the upstream sends; known with the first byte that is not white space.
    pub mode: Option<Mode>,
    /// Whether the client gets an event stream; known once the mode is.
    pub reply_is_stream: Option<bool>,
    /// Usage so far.
    pub usage: Option<Usage>,
    /// Events with data (in JSON mode: documents).
    pub events: u64,
    /// Comment lines.
    pub comments: u64,
    /// Data that is neither JSON nor `[DONE]`.
    pub malformed: u64,
    /// Events that bore text, reasoning, a refusal or a tool call.
    pub token_events: u64,
    /// The first such event, or a whole JSON document, was seen.
    pub output_started: bool,
    /// `[DONE]` was seen.
    pub done: bool,
    /// The first finish reason (chat), stop reason (Messages) or final status (Responses).
    pub finish_reason: Option<Box<str>>,
    /// The first error that the upstream sent inside the reply.
    pub error: Option<StreamError>,
    /// The reply came to its protocol's end: `[DONE]`, a finish reason, a terminal event, an error, or a whole JSON document.
    pub terminal: bool,
    /// Set by [`Pipeline::finish`]: the upstream ended without any of them.
    pub truncated: bool,
    /// The reply's `id`, where it was read.
    pub reply_id: Option<Box<str>>,
}

/// The machine that a reply goes through: bytes in, frames out. Does no I/O.
pub struct Pipeline {
    plan: ReplyPlan,
    facts: Facts,
    progress: bool,
}

impl Pipeline {
    /// A machine for one reply.
    #[must_use]
    pub fn new(plan: ReplyPlan) -> Self {
        Pipeline {
            plan,
            facts: Facts::default(),
            progress: false,
        }
    }

    /// Takes what was read. Frames for the client are appended to `out`: slices of `input` wherever nothing changed, and one slice for a
    /// read in which nothing did. The event that `input` ends in is kept back until it is whole.
    ///
    /// # Errors
    /// An event or document that is larger than the limits allow. The machine must then be told to [`fail`](Self::fail).
    pub fn feed(
        &mut self,
        input: Bytes,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Error> {
        let _ = pricer;
        if self.facts.mode.is_none() {
            self.facts.mode = match input.iter().find(|byte| !byte.is_ascii_whitespace()) {
                Some(b'd' | b'e' | b'i' | b'r' | b':') => Some(Mode::Sse),
                Some(b'{' | b'[') => Some(Mode::Json),
                Some(_) => Some(Mode::Opaque),
                None => None,
            };
            self.facts.reply_is_stream = self.facts.mode.map(|mode| mode == Mode::Sse);
        }
        if !input.is_empty() {
            out.push(input);
        }
        Ok(())
    }

    /// The upstream ended cleanly: what was kept back is let go, an unterminated event gets its terminator, and
    /// [`Facts::truncated`] is settled.
    ///
    /// # Errors
    /// As [`feed`](Self::feed).
    pub fn finish(&mut self, pricer: &mut dyn Pricer, out: &mut Vec<Bytes>) -> Result<(), Error> {
        let _ = (pricer, out);
        Ok(())
    }

    /// The upstream died or a deadline fired: the protocol's own error is appended to `out`. What was kept back is dropped.
    ///
    /// Chat and completions get one `data: {"error":…}` event and no `[DONE]`; Responses `error` and then `response.failed`; Messages
    /// `event: error`; a reply that is no stream and of which nothing was sent, a JSON error object; of anything else the frames
    /// just end.
    pub fn fail(&mut self, error_type: &str, code: &str, message: &str, out: &mut Vec<Bytes>) {
        let _ = (error_type, code, message, out, &self.plan);
    }

    /// What is known so far.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Whether a token-bearing event came since this was last asked. Comments, pings, roles, empty deltas and usage are none.
    pub fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progress)
    }
}
