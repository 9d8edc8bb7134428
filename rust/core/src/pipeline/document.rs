//! Forwarding JSON: one document, or several back to back.

use bytes::Bytes;

use crate::error::Error;
use crate::json::documents::{BodyPart, Documents};
use crate::limits::Limits;

use super::Pricer;
use super::reply::{Reply, Verdict};
use crate::watch::Source;

pub(super) struct Replies {
    documents: Documents,
    parts: Vec<BodyPart>,
}

impl Replies {
    pub(super) fn new(limits: &Limits) -> Self {
        Replies {
            documents: Documents::new(limits),
            parts: Vec::new(),
        }
    }

    pub(super) fn feed(
        &mut self,
        input: Bytes,
        reply: &mut Reply,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Error> {
        let fed = self.documents.feed(input, &mut self.parts);
        for part in self.parts.drain(..) {
            pass(part, reply, pricer, out);
        }
        fed
    }

    /// The end of the body: what is left of a document goes on as it came.
    pub(super) fn finish(
        &mut self,
        reply: &mut Reply,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) {
        let Some(rest) = self.documents.finish() else {
            return;
        };
        if let Some(b'{' | b'[' | b'"') = rest.first() {
            reply.facts.terminal = false;
            out.push(rest);
        } else {
            pass(BodyPart::Document(rest), reply, pricer, out);
        }
    }
}

fn pass(part: BodyPart, reply: &mut Reply, pricer: &mut dyn Pricer, out: &mut Vec<Bytes>) {
    let document = match part {
        BodyPart::Space(space) => return out.push(space),
        BodyPart::Document(document) => document,
    };
    reply.facts.events += 1;
    match reply.read(&document, Source::Document, pricer) {
        Verdict::Forward | Verdict::Hide => out.push(document),
        Verdict::Edit => {
            let mut edited = Vec::with_capacity(document.len() + 512);
            reply.edits.apply(&document, &mut edited);
            out.push(edited.into());
        }
    }
}
