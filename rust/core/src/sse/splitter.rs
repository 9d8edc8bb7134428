//! Cutting a stream's reads into whole events without copying them.

use bytes::{Buf, Bytes};

use crate::error::{Error, ErrorKind};
use crate::limits::Limits;

use super::boundary;
use super::event::{Events, RawEvent};
use super::line::{BOM, CR, LF, LineEnd};

/// What one read gave: whole events, in the order of the fields. Every field may be empty.
///
/// The concatenation of all slices of all batches, and of the [`Tail`], is the stream, byte for byte.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The stream's byte-order mark. It belongs to no event and is forwarded whatever is done to them.
    pub bom: Bytes,
    /// The line feed of the CRLF that ends the last event of an earlier batch, which was handed out at its CR because that was
    /// the last byte then there. It shares that event's fate: it is dropped where the event was, else forwarded.
    pub late_lf: Bytes,
    /// One event that began in an earlier read: the only one that was copied.
    pub spanning: Bytes,
    /// The whole events that lie in this read, back to back: a slice of it.
    pub whole: Bytes,
}

impl Batch {
    /// The slices in their order, empty ones left out: what is forwarded where nothing has to change.
    pub fn slices(&self) -> impl Iterator<Item = &Bytes> {
        [&self.bom, &self.late_lf, &self.spanning, &self.whole]
            .into_iter()
            .filter(|slice| !slice.is_empty())
    }

    /// The batch's events in their order. Their ranges are in the slice that holds them, [`Batch::spanning`] or [`Batch::whole`].
    pub fn events(&self) -> impl Iterator<Item = RawEvent<'_>> {
        Events::new(&self.spanning).chain(Events::new(&self.whole))
    }
}

/// The rest of a stream that ended inside an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The event's bytes so far, never empty.
    pub rest: Bytes,
    /// What makes `rest` a whole event, in the stream's own line endings.
    pub terminator: &'static [u8],
}

/// Splits an event stream into raw events, whatever its line endings and however it is cut into reads.
///
/// What is handed out does not depend on the cuts, except for what shares a slice. Time is linear in the stream's length also for
/// reads of one byte; one allocation (and, for many small reads, its growth) is made for an event that spans reads, none for others.
///
/// After an error the splitter has failed for good: what it held is gone, each further [`feed`](Self::feed) gives the same error and
/// [`finish`](Self::finish) gives nothing.
#[derive(Clone, Debug)]
pub struct Splitter {
    pending: Vec<u8>,
    /// Bytes handed out: where `pending` begins in the stream.
    offset: u64,
    state: State,
    line_end: LineEnd,
    max_event: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Nothing but a part of a byte-order mark has come.
    Start,
    Running,
    /// The last event was handed out at a CR that was the last byte then there.
    AfterCr,
    Failed(Error),
}

impl Splitter {
    /// A splitter at a stream's start. Of `limits`, `max_event` applies: bytes of one event with its line endings; the LF of a CRLF
    /// that ends the event is not counted.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Splitter {
            pending: Vec::new(),
            offset: 0,
            state: State::Start,
            line_end: LineEnd::Lf,
            max_event: limits.max_event,
        }
    }

    /// Takes in a read and puts what became whole into `batch`, whose former content is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::EventTooLarge`], at the offset of the first byte too many. The events before it are in `batch`.
    pub fn feed(&mut self, mut input: Bytes, batch: &mut Batch) -> Result<(), Error> {
        *batch = Batch::default();
        if let State::Failed(error) = self.state {
            return Err(error);
        }
        if self.state == State::Start && !self.pass_bom(&mut input, batch) {
            return Ok(());
        }
        if self.state == State::AfterCr && !input.is_empty() {
            self.state = State::Running;
            if input.first() == Some(&LF) {
                self.line_end = LineEnd::CrLf;
                batch.late_lf = self.hand_out(&mut input, 1);
            }
        }
        if !self.pending.is_empty() && !self.complete_pending(&mut input, batch)? {
            return Ok(());
        }
        let end = boundary::last_end(&input);
        if input.len() > self.max_event {
            let end = self.bounded_end(&input, end);
            batch.whole = self.hand_out(&mut input, end);
            self.note_event_end(&batch.whole, input.is_empty());
            self.check_bound(&input)?;
        } else {
            batch.whole = self.hand_out(&mut input, end);
            self.note_event_end(&batch.whole, input.is_empty());
        }
        if !input.is_empty() {
            self.pending.extend_from_slice(&input);
        }
        Ok(())
    }

    /// The stream has ended: what is left of an event that was not ended, or None.
    pub fn finish(&mut self) -> Option<Tail> {
        let rest = std::mem::take(&mut self.pending);
        if rest.is_empty() {
            return None;
        }
        let terminator = terminator(&rest, self.line_end);
        self.offset += rest.len() as u64;
        Some(Tail {
            rest: Bytes::from(rest),
            terminator,
        })
    }

    /// Bytes of the stream that were handed out so far.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of an unfinished event that are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.pending.len()
    }

    fn hand_out(&mut self, input: &mut Bytes, len: usize) -> Bytes {
        self.offset += len as u64;
        if len == input.len() {
            return std::mem::take(input);
        }
        if len == 0 {
            return Bytes::new();
        }
        input.split_to(len)
    }

    /// "The UTF-8 decode algorithm strips one leading UTF-8 Byte Order Mark (BOM), if any." False: more bytes are needed to tell.
    fn pass_bom(&mut self, input: &mut Bytes, batch: &mut Batch) -> bool {
        let held = self.pending.len();
        let expected = BOM.get(held..).unwrap_or_default();
        let matching = expected
            .iter()
            .zip(input.iter())
            .take_while(|(a, b)| a == b)
            .count();
        if matching == expected.len() {
            input.advance(matching);
            self.pending = Vec::new();
            batch.bom = Bytes::from_static(BOM);
            self.offset += BOM.len() as u64;
        } else if matching == input.len() {
            self.pending.extend_from_slice(input);
            return false;
        }
        self.state = State::Running;
        true
    }

    /// Ends the pending event with bytes of `input`. False: `input` does not end it and was taken in whole.
    fn complete_pending(&mut self, input: &mut Bytes, batch: &mut Batch) -> Result<bool, Error> {
        let Some(end) = boundary::first_end_after(self.pending.last().copied(), input) else {
            self.check_bound(input)?;
            self.pending.extend_from_slice(input);
            return Ok(false);
        };
        let added = input.split_to(end);
        self.check_bound(counted(&added))?;
        self.pending.reserve_exact(end);
        self.pending.extend_from_slice(&added);
        self.offset += self.pending.len() as u64;
        batch.spanning = Bytes::from(std::mem::take(&mut self.pending));
        self.note_event_end(&batch.spanning, input.is_empty());
        Ok(true)
    }

    /// Fails if the event made of `pending` and `added` is too large.
    fn check_bound(&mut self, added: &[u8]) -> Result<(), Error> {
        if self.pending.len() + added.len() <= self.max_event {
            return Ok(());
        }
        let error = Error::new(
            ErrorKind::EventTooLarge,
            self.offset + self.max_event as u64,
        );
        self.pending = Vec::new();
        self.state = State::Failed(error);
        Err(error)
    }

    /// Where the events of `input[..end]` that come before the first one that is too large end.
    fn bounded_end(&self, input: &[u8], end: usize) -> usize {
        let events = input.get(..end).unwrap_or_default();
        Events::new(events)
            .find(|event| counted(event.bytes()).len() > self.max_event)
            .map_or(end, |event| event.range().start)
    }

    fn note_event_end(&mut self, events: &[u8], is_last_byte: bool) {
        self.line_end = match events {
            [.., CR, LF] => LineEnd::CrLf,
            [.., LF] => LineEnd::Lf,
            [.., CR] => {
                if is_last_byte {
                    self.state = State::AfterCr;
                }
                LineEnd::Cr
            }
            _ => self.line_end,
        };
    }
}

/// An event's bytes as they count against the bound: without the LF that may or may not have come yet when its CR ended the event.
fn counted(event: &[u8]) -> &[u8] {
    match event {
        [head @ .., LF] if head.last() == Some(&CR) => head,
        _ => event,
    }
}

/// What ends the event `rest` of a stream whose last event ended with `earlier`.
fn terminator(rest: &[u8], earlier: LineEnd) -> &'static [u8] {
    // A CR at the very end may be half of a CRLF: what the line endings before it are decides.
    let known = rest.strip_suffix(b"\r").unwrap_or(rest);
    let style = match memchr::memrchr2(LF, CR, known).map(|at| known.split_at(at)) {
        Some(([.., CR], [LF, ..])) => LineEnd::CrLf,
        Some((_, [LF, ..])) => LineEnd::Lf,
        Some(_) => LineEnd::Cr,
        None => earlier,
    };
    match (rest.last(), style) {
        (Some(&CR), LineEnd::Cr) => b"\r",
        (Some(&CR), LineEnd::CrLf) => b"\n\r\n",
        (Some(&CR), LineEnd::Lf) => b"\n\n",
        (Some(&LF), _) => style.as_bytes(),
        (_, LineEnd::Lf) => b"\n\n",
        (_, LineEnd::CrLf) => b"\r\n\r\n",
        (_, LineEnd::Cr) => b"\r\r",
    }
}

#[cfg(test)]
mod tests {
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
        let mut batch = Batch::default();
        let mut outcome = Outcome {
            bytes: Vec::new(),
            events: Vec::new(),
            tail: None,
            error: None,
        };
        for read in reads {
            outcome.error = splitter
                .feed(Bytes::copy_from_slice(read), &mut batch)
                .err();
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
        let mut batch = Batch::default();
        splitter.feed(Bytes::from_static(read), &mut batch).unwrap();
        batch
    }

    #[test]
    fn a_read_of_whole_events_is_handed_out_as_it_is() {
        let mut splitter = Splitter::new(&Limits::default());
        let read = Bytes::from_static(b"data: 1\n\n: ping\n\ndata: 2\n\n");
        let mut batch = Batch::default();
        splitter.feed(read.clone(), &mut batch).unwrap();
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
        let mut batch = Batch::default();
        let error = splitter
            .feed(Bytes::from_static(b"data:"), &mut batch)
            .unwrap_err();
        assert_eq!(splitter.held(), 0);
        assert_eq!(
            splitter.feed(Bytes::from_static(b"\n\n"), &mut batch),
            Err(error)
        );
        assert_eq!(batch.slices().count(), 0);
    }

    #[test]
    fn a_large_event_in_reads_of_one_byte_takes_linear_time() {
        let mut splitter = Splitter::new(&Limits::default());
        let mut batch = Batch::default();
        let event = [b"data: ", &vec![b'x'; 4 << 20][..], b"\n\n"].concat();
        let stream = Bytes::from(event);
        for at in 0..stream.len() {
            splitter.feed(stream.slice(at..at + 1), &mut batch).unwrap();
        }
        assert_eq!(batch.spanning, stream);
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
}
