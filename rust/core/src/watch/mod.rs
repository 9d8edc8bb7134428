//! What the pipeline has to know of a reply's payloads. Each protocol watches its own, in its folder of
//! [`protocols`](crate::protocols).

pub(crate) mod payload;

use std::borrow::Cow;

use crate::json::scan::Fault;
use crate::record::cut;
use crate::usage::Dialect;

use payload::Payload;

/// An error that the upstream sent inside its reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamError {
    /// Its message, as text.
    pub message: Box<str>,
    /// Its `code`, a number written out.
    pub code: Option<Box<str>>,
    /// Its `type`.
    pub kind: Option<Box<str>>,
}

impl StreamError {
    /// What may be kept of it in a record.
    pub(crate) fn recorded(&self) -> Self {
        let word = |word: &Option<Box<str>>| word.as_deref().map(|word| cut(word).into());
        StreamError {
            message: cut(&self.message).into(),
            code: word(&self.code),
            kind: word(&self.kind),
        }
    }
}

/// Where a payload came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The data of an event.
    Event {
        /// The event's name is `error`.
        named_error: bool,
    },
    /// A document of its own.
    Document,
}

/// What makes an event bear output: text, reasoning, a refusal or a tool call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bearing {
    /// It does, whatever its strings hold.
    pub(crate) always: bool,
    /// It does where one of its output strings is not empty.
    pub(crate) with_text: bool,
}

/// What a payload says of its reply.
#[derive(Debug, Default)]
pub(crate) struct Said<'a> {
    /// Why the model stopped, or with which status the reply ended. It has come to its end, then.
    pub(crate) finish: Option<Cow<'a, str>>,
    /// Nothing that matters comes any more.
    pub(crate) done: bool,
    /// What makes it bear output; None of what is no event.
    pub(crate) bearing: Option<Bearing>,
    /// Its usage is more than a running total or a preview.
    pub(crate) is_final: bool,
}

/// What a document is, where a reply is read from documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// A whole reply.
    Whole,
    /// An event of a stream without its framing.
    InPart,
    /// Nothing that says what a model said.
    Unreadable,
}

/// Watches the payloads of one protocol.
pub(crate) trait Watch: Sync {
    /// Notes where in `text` what forwarding needs stands: one pass, no tree.
    ///
    /// # Errors
    /// It is not one JSON document.
    fn read(&self, payload: &mut Payload, text: &[u8], max_depth: usize) -> Result<(), Fault>;

    /// What a payload that was read says. `finished`: one before it said why the model stopped.
    fn said<'a>(
        &self,
        payload: &Payload,
        text: &'a [u8],
        source: Source,
        finished: bool,
    ) -> Said<'a>;

    /// What a document that was read is.
    fn came(&self, payload: &Payload, document: &[u8]) -> Came;

    /// How its upstreams count, where nothing else is known of them.
    fn dialect(&self) -> Option<Dialect> {
        None
    }

    /// A reply that fails comes to an end of its own after its error, and a failed one that comes whole is read as any
    /// other.
    fn ends_after_errors(&self) -> bool {
        false
    }
}
