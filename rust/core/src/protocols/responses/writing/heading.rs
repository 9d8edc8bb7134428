//! The response object without its output.

use std::sync::Arc;

use super::{Echo, member};
use crate::json::string;
use crate::output::{Failure, Head, Spent};
use crate::protocols::responses::usage_object;
use crate::protocols::responses::vocabulary::{count, key, list, number, raw};

/// The values of `service_tier` that the interface knows.
const SERVICE_TIERS: [&[u8]; 7] = [
    b"auto",
    b"default",
    b"flex",
    b"scale",
    b"priority",
    b"fast",
    b"ultrafast",
];

/// The members of a response object except its output.
#[derive(Debug)]
pub(in crate::protocols::responses) struct Heading {
    echo: Arc<Echo>,
    /// Spelled.
    model: Vec<u8>,
    model_is_set: bool,
    service_tier: Vec<u8>,
}

/// How far the response has come.
#[derive(Clone, Copy)]
pub(in crate::protocols::responses) enum End<'a> {
    Queued,
    InProgress,
    Completed,
    Incomplete(&'static str),
    Failed(Failure<'a>),
}

impl End<'_> {
    fn status(self) -> &'static str {
        match self {
            End::Queued => "queued",
            End::InProgress => "in_progress",
            End::Completed => "completed",
            End::Incomplete(_) => "incomplete",
            End::Failed(_) => "failed",
        }
    }
}

impl Heading {
    pub(in crate::protocols::responses) fn new(echo: Arc<Echo>, model: Option<&str>) -> Self {
        Heading {
            model: spelled(model.unwrap_or(&echo.model)),
            model_is_set: model.is_some(),
            service_tier: spelled(&echo.service_tier),
            echo,
        }
    }

    /// Takes the model and the service tier that the upstream gave its reply. A response that the client knows keeps
    /// its model.
    pub(super) fn note(&mut self, head: &Head<'_>, is_known: bool) {
        if let Some(model) = head.model.filter(|_| !self.model_is_set && !is_known) {
            self.model = model.to_vec();
            self.model_is_set = true;
        }
        if let Some(tier) = head
            .service_tier
            .filter(|tier| SERVICE_TIERS.contains(tier))
        {
            self.service_tier.clear();
            self.service_tier.extend_from_slice(tier);
        }
    }

    /// Appends the object. `output` is its items, with commas between them.
    pub(in crate::protocols::responses) fn write(
        &self,
        end: End<'_>,
        output: &[u8],
        spent: Option<Spent<'_>>,
        now: Option<u64>,
        out: &mut Vec<u8>,
    ) {
        out.reserve(output.len() + self.echo.members.len() + 512);
        out.extend_from_slice(b"{\"id\":");
        string::encode(&self.echo.response_id, out);
        member("object", b"response", out);
        count("created_at", self.echo.created_at, out);
        member("status", end.status().as_bytes(), out);
        key("completed_at", out);
        match now.filter(|_| matches!(end, End::Completed)) {
            Some(now) => number(now.max(self.echo.created_at), out),
            None => out.extend_from_slice(b"null"),
        }
        key("error", out);
        match end {
            End::Failed(failure) => {
                out.extend_from_slice(b"{\"code\":\"");
                out.extend_from_slice(error_code(failure).as_bytes());
                out.extend_from_slice(b"\",\"message\":");
                string::encode(failure.message, out);
                out.push(b'}');
            }
            _ => out.extend_from_slice(b"null"),
        }
        key("incomplete_details", out);
        match end {
            End::Incomplete(reason) => {
                out.extend_from_slice(b"{\"reason\":\"");
                out.extend_from_slice(reason.as_bytes());
                out.extend_from_slice(b"\"}");
            }
            _ => out.extend_from_slice(b"null"),
        }
        member("model", &self.model, out);
        member("service_tier", &self.service_tier, out);
        if !self.echo.members.is_empty() {
            out.push(b',');
            out.extend_from_slice(&self.echo.members);
        }
        list("output", output, out);
        match spent {
            Some(spent) => {
                key("usage", out);
                usage_object::write(spent, out);
            }
            None => raw("usage", b"null", out),
        }
        out.push(b'}');
    }
}

/// The client's own deadline has ended it, which none of OpenAI's codes says.
const CLIENT_TIMEOUT: &str = "client_timeout";

/// One of the codes that a response's `error` may have: a closed list in OpenAI's types, and [`CLIENT_TIMEOUT`]. The
/// `error` event before it has the upstream's own.
pub(in crate::protocols::responses) fn error_code(failure: Failure<'_>) -> &'static str {
    let says = |word: &str| {
        let said = [failure.code, failure.kind];
        said.into_iter().flatten().any(|said| said.contains(word))
    };
    if failure.code == Some(CLIENT_TIMEOUT) {
        CLIENT_TIMEOUT
    } else if says("rate_limit") || says("too_many_requests") || says("quota") || says("429") {
        "rate_limit_exceeded"
    } else if says("context_length") || says("invalid_prompt") || says("invalid_request") {
        "invalid_prompt"
    } else {
        "server_error"
    }
}

/// Text between the quotes of a JSON string.
pub(super) fn spelled(text: &str) -> Vec<u8> {
    let mut spelled = Vec::with_capacity(text.len());
    string::spell(text, &mut spelled);
    spelled
}
