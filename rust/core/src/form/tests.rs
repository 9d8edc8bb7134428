use proptest::prelude::*;

use super::*;

const TYPE: &[u8] = b"multipart/form-data; boundary=XX";

fn part(head: &str, content: &str) -> String {
    format!("--XX\r\n{head}\r\n\r\n{content}\r\n")
}

fn field(name: &str, value: &str) -> String {
    part(
        &format!("Content-Disposition: form-data; name=\"{name}\""),
        value,
    )
}

fn file(content: &str) -> String {
    part(
        "Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav",
        content,
    )
}

fn whole(parts: &[String]) -> String {
    parts.concat() + "--XX--\r\n"
}

/// The same in one piece and byte by byte.
fn scanned(form: &[u8]) -> Result<Form, FormFault> {
    let run = |size: usize| {
        let mut scanner = FormScanner::new(TYPE)?;
        for piece in form.chunks(size) {
            scanner.feed(piece)?;
            assert!(scanner.held.len() <= MAX_HEAD + MAX_BOUNDARY + MAX_VALUE + 8);
        }
        scanner.finish().cloned()
    };
    let at_once = run(form.len().max(1));
    assert_eq!(run(1), at_once);
    at_once
}

fn fault(form: &str) -> FormFault {
    scanned(form.as_bytes()).unwrap_err()
}

#[test]
fn a_model_is_found_wherever_it_stands() {
    for form in [
        whole(&[field("model", "whisper-1"), file("abc")]),
        whole(&[
            file("abc"),
            field("language", "en"),
            field("model", "whisper-1"),
        ]),
        whole(&[field("model", "whisper-1")]).replace("--XX--\r\n", "--XX--"),
        whole(&[part(
            "content-type: text/plain\r\nCONTENT-DISPOSITION:form-data;name=model",
            "whisper-1",
        )]),
        whole(&[
            part(
                "Content-Disposition: form-data; filename=\"a;\\\"name=b.wav\"; name=\"file\"",
                "x",
            ),
            field("model", "whisper-1"),
        ]),
    ] {
        let found = scanned(form.as_bytes()).unwrap();
        assert_eq!(found.model.as_deref(), Some("whisper-1"), "{form}");
        assert_eq!(&form[found.model_at], "whisper-1");
    }
}

#[test]
fn a_form_without_a_model_has_none() {
    for form in [
        whole(&[]),
        whole(&[file("name=\"model\"")]),
        whole(&[field("model2", "a")]),
    ] {
        assert_eq!(scanned(form.as_bytes()).unwrap().model, None);
    }
    let empty = whole(&[field("a", "b"), field("model", "")]);
    let found = scanned(empty.as_bytes()).unwrap();
    assert_eq!(found.model.as_deref(), Some(""));
    assert!(found.model_at.is_empty());
    assert!(
        empty[found.model_at.start..].starts_with("\r\n--XX--"),
        "{:?}",
        found.model_at
    );
}

#[test]
fn whether_it_streams_is_read() {
    for (value, streams) in [
        ("true", true),
        ("True", true),
        ("1", true),
        ("false", false),
        ("", false),
    ] {
        let form = whole(&[field("stream", value), field("model", "m")]);
        assert_eq!(scanned(form.as_bytes()).unwrap().stream, streams, "{value}");
    }
}

#[test]
fn content_may_be_anything_but_the_boundary() {
    for content in [
        "", "\r\n", "\r\n\r\n", "--X", "\r\n--X", "-\r\n-", "\n--YY\n", "\r\n--",
    ] {
        let form = whole(&[file(content), field("model", "m")]);
        let found = scanned(form.as_bytes()).unwrap();
        assert_eq!(found.model.as_deref(), Some("m"), "{content:?}");
    }
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    let twice = |name: &str| whole(&[field(name, "a"), file("x"), field(name, "b")]);
    assert_eq!(fault(&twice("model")), FormFault::Twice);
    assert_eq!(fault(&twice("stream")), FormFault::Twice);
    for form in [
        // Boundaries that only some take for one.
        whole(&[file(
            "\n--XX\nContent-Disposition: form-data; name=\"model\"\n\nb",
        )]),
        whole(&[file("\r\n--XXY")]),
        whole(&[file("a--XX--")]),
        whole(&[field("a", "b")]).replace("--XX\r\n", "--XX \r\n"),
        // Something before the first and behind the last.
        format!("hello\r\n{}", whole(&[field("a", "b")])),
        format!("\r\n{}", whole(&[field("a", "b")])),
        whole(&[field("a", "b")]) + "--XX\r\n",
        // Parts without one plain name.
        whole(&[part("Content-Disposition: form-data", "a")]),
        whole(&[part("Content-Type: text/plain", "a")]),
        whole(&[part(
            "Content-Disposition: form-data; name=\"a\"; name=\"model\"",
            "a",
        )]),
        whole(&[part(
            "Content-Disposition: form-data; name=\"a\"; name*=utf-8''model",
            "a",
        )]),
        whole(&[part(
            "Content-Disposition: form-data; name*=utf-8''model",
            "a",
        )]),
        whole(&[part(
            "Content-Disposition: form-data; name=\"a\"\r\nContent-Disposition: form-data; name=\"model\"",
            "a",
        )]),
        whole(&[part(
            "Content-Disposition: form-data;\r\n name=\"model\"",
            "a",
        )]),
        whole(&[part("Content-Disposition : form-data; name=\"model\"", "a")]),
        whole(&[part("Content-Disposition: attachment; name=\"model\"", "a")]),
        whole(&[part("Content-Disposition: form-data; name=\"model", "a")]),
        whole(&[part(
            "Content-Disposition: form-data\nx; name=\"model\"",
            "a",
        )]),
    ] {
        assert_eq!(fault(&form), FormFault::Malformed, "{form}");
    }
}

#[test]
fn what_is_not_whole_is_incomplete() {
    let form = whole(&[field("model", "m"), file("abc")]);
    let end = form.len() - 2;
    for cut in 0..end {
        assert_eq!(fault(&form[..cut]), FormFault::Incomplete, "{cut}");
    }
    assert!(scanned(&form.as_bytes()[..end]).is_ok());
}

#[test]
fn everything_is_bounded() {
    let parts = |count| whole(&vec![field("a", "b"); count]);
    assert!(scanned(parts(MAX_PARTS).as_bytes()).is_ok());
    assert_eq!(fault(&parts(MAX_PARTS + 1)), FormFault::TooManyParts);
    let head = |size: usize| {
        let start = "Content-Disposition: form-data; name=\"a\"\r\nx: ";
        whole(&[part(
            &format!("{start}{}", "x".repeat(size - start.len())),
            "a",
        )])
    };
    assert!(scanned(head(MAX_HEAD).as_bytes()).is_ok());
    assert_eq!(fault(&head(MAX_HEAD + 1)), FormFault::LargeHead);
    assert_eq!(
        fault(&format!("--XX\r\n{}", "x".repeat(2 * MAX_HEAD))),
        FormFault::LargeHead
    );
    let value = |size| whole(&[field("model", &"x".repeat(size))]);
    assert!(scanned(value(MAX_VALUE).as_bytes()).is_ok());
    assert_eq!(fault(&value(MAX_VALUE + 1)), FormFault::LargeValue);
    assert_eq!(fault(&value(100 * MAX_VALUE)), FormFault::LargeValue);
}

#[test]
fn one_boundary_is_taken() {
    for good in [
        "multipart/form-data; boundary=XX",
        "Multipart/Form-Data;charset=utf-8 ; BOUNDARY=\"a b'()+_,-./:=?\"",
        "multipart/form-data; boundary=----WebKitFormBoundaryABC",
    ] {
        assert!(FormScanner::new(good.as_bytes()).is_ok(), "{good}");
    }
    let long = format!(
        "multipart/form-data; boundary={}",
        "x".repeat(MAX_BOUNDARY + 1)
    );
    for bad in [
        "",
        "application/json",
        "multipart/form-data",
        "multipart/mixed; boundary=a",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"\"",
        "multipart/form-data; boundary=a; boundary=b",
        "multipart/form-data; boundary=\"a\r\nb\"",
        "multipart/form-data; boundary=\"a ",
        "multipart/form-data; boundary=\"a\" b",
        &long,
    ] {
        assert_eq!(
            FormScanner::new(bad.as_bytes()).err(),
            Some(FormFault::ContentType),
            "{bad}"
        );
    }
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_say_the_same(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "--XX", "\r\n", "\r", "\n", "--", "-", "X", "a", "Content-Disposition: form-data; name=\"model\"",
            "Content-Disposition: form-data; name=\"file\"", ": ", "\"", ";",
        ]), 0..40),
    ) {
        let _ = scanned(pieces.concat().as_bytes());
        let _ = scanned(format!("--XX\r\n{}", pieces.concat()).as_bytes());
    }

    #[test]
    fn any_fields_are_found(
        before in prop::collection::vec(("[a-z]{1,8}", "[ -~]{0,20}"), 0..4),
        model in "[ -~]{0,20}",
        behind in prop::collection::vec(("[a-z]{1,8}", "[ -~]{0,20}"), 0..4),
    ) {
        let plain = |(name, value): &(String, String)| field(&format!("f_{name}"), value);
        let parts: Vec<String> = before.iter().map(plain)
            .chain([field("model", &model)])
            .chain(behind.iter().map(plain))
            .collect();
        let form = whole(&parts);
        prop_assume!(form.matches("--XX").count() == parts.len() + 1);
        let found = scanned(form.as_bytes()).unwrap();
        prop_assert_eq!(found.model.as_deref(), Some(model.as_str()));
        prop_assert_eq!(&form[found.model_at], model.as_str());
    }
}
