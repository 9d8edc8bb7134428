//! What the front reads of a request by itself is what the RFCs say, and nothing of it is read into two things.

use bytes::Bytes;
use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue};
use sluicegate_core::limits::Limits;
use sluicegate_front::head::{drop_hop_by_hop, own_request_id};
use sluicegate_front::{AskedRequest, Endpoint, digest_of};

/// RFC 9110, section 7.6.1, and two names that are in use beside it.
const ONE_CONNECTION: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Only the token counts: neither the scheme's case nor spaces around it.
fn digest(value: &[u8]) {
    let Some(found) = digest_of(value) else {
        let scheme = value.split(|byte| *byte == b' ').next().unwrap_or_default();
        assert!(!value.contains(&b' ') || !scheme.eq_ignore_ascii_case(b"bearer"));
        return;
    };
    let token = value[b"Bearer ".len()..].trim_ascii();
    let plain = [b"Bearer ", token].concat();
    assert_eq!(digest_of(&plain), Some(found));
    let other = [b"Bearer ", token, b"x"].concat();
    assert_ne!(digest_of(&other), Some(found));
}

/// What is taken goes into a header and into a line of the log as it is.
fn id(value: &[u8]) {
    if let Some(id) = own_request_id(value) {
        assert_eq!(id.as_bytes(), value);
        assert!(id.len() <= 128);
        assert!(HeaderValue::from_str(id).is_ok());
        assert!(
            !id.chars()
                .any(|sign| sign.is_whitespace() || sign.is_control())
        );
    }
}

/// Exactly the names that are listed go, and all others stay.
fn hop_by_hop(connection: &[&[u8]], names: &[&[u8]]) {
    let mut headers = HeaderMap::new();
    for value in connection {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(CONNECTION, value);
        }
    }
    let names = names.iter().copied();
    for name in names.chain(ONE_CONNECTION.map(str::as_bytes)) {
        if let Ok(name) = HeaderName::from_bytes(name) {
            headers.append(name, HeaderValue::from_static("x"));
        }
    }
    let listed = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|name| name.trim_ascii().to_ascii_lowercase())
        .collect::<Vec<_>>();
    let before = headers.clone();
    drop_hop_by_hop(&mut headers);
    for name in before.keys() {
        let goes = ONE_CONNECTION.contains(&name.as_str())
            || listed
                .iter()
                .any(|listed| listed == name.as_str().as_bytes());
        let values = if goes {
            0
        } else {
            before.get_all(name).iter().count()
        };
        assert_eq!(headers.get_all(name).iter().count(), values, "{name}");
    }
    assert!(headers.keys().all(|name| before.contains_key(name)));
}

/// One path leads to each endpoint, and no other spelling of it.
fn path(path: &str) {
    if let Some(endpoint) = Endpoint::at(path) {
        assert_eq!(endpoint.path(), path);
    }
}

/// A request that is taken is a JSON object, and says what any other reader of JSON takes it to say.
fn body(body: &[u8]) {
    for endpoint in Endpoint::all() {
        let text = Bytes::copy_from_slice(body);
        let Ok(asked) = AskedRequest::parse(&endpoint, text, &Limits::default()) else {
            continue;
        };
        let value: serde_json::Value = match serde_json::from_slice(body) {
            Ok(value) => value,
            // Its bounds of depth and of numbers are narrower, and it refuses half of a surrogate pair, which RFC 8259
            // section 8.2 allows and which is forwarded as it came.
            Err(error) => {
                let error = error.to_string();
                let narrower = ["recursion", "out of range", "hex escape"];
                assert!(
                    narrower.iter().any(|reason| error.contains(reason)),
                    "{error}"
                );
                continue;
            }
        };
        assert!(value.is_object());
        let request = asked.json().expect("no form was asked for");
        assert_eq!(request.model(), value["model"].as_str());
        assert_eq!(request.stream(), value["stream"] == true);
    }
}

/// Checks the properties on one input: each takes it for what it is about. Of its lines, the first is a `Connection`
/// and the others are names of headers.
pub fn check(input: &[u8]) {
    digest(input);
    id(input);
    let mut lines = input.split(|byte| *byte == b'\n');
    let connection = lines.next().unwrap_or_default();
    hop_by_hop(&[connection, connection], &lines.collect::<Vec<_>>());
    if let Ok(text) = std::str::from_utf8(input) {
        path(text);
    }
    body(input);
}
