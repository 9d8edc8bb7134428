//! Chat completions, streamed and whole: a client that asked for one form can be served from the other.
//!
//! * [`fold`]: the chunks of a stream → one `chat.completion` (or `text_completion`).
//! * [`unfold`]: one completion → the chunks of a stream.
//! * [`request`]: requests, read and written.
//! * [`reading`]: chunks, of which a whole completion is one → pieces of output.
//! * [`writing`]: pieces of output, whatever protocol they came in → either form.
//!
//! The first two are inverses: folding what a completion was unfolded into gives that completion, members that nobody
//! knows, the spelling of numbers and the difference between `null`, empty and absent included. The order of members is
//! not kept. A completion is here what OpenAI's schema says: `choices` in the order of their `index`, each with a
//! `message` that has a `role` (or, in a text completion, without a message); tool calls that can be told apart by id
//! or name, with a `type` and, for a function, `arguments`. What a stream has of its own is not part of it: a tool
//! call's `index`, a choice's `delta`, `obfuscation`. Usage comes back if it was asked for.
//!
//! Upstreams that break the schema are set right in both directions rather than kept: see [`unfold::unfold_chat`] and
//! the rules for tool calls in this module's `calls`.
//!
//! # No tree
//!
//! Values are found with the scanner in [`json`](crate::json) and copied as they are spelled; no JSON library builds a
//! tree of them. A tree would have to keep the text of numbers (`serde_json` does, but then an object with one reserved
//! key turns into a number, and its nesting ends at 128), decode and encode all text once more, and refuse half a
//! surrogate pair, which some upstreams send in each of two chunks. Spelled text needs none of it: what is said in
//! pieces is the pieces, one behind the other.

mod base64;
mod calls;
mod choice;
mod chunks;
pub(crate) mod delta;
mod error;
pub mod fold;
#[cfg(test)]
mod inverse;
mod merge;
pub mod reading;
pub mod request;
mod rules;
#[cfg(test)]
mod tree;
pub mod unfold;
pub(crate) mod watch;
pub mod writing;

use crate::api::Api;
use crate::protocol::Protocol;

/// `/v1/chat/completions`
pub struct Chat;

impl Protocol for Chat {
    fn api(&self) -> Api {
        Api::Chat
    }

    fn path(&self) -> &'static str {
        "/v1/chat/completions"
    }

    fn asks_usage(&self) -> bool {
        true
    }

    fn folds(&self) -> bool {
        true
    }

    fn is_conversational(&self) -> bool {
        true
    }
}
