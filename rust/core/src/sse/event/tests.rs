use super::*;
use proptest::prelude::*;

fn one(bytes: &[u8]) -> RawEvent<'_> {
    let mut events = Events::new(bytes);
    let event = events.next().unwrap();
    assert!(events.rest().is_empty());
    event
}

#[test]
fn one_data_line_is_borrowed() {
    let stream = b"data: {\"a\":1}\n\n";
    let data = one(stream).data().unwrap();
    assert!(matches!(
        data.clone().into_bytes(),
        Cow::Borrowed(b"{\"a\":1}")
    ));
    assert_eq!(data.raw_offset(0), 6);
    assert_eq!(data.raw_offset(data.len()), 13);
}

#[test]
fn several_data_lines_join_with_lf_and_keep_their_places() {
    let stream = b"data: ab\r\n: c\r\ndata:cd\r\ndata\r\nevent: e\r\n\r\n";
    let event = one(stream);
    let data = event.data().unwrap();
    assert_eq!(&*data, b"ab\ncd\n");
    assert_eq!(event.name(), b"e");
    assert_eq!(event.comments(), 1);
    for (offset, byte) in data.iter().enumerate() {
        let raw = event.bytes()[data.raw_offset(offset)];
        assert_eq!(raw, if *byte == LF { CR } else { *byte });
    }
    assert_eq!(data.raw_offset(data.len()), 28);
}

#[test]
fn what_an_event_holds_is_told_apart() {
    assert!(one(b": ping\n\n").is_comment_only());
    assert!(!one(b": ping\ndata\n\n").is_comment_only());
    assert!(!one(b": ping\nunknown: 1\n\n").is_comment_only());
    assert!(!one(b"\n").is_comment_only());
    assert!(one(b"\r\n").is_blank());
    assert!(!one(b":\n\n").is_blank());
    assert!(one(b"data\n\n").has_data());
    assert!(!one(b"event: keepalive\n\n").has_data());
    assert!(one(b"event: keepalive\n\n").data().is_none());
}

#[test]
fn the_last_of_several_names_counts() {
    assert_eq!(one(b"event: a\nevent: b\ndata\n\n").name(), b"b");
    assert_eq!(one(b"event: a\nevent\ndata\n\n").name(), b"");
}

#[test]
fn an_event_without_its_end_can_be_read() {
    let event = RawEvent::parse(b"data: [DONE]");
    assert_eq!(&*event.data().unwrap(), b"[DONE]");
    assert_eq!(event.bytes(), b"data: [DONE]");
    assert_eq!(
        RawEvent::parse(b"data: 1\r").data().unwrap().raw_offset(0),
        6
    );
    assert_eq!(
        RawEvent::parse(b"data: 1\n\ndata: 2\n\n").bytes(),
        b"data: 1\n\n"
    );
    assert!(RawEvent::parse(b"").is_blank());
}

#[test]
fn ranges_are_places_in_the_slice() {
    let stream = b"\ndata: 1\n\n: 2\r\rdata: 3\r\n\r\nrest";
    let mut events = Events::new(stream);
    let ranges: Vec<_> = events.by_ref().map(|event| event.range()).collect();
    assert_eq!(ranges, [0..1, 1..10, 10..15, 15..26]);
    assert_eq!(events.rest(), b"rest");
}

#[test]
fn ids_outlive_events_and_retry_wants_digits() {
    let mut interpreter = Interpreter::default();
    let mut id = |bytes| {
        let event = RawEvent::parse(bytes);
        interpreter.dispatch(&event).map(|event| event.id.to_vec())
    };
    assert_eq!(id(b"data\n\n"), Some(vec![]));
    assert_eq!(id(b"id: 1\n\n"), None);
    assert_eq!(id(b"data\n\n"), Some(b"1".to_vec()));
    assert_eq!(id(b"id: 2\0\ndata\n\n"), Some(b"1".to_vec()));
    assert_eq!(id(b"id\ndata\n\n"), Some(vec![]));
    assert_eq!(interpreter.retry(), None);
    for (line, expected) in [
        (&b"retry: 1000\n\n"[..], 1000),
        (b"retry: 1s\n\n", 1000),
        (b"retry: +1\n\n", 1000),
        (b"retry\n\n", 1000),
        (b"retry: 99999999999999999999\n\n", 1000),
        (b"retry:007\n\n", 7),
    ] {
        assert!(interpreter.dispatch(&RawEvent::parse(line)).is_none());
        assert_eq!(interpreter.retry(), Some(expected));
    }
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "data", ":", " ", "x", "event", "id", "retry", "1", "\n", "\n", "\r", "\r\n",
    ]);
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #[test]
    fn walking_over_events_and_reading_one_agree(bytes in stream()) {
        let mut events = Events::new(&bytes);
        let mut at = 0;
        for event in events.by_ref() {
            prop_assert_eq!(event.range().start, at);
            at = event.range().end;
            let alone = RawEvent::parse(event.bytes());
            prop_assert_eq!(alone.bytes(), event.bytes());
            prop_assert_eq!(alone.name(), event.name());
            prop_assert_eq!(alone.comments(), event.comments());
            prop_assert_eq!(alone.is_blank(), event.is_blank());
            prop_assert_eq!(alone.data().map(Data::into_bytes), event.data().map(Data::into_bytes));
        }
        prop_assert_eq!(at, boundary::last_end(&bytes));
        prop_assert_eq!(events.rest(), &bytes[at..]);
    }

    #[test]
    fn bytes_put_in_at_a_raw_offset_appear_at_that_offset_of_the_data(bytes in stream(), at in any::<prop::sample::Index>()) {
        let event = RawEvent::parse(&bytes);
        if let Some(data) = event.data() {
            let offset = at.index(data.len() + 1);
            let mut edited = event.bytes().to_vec();
            edited.insert(data.raw_offset(offset), b'Z');
            let mut expected = data.to_vec();
            expected.insert(offset, b'Z');
            let edited = RawEvent::parse(&edited);
            // A line `data` without a colon has no place for a value.
            if edited.lines().filter(|line| matches!(line, Line::Field { name: b"data", .. })).count() == event.data_lines {
                prop_assert_eq!(&*edited.data().unwrap(), &expected);
            }
        }
    }
}
