//! The protocols, a folder for each. What they share is in [`input`](crate::input) and [`output`](crate::output): they do not know each
//! other.
//!
//! * [`chat`]: Chat Completions, and text completions.
//! * [`responses`]: the Responses interface.

pub mod chat;
pub mod responses;
