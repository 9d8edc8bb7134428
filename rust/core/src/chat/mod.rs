//! Chat completions, streamed and whole.

mod calls;
mod choice;
pub mod fold;
mod member;
mod merge;
mod rules;
pub mod unfold;
