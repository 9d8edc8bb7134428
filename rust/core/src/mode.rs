//! What an upstream's reply is, told from its first byte.

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
