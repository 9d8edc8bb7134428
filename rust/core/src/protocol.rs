//! What is asked of every protocol. Each has one implementation, in its folder of [`protocols`](crate::protocols).

use crate::api::Api;
use crate::json::string;
use crate::limits::Limits;
use crate::output::{Failure, TextPlace};

/// One protocol, as it is whatever the request and the upstream.
pub trait Protocol: Sync {
    /// Its name.
    fn api(&self) -> Api;

    /// The path of its endpoint; empty: there are many.
    fn path(&self) -> &'static str;

    /// Whether a request may ask for usage in a stream (`stream_options`): where it does not, none comes.
    fn asks_usage(&self) -> bool {
        false
    }

    /// Whether a stream of it can be folded to a whole reply, and a whole reply unfolded to a stream, without another
    /// protocol.
    fn folds(&self) -> bool {
        false
    }

    /// An event that tells clients that the reply is still being made, where a comment does not.
    fn ping(&self) -> Option<&'static [u8]> {
        None
    }

    /// An error as the whole body of a reply; unless the protocol has a form of its own, that of OpenAI's:
    /// `{"error":{"message":…,"type":…,"code":…,"param":null}}`.
    fn error(&self, failure: &Failure<'_>) -> Vec<u8> {
        let mut out = b"{\"error\":{\"message\":".to_vec();
        string::encode(failure.message, &mut out);
        for (name, word) in [("type", failure.kind), ("code", failure.code)] {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            match word {
                Some(word) => string::encode(word, &mut out),
                None => out.extend_from_slice(b"null"),
            }
        }
        out.extend_from_slice(b",\"param\":null}}");
        out
    }

    /// The name of the event in which an error comes; empty: events have no names.
    fn error_event(&self) -> &'static str {
        ""
    }

    /// Whether its [`error`](Self::error) is not of OpenAI's form.
    fn has_own_errors(&self) -> bool {
        false
    }

    /// What follows a stream of it that is forwarded, where it takes more than an error's event to end one that breaks
    /// off.
    fn follow(&self, _limits: &Limits) -> Option<Box<dyn Follow>> {
        None
    }

    /// Whether its requests are a conversation, and can be translated: to it, and from it.
    fn is_conversational(&self) -> bool {
        false
    }
}

/// What an event changes in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Nothing,
    /// The next part of a text, and no more: of an event that differs in its `delta` alone, that can be
    /// [said](Follow::say) there.
    Next(TextPlace),
    /// More than one text.
    More,
}

/// Follows a stream that is forwarded.
pub trait Follow: Send {
    /// Takes in one event's data.
    fn read(&mut self, payload: &[u8]) -> Effect;

    /// Takes in the next part of the text at `place`, spelled.
    fn say(&mut self, place: TextPlace, said: &[u8]);

    /// Whether an event has named the reply, so that it can be ended under the upstream's own ids.
    fn is_named(&self) -> bool;

    /// Appends what ends the reply, and its stream: what is open is closed, and it fails. Nothing is appended where no
    /// event has [named](Self::is_named) it. `last`: the last event's number; `told`: the client was told why by the
    /// upstream's own event; `model`: shown instead of the upstream's.
    fn fail(
        &self,
        failure: Failure<'_>,
        last: Option<u64>,
        told: bool,
        model: Option<&str>,
        out: &mut Vec<u8>,
    );
}
