use super::*;
use proptest::prelude::*;

/// What a splitter gives for reads: all bytes handed out, the events, and how it ended.
#[derive(Debug, PartialEq)]
struct Outcome {
    bytes: Vec<u8>,
    events: Vec<Vec<u8>>,
    tail: Option<Tail>,
    error: Option<Error>,
}

fn split<'a>(reads: impl IntoIterator<Item = &'a [u8]>, max_event: usize) -> Outcome {
    let mut splitter = Splitter::new(&Limits {
        max_event,
        ..Limits::default()
    });
    let mut outcome = Outcome {
        bytes: Vec::new(),
        events: Vec::new(),
        tail: None,
        error: None,
    };
    for read in reads {
        let (batch, fed) = splitter.feed(Bytes::copy_from_slice(read));
        outcome.error = fed.err();
        for slice in batch.slices() {
            outcome.bytes.extend_from_slice(slice);
        }
        if !batch.late_lf.is_empty() {
            outcome.events.last_mut().unwrap().push(LF);
        }
        outcome
            .events
            .extend(batch.events().map(|event| event.bytes().to_vec()));
        assert_eq!(splitter.offset(), outcome.bytes.len() as u64);
    }
    outcome.tail = splitter.finish();
    assert_eq!(splitter.finish(), None);
    outcome
}

fn whole(stream: &[u8]) -> Outcome {
    split([stream], usize::MAX)
}

fn feed(splitter: &mut Splitter, read: &'static [u8]) -> Batch {
    let (batch, fed) = splitter.feed(Bytes::from_static(read));
    fed.unwrap();
    batch
}

#[test]
fn a_read_of_whole_events_is_handed_out_as_it_is() {
    let mut splitter = Splitter::new(&Limits::default());
    let read = Bytes::from_static(b"data: 1\n\n: ping\n\ndata: 2\n\n");
    let (batch, fed) = splitter.feed(read.clone());
    fed.unwrap();
    assert_eq!(batch.whole.as_ptr(), read.as_ptr());
    assert_eq!(batch.whole.len(), read.len());
    assert_eq!(batch.slices().count(), 1);
    assert_eq!(splitter.held(), 0);
}

#[test]
fn only_the_event_that_spans_reads_is_copied() {
    let mut splitter = Splitter::new(&Limits::default());
    let first = feed(&mut splitter, b"data: 1\n\nda");
    assert_eq!(
        (&first.spanning[..], &first.whole[..]),
        (&b""[..], &b"data: 1\n\n"[..])
    );
    assert_eq!(splitter.held(), 2);
    let second = feed(&mut splitter, b"ta: 2\n\ndata: 3\n\nd");
    assert_eq!(second.spanning, "data: 2\n\n");
    assert_eq!(second.whole, "data: 3\n\n");
}

#[test]
fn a_cr_at_the_end_of_a_read_ends_the_event_at_once() {
    let mut splitter = Splitter::new(&Limits::default());
    assert_eq!(feed(&mut splitter, b"data: 1\r\n\r").whole, "data: 1\r\n\r");
    assert!(feed(&mut splitter, b"").late_lf.is_empty());
    let batch = feed(&mut splitter, b"\ndata: 2\r\n\r\n");
    assert_eq!(batch.late_lf, "\n");
    assert_eq!(batch.whole, "data: 2\r\n\r\n");

    let mut splitter = Splitter::new(&Limits::default());
    assert_eq!(feed(&mut splitter, b"data: 1\r\r").whole, "data: 1\r\r");
    let batch = feed(&mut splitter, b"data: 2\r\r\n");
    assert!(batch.late_lf.is_empty());
    assert_eq!(batch.whole, "data: 2\r\r\n");
    // That LF came with its CR: this one is a blank line of its own.
    let batch = feed(&mut splitter, b"\n");
    assert!(batch.late_lf.is_empty());
    assert_eq!(batch.whole, "\n");
}

#[test]
fn only_a_leading_byte_order_mark_is_no_part_of_an_event() {
    let outcome = whole(b"\xEF\xBB\xBF\n\xEF\xBB\xBFdata: 1\n\n");
    assert_eq!(outcome.events, [&b"\n"[..], b"\xEF\xBB\xBFdata: 1\n\n"]);
    assert_eq!(outcome.bytes.len(), 16);
    let outcome = whole(b"\xEF\xBBdata: 1\n\n");
    assert_eq!(outcome.events, [b"\xEF\xBBdata: 1\n\n"]);
    assert_eq!(whole(b"\xEF\xBB").tail.unwrap().rest, &b"\xEF\xBB"[..]);
    assert_eq!(whole(b"\xEF\xBB\xBF").tail, None);
}

#[test]
fn a_tail_is_ended_in_the_streams_own_way() {
    for (stream, rest, terminator) in [
        (&b"data: 1"[..], &b"data: 1"[..], &b"\n\n"[..]),
        (b"data: 1\n", b"data: 1\n", b"\n"),
        (b"data: 1\r\n", b"data: 1\r\n", b"\r\n"),
        (b"data: 1\r", b"data: 1\r", b"\n\n"),
        (b"data: 1\r\ndata: 2\r", b"data: 1\r\ndata: 2\r", b"\n\r\n"),
        (b"data: 1\rdata: 2\r", b"data: 1\rdata: 2\r", b"\r"),
        (b"data: 1\r\n\r\ndata: 2", b"data: 2", b"\r\n\r\n"),
        (b"data: 1\r\rdata: 2", b"data: 2", b"\r\r"),
        (b"data: 1\r\n\r\ndata: 2\r", b"data: 2\r", b"\n\r\n"),
        (b"data: 1\r\n\r\n:\ndata: 2", b":\ndata: 2", b"\n\n"),
    ] {
        let tail = whole(stream).tail.unwrap();
        assert_eq!((&tail.rest[..], tail.terminator), (rest, terminator));
        let completed = [rest, terminator].concat();
        assert_eq!(boundary::first_end(&completed), Some(completed.len()));
    }
    for stream in [&b""[..], b"\n", b"data: 1\r\n\r", b"data: 1\n\n"] {
        assert_eq!(whole(stream).tail, None);
    }
}

#[test]
fn an_event_over_the_bound_ends_the_stream_after_the_events_before_it() {
    let stream = b"data: 1\n\ndata: 22\n\ndata: 3\n\n";
    assert_eq!(split([&stream[..]], 10).error, None);
    let outcome = split([&stream[..]], 9);
    assert_eq!(outcome.bytes, b"data: 1\n\n");
    assert_eq!(
        outcome.error,
        Some(Error::new(ErrorKind::EventTooLarge, 18))
    );
    assert_eq!(outcome.tail, None);
    let mut splitter = Splitter::new(&Limits {
        max_event: 4,
        ..Limits::default()
    });
    let (_, failed) = splitter.feed(Bytes::from_static(b"data:"));
    assert!(failed.is_err());
    assert_eq!(splitter.held(), 0);
    let (batch, again) = splitter.feed(Bytes::from_static(b"\n\n"));
    assert_eq!(again, failed);
    assert_eq!(batch.slices().count(), 0);
}

#[test]
fn a_large_event_in_reads_of_one_byte_takes_linear_time() {
    let mut splitter = Splitter::new(&Limits::default());
    let mut last = Batch::default();
    let event = [b"data: ", &vec![b'x'; 4 << 20][..], b"\n\n"].concat();
    let stream = Bytes::from(event);
    for at in 0..stream.len() {
        let fed;
        (last, fed) = splitter.feed(stream.slice(at..at + 1));
        fed.unwrap();
    }
    assert_eq!(last.spanning, stream);
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        &b"data: "[..],
        b"x",
        b":",
        b"\n",
        b"\n\n",
        b"\r",
        b"\r\n",
        b"\r\n\r\n",
        b"\xEF\xBB\xBF",
        b"\xEF",
    ]);
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn cut(stream: &[u8], cuts: &[prop::sample::Index]) -> Vec<Vec<u8>> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    cuts.sort_unstable();
    let mut start = 0;
    let mut reads = Vec::new();
    for end in cuts.into_iter().chain([stream.len()]) {
        reads.push(stream[start..end].to_vec());
        start = end;
    }
    reads
}

proptest! {
    #[test]
    fn any_cut_gives_the_same(
        stream in stream(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        max_event in prop_oneof![Just(usize::MAX), 1..30usize],
    ) {
        let expected = split([&stream[..]], max_event);
        let reads = cut(&stream, &cuts);
        prop_assert_eq!(&split(reads.iter().map(Vec::as_slice), max_event), &expected);
        prop_assert_eq!(&split(stream.chunks(1), max_event), &expected);
        if expected.error.is_none() {
            let mut all = expected.bytes;
            all.extend(expected.tail.into_iter().flat_map(|tail| tail.rest));
            prop_assert_eq!(all, stream);
        } else {
            prop_assert!(stream.starts_with(&expected.bytes));
        }
    }
}
