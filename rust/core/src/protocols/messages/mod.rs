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
pub(crate) mod watch;
pub mod writing;

use crate::api::Api;
use crate::output::Failure;
use crate::protocol::Protocol;

/// `/v1/messages`
pub struct Messages;

impl Protocol for Messages {
    fn api(&self) -> Api {
        Api::Messages
    }

    fn path(&self) -> &'static str {
        "/v1/messages"
    }

    fn ping(&self) -> Option<&'static [u8]> {
        Some(writing::PING)
    }

    fn error(&self, failure: &Failure<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        writing::error(failure, &mut out);
        out
    }

    fn error_event(&self) -> &'static str {
        "error"
    }

    fn has_own_errors(&self) -> bool {
        true
    }

    fn is_conversational(&self) -> bool {
        true
    }
}
