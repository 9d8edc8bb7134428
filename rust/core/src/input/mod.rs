//! What a client asks for, whatever protocol it came in.
//!
//! * `left_out`: what of a request its upstream is not sent.
//! * [`seal`]: what an upstream wants back from a client that speaks another protocol.
//! * [`place`]: where in a request something stands, and why a request is refused.

pub(crate) mod left_out;
pub mod place;
pub mod seal;
