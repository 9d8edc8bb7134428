//! What is known of one reply, updated from each payload, whether it is an event or a document.

use std::ops::Range;

use bytes::Bytes;

use crate::cost::{self, Members};
use crate::error::Error;
use crate::json::scan::Value;
use crate::json::splice::Splice;
use crate::json::string;
use crate::mode::Foreign;
use crate::output::Failure;
use crate::protocols::{self, Reading};
use crate::record;
use crate::usage::{Count, Tally};

use super::{Facts, Pricer, ReplyPlan};
use crate::watch::payload::{Choices, Payload};
use crate::watch::{Bearing, Source, StreamError, Watch};

/// What to do with an event or document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes on as it came.
    Forward,
    /// The client must not see it.
    Hide,
    /// It goes on with the edits in [`Reply::edits`], whose places are in the payload.
    Edit,
}

pub(super) struct Reply {
    /// Watches its payloads.
    watch: &'static dyn Watch,
    /// An error in it is none of ours.
    passes_errors: bool,
    /// Open containers that a payload may have.
    pub(super) max_depth: usize,
    /// The client must not see payloads that are there for the usage alone.
    hides_usage: bool,
    pub(super) facts: Facts,
    /// The first error that the upstream sent inside the reply, whole, so that an error written anew can repeat all of
    /// it.
    pub(super) error: Option<StreamError>,
    pub(super) edits: Splice,
    pub(super) payload: Payload,
    /// Of the last event that was read.
    pub(super) bearing: Bearing,
    /// Its usage is more than a running total or a preview.
    pub(super) is_final: bool,
    /// What was added to it.
    pub(super) members: Option<Members>,
    /// Of `edits`, those that come before the model's.
    cost_edits: usize,
    /// A token-bearing event came since this was last taken.
    pub(super) progress: bool,
    /// The last `sequence_number`.
    pub(super) sequence: Option<u64>,
    tally: Tally,
    tally_changed: bool,
    reply_model: Option<Bytes>,
}

impl Reply {
    /// A reply that is forwarded to the client.
    pub(super) fn new(plan: &ReplyPlan) -> Self {
        let reply_model = plan.client.reply_model.as_deref().map(|model| {
            let mut quoted = Vec::with_capacity(model.len() + 2);
            string::encode(model, &mut quoted);
            quoted.into()
        });
        Reply {
            hides_usage: plan.client.usage_chunk().hide,
            reply_model,
            ..Reply::unshown(plan)
        }
    }

    /// A reply of which nothing is shown as it is: nothing is hidden or renamed.
    pub(super) fn unshown(plan: &ReplyPlan) -> Self {
        let watch = protocols::watch(plan.upstream.api);
        let dialect = plan.upstream.dialect.or_else(|| watch.dialect());
        Reply {
            watch,
            passes_errors: plan.upstream.reading == Reading::Usage,
            max_depth: plan.limits.max_depth,
            hides_usage: false,
            facts: Facts::default(),
            error: None,
            edits: Splice::new(),
            payload: Payload::default(),
            bearing: Bearing::default(),
            is_final: false,
            members: None,
            cost_edits: 0,
            progress: false,
            sequence: None,
            tally: Tally::new(dialect),
            tally_changed: false,
            reply_model: None,
        }
    }

    /// A reply that is made of what `read` gathered: it knows the same usage.
    pub(super) fn after(read: &Reply, plan: &ReplyPlan) -> Self {
        Reply {
            tally: read.tally.clone(),
            ..Reply::new(plan)
        }
    }

    /// Notes the start of a body that is none.
    pub(super) fn quote(&mut self, body: Foreign) -> Error {
        let error = Error::from(&body);
        self.facts.quote = Some(body.quote);
        error
    }

    /// The first error that the upstream sent inside the reply.
    pub(super) fn failure(&self) -> Option<Failure<'_>> {
        let error = self.error.as_ref()?;
        Some(Failure {
            message: &error.message,
            code: error.code.as_deref(),
            kind: error.kind.as_deref(),
        })
    }

    /// Brings [`Facts::usage`] up to date.
    pub(super) fn settle(&mut self) {
        if std::mem::take(&mut self.tally_changed) {
            self.facts.usage = self.tally.usage();
        }
    }

    /// Notes that output has come. The number of tokens can only be estimated from events.
    pub(super) fn note_started(&mut self) {
        self.facts.output_started = true;
        self.progress = true;
    }

    /// Takes in whether an event bears output.
    pub(super) fn note_output(&mut self, bears_output: bool) {
        if bears_output {
            self.facts.token_events += 1;
            self.note_started();
        }
    }

    fn note_bearing(&mut self, bearing: Bearing) {
        self.bearing = bearing;
        self.note_output(bearing.always || bearing.with_text && self.payload.holds_text());
    }

    pub(super) fn note_error(&mut self, error: StreamError) {
        if self.passes_errors {
            return;
        }
        self.facts.terminal = true;
        self.facts.error.get_or_insert_with(|| error.recorded());
        self.error.get_or_insert(error);
    }

    pub(super) fn note_done(&mut self) {
        self.facts.done = true;
        self.facts.terminal = true;
    }

    /// Takes in one payload.
    pub(super) fn read(&mut self, text: &[u8], source: Source, pricer: &mut dyn Pricer) -> Verdict {
        self.edits.clear();
        self.bearing = Bearing::default();
        self.members = None;
        let read = self.watch.read(&mut self.payload, text, self.max_depth);
        if read.is_err() {
            self.facts.malformed += 1;
        }
        if source == (Source::Event { named_error: true }) && self.payload.error.is_none() {
            self.note_error(StreamError {
                message: record::cut_bytes(text),
                ..StreamError::default()
            });
        }
        if read.is_err() {
            self.facts.terminal |= source == Source::Document;
            return Verdict::Forward;
        }
        let reports_error = self.payload.error.is_some();
        if let Some(error) = self.payload.error.take() {
            self.note_error(error);
        }
        let finished = self.facts.finish_reason.is_some();
        let said = self.watch.said(&self.payload, text, source, finished);
        self.note_finish(said.finish.as_deref());
        if said.done {
            self.note_done();
        }
        if let Some(bearing) = said.bearing {
            self.note_bearing(bearing);
        }
        self.is_final = said.is_final;
        self.note_identity(text);
        if source == Source::Document {
            if self.facts.error.is_none() {
                self.note_started();
            }
            self.facts.terminal = true;
        }
        if !self.payload.report.is_empty() {
            if !self.is_final {
                self.payload.report.counts.preview();
            }
            self.tally.add(&self.payload.report, text);
            self.tally_changed = true;
        }
        if !reports_error && self.is_usage_only(source) {
            return Verdict::Hide;
        }
        if self.is_final && !self.payload.report.counts.is_empty() {
            self.price(text, pricer);
        }
        self.cost_edits = self.edits.as_slice().len();
        self.show_model(text);
        if self.edits.is_empty() {
            Verdict::Forward
        } else {
            Verdict::Edit
        }
    }

    /// Whether the client must not see the payload: it did not ask for usage, and that is what the payload is there
    /// for.
    fn is_usage_only(&self, source: Source) -> bool {
        self.hides_usage
            && matches!(source, Source::Event { .. })
            && self.payload.choices != Choices::Some
            && self.payload.report.object.is_some()
    }

    /// Takes in one number of a usage object that was recognised.
    pub(super) fn count(&mut self, count: Count, value: u64) {
        self.tally.set(count, value);
        self.tally_changed = true;
    }

    /// The cost members to add to a usage object, from the usage known so far.
    pub(super) fn ask_price(&mut self, pricer: &mut dyn Pricer) -> Option<Members> {
        self.settle();
        pricer.price(self.facts.usage.as_ref()?)
    }

    /// Plans the edits that add the cost to the usage object of `text`.
    pub(super) fn add_cost(&mut self, text: &[u8], object: Value, members: &Members) {
        cost::splice(text, object, members, self.max_depth, &mut self.edits);
    }

    fn price(&mut self, text: &[u8], pricer: &mut dyn Pricer) {
        if let Some(object) = self.payload.report.object
            && let Some(members) = self.ask_price(pricer)
        {
            self.add_cost(text, object, &members);
            self.members = Some(members);
        }
    }

    /// The edits of the last payload, those that add a cost aside.
    pub(super) fn model_edits(&self) -> &[(Range<usize>, Bytes)] {
        self.edits
            .as_slice()
            .get(self.cost_edits..)
            .unwrap_or_default()
    }

    fn show_model(&mut self, text: &[u8]) {
        let Some(shown) = &self.reply_model else {
            return;
        };
        for model in self.payload.models.iter().flatten() {
            if model.bytes(text) != shown {
                self.edits.replace(model.range(), shown.clone());
            }
        }
    }

    fn note_identity(&mut self, text: &[u8]) {
        if let Some(sequence) = self.payload.sequence {
            self.sequence = Some(sequence);
        }
        if self.facts.reply_id.is_none() {
            self.facts.reply_id = self
                .payload
                .id
                .and_then(|id| id.decode(text))
                .filter(|id| !id.is_empty())
                .map(|id| record::cut(&id).into());
        }
    }

    fn note_finish(&mut self, reason: Option<&str>) {
        if let Some(reason) = reason {
            self.facts.terminal = true;
            self.facts
                .finish_reason
                .get_or_insert_with(|| record::cut(reason).into());
        }
    }
}
