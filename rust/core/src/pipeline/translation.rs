//! Replies in another protocol than the client's: read as pieces of output, and written anew.
//!
//! The upstream may stream or not, and so may the client. Whatever the upstream sends becomes chunks, and all chunks go
//! through the same writer: so a reply is the same however it came and however it is asked for.

use bytes::Bytes;

use crate::error::{Error, ErrorKind};
use crate::json::documents::{BodyPart, Documents};
use crate::limits::Limits;
use crate::mode::Mode;
use crate::output::{Ending, Failure, Piece, Reader, Spent, Writer};
use crate::protocol::Effect;
use crate::protocols::{self, Clock};
use crate::sse::event::{Events, RawEvent};
use crate::sse::line::Line;
use crate::sse::splitter::Splitter;

use super::piece_templates::PieceNotes;
use super::reply::Reply;
use super::shapes::Shapes;
use super::stream::{self, Read};
use super::template::Meaning;
use super::{Pricer, ReplyPlan, Unpriced};
use crate::api::Api;
use crate::watch::StreamError;
use crate::watch::{Came, Source, Watch};

pub(super) struct Translation {
    watch: &'static dyn Watch,
    client_api: Api,
    /// Clients understand an error of the upstream's protocol, where that is the whole reply.
    shares_errors: bool,
    reader: Box<dyn Reader>,
    writer: Box<dyn Writer>,
    form: Form,
    client_streams: bool,
    clock: Option<Clock>,
    limits: Limits,
    /// What a client that does not stream will get. It is shown when the reply has ended well, since until then an
    /// error may still come, whose place is then the status.
    document: Vec<u8>,
    /// Something of the reply is written, or its end.
    begun: bool,
    ended: bool,
    /// Its end has come, and is said once its price is known.
    awaits_price: bool,
}

/// How the upstream's reply comes.
enum Form {
    Unknown,
    Events(Box<EventSource>),
    Documents(Documents, Vec<BodyPart>),
}

struct EventSource {
    splitter: Splitter,
    shapes: Shapes,
    notes: PieceNotes,
}

impl Translation {
    /// The translation that `plan` asks for; None where the reply is forwarded. `mode`: how the upstream's reply comes,
    /// where that is known. In the other form than the client asked for, it is read and written anew if nothing else
    /// makes the one of the other.
    ///
    /// # Errors
    /// Nobody reads the upstream's protocol, or nobody writes the client's.
    pub(super) fn new(plan: &ReplyPlan, mode: Option<Mode>) -> Result<Option<Self>, Error> {
        let (client, upstream, limits) = (&plan.client, &plan.upstream, plan.limits);
        let protocol = protocols::of(client.api());
        let rewrites = protocol.is_conversational() && !protocol.folds();
        let other_form = mode.is_some_and(|mode| (mode == Mode::Sse) != client.streams);
        if !(upstream.is_translated_for(client) || rewrites && other_form) {
            return Ok(None);
        }
        let has_own_errors = |api| protocols::of(api).has_own_errors();
        let reader = upstream.reader(limits);
        let writer = client.writer(upstream, plan.clock, limits);
        let (Some(reader), Some(writer)) = (reader, writer) else {
            return Err(Error::new(ErrorKind::Untranslatable, 0));
        };
        Ok(Some(Translation {
            watch: protocols::watch(upstream.api),
            client_api: client.api(),
            shares_errors: has_own_errors(upstream.api) == has_own_errors(client.api()),
            reader,
            writer,
            form: Form::Unknown,
            client_streams: client.streams,
            clock: plan.clock,
            limits,
            document: Vec::new(),
            begun: false,
            ended: false,
            awaits_price: false,
        }))
    }

    /// The upstream sends an event stream.
    pub(super) fn of_events(mut self) -> Self {
        self.form = Form::Events(Box::new(EventSource {
            splitter: Splitter::new(&self.limits),
            shapes: Shapes::default(),
            notes: PieceNotes::default(),
        }));
        self
    }

    /// The upstream sends JSON.
    pub(super) fn of_documents(mut self) -> Self {
        self.form = Form::Documents(Documents::new(&self.limits), Vec::new());
        self
    }

    pub(super) fn feed(
        &mut self,
        input: Bytes,
        reply: &mut Reply,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Error> {
        let mut shown = Vec::with_capacity(if self.client_streams {
            input.len() + input.len() / 4 + 512
        } else {
            0
        });
        let fed = match std::mem::replace(&mut self.form, Form::Unknown) {
            Form::Unknown => Ok(()),
            Form::Events(mut source) => {
                let (batch, fed) = source.splitter.feed(input);
                for slice in [&batch.spanning, &batch.whole] {
                    self.read_slice(slice, &mut source, reply, pricer, &mut shown);
                }
                self.form = Form::Events(source);
                fed
            }
            Form::Documents(mut documents, mut parts) => {
                let mut fed = documents.feed(input, &mut parts);
                for part in parts.drain(..) {
                    if let BodyPart::Document(document) = part
                        && fed.is_ok()
                    {
                        fed = self.read_document(&document, reply, pricer, &mut shown);
                    }
                }
                self.form = Form::Documents(documents, parts);
                fed
            }
        };
        if self.client_streams {
            show(shown, out);
        } else {
            self.document.append(&mut shown);
        }
        fed?;
        if let Some(kind) = self.reader.fault() {
            return Err(Error::new(kind, 0));
        }
        if self.writer.held() > self.limits.max_document {
            return Err(Error::new(ErrorKind::DocumentTooLarge, 0));
        }
        Ok(())
    }

    /// The upstream ended. A reply that broke off stays open until [`fail`](Self::fail) writes the error.
    pub(super) fn finish(
        &mut self,
        reply: &mut Reply,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Error> {
        let mut shown = std::mem::take(&mut self.document);
        match std::mem::replace(&mut self.form, Form::Unknown) {
            Form::Unknown => return Ok(()),
            Form::Events(mut source) => {
                if let Some(tail) = source.splitter.finish() {
                    self.read_slice(&tail.event(), &mut source, reply, pricer, &mut shown);
                }
            }
            Form::Documents(mut documents, _) => {
                if documents.finish().is_some() {
                    reply.facts.terminal = false;
                }
            }
        }
        if reply.facts.terminal {
            self.end(reply, pricer, &mut shown);
        }
        show(shown, out);
        if let Some(kind) = self.reader.fault() {
            return Err(Error::new(kind, 0));
        }
        Ok(())
    }

    /// The reply cannot be completed. If it is not a stream, nothing of it has been sent yet, and the error is its only
    /// document.
    pub(super) fn fail(&mut self, failure: Failure<'_>, out: &mut Vec<Bytes>) {
        if self.ended {
            return;
        }
        self.ended = true;
        if !self.client_streams {
            out.push(protocols::of(self.client_api).error(&failure).into());
            return;
        }
        let mut shown = Vec::new();
        self.writer
            .end(Ending::Failed(failure), None, None, &mut shown);
        show(shown, out);
    }

    /// `slice` is whole events, back to back.
    fn read_slice(
        &mut self,
        slice: &[u8],
        source: &mut EventSource,
        reply: &mut Reply,
        pricer: &mut dyn Pricer,
        out: &mut Vec<u8>,
    ) {
        // A stream is decoded with replacement (WHATWG HTML, 9.2.6): a byte that is no UTF-8 costs that character and
        // nothing else.
        let decoded;
        let slice = match simdutf8::basic::from_utf8(slice) {
            Ok(_) => slice,
            Err(_) => {
                decoded = String::from_utf8_lossy(slice).into_owned();
                decoded.as_bytes()
            }
        };
        let mut at = 0;
        while let Some(rest) = slice.get(at..).filter(|rest| !rest.is_empty()) {
            if let Some((found, template)) = source.shapes.find(rest) {
                stream::note(&found, template, reply);
                if let Some(pieces) = template.pieces() {
                    if !self.ended {
                        for piece in pieces {
                            let text = rest.get(template.place(piece.hole)).unwrap_or_default();
                            self.writer.write(&piece.with_text(text), out);
                        }
                    }
                } else if let Some((place, hole)) = template.continued_text() {
                    if !self.ended {
                        let text = rest.get(template.place(hole)).unwrap_or_default();
                        let writer = &mut self.writer;
                        self.reader
                            .say(place, text, &mut |piece| writer.write(piece, out));
                    }
                } else {
                    let event = Events::new(rest.get(..found.len).unwrap_or_default()).next();
                    if let Some(data) = event.and_then(|event| event.data())
                        && !self.ended
                    {
                        let writer = &mut self.writer;
                        let _ = self
                            .reader
                            .read(&data, &mut |piece| writer.write(piece, out));
                        if self.reader.remembers() {
                            source.shapes.forget_pieces();
                        }
                        if self.reader.continued().is_some() {
                            source.shapes.forget_unknown();
                        }
                    }
                    // What follows in this read counts no more than what would follow in the next.
                    if self.reader.fault().is_some() {
                        break;
                    }
                }
                at += found.len;
                continue;
            }
            let Some(event) = Events::new(rest).next() else {
                break;
            };
            at += event.bytes().len();
            self.read_event(&event, source, reply, pricer, out);
            if self.reader.fault().is_some() {
                break;
            }
        }
    }

    fn read_event(
        &mut self,
        event: &RawEvent<'_>,
        source: &mut EventSource,
        reply: &mut Reply,
        pricer: &mut dyn Pricer,
        out: &mut Vec<u8>,
    ) {
        let had_finished = reply.facts.finish_reason.is_some();
        let Read { plain_from, .. } = stream::read(event, reply, &mut Unpriced);
        if reply.facts.finish_reason.is_some() != had_finished {
            source.shapes.forget_counts();
        }
        if self.ended {
            return;
        }
        match event.data() {
            Some(data) => {
                source.notes.clear();
                self.foresee(reply);
                let (writer, notes) = (&mut self.writer, &mut source.notes);
                // What is no JSON was counted as malformed.
                let _ = self.reader.read(&data, &mut |piece| {
                    notes.note(piece, &data);
                    writer.write(piece, out);
                });
                self.begun |= !out.is_empty();
                let remembers = self.reader.remembers();
                let continued = self.reader.continued();
                if remembers {
                    source.shapes.forget_pieces();
                }
                if let Some(start) = plain_from {
                    stream::learn(&mut source.shapes, event, start, reply, |holes| {
                        if let Some(place) = continued {
                            return stream::followed_meaning(Effect::Next(place), holes);
                        }
                        if remembers {
                            return Some(Meaning::default());
                        }
                        Some(Meaning {
                            pieces: Some(notes.templates(holes)?),
                            continued_text: None,
                        })
                    });
                }
            }
            None if self.client_streams && event.is_comment_only() => {
                match protocols::of(self.client_api).ping() {
                    Some(ping) => out.extend_from_slice(ping),
                    None => write_comments(event, out),
                }
            }
            None => {}
        }
        // A failed response follows an error event, and has its usage.
        let is_over = if self.watch.ends_after_errors() {
            reply.facts.finish_reason.is_some()
        } else {
            reply.facts.error.is_some()
        };
        if reply.facts.done || is_over {
            self.end(reply, pricer, out);
        }
    }

    fn read_document(
        &mut self,
        document: &Bytes,
        reply: &mut Reply,
        pricer: &mut dyn Pricer,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        reply.facts.events += 1;
        reply.read(document, Source::Document, &mut Unpriced);
        if self.ended {
            return Ok(());
        }
        let came = self.watch.came(&reply.payload, document);
        if reply.facts.error.is_some() {
            let is_failed_reply = came == Came::Whole && self.watch.ends_after_errors();
            if self.client_streams || is_failed_reply || !self.shares_errors {
                self.end(reply, pricer, out);
            } else {
                out.extend_from_slice(String::from_utf8_lossy(document).as_bytes());
                self.ended = true;
            }
            return Ok(());
        }
        self.foresee(reply);
        let writer = &mut self.writer;
        let mut give = |piece: &Piece<'_>| writer.write(piece, out);
        match came {
            Came::Unreadable => return Err(Error::new(ErrorKind::NoCompletion, 0)),
            Came::InPart => {
                let _ = self.reader.read(document, &mut give);
            }
            Came::Whole => {
                self.reader.read_whole(document, &self.limits, &mut give)?;
                self.end(reply, pricer, out);
            }
        }
        Ok(())
    }

    /// Passes on what the upstream has said of its usage so far, while the writer can still begin with it.
    fn foresee(&mut self, reply: &mut Reply) {
        if self.begun {
            return;
        }
        reply.settle();
        if let Some(usage) = &reply.facts.usage {
            self.writer.foresee(usage);
        }
    }

    /// Says how the reply ended, once.
    fn end(&mut self, reply: &mut Reply, pricer: &mut dyn Pricer, out: &mut Vec<u8>) {
        // What is left out of a reply is an error, and no end.
        if self.reader.fault().is_some() || std::mem::replace(&mut self.ended, true) {
            return;
        }
        if pricer.is_ready() {
            self.write_end(reply, pricer, out);
        } else {
            self.awaits_price = true;
        }
    }

    pub(super) fn awaits_price(&self) -> bool {
        self.awaits_price
    }

    /// Says the end that waits for its price.
    pub(super) fn end_priced(
        &mut self,
        reply: &mut Reply,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) {
        if !std::mem::replace(&mut self.awaits_price, false) {
            return;
        }
        let mut shown = Vec::new();
        self.write_end(reply, pricer, &mut shown);
        if self.client_streams {
            show(shown, out);
        } else {
            self.document.append(&mut shown);
        }
    }

    fn write_end(&mut self, reply: &mut Reply, pricer: &mut dyn Pricer, out: &mut Vec<u8>) {
        let writer = &mut self.writer;
        self.reader.end(&mut |piece| writer.write(piece, out));
        reply.settle();
        if reply.facts.error.is_none() && reply.facts.finish_reason.as_deref() == Some("failed") {
            reply.note_error(StreamError {
                message: "the upstream failed without saying why".into(),
                ..StreamError::default()
            });
        }
        let failure = reply.failure();
        if let Some(failure) = failure
            && !self.client_streams
        {
            let known = |word: Option<_>| word.or(Some("upstream_error"));
            let failure = Failure {
                code: known(failure.code),
                kind: known(failure.kind),
                ..failure
            };
            out.extend_from_slice(&protocols::of(self.client_api).error(&failure));
            return;
        }
        let members = reply
            .facts
            .usage
            .as_ref()
            .and_then(|usage| pricer.price(usage));
        let spent = reply.facts.usage.as_ref().map(|usage| Spent {
            usage,
            members: members.as_ref(),
        });
        let ending = failure.map_or(Ending::Regular, Ending::Failed);
        let now = self.clock.map(|clock| clock());
        self.writer.end(ending, spent, now, out);
    }
}

/// The comments of an event. A made stream has one kind of line ending, whatever the upstream's are.
fn write_comments(event: &RawEvent<'_>, out: &mut Vec<u8>) {
    for line in event.lines() {
        if let Line::Comment(text) = line {
            out.push(b':');
            out.extend_from_slice(text);
            out.push(b'\n');
        }
    }
    out.push(b'\n');
}

fn show(bytes: Vec<u8>, out: &mut Vec<Bytes>) {
    if !bytes.is_empty() {
        out.push(bytes.into());
    }
}
