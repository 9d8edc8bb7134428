//! Replies in another form than the client asked for: makes a stream of a whole completion, or a completion of a
//! stream.

use bytes::Bytes;

use crate::api::DONE;
use crate::error::{Error, ErrorKind};
use crate::json::documents::{BodyPart, Documents};
use crate::limits::Limits;
use crate::protocols::chat::fold::ChatFold;
use crate::protocols::chat::unfold::{Unfold, unfold_chat};
use crate::sse::event::RawEvent;
use crate::sse::splitter::Splitter;

use super::reply::{Reply, Verdict};
use super::stream::{self, Stream};
use super::{Pricer, ReplyPlan, Unpriced};
use crate::watch::Source;

/// The upstream streams, the client wants a whole completion.
pub(super) struct Folding {
    splitter: Splitter,
    fold: ChatFold,
}

impl Folding {
    pub(super) fn new(limits: &Limits) -> Self {
        Folding {
            splitter: Splitter::new(limits),
            fold: ChatFold::new(*limits),
        }
    }

    pub(super) fn feed(&mut self, input: Bytes, reply: &mut Reply) -> Result<(), Error> {
        let (batch, fed) = self.splitter.feed(input);
        for event in batch.events() {
            self.push(&event, reply)?;
        }
        fed
    }

    fn push(&mut self, event: &RawEvent<'_>, reply: &mut Reply) -> Result<(), Error> {
        stream::read(event, reply, &mut Unpriced);
        let Some(data) = event.data() else {
            return Ok(());
        };
        match self.fold.push(&data) {
            Err(error)
                if matches!(
                    error.kind,
                    ErrorKind::DocumentTooLarge | ErrorKind::TooManyItems
                ) =>
            {
                Err(error)
            }
            // A payload that is not a chunk was counted as malformed; an error that was reported is written at the end.
            _ => Ok(()),
        }
    }

    /// The end of the stream. A stream that broke off gives no completion: half an answer must not look like a whole
    /// one.
    pub(super) fn finish(
        mut self,
        reply: &mut Reply,
        plan: &ReplyPlan,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Error> {
        if let Some(tail) = self.splitter.finish() {
            self.push(&RawEvent::parse(&tail.event()), reply)?;
        }
        if let Some(error) = self.fold.error() {
            out.push([b"{\"error\":", error, b"}"].concat().into());
            return Ok(());
        }
        if !reply.facts.terminal || reply.facts.error.is_some() {
            return Ok(());
        }
        let completion: Bytes = self.fold.finish()?.into();
        let mut shown = Reply::after(reply, plan);
        match shown.read(&completion, Source::Document, pricer) {
            Verdict::Forward | Verdict::Hide => out.push(completion),
            Verdict::Edit => {
                let mut edited = Vec::with_capacity(completion.len() + 512);
                shown.edits.apply(&completion, &mut edited);
                out.push(edited.into());
            }
        }
        Ok(())
    }
}

/// The upstream sends a whole completion, the client wants a stream.
pub(super) struct Unfolding {
    documents: Documents,
    parts: Vec<BodyPart>,
    /// The way of the made stream to the client.
    shown: Option<(Reply, Stream)>,
    /// A completion was unfolded, and its stream ended.
    ended: bool,
}

impl Unfolding {
    pub(super) fn new(limits: &Limits) -> Self {
        Unfolding {
            documents: Documents::new(limits),
            parts: Vec::new(),
            shown: None,
            ended: false,
        }
    }

    pub(super) fn feed(
        &mut self,
        input: Bytes,
        reply: &mut Reply,
        plan: &ReplyPlan,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Error> {
        let fed = self.documents.feed(input, &mut self.parts);
        for part in std::mem::take(&mut self.parts) {
            if let BodyPart::Document(document) = part {
                self.pass(&document, reply, plan, pricer, out)?;
            }
        }
        fed
    }

    pub(super) fn finish(
        &mut self,
        reply: &mut Reply,
        plan: &ReplyPlan,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Error> {
        if self.documents.finish().is_some() {
            reply.facts.terminal = false;
        } else if !self.ended && reply.facts.terminal && reply.facts.error.is_none() {
            let end = Bytes::from_static(DONE);
            self.show(end, reply, plan, pricer, out)?;
        }
        Ok(())
    }

    fn pass(
        &mut self,
        document: &Bytes,
        reply: &mut Reply,
        plan: &ReplyPlan,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Error> {
        reply.facts.events += 1;
        reply.read(document, Source::Document, &mut Unpriced);
        if self.ended {
            return Ok(());
        }
        let is_chunk = reply
            .payload
            .object
            .is_some_and(|object| object.content(document).ends_with(b".chunk"));
        let stream = if is_chunk {
            // Chunks as lines of JSON: a line end outside of strings is white space.
            let mut event = b"data: ".to_vec();
            event.extend(document.iter().map(|&byte| match byte {
                b'\n' | b'\r' => b' ',
                byte => byte,
            }));
            event.extend_from_slice(b"\n\n");
            event
        } else {
            self.ended = true;
            let options = Unfold {
                include_usage: plan.client.usage_chunk().include,
            };
            unfold_chat(document, options, plan.limits)?
        };
        self.show(stream.into(), reply, plan, pricer, out)
    }

    fn show(
        &mut self,
        events: Bytes,
        reply: &Reply,
        plan: &ReplyPlan,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Error> {
        let (shown, stream) = self.shown.get_or_insert_with(|| {
            (
                Reply::after(reply, plan),
                Stream::new(plan.client.api(), &plan.limits),
            )
        });
        stream.feed(events, shown, pricer, out)
    }
}
