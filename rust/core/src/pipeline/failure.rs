//! Writing an error in the reply's own protocol, for a reply that cannot be completed.

use crate::output::{self, Ending, Writer as _};
use crate::protocols;
use crate::protocols::responses::echo::Asked;
use crate::protocols::responses::fold::Fold;
use crate::protocols::responses::writing::ResponsesWriter;
use crate::sse::encode;

use crate::api::Api;
use crate::watch::StreamError;

/// The error to write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure<'a> {
    pub(super) error_type: &'a str,
    pub(super) code: &'a str,
    pub(super) message: &'a str,
}

impl<'a> Failure<'a> {
    /// As writers of pieces take it.
    pub(super) fn in_pieces(self) -> output::Failure<'a> {
        output::Failure {
            message: self.message,
            code: Some(self.code),
            kind: Some(self.error_type),
        }
    }
}

/// What is known of a response that fails.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) forwarded: Option<&'a Fold>,
    /// The last `sequence_number`.
    pub(super) sequence: Option<u64>,
    /// The error that the upstream sent in an event of its own.
    pub(super) error: Option<&'a StreamError>,
    /// Shown instead of the upstream's.
    pub(super) model: Option<&'a str>,
    /// What to say of a response that the upstream has not named.
    pub(super) asked: Option<&'a Asked>,
}

/// The error as a reply that is no stream.
pub(super) fn document(failure: Failure<'_>, api: Api) -> Vec<u8> {
    protocols::of(api).error(&failure.in_pieces())
}

/// The error as the last event or events of a stream.
pub(super) fn events(failure: Failure<'_>, api: Api, known: Known<'_>) -> Vec<u8> {
    if api == Api::Responses {
        return response(Some(failure), known);
    }
    let mut out = Vec::new();
    let name = protocols::of(api).error_event();
    encode::event(name, &document(failure, api), &mut out);
    out
}

/// What is open is closed, then `error`, `response.failed` and the stream's end: clients of the Responses interface
/// wait for a terminal event (`bifrost#6783`), and the numbers must go on without a gap.
pub(super) fn response(failure: Option<Failure<'_>>, known: Known<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let ours = failure.map(Failure::in_pieces);
    let theirs = known.error.map(|error| output::Failure {
        message: &error.message,
        code: error.code.as_deref(),
        kind: error.kind.as_deref(),
    });
    let failure = theirs.or(ours).unwrap_or_default();
    let (last, told) = (known.sequence, known.error.is_some());
    if let Some(forwarded) = known.forwarded.filter(|known| known.is_named()) {
        forwarded.fail(failure, last, told, known.model, &mut out);
        return out;
    }
    let echo = Asked::echo_of(known.asked);
    let mut writer = ResponsesWriter::new(echo, known.model, true);
    writer.end(Ending::Failed(failure), None, None, &mut out);
    out
}
