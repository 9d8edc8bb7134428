use super::*;
use proptest::prelude::*;

/// What was told, and all of the body in order.
type Detected = Result<(Option<Mode>, Vec<u8>), Foreign>;

fn told<'a>(declared_stream: bool, reads: impl IntoIterator<Item = &'a [u8]>) -> Detected {
    let mut detector = ModeDetector::new(declared_stream);
    let mut reads = reads.into_iter();
    for read in reads.by_ref() {
        if let Some((mode, bytes)) = detector.feed(Bytes::copy_from_slice(read))? {
            let rest: Vec<u8> = reads.flatten().copied().collect();
            return Ok((Some(mode), [&bytes[..], &rest].concat()));
        }
    }
    Ok((None, detector.finish()?.to_vec()))
}

fn quoted(body: &[u8]) -> Foreign {
    let foreign = told(false, [body]).unwrap_err();
    assert_eq!(told(false, body.chunks(1)), Err(foreign.clone()));
    foreign
}

#[test]
fn the_first_bytes_tell_the_mode() {
    for (body, mode) in [
        (&b"data: {}\n\n"[..], Mode::Sse),
        (b"data:", Mode::Sse),
        (b"event: x", Mode::Sse),
        (b"id: 1", Mode::Sse),
        (b"retry:1", Mode::Sse),
        (b"data\n", Mode::Sse),
        (b"event\r\n", Mode::Sse),
        (b"id\r", Mode::Sse),
        (b": ping", Mode::Sse),
        (b"{}", Mode::Json),
        (b"[1]", Mode::Json),
        (b" \t\r\n{", Mode::Json),
        (b"\xEF\xBB\xBFdata:", Mode::Sse),
        (b"\xEF\xBB\xBF\xEF\xBB\xBF{", Mode::Json),
        (b"\n\xEF\xBB\xBF\n:", Mode::Sse),
    ] {
        for declared_stream in [false, true] {
            assert_eq!(
                told(declared_stream, [body]),
                Ok((Some(mode), body.to_vec()))
            );
        }
    }
    for undecided in [&b""[..], b" \n", b"\xEF\xBB\xBF", b"\xEF\xBB"] {
        for declared_stream in [false, true] {
            let nothing = Ok((None, undecided.to_vec()));
            assert_eq!(told(declared_stream, [undecided]), nothing);
        }
    }
}

#[test]
fn anything_else_is_no_reply_unless_it_is_declared_a_stream() {
    for body in [
        &b"<html>"[..],
        b"it works\n",
        b"error",
        b"data",
        b"data {}\n\n",
        b"dat",
        b"identity\n",
        b"Data: {}\n\n",
        b"retry after 3\n",
        b"\"text\"",
        b"null",
        b"42",
        b"\xEF\xBBdata: {}\n\n",
        b"\xEF\xBB\n",
        b"\x1F\x8B",
    ] {
        assert!(told(false, [body]).is_err(), "{body:?}");
        let declared = Ok((Some(Mode::Sse), body.to_vec()));
        assert_eq!(told(true, [body]), declared);
    }
}

#[test]
fn what_is_no_reply_is_quoted() {
    let page = b" \n<!doctype html>\r\n<html>\x07\n\t<p>Gr\xC3\xBC\xC3\x9Fe \xFF</p>";
    let foreign = quoted(page);
    assert_eq!(
        &*foreign.quote,
        "<!doctype html> <html> <p>Grüße \u{fffd}</p>"
    );
    assert_eq!(foreign.offset, 2);
    assert_eq!(Error::from(&foreign), Error::new(ErrorKind::NotAReply, 2));

    let long = "ß".repeat(10_000);
    let quote = quoted(long.as_bytes()).quote;
    assert_eq!(*quote, *format!("{}…", "ß".repeat(MAX_QUOTE)));
}

#[test]
fn no_more_is_held_than_is_quoted() {
    let mut detector = ModeDetector::new(false);
    let mut fed = 0;
    while let Ok(told) = detector.feed(Bytes::from_static(b"<")) {
        assert_eq!(told, None);
        fed += 1;
        assert!(fed < QUOTED_BYTES);
    }
}

#[test]
fn a_deciding_read_is_handed_back_uncopied() {
    let read = Bytes::from_static(b"\ndata: 1\n\n");
    let (_, bytes) = ModeDetector::new(false)
        .feed(read.clone())
        .unwrap()
        .unwrap();
    assert_eq!(bytes.as_ptr(), read.as_ptr());
}

#[test]
fn the_bound_on_white_space_does_not_depend_on_cuts() {
    for mark in [&b""[..], b"\xEF\xBB\xBF"] {
        for (before, is_late) in [(MAX_UNDECIDED, false), (MAX_UNDECIDED + 1, true)] {
            let mut body = vec![b' '; before - mark.len()];
            body.extend_from_slice(mark);
            body.push(b'{');
            for size in [1, 7, 4096, body.len()] {
                let late = Foreign {
                    quote: "".into(),
                    offset: MAX_UNDECIDED as u64,
                };
                let expected = match is_late {
                    true => Err(late),
                    false => Ok((Some(Mode::Json), body.clone())),
                };
                assert_eq!(told(false, body.chunks(size)), expected);
                // No document any more, and still what it is declared to be.
                let mode = if is_late { Mode::Sse } else { Mode::Json };
                let expected = Ok((Some(mode), body.clone()));
                assert_eq!(told(true, body.chunks(size)), expected);
            }
        }
    }
}

#[test]
fn white_space_is_not_held_without_end() {
    let mut detector = ModeDetector::new(false);
    let mut fed = 0;
    while detector.feed(Bytes::from(vec![b'\n'; 1000])).is_ok() {
        fed += 1000;
        assert!(fed <= MAX_UNDECIDED);
    }
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        " ", "\n", "\r", "\u{feff}", "{", "<", ":", "data", "event", "id", "retry", "d", "ü",
    ]);
    let pieces = proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat());
    let broken = proptest::collection::vec(prop::sample::select(b" \xEF\xBB\xBF{d".to_vec()), 0..6);
    let long = (0..QUOTED_BYTES + 9).prop_map(|size| "ü".repeat(size));
    prop_oneof![
        4 => pieces.prop_map(String::into_bytes),
        4 => broken,
        1 => long.prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn any_cut_tells_the_same_and_loses_nothing(
        body in body(),
        declared_stream in any::<bool>(),
        at in any::<prop::sample::Index>(),
    ) {
        let whole = told(declared_stream, [&body[..]]);
        if let Ok((_, bytes)) = &whole {
            prop_assert_eq!(bytes, &body);
        }
        let (head, tail) = body.split_at(at.index(body.len() + 1));
        prop_assert_eq!(&told(declared_stream, [head, tail]), &whole);
        prop_assert_eq!(&told(declared_stream, body.chunks(1)), &whole);
    }
}
