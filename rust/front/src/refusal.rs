//! Errors that the front answers without a decision from Python, in the form of the client's API.

use http::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use sluicegate_core::form::FormFault;
use sluicegate_core::json::string;
use sluicegate_core::protocols::messages::vocabulary::error_type;
use sluicegate_relay::ErrorReply;

/// Every client of the Messages interface sends it, whatever it asks for.
pub(crate) const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// In whose form an error is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `{"error":{"message","type","code","param"}}`
    OpenAi,
    /// `{"type":"error","error":{"type","message"},"request_id"}`
    Anthropic,
}

impl Form {
    /// The form for a client that asks for none of the endpoints that are forwarded.
    pub(crate) fn of_client(headers: &HeaderMap) -> Self {
        if headers.contains_key(ANTHROPIC_VERSION) {
            Form::Anthropic
        } else {
            Form::OpenAi
        }
    }

    /// What the members of an error in this form say of `status`.
    fn kind(self, status: u16) -> &'static str {
        match (self, status) {
            (Form::OpenAi, ..500) => "invalid_request_error",
            (Form::OpenAi, _) => "server_error",
            (Form::Anthropic, _) => error_type(status),
        }
    }
}

/// Completes `reply`, whose body is an error in Anthropic's form without `request_id`.
pub(crate) fn name_request(reply: &mut ErrorReply, request_id: &str) {
    if let Some(open) = reply.body.strip_suffix(b"}") {
        let mut body = open.to_vec();
        body.extend_from_slice(b",\"request_id\":");
        string::encode(request_id, &mut body);
        body.push(b'}');
        reply.body = body.into();
    }
    if let Ok(id) = HeaderValue::from_str(request_id) {
        reply.headers.insert("request-id", id);
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The body is larger than so many bytes.
    TooLarge(usize),
    /// It is framed in a way that leaves room for doubt, or ended too soon.
    Malformed,
    /// Its client sends no more, though it is not whole.
    Incomplete,
    /// The head breaks the rules of HTTP.
    Head(&'static str),
    /// The URL is longer than so many bytes.
    LongUrl(usize),
    /// The request's line and headers are more than the bounds allow.
    LargeHead,
    /// The body has a transfer coding other than `chunked`, or the method is one for proxies.
    Unsupported(&'static str),
    /// The body is no form of the endpoint's.
    Form(FormFault),
    /// The client stopped sending its body.
    Late,
    /// Too many requests are under way.
    Overloaded,
    /// Nobody has decided in time.
    Undecided,
    /// Whoever decides has failed.
    Internal,
    /// The gateway stops.
    Stopping,
    /// The application does not answer.
    NoApplication,
}

impl Refusal {
    /// The error's `code`.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Refusal::TooLarge(_) => "request_too_large",
            Refusal::Malformed | Refusal::Incomplete | Refusal::Head(_) => "malformed_request",
            Refusal::Form(_) => "invalid_body",
            Refusal::LongUrl(_) => "url_too_long",
            Refusal::LargeHead => "headers_too_large",
            Refusal::Unsupported(_) => "not_implemented",
            Refusal::Late => "request_timeout",
            Refusal::Overloaded => "overloaded",
            Refusal::Undecided => "undecided",
            Refusal::Internal => "internal",
            Refusal::Stopping => "shutdown",
            Refusal::NoApplication => "application_unavailable",
        }
    }

    fn status(self) -> u16 {
        match self {
            Refusal::TooLarge(_) => 413,
            Refusal::Malformed | Refusal::Incomplete | Refusal::Head(_) | Refusal::Form(_) => 400,
            Refusal::LongUrl(_) => 414,
            Refusal::LargeHead => 431,
            Refusal::Unsupported(_) => 501,
            Refusal::Late => 408,
            Refusal::Internal => 500,
            Refusal::Overloaded
            | Refusal::Undecided
            | Refusal::Stopping
            | Refusal::NoApplication => 503,
        }
    }

    /// What follows on the connection cannot be trusted, or will not come.
    fn closes(self) -> bool {
        matches!(
            self,
            Refusal::Malformed
                | Refusal::Incomplete
                | Refusal::Head(_)
                | Refusal::LongUrl(_)
                | Refusal::LargeHead
                | Refusal::Unsupported(_)
                | Refusal::Late
                | Refusal::Stopping
        )
    }

    /// The whole reply in `form`, to the request with this id. No text in it needs escaping.
    pub(crate) fn reply(self, form: Form, request_id: &str) -> ErrorReply {
        let message = match self {
            Refusal::TooLarge(limit) => format!(
                "The request's body is larger than the {limit} bytes that this gateway takes."
            ),
            Refusal::Malformed | Refusal::Incomplete => {
                "The request's body is not framed as HTTP requires, or ended before it was whole."
                    .to_owned()
            }
            Refusal::Head(what) | Refusal::Unsupported(what) => what.to_owned(),
            Refusal::LongUrl(limit) => {
                format!("The URL is longer than the {limit} bytes that this gateway takes.")
            }
            Refusal::LargeHead => {
                "The request's headers are more, or larger, than this gateway takes.".to_owned()
            }
            Refusal::Form(fault) => {
                format!("The request's body cannot be read: {}.", fault.message())
            }
            Refusal::Late => "The rest of the request's body did not come in time.".to_owned(),
            Refusal::Overloaded => "The gateway has too many requests under way.".to_owned(),
            Refusal::Undecided => {
                "The gateway did not decide in time where the request should go.".to_owned()
            }
            Refusal::Internal => "The gateway failed to answer.".to_owned(),
            Refusal::Stopping => "The gateway is shutting down.".to_owned(),
            Refusal::NoApplication => "This part of the gateway does not answer.".to_owned(),
        };
        let kind = form.kind(self.status());
        let code = self.code();
        let body = match form {
            Form::OpenAi => format!(
                r#"{{"error":{{"message":"{message}","type":"{kind}","code":"{code}","param":null}}}}"#
            ),
            Form::Anthropic => {
                format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}}}}"#)
            }
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("x-sluicegate-error", HeaderValue::from_static(code));
        if self.status() == 503 {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.closes() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let mut reply = ErrorReply {
            status: self.status(),
            headers,
            body: body.into(),
        };
        if form == Form::Anthropic {
            name_request(&mut reply, request_id);
        }
        reply
    }
}
