//! What the reply of an endpoint may be beside JSON and events.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use sluicegate_core::protocols::Reading;

use crate::headers::essence;

/// What a successful reply is. Of a reply that is bytes nothing is read on its way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Replies {
    /// JSON, or an event stream: anything else is a fault of the upstream, a proxy's page for example.
    #[default]
    Json,
    /// Or audio.
    Audio,
    /// Or plain text (SubRip, WebVTT), which may be empty.
    Text,
    /// Or anything, nothing included: no protocol is known that it could break.
    Any,
}

impl Replies {
    /// How much of a reply with these headers is read. One that says nothing of itself is, where it may be JSON.
    pub(crate) fn reading(self, headers: &HeaderMap) -> Reading {
        match self {
            _ if self.are_bytes(headers) => Reading::Nothing,
            Replies::Any => Reading::Usage,
            _ => Reading::Whole,
        }
    }

    fn are_bytes(self, headers: &HeaderMap) -> bool {
        let given = headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
        let kind = given.map(essence).unwrap_or_default().to_ascii_lowercase();
        let is_read =
            kind == b"text/event-stream" || kind == b"application/json" || kind.ends_with(b"+json");
        match self {
            Replies::Json => false,
            Replies::Audio => kind.starts_with(b"audio/") || kind == b"application/octet-stream",
            Replies::Text => {
                kind == b"application/x-subrip"
                    || kind.starts_with(b"text/") && kind != b"text/html" && !is_read
            }
            Replies::Any => !is_read,
        }
    }

    /// Whether a reply without a body is one.
    pub(crate) fn may_be_empty(self) -> bool {
        matches!(self, Replies::Text | Replies::Any)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_content_type_says_what_is_not_read() {
        use Replies::{Any, Audio, Json, Text};
        for (kind, unread) in [
            ("application/json", &[][..]),
            ("application/problem+json; charset=utf-8", &[]),
            ("Text/Event-Stream; charset=utf-8", &[]),
            ("audio/mpeg", &[Audio, Any]),
            ("application/octet-stream", &[Audio, Any]),
            ("text/plain; charset=utf-8", &[Text, Any]),
            ("text/vtt", &[Text, Any]),
            ("application/x-subrip", &[Text, Any]),
            ("text/html", &[Any]),
            ("application/jsonl", &[Any]),
            ("", &[Any]),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            let found: Vec<_> = [Json, Audio, Text, Any]
                .into_iter()
                .filter(|replies| replies.are_bytes(&headers))
                .collect();
            assert_eq!(found, unread, "{kind}");
        }
        assert!(Any.are_bytes(&HeaderMap::new()));
        assert!(!Text.are_bytes(&HeaderMap::new()));
    }
}
