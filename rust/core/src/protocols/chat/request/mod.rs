//! Requests to Chat Completions: what they ask for, and requests made of what clients of other protocols ask for.
//!
//! Texts, schemas and numbers are copied as they are spelled: nothing is read into a tree and written anew.

mod read;
mod thinking;
mod write;

pub use read::read_request;
pub use write::{
    ChatTarget, EffortCeiling, InstructionsRole, LateSystem, ReasoningField, ThinkingOff,
    write_request,
};
