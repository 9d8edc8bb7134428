//! Bounds on what one reply or one request may make the core hold. Each default is a constant with its reason.

/// One event of an event stream, 16 MiB.
///
/// The largest events of real streams are a final Responses event, which repeats the whole answer, and images as base64
/// (a few MiB each). What is larger is a stream that has lost its framing, and buffering it would grow without end.
pub const MAX_EVENT: usize = 16 << 20;

/// One JSON document: a request's body or a reply that is not a stream, 64 MiB.
///
/// Agents send turns with several images as base64; 8 MiB was too little for them elsewhere (`suna#6490`: 9 to 12 MiB).
pub const MAX_DOCUMENT: usize = 64 << 20;

/// Open containers in a JSON document, 256.
///
/// Tool schemas reach about 30. Upstreams that parse by recursion give up between 128 (serde_json) and 1,000 (CPython).
pub const MAX_DEPTH: usize = 256;

/// Bytes of white space that are held back while nothing else has come and the mode is undecided, 64 KiB.
///
/// Some upstreams send a blank line every few seconds for minutes before a JSON reply (`langchaingo#942`), which stays
/// far below this.
pub const MAX_UNDECIDED: usize = 64 << 10;

/// Items of one response's output that are told apart, 2,048; and, all of its items together, their parts and
/// annotations.
///
/// Each event looks for its item among all of them. A response of hours of research has a few hundred, most of them
/// calls of hosted tools.
pub const MAX_ITEMS: usize = 2048;

/// Choices of one completion, 4,096. OpenAI allows 128; servers that take many prompts at once give a choice for each.
pub const MAX_CHOICES: usize = 4096;

/// Bytes of an upstream's id, model or tier that is repeated in each event of a translated reply, 512. What is longer
/// counts as not given: the reply would be larger than what it is made of by that much for each token.
pub const MAX_REPEATED: usize = 512;

/// Bytes of a text of others that are kept in a log, a label or a record, 1 KiB: an error's message, a finish reason,
/// an id.
///
/// The longest messages of errors that were recorded have some 600 bytes. What goes to the client is not cut.
pub const MAX_RECORDED: usize = 1024;

/// Characters that are quoted of a body that is no reply of the API, 200: a title and a heading, enough to see what
/// answered.
pub const MAX_QUOTE: usize = 200;

/// The highest place of an item among those of a response, and of a part among those of an item, 10,000: an upstream
/// may leave places out.
pub const MAX_INDEX: u64 = 10_000;

/// Items of a request, and of a response, that are found by their ids, 10,000: a client that sends its whole
/// conversation with each turn has some thousand. Those behind them are kept and listed all the same.
pub const MAX_FOUND_ITEMS: usize = 10_000;

/// Items of a request that may refer to earlier ones, 1,000. Each is looked for on its own.
pub const MAX_REFERENCES: usize = 1_000;

/// Bytes of an id that is kept for finding what has it, 512. Ids of OpenAI's have some 60.
pub const MAX_ID: usize = 512;

/// The bounds that apply to one request and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one event, line ends included. See [`MAX_EVENT`].
    pub max_event: usize,
    /// Bytes of one JSON document. See [`MAX_DOCUMENT`].
    pub max_document: usize,
    /// Open containers in a JSON document; what the scanner itself can hold
    /// is a bound above this one. See [`MAX_DEPTH`].
    pub max_depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_event: MAX_EVENT,
            max_document: MAX_DOCUMENT,
            max_depth: MAX_DEPTH,
        }
    }
}
