//! Upstream connections, deadlines and the pump: everything of sluicegate that waits for an upstream.
//!
//! The engine threads ([`Engines`]) each run one tokio runtime. An exchange ([`exchange`]) takes a client's request to
//! an upstream ([`upstream`]), feeds the reply through the core's pipeline ([`pump`]) and puts frames into a [`Sink`].
//! What has to be decided on the way is asked of a [`Director`]. Knows the core; knows neither Python nor the server in
//! front.

#![warn(missing_docs)]

mod address;
pub mod asked;
mod attend;
mod body;
mod client;
mod connect;
pub mod copies;
mod deadlines;
mod decode;
mod dial;
pub mod director;
mod engine;
mod error_body;
pub mod exchange;
pub mod fault;
mod gaps;
mod headers;
mod keepalive;
mod leaving;
mod line;
pub mod offload;
pub mod outcome;
mod pool;
mod pump;
pub mod reason;
pub mod replies;
pub mod reply;
mod shared;
pub mod signal;
pub mod tally;
mod trace;
mod unanswered;
pub mod upload;
pub mod upstream;
mod wakes;

pub use address::Paths;
pub use asked::ResponsesAsked;
pub use copies::{Copies, NotCopied, ReplyCopy, Share};
pub use deadlines::Deadlines;
pub use director::{Attempt, Deciding, Director, ErrorReply, Next, Pricing};
pub use engine::{Active, Engine, Engines};
pub use exchange::{Asked, AskedBody, Exchange};
pub use fault::{Fault, FaultKind};
pub use headers::add_request_id;
pub use leaving::DrainLimits;
pub use outcome::{Outcome, Try};
pub use reason::Reason;
pub use replies::Replies;
pub use reply::{Aborted, Batch, Head, Reply, Sink, Taken, inline_reply, reply};
pub use signal::Signal;
pub use tally::Tally;
pub use upload::{Broken, Source, Upload};
pub use upstream::{Route, Streaming, Upstream, UpstreamError, UpstreamSettings};
