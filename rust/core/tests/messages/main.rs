//! Replies between the Messages interface and the others, streamed and whole.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "what fails here fails the test"
)]

mod accumulator;
mod cases;
mod recordings;
mod round_trips;
mod said;
mod signed;
mod translations;
