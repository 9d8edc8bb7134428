//! What keeps the account of one exchange while it runs.

use sluicegate_core::usage::Usage;

use crate::outcome::Outcome;
use crate::upstream::Route;

/// What has come of a reply by now.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Events that bore output.
    pub token_events: u64,
    /// Body bytes from the upstream.
    pub bytes_in: u64,
    /// The last value that the upstream gave.
    pub usage: Option<&'a Usage>,
    /// The reply has come to its end.
    pub whole: bool,
}

/// Keeps the account of one exchange: called on its engine's thread, at every read, so it must not wait.
pub trait Tally: Send + Sync {
    /// An upstream is about to hear of the request.
    fn attempt(&mut self, route: &Route);

    /// The upstream has the whole request, or has begun to reply. It may be said more than once.
    fn accepted(&mut self);

    /// Something of the reply has come.
    fn progress(&mut self, progress: Progress<'_>);

    /// What the exchange cost, where somebody had to be asked: in the order of [`Cost::in_picodollars`], None where it
    /// is not known. Before [`close`](Self::close).
    ///
    /// [`Cost::in_picodollars`]: sluicegate_core::pricing::Cost::in_picodollars
    fn charge(&mut self, costs: Option<[u64; 6]>);

    /// The exchange is over; the last frame has not been handed over yet. Called once, or never: then it is dropped.
    fn close(&mut self, outcome: &Outcome);
}
