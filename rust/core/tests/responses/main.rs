//! Chat completions, streamed and whole, as replies of the Responses interface.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod calls;
mod ends;
mod order;
mod properties;
mod stream;
