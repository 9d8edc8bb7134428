//! The interface to decisions that the relay does not make itself: the next upstream, the cost of a usage object, what
//! to do with the record.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use sluicegate_core::cost::Members;
use sluicegate_core::pipeline::Pricer;
use sluicegate_core::pricing;
use sluicegate_core::usage::Usage;

use crate::copies::ReplyCopy;
use crate::fault::Fault;
use crate::outcome::Outcome;
use crate::tally::Tally;
use crate::upstream::Route;

/// A reply made by the gateway itself.
#[derive(Debug, Clone)]
pub struct ErrorReply {
    /// HTTP status.
    pub status: u16,
    /// Headers; the length is set by the server.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

/// How the usage of one attempt is priced.
#[derive(Clone)]
pub enum Pricing {
    /// By rates, on the thread that moves the bytes.
    Rates(Arc<pricing::Pricing>),
    /// By the director, on a thread that may wait.
    Asked,
}

/// One try at one upstream.
#[derive(Clone)]
pub struct Attempt {
    /// Where to.
    pub route: Route,
    /// What its tokens cost.
    pub pricing: Pricing,
    /// No other attempt can follow: nothing is held back to keep a change of upstream possible.
    pub last: bool,
    /// The director is told of its first output, since it shows that the upstream works again.
    pub trial: bool,
    /// How long to wait before it.
    pub after: Duration,
    /// The gateway's own headers on its reply, in place of the upstream's of these names. Where they say what is left
    /// of a limit, the upstream's limits are not shown: two sets would confuse.
    pub headers: HeaderMap,
}

/// What to do after an attempt failed with nothing sent to the client.
pub enum Next {
    /// Try this.
    Attempt(Box<Attempt>),
    /// Give up, with this reply.
    Reply(ErrorReply),
}

/// A decision that is on its way.
pub type Deciding<'a> = Pin<Box<dyn Future<Output = Next> + Send + 'a>>;

/// Decides for one exchange.
pub trait Director: Send + Sync + 'static {
    /// An attempt failed before anything reached the client. `attempts`: how many there were.
    fn failed(&mut self, fault: &Fault, attempts: u32) -> Deciding<'_>;

    /// An attempt that is a [`trial`](Attempt::trial) has had its first output. At most once an attempt, before what is
    /// told of its end.
    fn first_output(&mut self);

    /// For [`Pricing::Asked`]: prices usage. Used on a thread that may block.
    fn pricer(&self) -> Box<dyn Pricer + Send>;

    /// The exchange is over. Called once, before the last frame of the reply is handed over. `copy`: the reply's body,
    /// where it was to be copied and all of it was. `tally`: where its price has still to be asked for, and it can
    /// therefore not be closed yet.
    fn ended(&mut self, outcome: Outcome, copy: Option<ReplyCopy>, tally: Option<Box<dyn Tally>>);
}

/// Prices by rates.
pub(crate) struct ByRates<'a>(pub(crate) &'a pricing::Pricing);

impl Pricer for ByRates<'_> {
    fn price(&mut self, usage: &Usage) -> Option<Members> {
        self.0.charge(usage).1
    }
}
