use super::*;
use proptest::prelude::*;

#[derive(Debug, PartialEq)]
struct Outcome {
    documents: Vec<Bytes>,
    bytes: Vec<u8>,
    rest: Option<Bytes>,
    error: Option<Error>,
}

fn split<'a>(reads: impl IntoIterator<Item = &'a [u8]>, max_document: usize) -> Outcome {
    let mut documents = Documents::new(&Limits {
        max_document,
        ..Limits::default()
    });
    let mut parts = Vec::new();
    let mut error = None;
    for read in reads {
        error = documents
            .feed(Bytes::copy_from_slice(read), &mut parts)
            .err();
    }
    let is_document = |part: &&BodyPart| matches!(part, BodyPart::Document(_));
    Outcome {
        documents: parts
            .iter()
            .filter(is_document)
            .map(|part| part.bytes().clone())
            .collect(),
        bytes: parts
            .iter()
            .flat_map(|part| part.bytes())
            .copied()
            .collect(),
        rest: documents.finish(),
        error,
    }
}

fn documents(body: &str) -> Vec<String> {
    let outcome = split([body.as_bytes()], usize::MAX);
    assert_eq!(outcome.error, None);
    outcome
        .documents
        .iter()
        .chain(&outcome.rest)
        .map(|document| String::from_utf8(document.to_vec()).unwrap())
        .collect()
}

#[test]
fn a_byte_order_mark_is_no_document() {
    assert_eq!(documents("\u{feff}{}"), ["{}"]);
    assert_eq!(documents(" \u{feff}\n{}\u{feff}[]"), ["{}", "[]"]);
    assert_eq!(documents("\u{feff}1 {}"), ["\u{feff}1", "{}"]);
    let body = "\u{feff} {}".as_bytes();
    let bytewise = split(body.chunks(1), usize::MAX);
    assert_eq!(bytewise, split([body], usize::MAX));
    assert_eq!(bytewise.bytes, body);
}

#[test]
fn documents_end_where_their_brackets_close() {
    assert_eq!(documents("{\"a\":[{}]}"), ["{\"a\":[{}]}"]);
    assert_eq!(documents("{}{}[]"), ["{}", "{}", "[]"]);
    assert_eq!(
        documents(" {\"a\":1}\r\n\n{\"b\":2}\n"),
        ["{\"a\":1}", "{\"b\":2}"]
    );
}

#[test]
fn brackets_and_escaped_quotes_in_strings_do_not_count() {
    let body = r#"{"a":"}{][","b\"}":"\\"}"#;
    assert_eq!(documents(&format!("{body}{body}")), [body, body]);
}

#[test]
fn what_is_no_object_or_array_is_handed_out_too() {
    assert_eq!(documents("\"a b\"\"c\""), ["\"a b\"", "\"c\""]);
    assert_eq!(
        documents("{}null true{}garbage"),
        ["{}", "null", "true", "{}", "garbage"]
    );
    assert_eq!(documents("]{}"), ["]", "{}"]);
}

#[test]
fn a_long_run_of_numbers_hides_no_bracket() {
    for length in 0..80 {
        let body = format!("[{}]", "1".repeat(length));
        assert_eq!(documents(&format!("{body}{body}")), [&body[..], &body]);
        let odd = format!("[{}]", "\u{2}".repeat(length));
        assert_eq!(documents(&format!("{odd}{odd}")), [&odd[..], &odd]);
    }
}

#[test]
fn a_document_in_one_read_is_a_slice_of_it() {
    let read = Bytes::from_static(b"\n{\"a\":1}");
    let mut parts = Vec::new();
    Documents::new(&Limits::default())
        .feed(read.clone(), &mut parts)
        .unwrap();
    assert_eq!(parts[1].bytes().as_ptr(), read[1..].as_ptr());
}

#[test]
fn white_space_is_handed_out_at_once() {
    let mut documents = Documents::new(&Limits::default());
    let mut parts = Vec::new();
    documents
        .feed(Bytes::from_static(b"\n\n"), &mut parts)
        .unwrap();
    assert_eq!(parts, [BodyPart::Space(Bytes::from_static(b"\n\n"))]);
}

#[test]
fn a_document_over_the_bound_is_an_error_for_good() {
    assert_eq!(split([&b"{}[1]"[..]], 3).error, None);
    let outcome = split([&b"{}[12]{}"[..]], 3);
    assert_eq!(outcome.documents, ["{}"]);
    assert_eq!(
        outcome.error,
        Some(Error::new(ErrorKind::DocumentTooLarge, 5))
    );
    assert_eq!(outcome.rest, None);
}

proptest! {
    #[test]
    fn any_cut_gives_the_same(
        body in "[]{}\\[\"\\\\ \na1]{0,40}",
        at in any::<prop::sample::Index>(),
        max_document in prop_oneof![Just(usize::MAX), 1..12usize],
    ) {
        let body = body.as_bytes();
        let whole = split([body], max_document);
        let (head, tail) = body.split_at(at.index(body.len() + 1));
        let two = split([head, tail], max_document);
        let ones = split(body.chunks(1), max_document);
        if whole.error.is_none() {
            let mut all = whole.bytes.clone();
            all.extend(whole.rest.iter().flatten());
            prop_assert_eq!(all, body);
        }
        prop_assert_eq!(&two, &whole);
        prop_assert_eq!(&ones, &whole);
    }

    #[test]
    fn valid_documents_are_found_again(values in proptest::collection::vec("[a-z{}\"\\\\\\[ ]{0,9}", 0..6), space in "[ \n]{0,2}") {
        let texts: Vec<String> = values.iter().map(|value| serde_json::json!({ "k": [value] }).to_string()).collect();
        prop_assert_eq!(documents(&texts.join(&space)), texts);
    }
}
