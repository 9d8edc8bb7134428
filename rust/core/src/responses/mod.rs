//! The Responses interface.
//!
//! * [`echo`]: what a response says of the request that it answers.

pub mod echo;
