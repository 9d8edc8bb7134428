//! Which headers cross the gateway, either way (RFC 9110 section 7.6.1 for the hop-by-hop ones).

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::sink::HeaderList;
use crate::trace;
use crate::upstream::Upstream;

/// Mean something only to the two ends of one connection.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The client's credentials for the gateway, and what is made anew for each hop.
const NEVER_UP: [&str; 10] = [
    "authorization",
    "x-api-key",
    "api-key",
    "cookie",
    "host",
    "content-length",
    "content-encoding",
    "accept-encoding",
    "expect",
    "x-request-id",
];

/// Made anew for the client, or true only of the upstream's hop.
const NEVER_DOWN: [&str; 9] = [
    "content-length",
    "content-encoding",
    "content-type",
    "server",
    "date",
    "set-cookie",
    "alt-svc",
    "x-accel-buffering",
    "x-request-id",
];

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// What the client is sent, told from the body and not from what the upstream calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    EventStream,
    /// The upstream's own.
    Document,
    /// Made of an event stream.
    Folded,
}

/// The headers of a request to `upstream`.
pub(crate) fn up(client: &[(Bytes, Bytes)], upstream: &Upstream, request_id: &str) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(client.len() + upstream.headers.len() + 3);
    let listed = client
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"))
        .flat_map(|(_, value)| value.split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
        .collect::<Vec<_>>();
    for (name, value) in client {
        let Ok(name) = HeaderName::from_bytes(name) else {
            continue;
        };
        let dropped = HOP_BY_HOP.contains(&name.as_str())
            || NEVER_UP.contains(&name.as_str())
                && !(name == header::AUTHORIZATION && upstream.forward_authorization)
            || listed
                .iter()
                .any(|token| token.eq_ignore_ascii_case(name.as_str().as_bytes()))
            || upstream.headers.contains_key(&name);
        if dropped {
            continue;
        }
        if let Ok(value) = HeaderValue::from_maybe_shared(value.clone()) {
            headers.append(name, value);
        }
    }
    for (name, value) in &upstream.headers {
        headers.append(name, value.clone());
    }
    headers
        .entry(header::CONTENT_TYPE)
        .or_insert(HeaderValue::from_static("application/json"));
    headers.insert(
        header::ACCEPT_ENCODING,
        HeaderValue::from_static("identity"),
    );
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, id);
    }
    if !headers.contains_key(&TRACE_PARENT)
        && let Some(parent) = trace::parent(request_id)
    {
        headers.insert(TRACE_PARENT, parent);
    }
    headers
}

/// The upstream's headers that are the client's business, without the content type.
pub(crate) fn down(upstream: &HeaderMap) -> HeaderList {
    let listed = upstream
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
        .collect::<Vec<_>>();
    upstream
        .iter()
        .filter(|(name, _)| {
            let name = name.as_str();
            !HOP_BY_HOP.contains(&name)
                && !NEVER_DOWN.contains(&name)
                && !listed
                    .iter()
                    .any(|token| token.eq_ignore_ascii_case(name.as_bytes()))
        })
        .map(|(name, value)| {
            (
                Bytes::copy_from_slice(name.as_str().as_bytes()),
                Bytes::copy_from_slice(value.as_bytes()),
            )
        })
        .collect()
}

/// The head of the client's reply: the upstream's headers, our request id, the content type of what is really sent, and for
/// an event stream what keeps proxies in front of us from holding it back.
pub(crate) fn reply(upstream: &HeaderMap, request_id: &str, content: Content) -> HeaderList {
    let mut headers = down(upstream);
    let given = upstream
        .get(header::CONTENT_TYPE)
        .map(HeaderValue::as_bytes);
    let content_type = match (content, given) {
        (Content::EventStream, Some(given)) if names_event_stream(given) => {
            Bytes::copy_from_slice(given)
        }
        (Content::EventStream, _) => Bytes::from_static(b"text/event-stream; charset=utf-8"),
        // JSON lines and the like keep their name; SDKs take what is not called JSON for plain text.
        (Content::Document, Some(given)) if names_json(given) => Bytes::copy_from_slice(given),
        (Content::Document | Content::Folded, _) => Bytes::from_static(b"application/json"),
    };
    headers.push((Bytes::from_static(b"content-type"), content_type));
    headers.push((
        Bytes::from_static(b"x-request-id"),
        Bytes::copy_from_slice(request_id.as_bytes()),
    ));
    if content == Content::EventStream {
        headers.retain(|(name, _)| name.as_ref() != b"cache-control");
        headers.push((
            Bytes::from_static(b"cache-control"),
            Bytes::from_static(b"no-cache"),
        ));
        headers.push((
            Bytes::from_static(b"x-accel-buffering"),
            Bytes::from_static(b"no"),
        ));
    }
    headers
}

/// Whether `upstream` calls its body an event stream.
pub(crate) fn declare_event_stream(upstream: &HeaderMap) -> bool {
    upstream
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| names_event_stream(value.as_bytes()))
}

fn names_event_stream(content_type: &[u8]) -> bool {
    let essence = content_type.split(|b| *b == b';').next();
    essence.is_some_and(|essence| {
        essence
            .trim_ascii()
            .eq_ignore_ascii_case(b"text/event-stream")
    })
}

fn names_json(content_type: &[u8]) -> bool {
    content_type
        .windows(4)
        .any(|word| word.eq_ignore_ascii_case(b"json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::UpstreamSettings;

    fn list(pairs: &[(&'static str, &'static str)]) -> HeaderList {
        pairs
            .iter()
            .map(|(n, v)| {
                (
                    Bytes::from_static(n.as_bytes()),
                    Bytes::from_static(v.as_bytes()),
                )
            })
            .collect()
    }

    fn upstream(forward_authorization: bool) -> Upstream {
        let settings = UpstreamSettings {
            base_url: "http://127.0.0.1:1/v1".to_owned(),
            headers: list(&[("x-org", "ours")]),
            forward_authorization,
            ..UpstreamSettings::default()
        };
        Upstream::new("u", settings).unwrap()
    }

    #[test]
    fn credentials_and_hop_by_hop_headers_stay_here() {
        let client = list(&[
            ("authorization", "Bearer secret"),
            ("cookie", "a=b"),
            ("connection", "close, x-private"),
            ("x-private", "1"),
            ("te", "trailers"),
            ("host", "gateway"),
            ("content-length", "12"),
            ("accept-encoding", "gzip"),
            ("x-org", "theirs"),
            ("traceparent", "00-1-2-01"),
            ("x-request-id", "spoofed"),
        ]);
        let headers = up(&client, &upstream(false), "req-1");
        let mut names = headers.keys().map(HeaderName::as_str).collect::<Vec<_>>();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "accept-encoding",
                "content-type",
                "traceparent",
                "x-org",
                "x-request-id"
            ]
        );
        assert_eq!(headers["x-org"], "ours");
        assert_eq!(headers["x-request-id"], "req-1");
        assert_eq!(headers["accept-encoding"], "identity");
    }

    #[test]
    fn authorization_goes_up_only_where_configured() {
        let client = list(&[("authorization", "Bearer theirs")]);
        assert!(
            up(&client, &upstream(false), "r")
                .get("authorization")
                .is_none()
        );
        assert_eq!(
            up(&client, &upstream(true), "r")["authorization"],
            "Bearer theirs"
        );
    }

    #[test]
    fn the_content_type_follows_the_body() {
        let mut head = HeaderMap::new();
        head.insert("content-type", HeaderValue::from_static("application/json"));
        let value = |headers: HeaderList| {
            headers
                .iter()
                .find(|(n, _)| n.as_ref() == b"content-type")
                .map(|(_, v)| v.clone())
                .unwrap()
        };
        assert!(value(reply(&head, "r", Content::EventStream)).starts_with(b"text/event-stream"));
        assert_eq!(
            value(reply(&head, "r", Content::Document)).as_ref(),
            b"application/json"
        );
        head.insert(
            "content-type",
            HeaderValue::from_static("text/event-stream"),
        );
        assert_eq!(
            value(reply(&head, "r", Content::Document)).as_ref(),
            b"application/json"
        );
        head.insert("content-type", HeaderValue::from_static("text/html"));
        assert_eq!(
            value(reply(&head, "r", Content::Document)).as_ref(),
            b"application/json"
        );
        let lines = HeaderValue::from_static("application/x-NDJSON; charset=utf-8");
        head.insert("content-type", lines.clone());
        assert_eq!(
            value(reply(&head, "r", Content::Document)).as_ref(),
            lines.as_bytes()
        );
        assert_eq!(
            value(reply(&head, "r", Content::Folded)).as_ref(),
            b"application/json"
        );
    }

    #[test]
    fn an_event_stream_is_declared_by_its_media_type() {
        let mut head = HeaderMap::new();
        assert!(!declare_event_stream(&head));
        for (value, declares) in [
            ("text/event-stream", true),
            ("Text/Event-Stream ; charset=utf-8", true),
            ("text/event-streams", false),
            ("application/json", false),
        ] {
            head.insert("content-type", HeaderValue::from_static(value));
            assert_eq!(declare_event_stream(&head), declares, "{value}");
        }
    }

    #[test]
    fn lengths_and_encodings_of_the_upstream_hop_do_not_go_down() {
        let mut head = HeaderMap::new();
        for name in [
            "content-length",
            "content-encoding",
            "transfer-encoding",
            "connection",
            "set-cookie",
        ] {
            head.insert(name, HeaderValue::from_static("x"));
        }
        head.insert("x-ratelimit-remaining", HeaderValue::from_static("3"));
        assert_eq!(down(&head).len(), 1);
    }
}
