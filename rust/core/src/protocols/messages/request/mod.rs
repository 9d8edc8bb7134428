//! Requests to `/v1/messages`: what they ask for, and requests made of what clients of other protocols ask for.
//!
//! Texts, schemas and numbers are copied as they are spelled: nothing is read into a tree and written anew.
//!
//! * [`forwarded`]: a request on its way to an upstream that speaks Messages as well.

mod blocks;
pub mod forwarded;
mod parts;
mod read;
mod target;
mod thinking;
mod tools;
mod turns;
mod write;

pub use read::read_request;
pub use target::{Cache, MessagesTarget, Rest, ThinkingForm};
pub use write::write_request;
