//! The words of the Messages interface: why a model stopped, and what kinds of errors there are.

use crate::output::{Failure, Reason};

/// What a stop reason means.
pub(super) fn reason(word: &[u8]) -> Reason {
    match word {
        b"end_turn" => Reason::Stop,
        b"stop_sequence" => Reason::Sequence,
        b"tool_use" => Reason::Calls,
        b"max_tokens" => Reason::Length,
        b"model_context_window_exceeded" => Reason::Context,
        b"refusal" => Reason::Filter,
        b"pause_turn" => Reason::Pause,
        // The model was to write a summary and nothing else.
        b"compaction" => Reason::Stop,
        _ => Reason::Other,
    }
}

/// The stop reason for a reply, by what its upstream said and what is in it. Clients run calls only where the reason
/// says so, and wait in silence where it says so and there is none: so the calls decide. A reply that was cut stays
/// cut, since its last call may be, too.
pub(super) fn stop_reason(reason: Reason, has_calls: bool, has_sequence: bool) -> &'static str {
    match reason {
        Reason::Length => "max_tokens",
        Reason::Context => "model_context_window_exceeded",
        Reason::Filter => "refusal",
        _ if has_calls => "tool_use",
        Reason::Sequence if has_sequence => "stop_sequence",
        Reason::Pause => "pause_turn",
        Reason::Stop | Reason::Sequence | Reason::Calls | Reason::Failed | Reason::Other => {
            "end_turn"
        }
    }
}

/// The types that an error may have (<https://platform.claude.com/docs/en/api/errors>).
const ERROR_TYPES: [&str; 11] = [
    "invalid_request_error",
    "authentication_error",
    "billing_error",
    "permission_error",
    "not_found_error",
    "conflict_error",
    "request_too_large",
    "rate_limit_error",
    "api_error",
    "timeout_error",
    "overloaded_error",
];

/// The type of errors of an HTTP status.
///
/// ```
/// use sluicegate_core::protocols::messages::vocabulary::error_type;
///
/// assert_eq!(error_type(429), "rate_limit_error");
/// assert_eq!((error_type(418), error_type(502)), ("invalid_request_error", "api_error"));
/// ```
#[must_use]
pub fn error_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        504 => "timeout_error",
        503 | 529 => "overloaded_error",
        _ => "api_error",
    }
}

/// The type of an error of which the upstream's words are known.
pub(super) fn type_of(failure: &Failure<'_>) -> &'static str {
    let said = || [failure.kind, failure.code].into_iter().flatten();
    let known = |said: &str| ERROR_TYPES.into_iter().find(|known| *known == said);
    if let Some(known) = said().find_map(known) {
        return known;
    }
    // A code may be a status.
    if let Some(status) = said().find_map(|said| said.parse().ok()) {
        return error_type(status);
    }
    let hints = [
        ("rate_limit", "rate_limit_error"),
        ("too_many_requests", "rate_limit_error"),
        ("quota", "rate_limit_error"),
        ("overloaded", "overloaded_error"),
        ("unavailable", "overloaded_error"),
        ("timeout", "timeout_error"),
        ("not_found", "not_found_error"),
        ("authentication", "authentication_error"),
        ("invalid_api_key", "authentication_error"),
        ("permission", "permission_error"),
        ("invalid_request", "invalid_request_error"),
        ("invalid_prompt", "invalid_request_error"),
        ("context_length", "invalid_request_error"),
    ];
    let hinted = hints
        .into_iter()
        .find(|(hint, _)| said().any(|said| said.contains(hint)));
    hinted.map_or("api_error", |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_decide_unless_the_reply_was_cut() {
        for (reason, with_calls, without) in [
            (Reason::Stop, "tool_use", "end_turn"),
            (Reason::Calls, "tool_use", "end_turn"),
            (Reason::Other, "tool_use", "end_turn"),
            (Reason::Sequence, "tool_use", "stop_sequence"),
            (Reason::Pause, "tool_use", "pause_turn"),
            (Reason::Length, "max_tokens", "max_tokens"),
            (Reason::Filter, "refusal", "refusal"),
            (
                Reason::Context,
                "model_context_window_exceeded",
                "model_context_window_exceeded",
            ),
        ] {
            assert_eq!(stop_reason(reason, true, true), with_calls);
            assert_eq!(stop_reason(reason, false, true), without);
        }
        assert_eq!(stop_reason(Reason::Sequence, false, false), "end_turn");
    }

    #[test]
    fn a_stop_reason_that_was_read_is_written_again() {
        for word in [
            "end_turn",
            "stop_sequence",
            "max_tokens",
            "model_context_window_exceeded",
            "refusal",
            "pause_turn",
        ] {
            assert_eq!(stop_reason(reason(word.as_bytes()), false, true), word);
        }
        assert_eq!(reason(b"compaction"), Reason::Stop);
        assert_eq!(reason(b"brand_new"), Reason::Other);
    }

    #[test]
    fn the_words_of_other_upstreams_have_a_type_here() {
        let kind = |kind, code| {
            type_of(&Failure {
                message: "",
                code,
                kind,
            })
        };
        for (said, code, expected) in [
            (Some("overloaded_error"), None, "overloaded_error"),
            (Some("server_error"), Some("500"), "api_error"),
            (
                Some("requests"),
                Some("rate_limit_exceeded"),
                "rate_limit_error",
            ),
            (Some("requests"), Some("429"), "rate_limit_error"),
            (Some("upstream_error"), Some("timeout"), "timeout_error"),
            (
                Some("BadRequestError"),
                Some("context_length_exceeded"),
                "invalid_request_error",
            ),
            (Some("upstream_error"), Some("truncated"), "api_error"),
            (None, None, "api_error"),
        ] {
            assert_eq!(kind(said, code), expected, "{said:?} {code:?}");
        }
    }
}
