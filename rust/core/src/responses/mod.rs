//! The Responses interface.
//!
//! * [`request`]: requests, and what becomes of them for an upstream that speaks Chat Completions.
//! * [`echo`]: what a response says of the request that it answers.
//! * [`reading`]: a response, streamed or whole → pieces of output.

pub mod echo;
pub mod reading;
pub mod request;
