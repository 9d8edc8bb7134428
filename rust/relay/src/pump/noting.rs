//! What a pump notes of a reply as it goes by.

use std::time::Duration;

use sluicegate_core::mode::Mode;
use tokio::time::Instant;

use super::{Client, Pump};
use crate::fault::{Fault, FaultKind};
use crate::outcome::Outcome;
use crate::tally;

impl Pump {
    pub(super) fn note_progress(&mut self, client: &mut Client<'_>) {
        let now = Instant::now();
        self.gaps.stalled(client.sink.take_stalls());
        self.last_read = now;
        self.progress.first_byte.get_or_insert(now);
        let tokens = self.pipeline.take_progress();
        let mode = self.pipeline.facts().mode;
        if let Some(mode) = mode {
            self.progress.streaming = mode != Mode::Json;
        }
        if tokens {
            // Reads of bytes are no tokens, but the first of them is where the reply begins.
            if mode != Some(Mode::Bytes) || self.progress.last_token.is_none() {
                self.gaps.tokens(now);
            }
            self.progress.last_token = Some(now);
            if self.trial && self.pipeline.facts().error.is_none() {
                self.trial = false;
                client.director.first_output();
            }
        }
        if let Some(tally) = &mut client.tally
            && self.unpriced.is_none()
        {
            let facts = self.pipeline.facts();
            tally.progress(tally::Progress {
                token_events: facts.token_events,
                bytes_in: self.bytes_in,
                usage: facts.usage.as_ref(),
                whole: facts.terminal && facts.error.is_none(),
            });
        }
    }

    /// A reply that ran to its end and yet failed.
    pub(super) fn note_fault_in_band(&mut self) {
        let facts = self.pipeline.facts();
        let fault = match (&facts.error, facts.finish_reason.as_deref()) {
            (Some(error), _) => Fault::in_band(&self.upstream, error),
            // An engine that gives up ends with this reason under a success status (vllm#57082).
            (None, Some("abort")) => Fault {
                detail: Some("finish reason abort".into()),
                ..Fault::new(FaultKind::InBandError, &self.upstream)
            },
            _ => return,
        };
        self.fault.get_or_insert(fault);
    }

    /// Write what is known into the outcome; `offset` is when this attempt began.
    pub(crate) fn report(&mut self, outcome: &mut Outcome, offset: Duration) {
        let facts = match &self.unpriced {
            Some(known) => known,
            None => self.pipeline.facts(),
        };
        let since = |at: Instant| offset + (at - self.progress.started);
        outcome.status = self.status;
        outcome.streamed = facts.reply_is_stream == Some(true) || facts.mode == Some(Mode::Bytes);
        outcome.usage = facts.usage.clone();
        outcome.finish_reason = facts.finish_reason.clone();
        outcome.fault = self.fault.take();
        outcome.events = facts.events;
        outcome.malformed = facts.malformed;
        outcome.token_events = facts.token_events;
        outcome.bytes_in = self.bytes_in;
        outcome.bytes_out = self.bytes_out;
        outcome.first_byte = self.progress.first_byte.map(since);
        self.gaps.report(outcome, since);
    }
}
