//! What the front checks in a request's head beyond hyper: violations of HTTP that hyper lets pass, the client's
//! request id, and the headers that concern only one connection.

use std::time::Duration;

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::Authority;
use http::{Method, Version};

use crate::bounds::Bounds;
use crate::callers::X_API_KEY;
use crate::refusal::Refusal;

/// `: ` and the line's end, which a header takes beside its name and value.
const HEADER_EXTRA: usize = 4;

/// Why a request with this head is refused.
///
/// # Errors
/// That is the result: everything but a head that has one meaning only, and is within `bounds`.
pub(crate) fn check(parts: &Parts, bounds: &Bounds) -> Result<(), Refusal> {
    within(parts, bounds)?;
    target(parts)?;
    host(parts)?;
    let headers = &parts.headers;
    if repeated(headers, &AUTHORIZATION) {
        return Err(Refusal::Head(
            "The request has more than one Authorization header.",
        ));
    }
    if repeated(headers, &X_API_KEY) {
        return Err(Refusal::Head(
            "The request has more than one X-Api-Key header.",
        ));
    }
    if repeated(headers, &CONTENT_LENGTH) {
        return Err(Refusal::Head(
            "The request has more than one Content-Length header.",
        ));
    }
    coding(headers)
}

fn within(parts: &Parts, bounds: &Bounds) -> Result<(), Refusal> {
    let url = parts
        .uri
        .path_and_query()
        .map_or(0, |path| path.as_str().len());
    if url > bounds.url_bytes {
        return Err(Refusal::LongUrl(bounds.url_bytes));
    }
    let size = parts.headers.iter().fold(url, |size, (name, value)| {
        size + name.as_str().len() + value.len() + HEADER_EXTRA
    });
    if size > bounds.head_bytes || parts.headers.len() > bounds.headers {
        return Err(Refusal::LargeHead);
    }
    Ok(())
}

/// RFC 9112, section 3.2: a path, a whole URL, or `*`. The fourth form is for `CONNECT`, which is for proxies.
fn target(parts: &Parts) -> Result<(), Refusal> {
    if parts.method == Method::CONNECT {
        return Err(Refusal::Unsupported("This gateway is no tunnel."));
    }
    if parts.uri.path_and_query().is_none() {
        return Err(Refusal::Head("The request's target is no path."));
    }
    Ok(())
}

/// RFC 9112, section 3.2: an HTTP/1.1 request without exactly one valid Host is answered with 400. RFC 9113, section
/// 8.3.1: over HTTP/2 `:authority` is in its place, and a Host beside it must not say anything else.
fn host(parts: &Parts) -> Result<(), Refusal> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let authority = parts.uri.authority();
    let Some(host) = hosts.next() else {
        return match parts.version {
            Version::HTTP_09 | Version::HTTP_10 => Ok(()),
            Version::HTTP_11 => Err(Refusal::Head("The request has no Host header.")),
            _ if authority.is_none() => Err(Refusal::Head("The request names no authority.")),
            _ => Ok(()),
        };
    };
    if hosts.next().is_some() {
        return Err(Refusal::Head("The request has more than one Host header."));
    }
    let host = host.as_bytes();
    let other = authority.is_some_and(|authority| {
        parts.version >= Version::HTTP_2
            && !authority.as_str().as_bytes().eq_ignore_ascii_case(host)
    });
    if other {
        return Err(Refusal::Head(
            "The request's Host is another than its authority.",
        ));
    }
    if is_host(host) {
        Ok(())
    } else {
        Err(Refusal::Head("The request's Host header is no host."))
    }
}

/// RFC 9110, section 7.2: a host, and a port if any. A target without an authority has an empty one (RFC 9112, section
/// 3.2).
fn is_host(value: &[u8]) -> bool {
    if value.is_empty() {
        return true;
    }
    let Ok(authority) = Authority::try_from(value) else {
        return false;
    };
    let host = authority.host();
    let port = authority.as_str().strip_prefix(host);
    !host.is_empty()
        && port.is_some_and(|port| port.is_empty() || port == ":" || authority.port_u16().is_some())
}

/// RFC 9112, section 6.1: a coding that is not understood is answered with 501. hyper reads the chunks of `gzip,
/// chunked` and leaves the rest to us, who would take the compressed bytes for the text.
///
/// A Content-Length beside a coding is not seen here: hyper drops it, takes the chunks, and closes the connection after
/// the reply, which the same section allows in place of a 400. To refuse it would take a second parser of heads, which
/// could come to other ends than hyper's.
fn coding(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let plain = match codings.next() {
        None => true,
        Some(coding) => {
            coding
                .as_bytes()
                .trim_ascii()
                .eq_ignore_ascii_case(b"chunked")
                && codings.next().is_none()
        }
    };
    if plain {
        Ok(())
    } else {
        Err(Refusal::Unsupported(
            "The request's body has a transfer coding that this gateway does not take.",
        ))
    }
}

/// How long the client wants to wait for the end of its reply.
const TIMEOUT: HeaderName = HeaderName::from_static("x-sluicegate-timeout");

/// What the setting that it lowers may be, at most.
const LONGEST: f64 = 30.0 * 24.0 * 3600.0;

/// How long the client wants to wait for the end of its reply, where it says so.
///
/// # Errors
/// What it says is no number of seconds, or there are two.
pub(crate) fn patience(headers: &HeaderMap) -> Result<Option<Duration>, Refusal> {
    let Some(value) = headers.get(TIMEOUT) else {
        return Ok(None);
    };
    let seconds = value
        .to_str()
        .ok()
        .and_then(|text| text.trim().parse().ok());
    match seconds.filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST) {
        Some(seconds) if !repeated(headers, &TIMEOUT) => Ok(Some(Duration::from_secs_f64(seconds))),
        _ => Err(Refusal::Head(
            "The request's X-Sluicegate-Timeout header is no number of seconds, above 0 and up to 30 days.",
        )),
    }
}

fn repeated(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.get_all(name).iter().nth(1).is_some()
}

/// Mean something only to the two ends of one connection (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Remove the headers that concern only one connection, and those that `Connection` names (RFC 9110, section 7.6.1).
pub fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let listed = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect::<Vec<_>>();
    for name in HOP_BY_HOP.iter().chain(&listed) {
        headers.remove(name);
    }
}

/// A client's own request id is taken where it is fit for headers and logs: so long at most, and visible ASCII.
const REQUEST_ID_BYTES: usize = 128;

/// The id in this `X-Request-Id`, where it is fit for headers and logs.
#[must_use]
pub fn own_request_id(value: &[u8]) -> Option<&str> {
    let fit =
        (1..=REQUEST_ID_BYTES).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(value).ok().filter(|_| fit)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::refusal::Form;

    fn bounds() -> Bounds {
        Bounds {
            head_bytes: 200,
            url_bytes: 50,
            headers: 5,
            head_time: Duration::ZERO,
            body_pace: crate::bounds::Pace {
                pause: Duration::ZERO,
                rate: std::num::NonZeroU32::MIN,
            },
            idle: Duration::ZERO,
            stall: None,
            connections: 1,
            http2_streams: 1,
            http2_resets: 1,
        }
    }

    fn checked(version: Version, target: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().version(version).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        match check(&parts, &bounds()) {
            Ok(()) => 200,
            Err(refusal) => refusal.reply(Form::OpenAi, "").status,
        }
    }

    #[test]
    fn http_1_1_has_one_host() {
        let one = |headers: &[_]| checked(Version::HTTP_11, "/", headers);
        assert_eq!(one(&[("host", "a:80")]), 200);
        assert_eq!(one(&[("host", "[::1]:80")]), 200);
        assert_eq!(one(&[("host", "")]), 200);
        assert_eq!(one(&[]), 400);
        assert_eq!(one(&[("host", "a"), ("host", "a")]), 400);
        for host in ["a b", "a/b", "u@a", "a:port", ":80"] {
            assert_eq!(one(&[("host", host)]), 400, "{host}");
        }
        assert_eq!(checked(Version::HTTP_10, "/", &[]), 200);
    }

    #[test]
    fn http_2_has_one_authority() {
        let two = |target, headers: &[_]| checked(Version::HTTP_2, target, headers);
        assert_eq!(two("http://a/", &[]), 200);
        assert_eq!(two("http://a/", &[("host", "A")]), 200);
        assert_eq!(two("http://a/", &[("host", "b")]), 400);
        assert_eq!(two("/", &[]), 400);
    }

    #[test]
    fn a_whole_url_may_name_another_host_in_http_1_1() {
        let headers = [("host", "b")];
        assert_eq!(checked(Version::HTTP_11, "http://a/", &headers), 200);
        assert_eq!(checked(Version::HTTP_11, "a:80", &headers), 400);
    }

    #[test]
    fn chunked_is_the_one_coding() {
        let one = |codings: &[&str]| {
            let mut headers = vec![("host", "a")];
            headers.extend(codings.iter().map(|coding| ("transfer-encoding", *coding)));
            checked(Version::HTTP_11, "/", &headers)
        };
        assert_eq!(one(&["Chunked"]), 200);
        for codings in [
            &["gzip, chunked"][..],
            &["chunked, chunked"],
            &["identity", "chunked"],
        ] {
            assert_eq!(one(codings), 501, "{codings:?}");
        }
    }

    #[test]
    fn a_key_is_presented_once() {
        for name in ["authorization", "x-api-key"] {
            let one = |headers: &[_]| checked(Version::HTTP_11, "/", headers);
            assert_eq!(one(&[("host", "a"), (name, "Bearer b")]), 200);
            assert_eq!(
                one(&[("host", "a"), (name, "Bearer b"), (name, "Bearer b")]),
                400
            );
        }
    }

    #[test]
    fn a_client_says_in_seconds_how_long_it_waits() {
        let one = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(TIMEOUT, value.parse().unwrap());
            }
            patience(&headers)
        };
        let millis = |millis| Ok(Some(Duration::from_millis(millis)));
        assert_eq!(one(&[]), Ok(None));
        assert_eq!(one(&["90"]), millis(90_000));
        assert_eq!(one(&[" 0.25 "]), millis(250));
        for wrong in [
            "", "0", "-1", "nan", "inf", "1e300", "2592001", "30s", "1,2",
        ] {
            assert!(one(&[wrong]).is_err(), "{wrong}");
        }
        assert!(one(&["1", "1"]).is_err());
    }

    #[test]
    fn a_head_is_bound() {
        let one = |target: &str, headers: &[_]| checked(Version::HTTP_11, target, headers);
        assert_eq!(one(&format!("/{}", "a".repeat(49)), &[("host", "a")]), 200);
        assert_eq!(one(&format!("/{}", "a".repeat(50)), &[("host", "a")]), 414);
        let long = "b".repeat(200);
        assert_eq!(one("/", &[("host", "a"), ("x", &long)]), 431);
        let many = ["host", "b", "c", "d", "e", "f"].map(|name| (name, "a"));
        assert_eq!(one("/", &many[..5]), 200);
        assert_eq!(one("/", &many), 431);
    }
}
