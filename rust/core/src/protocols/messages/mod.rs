//! The Messages interface (Anthropic).

use crate::api::Api;
use crate::protocol::Protocol;

/// `/v1/messages`
pub struct Messages;

impl Protocol for Messages {
    fn api(&self) -> Api {
        Api::Messages
    }

    fn path(&self) -> &'static str {
        "/messages"
    }

    fn is_conversational(&self) -> bool {
        true
    }
}
