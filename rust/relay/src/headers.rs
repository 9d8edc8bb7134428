//! Which headers are forwarded, of requests and of replies: those that are named here, and those that the upstream's
//! configuration adds.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use sluicegate_core::api::Api;

use crate::director::Attempt;
use crate::trace;
use crate::upstream::Upstream;

/// A client's that go to any upstream.
const UP: [&str; 13] = [
    "accept",
    "accept-language",
    "content-type",
    "idempotency-key",
    "user-agent",
    // Tracing: W3C, Zipkin, and what the balancers of Google and Amazon add.
    "traceparent",
    "tracestate",
    "baggage",
    "b3",
    "x-cloud-trace-context",
    "x-amzn-trace-id",
    // OpenAI's own.
    "openai-beta",
    "x-client-request-id",
];
const UP_PREFIXES: [&str; 2] = ["x-b3-", "x-stainless-"];

/// They say how a request for messages is to be read, and belong to it: to no request that was made of it.
const UP_TO_MESSAGES: [&str; 2] = ["anthropic-version", "anthropic-beta"];

/// They choose an account of those that a key has: the client's business only where the key is its own.
const UP_WITH_AUTHORIZATION: [&str; 2] = ["openai-organization", "openai-project"];

/// An upstream's that go to any client, in addition to the content type, which is determined from the body.
const DOWN: [&str; 14] = [
    "content-disposition",
    "content-language",
    "openai-processing-ms",
    "openai-version",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "ratelimit",
    // What the support of Anthropic, Azure, Amazon, Mistral and Cloudflare asks for; `x-request-id` is the gateway's
    // own.
    "request-id",
    "apim-request-id",
    "x-ms-request-id",
    "x-amzn-requestid",
    "mistral-correlation-id",
    "cf-ray",
];
const DOWN_PREFIXES: [&str; 3] = LIMIT_PREFIXES;

const LIMIT_NAMES: [&str; 1] = ["ratelimit"];
const LIMIT_PREFIXES: [&str; 3] = ["ratelimit-", "x-ratelimit-", "anthropic-ratelimit-"];

/// What is left of a rate limit, in the words of OpenAI's API and of Anthropic's. When it is whole again one says as a
/// duration and the other as a time, each in forms that differ from server to server: those are left as they are.
const RATE_LIMITS: [[HeaderName; 2]; 4] = [
    [
        HeaderName::from_static("x-ratelimit-limit-requests"),
        HeaderName::from_static("anthropic-ratelimit-requests-limit"),
    ],
    [
        HeaderName::from_static("x-ratelimit-remaining-requests"),
        HeaderName::from_static("anthropic-ratelimit-requests-remaining"),
    ],
    [
        HeaderName::from_static("x-ratelimit-limit-tokens"),
        HeaderName::from_static("anthropic-ratelimit-tokens-limit"),
    ],
    [
        HeaderName::from_static("x-ratelimit-remaining-tokens"),
        HeaderName::from_static("anthropic-ratelimit-tokens-remaining"),
    ],
];

/// Mean something only to the two ends of one connection (RFC 9110, section 7.6.1).
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

/// Made anew for each hop, or a secret between the client and the gateway: no configuration adds them. `authorization`
/// and `x-api-key` have a setting of their own.
const NEVER_UP: [&str; 9] = [
    "authorization",
    "x-api-key",
    "cookie",
    "host",
    "content-length",
    "content-encoding",
    "accept-encoding",
    "expect",
    "x-request-id",
];

/// Made anew for the client, or true only of the upstream's host.
const NEVER_DOWN: [&str; 11] = [
    "content-length",
    "content-encoding",
    "content-type",
    "server",
    "date",
    "set-cookie",
    "alt-svc",
    "strict-transport-security",
    "x-accel-buffering",
    "x-request-id",
    // Says that an error is the gateway's own.
    "x-sluicegate-error",
];
const NEVER_DOWN_PREFIX: &str = "access-control-";

/// Bytes of an upstream's request id that are recorded; a longer one is not.
const MAX_REQUEST_ID: usize = 256;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// The one version that Anthropic's API has, which every request to it must name.
const VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// The id by which an upstream knows the request that it replies to.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<Box<str>> {
    headers
        .get("x-request-id")
        .or_else(|| headers.get("request-id"))
        .and_then(|id| id.to_str().ok())
        .filter(|id| id.len() <= MAX_REQUEST_ID)
        .map(Into::into)
}

/// The content type that the client gets, determined from the body and not from the upstream's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    EventStream,
    /// The upstream's own.
    Document,
    /// Made of an event stream.
    Folded,
    /// Of the upstream's own form, whatever that is.
    Bytes,
}

/// Whether a configuration may add `name` to what goes to upstreams.
pub(crate) fn may_go_up(name: &HeaderName) -> bool {
    !HOP_BY_HOP.contains(&name.as_str()) && !NEVER_UP.contains(&name.as_str())
}

/// Whether a configuration may add `name` to what goes to clients.
pub(crate) fn may_go_down(name: &HeaderName) -> bool {
    let name = name.as_str();
    !HOP_BY_HOP.contains(&name)
        && !NEVER_DOWN.contains(&name)
        && !name.starts_with(NEVER_DOWN_PREFIX)
}

fn is_named(name: &str, names: &[&str], prefixes: &[&str]) -> bool {
    names.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// The names that a message's `Connection` header lists: they are of that connection, too.
fn listed<'a>(connection: impl Iterator<Item = &'a [u8]>) -> Vec<&'a [u8]> {
    connection
        .flat_map(|value| value.split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
        .collect()
}

fn is_listed(name: &HeaderName, listed: &[&[u8]]) -> bool {
    listed
        .iter()
        .any(|token| token.eq_ignore_ascii_case(name.as_str().as_bytes()))
}

/// The headers of a request to `upstream`, which it is to take as one of `api`. What is of no API is asked for as all
/// else is of an upstream that has the Messages interface alone.
pub(crate) fn up(client: &HeaderMap, upstream: &Upstream, api: Api, request_id: &str) -> HeaderMap {
    let api = match (api, upstream.serves.only()) {
        (Api::Other, Some(Api::Messages)) => Api::Messages,
        _ => api,
    };
    let mut headers = HeaderMap::with_capacity(client.len() + upstream.headers.len() + 5);
    let connection = client.get_all(header::CONNECTION).iter();
    let listed = listed(connection.map(HeaderValue::as_bytes));
    let forwards_authorization =
        upstream.forward_authorization && client.contains_key(header::AUTHORIZATION);
    for (name, value) in client {
        let goes = is_named(name.as_str(), &UP, &UP_PREFIXES)
            || api == Api::Messages && UP_TO_MESSAGES.contains(&name.as_str())
            || upstream.forward_authorization && api == Api::Messages && name == X_API_KEY
            || forwards_authorization
                && (name == header::AUTHORIZATION
                    || UP_WITH_AUTHORIZATION.contains(&name.as_str()))
            || upstream.forward_headers.contains(name);
        if goes && !is_listed(name, &listed) && !upstream.headers.contains_key(name) {
            headers.append(name, value.clone());
        }
    }
    for (name, value) in &upstream.headers {
        headers.append(name, value.clone());
    }
    if let Some(key) = &upstream.key {
        let usual = || match api {
            Api::Messages => X_API_KEY,
            _ => header::AUTHORIZATION,
        };
        let name = upstream.key_header.clone().unwrap_or_else(usual);
        let value = match name == header::AUTHORIZATION {
            true => &key.bearer,
            false => &key.plain,
        };
        headers.insert(name, value.clone());
    }
    if api == Api::Messages {
        headers.entry(ANTHROPIC_VERSION).or_insert(VERSION);
    }
    headers.insert(
        header::ACCEPT_ENCODING,
        HeaderValue::from_static("identity"),
    );
    add_request_id(&mut headers, request_id);
    if !headers.contains_key(&TRACE_PARENT)
        && let Some(parent) = trace::parent(request_id)
    {
        headers.insert(TRACE_PARENT, parent);
    }
    headers
}

/// Says that the body is JSON, where the client has not said what it is.
pub(crate) fn name_json(headers: &mut HeaderMap) {
    headers
        .entry(header::CONTENT_TYPE)
        .or_insert(HeaderValue::from_static("application/json"));
}

/// The headers of a reply of `upstream` that are the business of a client of `api`, and its content type. What the
/// upstream says of its rate limits in another API's words is said in the client's, too.
pub(crate) fn down(reply: &HeaderMap, upstream: &Upstream, api: Api) -> HeaderMap {
    let connection = reply.get_all(header::CONNECTION).iter();
    let listed = listed(connection.map(HeaderValue::as_bytes));
    let mut headers: HeaderMap = reply
        .iter()
        .filter(|(name, _)| {
            let goes = is_named(name.as_str(), &DOWN, &DOWN_PREFIXES)
                || *name == header::CONTENT_TYPE
                || upstream.reply_headers.contains(name);
            goes && !is_listed(name, &listed)
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    for [openai, anthropic] in RATE_LIMITS {
        let [said, ours] = match api {
            Api::Messages => [openai, anthropic],
            _ => [anthropic, openai],
        };
        if let Some(value) = headers.get(&said).cloned() {
            headers.entry(ours).or_insert(value);
        }
    }
    headers
}

/// The headers of an attempt's reply that the client gets: what goes [`down`], and the gateway's own.
pub(crate) fn of_attempt(attempt: &Attempt, reply: &HeaderMap, client: Api) -> HeaderMap {
    with_own(
        down(reply, &attempt.route.upstream, client),
        &attempt.headers,
    )
}

/// `theirs` with the gateway's `own` headers.
fn with_own(mut theirs: HeaderMap, own: &HeaderMap) -> HeaderMap {
    let limits = |name: &HeaderName| is_named(name.as_str(), &LIMIT_NAMES, &LIMIT_PREFIXES);
    if own.keys().any(limits) {
        let shown = theirs.keys().filter(|name| limits(name)).cloned();
        for name in shown.collect::<Vec<_>>() {
            theirs.remove(name);
        }
    }
    for (name, value) in own {
        theirs.insert(name, value.clone());
    }
    theirs
}

/// `headers` with values of their own, which do not hold on to the read that they came in.
pub(crate) fn copied(mut headers: HeaderMap) -> HeaderMap {
    for value in headers.values_mut() {
        if let Ok(copy) = HeaderValue::from_bytes(value.as_bytes()) {
            *value = copy;
        }
    }
    headers
}

/// Says what a request is called, which the client may have done itself.
pub fn add_request_id(headers: &mut HeaderMap, request_id: &str) {
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, id);
    }
}

/// The head of the client's reply: `headers` of an attempt, our request id, the content type of what is really sent,
/// and for an event stream what keeps proxies in front of us from holding it back.
pub(crate) fn reply(mut headers: HeaderMap, request_id: &str, content: Content) -> HeaderMap {
    let given = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let fitting = match (content, given) {
        (Content::EventStream, Some(given)) if names_event_stream(given) => None,
        (Content::EventStream, _) => Some("text/event-stream; charset=utf-8"),
        // JSON lines and the like keep their name; SDKs take what is not called JSON for plain text.
        (Content::Document, Some(given)) if names_json(given) => None,
        (Content::Document | Content::Folded, _) => Some("application/json"),
        (Content::Bytes, Some(_)) => None,
        (Content::Bytes, None) => Some("application/octet-stream"),
    };
    if let Some(fitting) = fitting {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(fitting));
    }
    add_request_id(&mut headers, request_id);
    if content == Content::EventStream {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    }
    headers
}

/// Whether `upstream` calls its body an event stream.
pub(crate) fn declare_event_stream(upstream: &HeaderMap) -> bool {
    upstream
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| names_event_stream(value.as_bytes()))
}

/// A content type without its parameters.
pub(crate) fn essence(content_type: &[u8]) -> &[u8] {
    let essence = content_type.split(|b| *b == b';').next();
    essence.unwrap_or_default().trim_ascii()
}

fn names_event_stream(content_type: &[u8]) -> bool {
    essence(content_type).eq_ignore_ascii_case(b"text/event-stream")
}

fn names_json(content_type: &[u8]) -> bool {
    content_type
        .windows(4)
        .any(|word| word.eq_ignore_ascii_case(b"json"))
}

#[cfg(test)]
mod tests;
