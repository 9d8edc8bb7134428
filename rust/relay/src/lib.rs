//! Upstream connections, deadlines and the pump: everything of sluicegate that waits.
//!
//! One thread, one tokio runtime ([`Relay`]). An exchange ([`exchange`]) takes a client's request to an upstream
//! ([`upstream`]), feeds the reply through the core's pipeline ([`pump`]) and hands frames to a [`Sink`]. What has to be
//! decided on the way is asked of a [`Director`]. Knows the core; knows neither Python nor the server in front.

#![warn(missing_docs)]

pub mod asked;
mod body;
mod client;
mod connect;
mod deadlines;
mod decode;
mod dial;
pub mod exchange;
pub mod fault;
mod headers;
mod keepalive;
mod leaving;
mod line;
pub mod outcome;
mod pool;
mod pump;
mod runtime;
mod shared;
pub mod sink;
mod trace;
mod unanswered;
pub mod upstream;
mod wakes;

pub use asked::ResponsesAsked;
pub use deadlines::Deadlines;
pub use exchange::{Control, Exchange};
pub use fault::{Fault, FaultKind};
pub use leaving::DrainLimits;
pub use outcome::Outcome;
pub use runtime::{Relay, RelayError};
pub use sink::{Director, ErrorReply, Next, Sink};
pub use upstream::{Apis, Route, Streaming, Upstream, UpstreamError, UpstreamSettings};
