//! Why an attempt or an exchange failed.

use std::fmt;

use bytes::Bytes;
use http::HeaderMap;
use sluicegate_core::error::ErrorKind;
use sluicegate_core::watch::StreamError;

use crate::reason::Reason;

/// What went wrong. The names are stable: they are metric labels, log values and error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// No connection: refused, unreachable, name not found, TLS refused.
    Connect,
    /// No connection within the `connect` deadline.
    ConnectTimeout,
    /// The connection died before the reply's head.
    Reset,
    /// What came was not HTTP, or its body is no reply of the API.
    Protocol,
    /// No reply head within the `first_byte` deadline.
    FirstByteTimeout,
    /// No text, reasoning or tool call within the `first_token` deadline.
    FirstTokenTimeout,
    /// Nothing but keep-alives for the `between_tokens` deadline.
    BetweenTokensTimeout,
    /// The whole reply took longer than the `total` deadline.
    TotalTimeout,
    /// The whole reply took longer than the client said that it would wait.
    ClientTimeout,
    /// The upstream answered with an error status.
    Status,
    /// A success status with an empty body.
    Empty,
    /// The reply ended, or its connection broke, before it was complete.
    Truncated,
    /// An error inside a reply with a success status.
    InBandError,
    /// One event or document is larger than the configured bound.
    TooLarge,
    /// The content encoding is unknown or its data is broken.
    Decode,
    /// The client's request can't be put into the upstream's protocol; nothing was sent.
    Untranslatable,
    /// The relay was closed.
    Shutdown,
    /// A fault of our own.
    Internal,
}

impl FaultKind {
    /// Every kind, for documentation, metrics and tests.
    pub const ALL: [FaultKind; 18] = [
        FaultKind::Connect,
        FaultKind::ConnectTimeout,
        FaultKind::Reset,
        FaultKind::Protocol,
        FaultKind::FirstByteTimeout,
        FaultKind::FirstTokenTimeout,
        FaultKind::BetweenTokensTimeout,
        FaultKind::TotalTimeout,
        FaultKind::ClientTimeout,
        FaultKind::Status,
        FaultKind::Empty,
        FaultKind::Truncated,
        FaultKind::InBandError,
        FaultKind::TooLarge,
        FaultKind::Decode,
        FaultKind::Untranslatable,
        FaultKind::Shutdown,
        FaultKind::Internal,
    ];

    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            FaultKind::Connect => "connect",
            FaultKind::ConnectTimeout => "connect_timeout",
            FaultKind::Reset => "reset",
            FaultKind::Protocol => "protocol",
            FaultKind::FirstByteTimeout => "first_byte_timeout",
            FaultKind::FirstTokenTimeout => "first_token_timeout",
            FaultKind::BetweenTokensTimeout => "between_tokens_timeout",
            FaultKind::TotalTimeout => "total_timeout",
            FaultKind::ClientTimeout => "client_timeout",
            FaultKind::Status => "status",
            FaultKind::Empty => "empty",
            FaultKind::Truncated => "truncated",
            FaultKind::InBandError => "in_band_error",
            FaultKind::TooLarge => "too_large",
            FaultKind::Decode => "decode",
            FaultKind::Untranslatable => "untranslatable",
            FaultKind::Shutdown => "shutdown",
            FaultKind::Internal => "internal",
        }
    }

    /// Whose fault it is, as `type` in an error says it.
    pub(crate) fn blames(self) -> &'static str {
        match self {
            FaultKind::ClientTimeout => "invalid_request_error",
            _ => "upstream_error",
        }
    }

    /// What happened, to follow "upstream 'name'" in a message for the client.
    fn phrase(self) -> &'static str {
        match self {
            FaultKind::Connect => "could not be reached",
            FaultKind::ConnectTimeout => "did not accept a connection in time (connect deadline)",
            FaultKind::Reset => "closed the connection before it replied",
            FaultKind::Protocol => "did not keep to its protocol",
            FaultKind::FirstByteTimeout => "did not begin to reply in time (first_byte deadline)",
            FaultKind::FirstTokenTimeout => "sent no output in time (first_token deadline)",
            FaultKind::BetweenTokensTimeout => "stopped sending output (between_tokens deadline)",
            FaultKind::TotalTimeout => "took too long to complete the reply (total deadline)",
            FaultKind::ClientTimeout => "was not waited for any longer",
            FaultKind::Status => "answered with an error status",
            FaultKind::Empty => "sent an empty reply",
            FaultKind::Truncated => "broke off the reply before it was complete",
            FaultKind::InBandError => "reported an error in its reply",
            FaultKind::TooLarge => "sent an event or document larger than the configured limit",
            FaultKind::Decode => "sent a reply whose content encoding could not be decoded",
            FaultKind::Untranslatable => "does not speak the protocol of the request",
            FaultKind::Shutdown => "was cut off because the gateway is shutting down",
            FaultKind::Internal => "could not be served because of a fault in the gateway",
        }
    }
}

impl From<ErrorKind> for FaultKind {
    /// What a reply that the core gives up has done wrong.
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::EventTooLarge | ErrorKind::DocumentTooLarge | ErrorKind::TooManyItems => {
                FaultKind::TooLarge
            }
            _ => FaultKind::Protocol,
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A fault, with what a client may learn about it.
#[derive(Debug, Clone)]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// The upstream's configured name.
    pub upstream: Box<str>,
    /// The upstream's status, for [`FaultKind::Status`]; for [`FaultKind::InBandError`] the one that the error's `code`
    /// or `type` stands for.
    pub status: Option<u16>,
    /// Why the connection failed, for [`FaultKind::Connect`] and [`FaultKind::Reset`].
    pub reason: Option<Reason>,
    /// The upstream's headers that may go to the client, for [`FaultKind::Status`].
    pub headers: Box<HeaderMap>,
    /// The upstream's error body, for [`FaultKind::Status`]; of a large one what it says, in short.
    pub body: Bytes,
    /// The upstream's own words, for [`FaultKind::InBandError`]; what is wrong, for [`FaultKind::Untranslatable`]; how
    /// the body begins that is no reply of the API, for [`FaultKind::Protocol`].
    pub detail: Option<Box<str>>,
    /// The member of the request that is at fault, for [`FaultKind::Untranslatable`].
    pub param: Option<Box<str>>,
    /// The request's body is gone with the attempt: no other can follow.
    pub spent: bool,
}

impl Fault {
    /// A fault with nothing but its kind.
    pub fn new(kind: FaultKind, upstream: &str) -> Self {
        Self {
            kind,
            upstream: upstream.into(),
            status: None,
            reason: None,
            headers: Box::default(),
            body: Bytes::new(),
            detail: None,
            param: None,
            spent: false,
        }
    }

    /// The upstream reported `error` in a reply with a success status.
    pub(crate) fn in_band(upstream: &str, error: &StreamError) -> Self {
        Self {
            status: status_of(error),
            detail: Some(error.message.clone()),
            ..Self::new(FaultKind::InBandError, upstream)
        }
    }

    /// The request is beyond the upstream.
    pub(crate) fn untranslatable(upstream: &str, param: &str, message: &str) -> Self {
        Self {
            detail: Some(message.into()),
            param: Some(param.into()),
            ..Self::new(FaultKind::Untranslatable, upstream)
        }
    }

    /// For the client: the upstream's configured name and what happened; no address, key or header, and of a body no
    /// more than the start of one that is no reply of the API.
    pub fn message(&self) -> String {
        match (self.status, &self.detail) {
            // It may have been as quick as ever.
            _ if self.kind == FaultKind::ClientTimeout => {
                "the reply was not complete within the time that the client has set (x-sluicegate-timeout)"
                    .to_owned()
            }
            (None, Some(detail)) if self.kind == FaultKind::Untranslatable => detail.to_string(),
            (None, Some(quote)) if self.kind == FaultKind::Protocol => format!(
                "upstream '{}' replied with neither JSON nor an event stream: \"{quote}\"",
                self.upstream
            ),
            (Some(status), _) if self.kind == FaultKind::Status => format!(
                "upstream '{}' {} ({status})",
                self.upstream,
                self.kind.phrase()
            ),
            (_, Some(detail)) => format!(
                "upstream '{}' {}: {detail}",
                self.upstream,
                self.kind.phrase()
            ),
            (_, None) => format!("upstream '{}' {}", self.upstream, self.kind.phrase()),
        }
    }
}

/// The status that an error would have had as a reply of its own. Many servers say it in `code`; the types are those of
/// OpenAI, Anthropic, vLLM and SGLang.
fn status_of(error: &StreamError) -> Option<u16> {
    let number = |code: &str| {
        let status = code.parse().ok()?;
        (400..600).contains(&status).then_some(status)
    };
    let known = |word: &str| {
        Some(match word {
            "invalid_request_error" | "BadRequestError" | "context_length_exceeded" => 400,
            "authentication_error" => 401,
            "billing_error" | "insufficient_quota" => 402,
            "permission_error" => 403,
            "request_too_large" => 413,
            "rate_limit_error" | "rate_limit_exceeded" => 429,
            "api_error" | "server_error" => 500,
            "overloaded_error" => 529,
            _ => return None,
        })
    };
    let (code, kind) = (error.code.as_deref(), error.kind.as_deref());
    code.and_then(number)
        .or_else(|| code.and_then(known))
        .or_else(|| kind.and_then(known))
}
