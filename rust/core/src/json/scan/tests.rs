use super::*;
use proptest::prelude::*;

fn problem(text: &str) -> Option<(Problem, usize)> {
    document(text.as_bytes(), 64)
        .err()
        .map(|f| (f.problem, f.offset))
}

#[test]
fn accepts_what_the_grammar_allows() {
    for text in [
        "null",
        " true ",
        "0",
        "-0",
        "-12.5e+7",
        "1E3",
        "\"\"",
        "[]",
        "{}",
        "[ ]",
        "{ }",
        "[1,2]",
        "[[],{}]",
        "{\"a\":{\"b\":[null,\"\\u00e9\\ud83d\\ude00\"]}}\r\n",
        "\"\\ud800\"",
        "\"é\u{7f}\"",
    ] {
        assert_eq!(problem(text), None, "{text}");
    }
}

#[test]
fn refuses_everything_else_and_says_where() {
    use Problem::{TrailingBytes, UnexpectedByte, UnexpectedEnd};
    for (text, expected, offset) in [
        ("", UnexpectedEnd, 0),
        ("  ", UnexpectedEnd, 2),
        ("nul", UnexpectedEnd, 3),
        ("nulL", UnexpectedByte, 3),
        ("01", TrailingBytes, 1),
        ("1.", UnexpectedEnd, 2),
        ("1.e5", UnexpectedByte, 2),
        ("+1", UnexpectedByte, 0),
        ("-", UnexpectedEnd, 1),
        (".5", UnexpectedByte, 0),
        ("NaN", UnexpectedByte, 0),
        ("[1,]", UnexpectedByte, 3),
        ("[,1]", UnexpectedByte, 1),
        ("[1 2]", UnexpectedByte, 3),
        ("[1", UnexpectedEnd, 2),
        ("[1}", UnexpectedByte, 2),
        ("{\"a\":1]", UnexpectedByte, 6),
        ("{\"a\":1,}", UnexpectedByte, 7),
        ("{\"a\" 1}", UnexpectedByte, 5),
        ("{a:1}", UnexpectedByte, 1),
        ("{\"a\":}", UnexpectedByte, 5),
        ("\"abc", UnexpectedEnd, 4),
        ("\"a\nb\"", UnexpectedByte, 2),
        ("\"\\x\"", UnexpectedByte, 2),
        ("\"\\u12g4\"", UnexpectedByte, 5),
        ("{} {}", TrailingBytes, 3),
        ("\u{feff}{}", UnexpectedByte, 0),
    ] {
        assert_eq!(problem(text), Some((expected, offset)), "{text}");
    }
}

#[test]
fn bytes_that_are_not_utf8_are_refused_where_they_are() {
    let fault = document(b"[\"ab\xff\"]", 64).unwrap_err();
    assert_eq!((fault.problem, fault.offset), (Problem::InvalidUtf8, 4));
}

#[test]
fn depth_is_bounded_without_recursion() {
    let deep = "[".repeat(1_000_000);
    assert_eq!(problem(&deep), Some((Problem::TooDeep, 64)));
    let fits = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
    assert!(document(fits.as_bytes(), usize::MAX).is_ok());
    let over = format!("{}{}", "[".repeat(MAX_DEPTH + 1), "]".repeat(MAX_DEPTH + 1));
    assert_eq!(
        document(over.as_bytes(), usize::MAX).unwrap_err().problem,
        Problem::TooDeep
    );
    assert!(document(b"[[]]", 2).is_ok());
    assert!(document(b"[[]]", 1).is_err());
    assert!(
        Members::document(b"{\"a\":{}}", 1)
            .unwrap()
            .next()
            .unwrap()
            .is_err()
    );
    assert!(Members::document(b"{}", 0).is_err());
}

#[test]
fn objects_and_arrays_do_not_mix_across_the_words_of_the_depth_bits() {
    let mut text = String::new();
    for i in 0..200 {
        text.push_str(if i % 3 == 0 { "{\"a\":" } else { "[" });
    }
    text.push('1');
    for i in (0..200).rev() {
        text.push(if i % 3 == 0 { '}' } else { ']' });
    }
    assert!(document(text.as_bytes(), 512).is_ok());
    let swapped = text.replacen("]}", "}]", 1);
    assert!(document(swapped.as_bytes(), 512).is_err());
}

#[test]
fn members_give_keys_and_values_where_they_are() {
    let text = br#"{"a" : 1 , "b\"c":[{"x":"}"}], "a":null}"#;
    let members: Vec<Member> = Members::document(text, 64)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let seen: Vec<(&[u8], &[u8])> = members
        .iter()
        .map(|m| (m.key.bytes(text), m.value.bytes(text)))
        .collect();
    assert_eq!(
        seen,
        [
            (&b"\"a\""[..], &b"1"[..]),
            (b"\"b\\\"c\"", b"[{\"x\":\"}\"}]"),
            (b"\"a\"", b"null")
        ]
    );
    assert!(members[1].key_is(text, "b\"c"));
}

#[test]
fn members_end_after_a_fault() {
    let text = br#"{"a":1,"b":x,"c":2}"#;
    let mut members = Members::document(text, 64).unwrap();
    assert!(members.next().unwrap().is_ok());
    assert!(members.next().unwrap().is_err());
    assert!(members.next().is_none());
}

#[test]
fn only_unsigned_integers_that_fit_are_counts() {
    let read = |text: &str| {
        value(text.as_bytes(), 0, 8)
            .unwrap()
            .as_u64(text.as_bytes())
    };
    assert_eq!(read("0"), Some(0));
    assert_eq!(read("18446744073709551615"), Some(u64::MAX));
    assert_eq!(read("18446744073709551616"), None);
    assert_eq!(read("-1"), None);
    assert_eq!(read("1.0"), None);
    assert_eq!(read("1e2"), None);
    assert_eq!(read("\"5\""), None);
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<i32>().prop_map(|n| (f64::from(n) / 4.0).into()),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            proptest::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn digits_end_where_the_first_other_byte_is(text in proptest::collection::vec(prop_oneof![4 => b'0'..=b'9', 1 => any::<u8>()], 0..40), start in 0usize..8) {
        let expected = text.iter().skip(start).position(|byte| !byte.is_ascii_digit()).map_or(text.len(), |len| start + len);
        prop_assert_eq!(digits_end(&text, start), expected.max(start));
    }

    #[test]
    fn agrees_with_serde_json_on_documents(value in json(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let found = document(text.as_bytes(), 64).unwrap();
        prop_assert_eq!(found.range(), 0..text.len());
        if let serde_json::Value::Object(map) = &value {
            let members: Vec<Member> = Members::document(text.as_bytes(), 64).unwrap().collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(members.len(), map.len());
            for member in members {
                let key = member.key.decode(text.as_bytes()).unwrap();
                let parsed: serde_json::Value = serde_json::from_slice(member.value.bytes(text.as_bytes())).unwrap();
                prop_assert_eq!(&map[key.as_ref()], &parsed);
                prop_assert!(member.key_is(text.as_bytes(), &key));
            }
        }
    }

    /// Damaged documents: whatever serde_json says of them, we say too (lone surrogates and out-of-range floats aside,
    /// which it refuses).
    #[test]
    fn agrees_with_serde_json_on_damage(value in json(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut text = serde_json::to_vec(&value).unwrap();
        let at = at.index(text.len());
        text[at] = byte;
        let theirs = serde_json::from_slice::<serde_json::Value>(&text);
        let ours = document(&text, 64);
        if theirs.is_ok() {
            prop_assert!(ours.is_ok(), "{:?}", String::from_utf8_lossy(&text));
        } else if ours.is_ok() {
            let reason = theirs.unwrap_err().to_string();
            prop_assert!(reason.contains("surrogate") || reason.contains("out of range") || reason.contains("end of hex escape"), "{} {:?}", reason, String::from_utf8_lossy(&text));
        }
    }
}
