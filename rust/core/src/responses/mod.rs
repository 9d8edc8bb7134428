//! The Responses interface.
//!
//! * [`echo`]: what a response says of the request that it answers.
//! * [`reading`]: a response, streamed or whole → pieces of output.

pub mod echo;
pub mod reading;
