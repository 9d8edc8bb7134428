//! What can go wrong in the core: a kind and the byte where it shows.

use std::fmt;

/// Why the core refuses a text. Each kind has one stable name ([`ErrorKind::as_str`]), the same in every language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorKind {
    /// One event of an event stream is larger than [`Limits::max_event`](crate::limits::Limits::max_event).
    EventTooLarge,
    /// One JSON document is larger than [`Limits::max_document`](crate::limits::Limits::max_document).
    DocumentTooLarge,
    /// JSON is nested deeper than [`Limits::max_depth`](crate::limits::Limits::max_depth).
    TooDeep,
    /// The text ends inside a JSON value.
    UnexpectedEnd,
    /// A byte that JSON's grammar (RFC 8259) does not allow where it stands.
    UnexpectedByte,
    /// A JSON string holds bytes that are not UTF-8.
    InvalidUtf8,
    /// Something other than white space follows the JSON document.
    TrailingBytes,
    /// The JSON document is no object, where only an object has a meaning.
    NotAnObject,
    /// A member of a request has a type that its name rules out (`"stream": "yes"`).
    WrongType,
    /// An object holds a member that is read under one key more often than anyone has a reason for.
    TooManyDuplicates,
    /// A reply has more items, parts or choices than anyone has a reason for.
    TooManyItems,
    /// A second reply begins in the stream of the first.
    SecondReply,
    /// The upstream reports an error where a piece of its answer is expected.
    ReportedError,
    /// A stream ends in which no piece of an answer came.
    NoCompletion,
    /// The body is neither JSON nor an event stream.
    NotAReply,
    /// The upstream's replies cannot be written in the client's protocol.
    Untranslatable,
}

impl ErrorKind {
    /// Every kind, in the order of declaration.
    pub const ALL: &[ErrorKind] = &[
        ErrorKind::EventTooLarge,
        ErrorKind::DocumentTooLarge,
        ErrorKind::TooDeep,
        ErrorKind::UnexpectedEnd,
        ErrorKind::UnexpectedByte,
        ErrorKind::InvalidUtf8,
        ErrorKind::TrailingBytes,
        ErrorKind::NotAnObject,
        ErrorKind::WrongType,
        ErrorKind::TooManyDuplicates,
        ErrorKind::TooManyItems,
        ErrorKind::SecondReply,
        ErrorKind::ReportedError,
        ErrorKind::NoCompletion,
        ErrorKind::NotAReply,
        ErrorKind::Untranslatable,
    ];

    /// The kind's stable name, in snake case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ErrorKind::EventTooLarge => "event_too_large",
            ErrorKind::DocumentTooLarge => "document_too_large",
            ErrorKind::TooDeep => "too_deep",
            ErrorKind::UnexpectedEnd => "unexpected_end",
            ErrorKind::UnexpectedByte => "unexpected_byte",
            ErrorKind::InvalidUtf8 => "invalid_utf8",
            ErrorKind::TrailingBytes => "trailing_bytes",
            ErrorKind::NotAnObject => "not_an_object",
            ErrorKind::WrongType => "wrong_type",
            ErrorKind::TooManyDuplicates => "too_many_duplicates",
            ErrorKind::TooManyItems => "too_many_items",
            ErrorKind::SecondReply => "second_reply",
            ErrorKind::ReportedError => "reported_error",
            ErrorKind::NoCompletion => "no_completion",
            ErrorKind::NotAReply => "not_a_reply",
            ErrorKind::Untranslatable => "untranslatable",
        }
    }

    /// A sentence for people, without the place.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            ErrorKind::EventTooLarge => "an event is larger than the limit",
            ErrorKind::DocumentTooLarge => "a JSON document is larger than the limit",
            ErrorKind::TooDeep => "JSON is nested more deeply than the limit",
            ErrorKind::UnexpectedEnd => "the JSON text ends too early",
            ErrorKind::UnexpectedByte => "unexpected byte in JSON",
            ErrorKind::InvalidUtf8 => "a JSON string is not UTF-8",
            ErrorKind::TrailingBytes => "bytes after the JSON document",
            ErrorKind::NotAnObject => "the JSON document is not an object",
            ErrorKind::WrongType => "a member has the wrong type",
            ErrorKind::TooManyDuplicates => "a member occurs too often",
            ErrorKind::TooManyItems => "a reply has more items or choices than the limit",
            ErrorKind::SecondReply => "a second reply begins in the stream of the first",
            ErrorKind::ReportedError => "the upstream reports an error in its stream",
            ErrorKind::NoCompletion => "the stream holds no completion",
            ErrorKind::NotAReply => "the body is neither JSON nor an event stream",
            ErrorKind::Untranslatable => {
                "replies of the upstream's protocol cannot be written in the client's"
            }
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

/// A refusal: what is wrong and where. Line and column are not kept; whoever wants them counts line ends up to
/// `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Error {
    /// What is wrong.
    pub kind: ErrorKind,
    /// Bytes from the start of the stream or body to the byte that shows it.
    pub offset: u64,
}

impl Error {
    /// An error of `kind` at `offset`, in bytes from the start of the stream or body.
    #[must_use]
    pub const fn new(kind: ErrorKind, offset: u64) -> Self {
        Error { kind, offset }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.kind, self.offset)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Without a wildcard arm: a new kind does not compile until it is numbered here, and the count below then fails
    /// until it is in `ALL`.
    fn number(kind: ErrorKind) -> usize {
        match kind {
            ErrorKind::EventTooLarge => 0,
            ErrorKind::DocumentTooLarge => 1,
            ErrorKind::TooDeep => 2,
            ErrorKind::UnexpectedEnd => 3,
            ErrorKind::UnexpectedByte => 4,
            ErrorKind::InvalidUtf8 => 5,
            ErrorKind::TrailingBytes => 6,
            ErrorKind::NotAnObject => 7,
            ErrorKind::WrongType => 8,
            ErrorKind::TooManyDuplicates => 9,
            ErrorKind::TooManyItems => 10,
            ErrorKind::SecondReply => 11,
            ErrorKind::ReportedError => 12,
            ErrorKind::NoCompletion => 13,
            ErrorKind::NotAReply => 14,
            ErrorKind::Untranslatable => 15,
        }
    }

    #[test]
    fn all_lists_every_kind_once_in_order() {
        let numbers: Vec<usize> = ErrorKind::ALL.iter().copied().map(number).collect();
        assert_eq!(numbers, (0..=15).collect::<Vec<_>>());
    }

    #[test]
    fn names_and_messages_are_distinct() {
        let names: BTreeSet<_> = ErrorKind::ALL.iter().map(|kind| kind.as_str()).collect();
        let messages: BTreeSet<_> = ErrorKind::ALL.iter().map(|kind| kind.message()).collect();
        assert_eq!(names.len(), ErrorKind::ALL.len());
        assert_eq!(messages.len(), ErrorKind::ALL.len());
        for name in names {
            assert!(
                name.bytes()
                    .all(|byte| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit())
            );
        }
    }

    #[test]
    fn an_error_says_what_and_where() {
        let error = Error::new(ErrorKind::EventTooLarge, 42);
        assert_eq!(
            error.to_string(),
            "an event is larger than the limit at byte 42"
        );
    }
}
