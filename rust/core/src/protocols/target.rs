//! What an upstream serves, and how it wants to be asked for it.

use super::chat::request::{self as chat, ChatTarget};
use super::messages::request::{self as messages, MessagesTarget};
use super::of;
use super::responses::request::{self as responses, ResponsesTarget};
use crate::api::Api;
use crate::input::seal::Unsealed;
use crate::input::{Conversation, Refusal, Written};
use crate::request::Request;

/// The protocols for conversations that an upstream serves. Requests of another are translated to the first.
///
/// ```
/// use sluicegate_core::api::Api;
/// use sluicegate_core::protocols::Serves;
///
/// let serves = Serves::new([Api::Responses, Api::Chat]).unwrap();
/// assert!(serves.has(Api::Chat) && !serves.has(Api::Messages));
/// assert_eq!(serves.instead_of(Api::Messages), Api::Responses);
/// assert!(serves.has(Api::Embeddings), "which no other protocol stands in for");
/// assert_eq!(Serves::new([]), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serves {
    first: Api,
    others: Box<[Api]>,
}

impl Serves {
    /// What serves these, in this order. None where there is none, or one that is not for conversations.
    #[must_use]
    pub fn new(apis: impl IntoIterator<Item = Api>) -> Option<Self> {
        let mut apis = apis.into_iter();
        let first = apis.next()?;
        let others: Box<[Api]> = apis.collect();
        let is_conversational = |api: &Api| of(*api).is_conversational();
        let all = is_conversational(&first) && others.iter().all(is_conversational);
        all.then_some(Serves { first, others })
    }

    /// Whether requests to `api` go to the upstream as they came. All do that cannot be translated.
    #[must_use]
    pub fn has(&self, api: Api) -> bool {
        self.first == api || self.others.contains(&api) || !of(api).is_conversational()
    }

    /// The only protocol that it serves, where it is one.
    #[must_use]
    pub fn only(&self) -> Option<Api> {
        self.others.is_empty().then_some(self.first)
    }

    /// The protocol in which a request to `api` goes up.
    #[must_use]
    pub fn instead_of(&self, api: Api) -> Api {
        if self.has(api) { api } else { self.first }
    }
}

impl Default for Serves {
    fn default() -> Self {
        Serves {
            first: Api::Chat,
            others: Box::default(),
        }
    }
}

/// How an upstream wants the requests that are translated for it, by protocol.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Targets {
    /// Chat Completions.
    pub chat: ChatTarget,
    /// The Responses interface.
    pub responses: ResponsesTarget,
    /// The Messages interface.
    pub messages: MessagesTarget,
}

impl Targets {
    /// `body`, a request to `api` that is forwarded, without the seals that are in it; None where it has none.
    #[must_use]
    pub fn without_seals(&self, api: Api, body: &[u8]) -> Option<Unsealed> {
        match api {
            Api::Messages => messages::forwarded::without_seals(body, self.messages.signed),
            Api::Responses => {
                responses::forwarded::without_seals(body, self.responses.takes_reasoning)
            }
            Api::Chat | Api::Completions | Api::Embeddings | Api::Other => None,
        }
    }

    /// How it wants requests of `api`; None where nothing is translated to that.
    #[must_use]
    pub fn of(&self, api: Api) -> Option<Target> {
        match api {
            Api::Chat => Some(Target::Chat(self.chat.clone())),
            Api::Responses => Some(Target::Responses(self.responses.clone())),
            Api::Messages => Some(Target::Messages(self.messages.clone())),
            Api::Completions | Api::Embeddings | Api::Other => None,
        }
    }
}

/// The protocol that a request is translated to, and how its upstream wants it.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// Chat Completions.
    Chat(ChatTarget),
    /// The Responses interface.
    Responses(ResponsesTarget),
    /// The Messages interface.
    Messages(MessagesTarget),
}

impl Target {
    /// The protocol.
    #[must_use]
    pub fn api(&self) -> Api {
        match self {
            Target::Chat(_) => Api::Chat,
            Target::Responses(_) => Api::Responses,
            Target::Messages(_) => Api::Messages,
        }
    }

    /// Writes a request of the protocol. Nothing of `conversation` that changes the answer is left out without a word.
    ///
    /// # Errors
    /// What is asked for is beyond such an upstream.
    pub fn write_request(&self, conversation: &Conversation<'_>) -> Result<Written, Refusal> {
        match self {
            Target::Chat(target) => chat::write_request(conversation, target),
            Target::Responses(target) => responses::write_request(conversation, target),
            Target::Messages(target) => messages::write_request(conversation, target),
        }
    }
}

/// Reads a request to `api`: what it asks for, whatever protocol its upstream speaks. None where no request of this
/// protocol is translated.
///
/// # Errors
/// What is malformed.
pub fn read_request(api: Api, request: &Request) -> Option<Result<Conversation<'_>, Refusal>> {
    match api {
        Api::Chat => Some(chat::read_request(request)),
        Api::Responses => Some(responses::read_request(request)),
        Api::Messages => Some(messages::read_request(request)),
        Api::Completions | Api::Embeddings | Api::Other => None,
    }
}
