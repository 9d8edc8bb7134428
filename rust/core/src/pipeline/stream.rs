//! Forwarding an event stream: each event is recognised by its shape or parsed, and is forwarded, edited, or left out.

use std::ops::Range;

use bytes::Bytes;

use crate::error::Error;
use crate::json::scan::Value;
use crate::limits::Limits;
use crate::protocol::{Effect, Follow};
use crate::protocols;
use crate::record;
use crate::sse::event::{Events, RawEvent};
use crate::sse::line::Line;
use crate::sse::splitter::Splitter;

use super::Pricer;
use super::frames::Frames;
use super::reply::{Reply, Verdict};
use super::shapes::Shapes;
use super::template::{Example, Match, Meaning, Template};
use crate::api::Api;
use crate::watch::Source;
use crate::watch::StreamError;
use crate::watch::payload::{Hole, HoleKind};

pub(super) struct Stream {
    splitter: Splitter,
    shapes: Shapes,
    /// The last event that came was left out.
    left_out: bool,
    /// What it takes to end it where its upstream does not.
    followed: Option<Box<dyn Follow>>,
}

impl Stream {
    pub(super) fn new(api: Api, limits: &Limits) -> Self {
        Stream {
            splitter: Splitter::new(limits),
            shapes: Shapes::default(),
            left_out: false,
            followed: protocols::of(api).follow(limits),
        }
    }

    pub(super) fn feed(
        &mut self,
        input: Bytes,
        reply: &mut Reply,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Error> {
        let (batch, fed) = self.splitter.feed(input);
        if !batch.bom.is_empty() {
            out.push(batch.bom);
        }
        if !batch.late_lf.is_empty() && !self.left_out {
            out.push(batch.late_lf);
        }
        for slice in [batch.spanning, batch.whole] {
            self.pass(slice, reply, pricer, out);
        }
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
            self.pass(tail.event(), reply, pricer, out);
        }
    }

    /// What has followed it.
    pub(super) fn followed(&self) -> Option<&dyn Follow> {
        self.followed.as_deref()
    }

    /// `slice` is whole events, back to back.
    fn pass(
        &mut self,
        slice: Bytes,
        reply: &mut Reply,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) {
        let mut frames = Frames::default();
        let mut at = 0;
        while let Some(rest) = slice.get(at..).filter(|rest| !rest.is_empty()) {
            if let Some((found, template)) = self.shapes.find(rest) {
                note(&found, template, reply);
                let end = at + found.len;
                if let Some((place, hole)) = template.continued_text()
                    && let Some(followed) = &mut self.followed
                {
                    let said = rest.get(template.place(hole)).unwrap_or_default();
                    followed.say(place, said);
                }
                if template.counts() || !template.is_unchanged() {
                    show(&slice, at..end, template, reply, pricer, &mut frames);
                }
                self.left_out = false;
                at = end;
                continue;
            }
            let Some(event) = Events::new(rest).next() else {
                break;
            };
            let end = at + event.bytes().len();
            let had_finished = reply.facts.finish_reason.is_some();
            let Read {
                verdict,
                plain_from,
            } = read(&event, reply, pricer);
            let effect = match (&mut self.followed, event.data()) {
                (Some(followed), Some(data)) => followed.read(&data),
                _ => Effect::Nothing,
            };
            if reply.facts.finish_reason.is_some() != had_finished {
                // What was a running total is final from here on.
                self.shapes.forget_counts();
            } else if let Some(start) = plain_from {
                learn(&mut self.shapes, &event, start, reply, |holes| {
                    followed_meaning(effect, holes)
                });
            }
            match verdict {
                Verdict::Forward => {}
                Verdict::Hide => frames.replace(&slice, at, end, |_| {}),
                Verdict::Edit => {
                    frames.replace(&slice, at, end, |out| {
                        reply.edits.apply(event.bytes(), out);
                    });
                }
            }
            self.left_out = verdict == Verdict::Hide;
            at = end;
        }
        frames.finish(slice, out);
    }
}

/// What events of a shape mean for a reply that is followed. None if an event changes more than one text, or not by
/// one hole alone.
pub(super) fn followed_meaning(effect: Effect, holes: &[Hole]) -> Option<Meaning> {
    let mut outputs = (0..)
        .zip(holes)
        .filter(|(_, hole)| hole.kind == HoleKind::Output);
    let continued_text = match (effect, outputs.next(), outputs.next()) {
        (Effect::Next(place), Some((hole, _)), None) => Some((place, hole)),
        (Effect::Nothing, _, _) => None,
        _ => return None,
    };
    Some(Meaning {
        pieces: None,
        continued_text,
    })
}

/// Remembers the shape of an event that was parsed, whose data begins at `data_start` and is one line. `meaning` gives
/// what such events mean, by the holes of their data; if it gives None, nothing is remembered.
pub(super) fn learn(
    shapes: &mut Shapes,
    event: &RawEvent<'_>,
    data_start: usize,
    reply: &mut Reply,
    meaning: impl FnOnce(&[Hole]) -> Option<Meaning>,
) {
    let data = event.bytes().get(data_start..).unwrap_or_default();
    if !reply.payload.open_counts(data) {
        return;
    }
    let Some(meaning) = meaning(&reply.payload.holes) else {
        return;
    };
    for hole in &mut reply.payload.holes {
        hole.start += data_start;
        hole.end += data_start;
    }
    let object = reply.payload.report.object.filter(|_| reply.is_final);
    let priced = object.map(|object| {
        let object = Value {
            start: object.start + data_start,
            end: object.end + data_start,
            ..object
        };
        (object, reply.members.take())
    });
    shapes.learn(Example {
        event: event.bytes(),
        holes: &reply.payload.holes,
        edits: reply.model_edits(),
        bearing: reply.bearing,
        priced,
        max_depth: reply.max_depth,
        meaning,
    });
}

/// Updates what is known of the reply by an event that was recognised.
#[inline]
pub(super) fn note(found: &Match, template: &Template, reply: &mut Reply) {
    reply.facts.events += 1;
    reply.note_output(found.bears_output);
    if found.sequence.is_some() {
        reply.sequence = found.sequence;
    }
    if template.counts() {
        for (count, value) in template.counted() {
            reply.count(count, value);
        }
    }
}

/// Writes the event at `range` of `slice`, which was recognised, as the client gets it, where that differs from the
/// event itself.
fn show(
    slice: &[u8],
    range: Range<usize>,
    template: &Template,
    reply: &mut Reply,
    pricer: &mut dyn Pricer,
    frames: &mut Frames,
) {
    let Range { start, end } = range;
    let event = slice.get(range).unwrap_or_default();
    if !template.is_unchanged() {
        frames.replace(slice, start, end, |out| {
            template.write_client_view(event, out)
        });
    }
    let Some(object) = template.priced_object() else {
        return;
    };
    let Some(members) = reply.ask_price(pricer) else {
        return;
    };
    if let Some(place) = template.addition(&members) {
        let place = start + place;
        frames.replace(slice, place, place, |out| {
            out.push(b',');
            out.extend_from_slice(members.as_bytes());
        });
    } else {
        reply.edits.clear();
        reply.add_cost(event, object, &members);
        frames.replace(slice, start, end, |out| reply.edits.apply(event, out));
    }
}

/// What one event was found to be.
pub(super) struct Read {
    pub(super) verdict: Verdict,
    /// Where its data begins, if that is one line with nothing but text and counts: no end, no error. Such an event may
    /// be recognised by its shape.
    pub(super) plain_from: Option<usize>,
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
        && reply.payload.finish.is_none();
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
                message: record::cut_bytes(value),
                ..StreamError::default()
            });
        }
    }
}
