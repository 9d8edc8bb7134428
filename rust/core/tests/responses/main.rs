//! Replies in another protocol than the client speaks, streamed and whole.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "what fails here fails the test"
)]

mod calls;
mod ends;
mod harmony;
mod order;
mod properties;
mod recognition;
mod recordings;
mod repair;
mod stream;
mod to_chat;
