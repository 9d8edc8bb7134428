//! The protocols, by name.

/// The last event of streams of OpenAI's interfaces (OpenAI's API reference, "stream").
pub(crate) const DONE: &[u8] = b"data: [DONE]\n\n";

/// Which protocol a request or a reply speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages`
    Messages,
    /// Any other endpoint: audio, images, moderations, rankings, tokens, and what an operator adds.
    Other,
}

impl Api {
    /// All of them.
    pub const ALL: [Api; 6] = [
        Api::Chat,
        Api::Completions,
        Api::Embeddings,
        Api::Responses,
        Api::Messages,
        Api::Other,
    ];

    /// Its stable name, which configurations have, too.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Api::Chat => "chat",
            Api::Completions => "completions",
            Api::Embeddings => "embeddings",
            Api::Responses => "responses",
            Api::Messages => "messages",
            Api::Other => "other",
        }
    }

    /// The event that ends a stream of an upstream and holds nothing.
    #[must_use]
    pub const fn end_mark(self) -> Option<&'static [u8]> {
        match self {
            Api::Chat | Api::Completions => Some(DONE),
            Api::Embeddings | Api::Responses | Api::Messages | Api::Other => None,
        }
    }

    /// The one that is called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Api::ALL.into_iter().find(|api| api.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_name() {
        for api in Api::ALL {
            assert_eq!(Api::named(api.as_str()), Some(api));
        }
        assert_eq!(Api::named("both"), None);
    }
}
