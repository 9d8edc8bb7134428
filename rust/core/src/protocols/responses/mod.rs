//! The Responses interface.
//!
//! * [`request`]: requests, and what becomes of them for an upstream that speaks Chat Completions.
//! * [`echo`]: the members of a response that repeat the request.
//! * [`beginning`]: a background response before an upstream speaks.
//! * [`conversation`]: the items of requests and responses that are kept.
//! * [`fold`]: a response whose events are known, and what it looks like so far.
//! * [`closing`]: its end, where its upstream gives it none.
//! * [`numbering`]: a reply's bytes → the events of it that are kept.
//! * [`unfolding`]: a response that came whole → its events.
//! * [`reading`]: a response, streamed or whole → pieces of output.
//! * [`writing`]: pieces of output → the events of a response, or the response alone.

pub mod beginning;
mod chat_members;
pub mod closing;
pub mod conversation;
mod custom_input;
pub mod echo;
pub mod fold;
mod members;
pub mod numbering;
pub mod reading;
pub mod request;
mod text;
pub mod unfolding;
mod usage_object;
mod vocabulary;
pub(crate) mod watch;
pub mod writing;

use crate::api::Api;
use crate::limits::Limits;
use crate::protocol::{Follow, Protocol};

/// `/v1/responses`
pub struct Responses;

impl Protocol for Responses {
    fn api(&self) -> Api {
        Api::Responses
    }

    fn path(&self) -> &'static str {
        "/v1/responses"
    }

    fn follow(&self, limits: &Limits) -> Option<Box<dyn Follow>> {
        Some(Box::new(fold::Fold::new(limits)))
    }

    fn is_conversational(&self) -> bool {
        true
    }
}
