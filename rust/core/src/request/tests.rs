use super::*;
use proptest::prelude::*;

fn parse(body: &str) -> Result<Request, Error> {
    Request::parse(Bytes::copy_from_slice(body.as_bytes()), &Limits::default())
}

fn edited(body: &str, edit: RequestEdit<'_>) -> String {
    let edited = parse(body).unwrap().edit(&edit);
    String::from_utf8(edited.to_vec()).unwrap()
}

fn model(name: &str) -> RequestEdit<'_> {
    RequestEdit {
        model: Some(name),
        ..RequestEdit::default()
    }
}

fn usage(usage: UsageAsk) -> RequestEdit<'static> {
    RequestEdit {
        usage,
        ..RequestEdit::default()
    }
}

fn stream(stream: bool) -> RequestEdit<'static> {
    RequestEdit {
        stream: Some(stream),
        ..RequestEdit::default()
    }
}

#[test]
fn what_routing_needs_is_read() {
    let request = parse(
        r#"{"messages":[{"model":"no","stream":true}],"model":"m","stream":true,
            "stream_options":{"x":{"include_usage":false},"include_usage":true}}"#,
    )
    .unwrap();
    assert_eq!(request.model(), Some("m"));
    assert!(request.stream());
    assert!(request.include_usage());
    let request = parse("{}").unwrap();
    assert_eq!(
        (request.model(), request.stream(), request.include_usage()),
        (None, false, false)
    );
}

#[test]
fn a_name_that_no_model_has_is_cut_and_forwarded_as_it_is() {
    let name = "é".repeat(10_000);
    let body = format!(r#"{{"model":"{name}"}}"#);
    let request = parse(&body).unwrap();
    assert_eq!(
        request.model(),
        Some(format!("{}…", "é".repeat(512)).as_str())
    );
    assert_eq!(edited(&body, RequestEdit::default()), body);
}

#[test]
fn keys_and_values_count_with_their_escapes_decoded() {
    let request =
        parse(r#"{"mod\u0065l":"a\u002fb\n","\u0073tream":true,"stream\u005foptions":{"include_us\u0061ge":true}}"#).unwrap();
    assert_eq!(request.model(), Some("a/b\n"));
    assert!(request.stream() && request.include_usage());
    assert_eq!(
        edited(r#"{"mod\u0065l":"a"}"#, model("b\"")),
        r#"{"mod\u0065l":"b\""}"#
    );
}

#[test]
fn null_is_no_stream_and_other_types_are_refused() {
    assert!(!parse(r#"{"stream":null}"#).unwrap().stream());
    assert!(!parse(r#"{"stream":false}"#).unwrap().stream());
    for body in [
        r#"{"stream":"true"}"#,
        r#"{"stream":1}"#,
        r#"{"stream":{}}"#,
    ] {
        assert_eq!(
            parse(body).unwrap_err(),
            Error::new(ErrorKind::WrongType, 10)
        );
    }
    assert_eq!(parse(r#"{"model":null}"#).unwrap().model(), None);
    assert_eq!(parse(r#"{"model":7}"#).unwrap().model(), None);
    assert!(!parse(r#"{"stream_options":null}"#).unwrap().include_usage());
    assert!(
        !parse(r#"{"stream_options":{"include_usage":null}}"#)
            .unwrap()
            .include_usage()
    );
}

#[test]
fn of_several_equal_keys_the_last_is_read_and_all_are_edited() {
    let body = r#"{"model":"a","stream":true,"model":"b","stream":false}"#;
    let request = parse(body).unwrap();
    assert_eq!((request.model(), request.stream()), (Some("b"), false));
    assert_eq!(
        edited(body, model("c")),
        r#"{"model":"c","stream":true,"model":"c","stream":false}"#
    );
    assert_eq!(
        edited(body, stream(true)),
        r#"{"model":"a","stream":true,"model":"b","stream":true}"#
    );
    let twice = r#"{"stream":true,"stream_options":{"include_usage":false,"include_usage":null},"stream_options":null}"#;
    assert_eq!(
        edited(twice, usage(UsageAsk::Ask)),
        r#"{"stream":true,"stream_options":{"include_usage":true,"include_usage":true},"stream_options":{"include_usage":true}}"#
    );
    assert_eq!(edited(twice, usage(UsageAsk::Remove)), r#"{"stream":true}"#);
}

#[test]
fn a_flood_of_equal_keys_is_refused() {
    let body = |times: usize| format!("{{{}}}", vec![r#""model":"m""#; times].join(","));
    assert!(parse(&body(MAX_DUPLICATES)).is_ok());
    let error = parse(&body(MAX_DUPLICATES + 1)).unwrap_err();
    assert_eq!(
        error,
        Error::new(ErrorKind::TooManyDuplicates, 1 + 12 * MAX_DUPLICATES as u64)
    );
    let asks = vec![r#""include_usage":true"#; MAX_DUPLICATES + 1].join(",");
    let error = parse(&format!(r#"{{"stream_options":{{{asks}}}}}"#)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooManyDuplicates);
}

#[test]
fn every_other_byte_stays_in_place() {
    assert_eq!(
        edited(
            " {\n\t\"x\" : 1.0e0 ,\"model\" :\t\"a\" , \"y\":[ ] }\r\n",
            model("é\u{1}")
        ),
        " {\n\t\"x\" : 1.0e0 ,\"model\" :\t\"é\\u0001\" , \"y\":[ ] }\r\n"
    );
}

#[test]
fn a_body_that_stays_as_it_is_is_not_copied() {
    let body = Bytes::from_static(
        br#"{"model":"a","stream":true,"stream_options":{"include_usage":true}}"#,
    );
    let request = Request::parse(body.clone(), &Limits::default()).unwrap();
    for edit in [
        RequestEdit::default(),
        RequestEdit {
            model: Some("a"),
            usage: UsageAsk::Ask,
            stream: Some(true),
            ..RequestEdit::default()
        },
    ] {
        assert_eq!(request.edit(&edit).as_ptr(), body.as_ptr());
    }
}

#[test]
fn missing_members_are_added_at_the_end() {
    let all = RequestEdit {
        model: Some("m"),
        usage: UsageAsk::Ask,
        stream: Some(true),
        ..RequestEdit::default()
    };
    let added = r#""model":"m","stream":true,"stream_options":{"include_usage":true}"#;
    assert_eq!(edited("{}", all), format!("{{{added}}}"));
    assert_eq!(edited(" { } ", all), format!(" {{{added} }} "));
    assert_eq!(
        edited(r#"{"x":[] }"#, all),
        format!(r#"{{"x":[],{added} }}"#)
    );
    assert_eq!(edited("{}", stream(false)), r#"{"stream":false}"#);
}

#[test]
fn usage_is_asked_for_without_losing_other_options() {
    let ask = |options: &str| {
        let body = format!(r#"{{"stream":true,"stream_options":{options},"z":0}}"#);
        let edited = edited(&body, usage(UsageAsk::Ask));
        let prefix = r#"{"stream":true,"stream_options":"#;
        edited
            .strip_prefix(prefix)
            .unwrap()
            .strip_suffix(r#","z":0}"#)
            .unwrap()
            .to_owned()
    };
    assert_eq!(ask("null"), r#"{"include_usage":true}"#);
    assert_eq!(ask("{}"), r#"{"include_usage":true}"#);
    assert_eq!(ask("{ }"), r#"{ "include_usage":true}"#);
    assert_eq!(
        ask(r#"{"a":{"include_usage":false}}"#),
        r#"{"a":{"include_usage":false},"include_usage":true}"#
    );
    assert_eq!(
        ask(r#"{"include_usage":false,"a":1}"#),
        r#"{"include_usage":true,"a":1}"#
    );
    assert_eq!(
        ask(r#"{"include_usage":null}"#),
        r#"{"include_usage":true}"#
    );
    assert_eq!(ask("7"), "7");
}

#[test]
fn usage_is_not_asked_for_where_nothing_streams() {
    assert_eq!(edited("{}", usage(UsageAsk::Ask)), "{}");
    assert_eq!(
        edited(r#"{"stream":null}"#, usage(UsageAsk::Ask)),
        r#"{"stream":null}"#
    );
    let edit = RequestEdit {
        stream: Some(false),
        usage: UsageAsk::Ask,
        model: None,
        ..RequestEdit::default()
    };
    assert_eq!(edited(r#"{"stream":true}"#, edit), r#"{"stream":false}"#);
}

#[test]
fn stream_options_are_taken_out_with_one_comma() {
    let remove = |body| edited(body, usage(UsageAsk::Remove));
    assert_eq!(remove(r#"{"stream_options":{}}"#), "{}");
    assert_eq!(remove(r#"{ "stream_options" : {} , "a":1}"#), r#"{ "a":1}"#);
    assert_eq!(remove(r#"{"a":1 , "stream_options":{} }"#), r#"{"a":1 }"#);
    assert_eq!(
        remove(r#"{"a":1,"stream_options":{},"b":2}"#),
        r#"{"a":1,"b":2}"#
    );
    assert_eq!(
        remove(r#"{"stream_options":1,"stream_options":2,"a":1}"#),
        r#"{"a":1}"#
    );
    assert_eq!(
        remove(r#"{"stream_options":1,"a":1,"stream_options":2}"#),
        r#"{"a":1}"#
    );
    assert_eq!(remove(r#"{"stream_options":1,"stream_options":2}"#), "{}");
    let edit = RequestEdit {
        model: Some("m"),
        usage: UsageAsk::Remove,
        stream: None,
        ..RequestEdit::default()
    };
    assert_eq!(edited(r#"{"stream_options":1}"#, edit), r#"{"model":"m"}"#);
    assert_eq!(
        edited(r#"{"a":1,"stream_options":1}"#, edit),
        r#"{"a":1,"model":"m"}"#
    );
}

#[test]
fn what_is_not_one_json_object_is_refused_where_it_shows() {
    for (body, kind, offset) in [
        ("", ErrorKind::UnexpectedEnd, 0),
        (" [1]", ErrorKind::NotAnObject, 1),
        ("\"{}\"", ErrorKind::NotAnObject, 0),
        ("[1", ErrorKind::UnexpectedEnd, 2),
        ("{\"a\":1", ErrorKind::UnexpectedEnd, 6),
        ("{\"a\":01}", ErrorKind::UnexpectedByte, 6),
        ("{\"a\":1,}", ErrorKind::UnexpectedByte, 7),
        ("{\"a\":NaN}", ErrorKind::UnexpectedByte, 5),
        ("{} {}", ErrorKind::TrailingBytes, 3),
        // RFC 8259, section 8.1: a byte-order mark must not be sent, and a parser need not ignore one.
        ("\u{feff}{}", ErrorKind::UnexpectedByte, 0),
    ] {
        assert_eq!(parse(body).unwrap_err(), Error::new(kind, offset), "{body}");
    }
    let bad = Bytes::from_static(b"{\"a\":\"\xff\"}");
    let error = Request::parse(bad, &Limits::default()).unwrap_err();
    assert_eq!(error, Error::new(ErrorKind::InvalidUtf8, 6));
}

#[test]
fn size_and_depth_are_bounded() {
    let limits = Limits {
        max_document: 10,
        max_depth: 3,
        ..Limits::default()
    };
    let parse = |body: &'static str| Request::parse(Bytes::from_static(body.as_bytes()), &limits);
    assert!(parse(r#"{"a":[[]]}"#).is_ok());
    assert_eq!(
        parse(r#"{"a":[{}] }"#).unwrap_err(),
        Error::new(ErrorKind::DocumentTooLarge, 10)
    );
    assert_eq!(
        parse(r#"{"":[[[]"#).unwrap_err(),
        Error::new(ErrorKind::TooDeep, 6)
    );
}

/// A body's members other than those that an edit may touch, as bytes.
fn other_members(body: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    Members::document(body, 64)
        .unwrap()
        .map(Result::unwrap)
        .filter(|member| {
            ![MODEL, STREAM, STREAM_OPTIONS]
                .iter()
                .any(|name| member.key_is(body, name))
        })
        .map(|member| {
            (
                member.key.bytes(body).to_vec(),
                member.value.bytes(body).to_vec(),
            )
        })
        .collect()
}

fn body() -> impl Strategy<Value = String> {
    let member = prop::sample::select(vec![
        r#""model":"a""#,
        r#""mod\u0065l" : null"#,
        r#""stream":true"#,
        r#""stream" :false"#,
        r#""stream_options":{}"#,
        r#""stream_options": {"include_usage": false , "x":1}"#,
        r#""stream_options":null"#,
        r#""stream_options":[]"#,
        r#""messages":[{"model":"}{","stream_options":{}}]"#,
        r#""a\"b":1e5"#,
    ]);
    let space = prop::sample::select(vec!["", " ", "\n\t"]);
    (proptest::collection::vec((space.clone(), member, space), 0..6)).prop_map(|members| {
        let members: Vec<String> = members
            .into_iter()
            .map(|(before, member, after)| format!("{before}{member}{after}"))
            .collect();
        format!("{{{}}}", members.join(","))
    })
}

proptest! {
    #[test]
    fn an_edit_does_what_it_says_and_touches_nothing_else(
        text in body(),
        name in proptest::option::of("[a-z\"\\\\\n\u{e9}]{0,5}"),
        ask in prop::sample::select(vec![UsageAsk::Leave, UsageAsk::Ask, UsageAsk::Remove]),
        streams in any::<Option<bool>>(),
    ) {
        let before = parse(&text).unwrap();
        let edited = before.edit(&RequestEdit { model: name.as_deref(), usage: ask, stream: streams, ..RequestEdit::default() });
        let after = Request::parse(edited.clone(), &Limits::default()).unwrap();
        prop_assert_eq!(other_members(&edited), other_members(text.as_bytes()));
        prop_assert_eq!(after.model(), name.as_deref().or(before.model()));
        prop_assert_eq!(after.stream(), streams.unwrap_or(before.stream()));
        match ask {
            UsageAsk::Leave => prop_assert_eq!(after.include_usage(), before.include_usage()),
            UsageAsk::Remove => prop_assert!(after.options.is_empty()),
            UsageAsk::Ask if after.stream() => {
                let refused = after.options.last().is_some_and(|options| options.value.kind == Kind::Array);
                prop_assert_eq!(after.include_usage(), !refused);
            }
            UsageAsk::Ask => prop_assert_eq!(after.options.len(), before.options.len()),
        }
        serde_json::from_slice::<serde_json::Value>(&edited).unwrap();
    }

    #[test]
    fn no_bytes_make_it_panic(body in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = Request::parse(body.into(), &Limits::default());
    }
}

#[test]
fn the_clients_bound_and_its_user_are_read_where_they_make_sense() {
    let read = |body: &'static str| {
        let request =
            Request::parse(Bytes::from_static(body.as_bytes()), &Limits::default()).unwrap();
        (request.output_bound(), request.user().map(str::to_owned))
    };
    assert_eq!(
        read(r#"{"max_tokens":5,"user":"a\u0062"}"#),
        (Some(5), Some("ab".to_owned()))
    );
    assert_eq!(
        read(r#"{"max_tokens":5,"max_completion_tokens":9,"user":null}"#),
        (Some(9), None)
    );
    assert_eq!(
        read(r#"{"max_output_tokens":1.5,"user":["x"]}"#),
        (None, None)
    );
    assert_eq!(
        read(r#"{"max_tokens":"7","metadata":{"user":"x"}}"#),
        (None, None)
    );
    let long = format!(r#"{{"user":"{}"}}"#, "u".repeat(MAX_USER));
    let request = Request::parse(long.into(), &Limits::default()).unwrap();
    assert_eq!(request.user(), None);
}
