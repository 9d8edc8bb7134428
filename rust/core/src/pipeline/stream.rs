//! An event stream on its way through: each event is recognised or read, and goes on, goes on edited, or stays out.

use bytes::Bytes;

use crate::error::Error;
use crate::limits::Limits;
use crate::sse::event::{Events, RawEvent};
use crate::sse::line::Line;
use crate::sse::splitter::{Batch, Splitter};

use super::frames::Frames;
use super::payload::excerpt;
use super::reply::{Reply, Source, Verdict};
use super::template::Templates;
use super::{Pricer, StreamError};

pub(super) struct Stream {
    splitter: Splitter,
    batch: Batch,
    templates: Templates,
    /// The last event that came was left out.
    left_out: bool,
}

impl Stream {
    pub(super) fn new(limits: &Limits) -> Self {
        Stream {
            splitter: Splitter::new(limits),
            batch: Batch::default(),
            templates: Templates::default(),
            left_out: false,
        }
    }

    pub(super) fn feed(
        &mut self,
        input: Bytes,
        reply: &mut Reply,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Error> {
        let mut batch = std::mem::take(&mut self.batch);
        let fed = self.splitter.feed(input, &mut batch);
        if !batch.bom.is_empty() {
            out.push(std::mem::take(&mut batch.bom));
        }
        if !batch.late_lf.is_empty() && !self.left_out {
            out.push(std::mem::take(&mut batch.late_lf));
        }
        for slice in [&mut batch.spanning, &mut batch.whole] {
            self.pass(&std::mem::take(slice), reply, pricer, out);
        }
        self.batch = batch;
        fed
    }

    /// The end of the stream: an event that was not ended is ended, and passed on.
    pub(super) fn finish(
        &mut self,
        reply: &mut Reply,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) {
        if let Some(tail) = self.splitter.finish() {
            let event: Bytes = [&tail.rest, tail.terminator].concat().into();
            self.pass(&event, reply, pricer, out);
        }
    }

    /// `slice` is whole events, back to back.
    fn pass(
        &mut self,
        slice: &Bytes,
        reply: &mut Reply,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) {
        let mut frames = Frames::new(slice);
        let mut at = 0;
        while let Some(rest) = slice.get(at..).filter(|rest| !rest.is_empty()) {
            if let Some(found) = self.templates.find(rest) {
                reply.facts.events += 1;
                reply.note_output(found.bears_output);
                if found.sequence.is_some() {
                    reply.sequence = found.sequence;
                }
                let end = at + found.len;
                if !self.templates.is_unchanged() {
                    let event = slice.get(at..end).unwrap_or_default();
                    frames.replace(at, end, |out| self.templates.show(event, out));
                }
                self.left_out = false;
                at = end;
                continue;
            }
            let Some(event) = Events::new(rest).next() else {
                break;
            };
            let end = at + event.bytes().len();
            let Read {
                verdict,
                plain_from,
            } = read(&event, reply, pricer);
            if let Some(start) = plain_from {
                self.learn(&event, start, reply);
            }
            match verdict {
                Verdict::Forward => {}
                Verdict::Hide => frames.replace(at, end, |_| {}),
                Verdict::Edit => {
                    frames.replace(at, end, |out| reply.edits.apply(event.bytes(), out));
                }
            }
            self.left_out = verdict == Verdict::Hide;
            at = end;
        }
        frames.finish(out);
    }

    fn learn(&mut self, event: &RawEvent<'_>, data_start: usize, reply: &mut Reply) {
        for hole in &mut reply.payload.holes {
            hole.start += data_start;
            hole.end += data_start;
        }
        let edits = reply.edits.edits();
        self.templates.learn(
            event.bytes(),
            &reply.payload.holes,
            edits.map(|(range, with)| (range.clone(), &**with)),
            reply.bearing,
        );
    }
}

/// What one event was found to be.
pub(super) struct Read {
    pub(super) verdict: Verdict,
    /// Where its data begins, if that is one line that says nothing which another event would have to say again: no usage, no end, no
    /// error. Such an event may be recognised by its shape.
    plain_from: Option<usize>,
}

impl Read {
    const FORWARD: Read = Read {
        verdict: Verdict::Forward,
        plain_from: None,
    };
}

/// Reads one event in full. After [`Verdict::Edit`] the edits' places are in the raw event.
pub(super) fn read(event: &RawEvent<'_>, reply: &mut Reply, pricer: &mut dyn Pricer) -> Read {
    let Some(data) = event.data() else {
        read_without_data(event, reply);
        return Read::FORWARD;
    };
    match data.trim_ascii() {
        b"" => return Read::FORWARD,
        b"[DONE]" => {
            reply.facts.events += 1;
            reply.note_done();
            return Read::FORWARD;
        }
        _ => reply.facts.events += 1,
    }
    let malformed = reply.facts.malformed;
    let was_terminal = reply.facts.terminal;
    let named_error = event.name() == b"error";
    let verdict = reply.read(&data, Source::Event { named_error }, pricer);
    let start = data.raw_offset(0);
    let is_one_line = data.raw_offset(data.len()) == start + data.len();
    reply.edits.relocate(|offset| data.raw_offset(offset));
    let is_plain = is_one_line
        && !named_error
        && verdict != Verdict::Hide
        && reply.facts.malformed == malformed
        && reply.facts.terminal == was_terminal
        && reply.payload.finish.is_none()
        && reply.payload.report.is_empty();
    Read {
        verdict,
        plain_from: is_plain.then_some(start),
    }
}

/// A keep-alive, a blank line, or the SSE field `error` that llama.cpp sent before September 2025 (`llama.cpp#16104`).
fn read_without_data(event: &RawEvent<'_>, reply: &mut Reply) {
    if event.is_comment_only() {
        reply.facts.comments += 1;
        return;
    }
    for line in event.lines() {
        if let Line::Field {
            name: b"error",
            value,
        } = line
        {
            reply.facts.events += 1;
            reply.note_error(StreamError {
                message: excerpt(value),
                ..StreamError::default()
            });
        }
    }
}
