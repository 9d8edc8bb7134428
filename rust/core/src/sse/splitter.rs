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
    /// The line feed of the CRLF that ends the last event of an earlier batch, which was handed out at its CR because
    /// that was the last byte then there. It shares that event's fate: it is dropped where the event was, else
    /// forwarded.
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

    /// The batch's events in their order. Their ranges are in the slice that holds them, [`Batch::spanning`] or
    /// [`Batch::whole`].
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

impl Tail {
    /// The event with its terminator.
    #[must_use]
    pub fn event(&self) -> Bytes {
        [&self.rest, self.terminator].concat().into()
    }
}

/// Splits an event stream into raw events, whatever its line endings and however it is cut into reads.
///
/// What is handed out does not depend on the cuts, except for what shares a slice. Time is linear in the stream's
/// length also for reads of one byte; one allocation (and, for many small reads, its growth) is made for an event that
/// spans reads, none for others.
///
/// After an error the splitter has failed for good: what it held is gone, each further [`feed`](Self::feed) gives the
/// same error and [`finish`](Self::finish) gives nothing.
#[derive(Clone, Debug)]
pub struct Splitter {
    pending: Vec<u8>,
    /// Bytes handed out: where `pending` begins in the stream.
    offset: u64,
    state: SplitterState,
    line_end: LineEnd,
    max_event: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum SplitterState {
    /// Nothing but a part of a byte-order mark has come.
    Start,
    Running,
    /// The last event was handed out at a CR that was the last byte then there.
    AfterCr,
    Failed(Error),
}

impl Splitter {
    /// A splitter at a stream's start. Of `limits`, `max_event` applies: bytes of one event with its line endings; the
    /// LF of a CRLF that ends the event is not counted.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Splitter {
            pending: Vec::new(),
            offset: 0,
            state: SplitterState::Start,
            line_end: LineEnd::Lf,
            max_event: limits.max_event,
        }
    }

    /// Takes in a read, and gives what became whole.
    ///
    /// Beside that it gives [`ErrorKind::EventTooLarge`], at the offset of the first byte too many: the events before
    /// it are in the batch.
    pub fn feed(&mut self, input: Bytes) -> (Batch, Result<(), Error>) {
        let mut batch = Batch::default();
        let fed = self.cut(input, &mut batch);
        (batch, fed)
    }

    fn cut(&mut self, mut input: Bytes, batch: &mut Batch) -> Result<(), Error> {
        if let SplitterState::Failed(error) = self.state {
            return Err(error);
        }
        if self.state == SplitterState::Start && !self.pass_bom(&mut input, batch) {
            return Ok(());
        }
        if self.state == SplitterState::AfterCr && !input.is_empty() {
            self.state = SplitterState::Running;
            if input.first() == Some(&LF) {
                self.line_end = LineEnd::CrLf;
                batch.late_lf = self.hand_out(&mut input, 1);
            }
        }
        if !self.pending.is_empty() && !self.complete_pending(&mut input, batch)? {
            return Ok(());
        }
        let mut end = boundary::last_end(&input);
        if input.len() > self.max_event {
            end = self.bounded_end(&input, end);
        }
        batch.whole = self.hand_out(&mut input, end);
        self.note_event_end(&batch.whole, input.is_empty());
        self.check_bound(&input)?;
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

    /// "The UTF-8 decode algorithm strips one leading UTF-8 Byte Order Mark (BOM), if any." False: more bytes are
    /// needed to tell.
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
        self.state = SplitterState::Running;
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
        self.state = SplitterState::Failed(error);
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
                    self.state = SplitterState::AfterCr;
                }
                LineEnd::Cr
            }
            _ => self.line_end,
        };
    }
}

/// An event's bytes as they count against the bound: without the LF that may or may not have come yet when its CR ended
/// the event.
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
mod tests;
