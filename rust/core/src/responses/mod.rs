//! The Responses interface.
//!
//! * [`request`]: requests, and what becomes of them for an upstream that speaks Chat Completions.
//! * [`echo`]: what a response says of the request that it answers.
//! * [`forwarded`]: a response whose events go on as they come, and its end where the upstream gives it none.
//! * [`reading`]: a response, streamed or whole → pieces of output.
//! * [`writing`]: pieces of output → the events of a response, or the response alone.

mod chat_members;
mod custom_input;
pub mod echo;
pub mod forwarded;
pub mod reading;
pub mod request;
mod text;
mod usage_object;
mod vocabulary;
pub mod writing;
