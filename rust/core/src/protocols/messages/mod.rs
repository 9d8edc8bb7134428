//! The Messages interface (Anthropic's), streamed and whole.
//!
//! * [`reading`]: the events of a message, or the message alone → pieces of output.
//! * [`writing`]: pieces of output, whatever protocol they came in → either form.
//! * [`request`]: requests, read and written.
//! * [`taken`]: ids that no new call may have.
//! * [`vocabulary`]: stop reasons and types of errors.

pub mod reading;
pub mod request;
pub mod taken;
pub mod vocabulary;
pub mod writing;

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
