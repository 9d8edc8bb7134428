//! What is asked of every protocol. Each has one implementation, in its folder of [`protocols`](crate::protocols).

use crate::api::Api;

/// One protocol, as it is whatever the request and the upstream.
pub trait Protocol: Sync {
    /// Its name.
    fn api(&self) -> Api;

    /// Its endpoint, below a base URL that ends in `/v1`.
    fn path(&self) -> &'static str;

    /// Whether a request may ask for usage in a stream (`stream_options`): where it does not, none comes.
    fn asks_usage(&self) -> bool {
        false
    }

    /// Whether a stream of it can be folded to a whole reply, and a whole reply unfolded to a stream, without another protocol.
    fn folds(&self) -> bool {
        false
    }

    /// Whether its requests are a conversation, and can be translated: to it, and from it.
    fn is_conversational(&self) -> bool {
        false
    }
}
