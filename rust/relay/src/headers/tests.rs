use bytes::Bytes;
use sluicegate_core::protocols::Serves;

use super::*;
use crate::upstream::{UpstreamError, UpstreamSettings};

fn pairs(pairs: &[(&'static str, &'static str)]) -> Vec<(Bytes, Bytes)> {
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

fn map(of: &[(&'static str, &'static str)]) -> HeaderMap {
    of.iter()
        .map(|(name, value)| {
            (
                name.parse::<HeaderName>().unwrap(),
                HeaderValue::from_static(value),
            )
        })
        .collect()
}

fn upstream(forward_authorization: bool) -> Upstream {
    let settings = UpstreamSettings {
        base_url: "http://127.0.0.1:1/v1".to_owned(),
        headers: pairs(&[("x-org", "ours")]),
        forward_authorization,
        forward_headers: vec!["X-Tenant".to_owned()],
        reply_headers: vec!["X-Region".to_owned()],
        ..UpstreamSettings::default()
    };
    Upstream::new("u", settings).unwrap()
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn only_what_is_named_goes_up() {
    let client = map(&[
        ("accept", "text/event-stream"),
        ("accept-encoding", "gzip"),
        ("anthropic-beta", "b"),
        ("authorization", "Bearer secret"),
        ("connection", "close, tracestate"),
        ("content-length", "12"),
        ("cookie", "a=b"),
        ("forwarded", "for=10.0.0.1"),
        ("host", "gateway"),
        ("idempotency-key", "i"),
        ("OpenAI-Organization", "theirs"),
        ("openai-project", "theirs"),
        ("referer", "https://intra"),
        ("te", "trailers"),
        ("traceparent", "00-1-2-01"),
        ("tracestate", "listed by the connection"),
        ("x-api-key", "secret"),
        ("x-b3-sampled", "1"),
        ("X-Forwarded-Access-Token", "secret"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-org", "theirs"),
        ("x-request-id", "spoofed"),
        ("X-Stainless-Lang", "python"),
        ("x-tenant", "t"),
        ("x-other", "o"),
    ]);
    let headers = up(&client, &upstream(false), Api::Chat, "req-1");
    let expected = [
        "accept",
        "accept-encoding",
        "idempotency-key",
        "traceparent",
        "x-b3-sampled",
        "x-org",
        "x-request-id",
        "x-stainless-lang",
        "x-tenant",
    ];
    assert_eq!(names(&headers), expected);
    assert_eq!(headers["x-org"], "ours");
    assert_eq!(headers["x-request-id"], "req-1");
    assert_eq!(headers["accept-encoding"], "identity");
}

#[test]
fn an_account_is_chosen_by_whoevers_key_it_is() {
    let key = ("authorization", "Bearer theirs");
    let account = [("openai-organization", "org"), ("openai-project", "p")];
    let headers = up(
        &map(&[account[0], key, account[1]]),
        &upstream(true),
        Api::Chat,
        "r",
    );
    assert_eq!(headers["authorization"], "Bearer theirs");
    assert_eq!(headers["openai-organization"], "org");
    assert_eq!(headers["openai-project"], "p");
    for (client, forwards) in [(&[account[0], key][..], false), (&account, true)] {
        let headers = up(&map(client), &upstream(forwards), Api::Chat, "r");
        let made = ["accept-encoding", "traceparent", "x-org", "x-request-id"];
        assert_eq!(names(&headers), made);
    }
}

#[test]
fn an_upstream_of_messages_alone_is_asked_as_one_whatever_is_asked_for() {
    let of = |apis: &[Api]| {
        let settings = UpstreamSettings {
            base_url: "http://a/v1".into(),
            key: Some(Bytes::from_static(b"ours")),
            serves: Serves::new(apis.iter().copied()).unwrap(),
            ..UpstreamSettings::default()
        };
        let upstream = Upstream::new("a", settings).unwrap();
        let client = map(&[("anthropic-beta", "b"), ("authorization", "Bearer theirs")]);
        up(&client, &upstream, Api::Other, "r")
    };
    let headers = of(&[Api::Messages]);
    assert_eq!(headers["x-api-key"], "ours");
    assert_eq!(headers["anthropic-version"], "2023-06-01");
    assert_eq!(headers["anthropic-beta"], "b");
    assert!(!headers.contains_key("authorization"));
    for apis in [&[Api::Chat][..], &[Api::Messages, Api::Chat]] {
        let headers = of(apis);
        assert_eq!(headers["authorization"], "Bearer ours");
        assert!(!headers.contains_key("anthropic-version"));
    }
}

#[test]
fn json_is_named_where_the_client_has_not_said_what_it_is() {
    let mut headers = map(&[]);
    name_json(&mut headers);
    assert_eq!(headers["content-type"], "application/json");
    let mut headers = map(&[("content-type", "application/x+json")]);
    name_json(&mut headers);
    assert_eq!(headers["content-type"], "application/x+json");
}

#[test]
fn only_what_is_named_goes_down() {
    let mut head = HeaderMap::new();
    for name in [
        "access-control-allow-origin",
        "alt-svc",
        "anthropic-organization-id",
        "anthropic-ratelimit-tokens-reset",
        "cf-ray",
        "content-encoding",
        "content-length",
        "content-type",
        "date",
        "openai-organization",
        "openai-processing-ms",
        "request-id",
        "retry-after",
        "server",
        "set-cookie",
        "strict-transport-security",
        "transfer-encoding",
        "via",
        "x-other",
        "x-ratelimit-remaining-tokens",
        "x-region",
        "x-request-id",
        "x-should-retry",
    ] {
        head.insert(name, HeaderValue::from_static("x"));
    }
    head.insert("connection", HeaderValue::from_static("close, cf-ray"));
    let expected = [
        "anthropic-ratelimit-tokens-reset",
        "content-type",
        "openai-processing-ms",
        "request-id",
        "retry-after",
        "x-ratelimit-remaining-tokens",
        "x-region",
        "x-should-retry",
    ];
    assert_eq!(names(&down(&head, &upstream(false), Api::Chat)), expected);
}

#[test]
fn what_belongs_to_a_request_for_messages_goes_up_with_it_alone() {
    let client = map(&[("anthropic-beta", "b"), ("anthropic-version", "v")]);
    let goes = |api| {
        let headers = up(&client, &upstream(false), api, "r");
        ["anthropic-beta", "anthropic-version"].map(|name| headers.contains_key(name))
    };
    assert_eq!(goes(Api::Messages), [true, true]);
    for api in [Api::Chat, Api::Responses, Api::Completions, Api::Embeddings] {
        assert_eq!(goes(api), [false, false], "{api:?}");
    }
}

#[test]
fn what_is_left_of_a_rate_limit_is_said_in_the_clients_words_too() {
    let openai = ("x-ratelimit-remaining-tokens", "7");
    let anthropic = ("anthropic-ratelimit-tokens-remaining", "7");
    for (said, api, ours) in [
        (openai, Api::Messages, anthropic),
        (anthropic, Api::Chat, openai),
        (anthropic, Api::Responses, openai),
    ] {
        let headers = down(&map(&[said]), &upstream(false), api);
        assert_eq!(headers.len(), 2);
        assert!([said.0, ours.0].iter().all(|name| headers[*name] == "7"));
        let own = down(&map(&[said, (ours.0, "5")]), &upstream(false), api);
        assert_eq!(own[ours.0], "5");
        assert_eq!(down(&map(&[ours]), &upstream(false), api).len(), 1);
    }
}

#[test]
fn nothing_of_the_connection_or_of_the_gateways_own_can_be_named() {
    let made = |up: &str, down: &str| {
        let settings = UpstreamSettings {
            base_url: "http://127.0.0.1:1/v1".to_owned(),
            forward_headers: vec![up.to_owned()],
            reply_headers: vec![down.to_owned()],
            ..UpstreamSettings::default()
        };
        Upstream::new("u", settings).map(drop)
    };
    assert_eq!(made("x-up", "x-down"), Ok(()));
    let crossing = |name: &str| Err(UpstreamError::Crossing(name.to_owned()));
    for name in HOP_BY_HOP.iter().chain(&NEVER_UP) {
        assert_eq!(made(name, "x-down"), crossing(name));
    }
    let cors = "Access-Control-Allow-Origin";
    for name in HOP_BY_HOP.iter().chain(&NEVER_DOWN).chain([&cors]) {
        assert_eq!(made("x-up", name), crossing(name));
    }
    let bad = Err(UpstreamError::Header("no name".to_owned()));
    assert_eq!(made("no name", "x-down"), bad);
}

#[test]
fn the_content_type_follows_the_body() {
    let mut head = HeaderMap::new();
    head.insert("content-type", HeaderValue::from_static("application/json"));
    let of = |head: &HeaderMap, content| {
        let headers = reply(head.clone(), "r", content);
        assert_eq!(headers["x-request-id"], "r");
        headers[header::CONTENT_TYPE].to_str().unwrap().to_owned()
    };
    assert!(of(&head, Content::EventStream).starts_with("text/event-stream"));
    assert_eq!(of(&head, Content::Document), "application/json");
    head.insert(
        "content-type",
        HeaderValue::from_static("text/event-stream"),
    );
    assert_eq!(of(&head, Content::Document), "application/json");
    head.insert("content-type", HeaderValue::from_static("text/html"));
    assert_eq!(of(&head, Content::Document), "application/json");
    let lines = HeaderValue::from_static("application/x-NDJSON; charset=utf-8");
    head.insert("content-type", lines.clone());
    assert_eq!(of(&head, Content::Document), lines.to_str().unwrap());
    assert_eq!(of(&head, Content::Folded), "application/json");
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
fn no_upstream_says_that_an_error_is_the_gateways() {
    assert!(!may_go_down(&HeaderName::from_static("x-sluicegate-error")));
    assert!(may_go_down(&HeaderName::from_static("retry-after")));
}

#[test]
fn own_headers_take_the_place_of_the_upstreams() {
    let theirs = map(&[
        ("x-ratelimit-limit-requests", "1000"),
        ("anthropic-ratelimit-tokens-reset", "soon"),
        ("request-id", "theirs"),
        ("x-sluicegate-model", "spoofed"),
    ]);
    let named = with_own(theirs.clone(), &map(&[("x-sluicegate-model", "ours")]));
    assert_eq!(named["x-sluicegate-model"], "ours");
    assert_eq!(named.len(), 4);
    let own = map(&[("x-ratelimit-remaining-requests", "7")]);
    let limited = with_own(theirs, &own);
    assert_eq!(
        names(&limited),
        [
            "request-id",
            "x-ratelimit-remaining-requests",
            "x-sluicegate-model"
        ]
    );
}
