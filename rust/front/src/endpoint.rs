//! The paths that are forwarded to upstreams.

use sluicegate_core::api::Api;
use sluicegate_core::protocols;

/// An endpoint that is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `/v1/chat/completions`
    ChatCompletions,
    /// `/v1/completions`
    Completions,
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/responses`
    Responses,
}

impl Endpoint {
    /// All of them.
    pub const ALL: [Endpoint; 4] = [
        Endpoint::ChatCompletions,
        Endpoint::Completions,
        Endpoint::Embeddings,
        Endpoint::Responses,
    ];

    /// The endpoint at `path`, which is POSTed to.
    #[must_use]
    pub fn at(path: &str) -> Option<Self> {
        let below = path.strip_prefix("/v1")?;
        Self::ALL
            .into_iter()
            .find(|endpoint| endpoint.path() == below)
    }

    /// The endpoint called `name` in logs and metrics.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|endpoint| endpoint.name() == name)
    }

    /// Its name in logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Endpoint::ChatCompletions => "chat_completions",
            Endpoint::Completions => "completions",
            Endpoint::Embeddings => "embeddings",
            Endpoint::Responses => "responses",
        }
    }

    /// Where upstreams have it, below their base URL.
    #[must_use]
    pub fn path(self) -> &'static str {
        protocols::of(self.api()).path()
    }

    pub(crate) fn api(self) -> Api {
        match self {
            Endpoint::ChatCompletions => Api::Chat,
            Endpoint::Completions => Api::Completions,
            Endpoint::Embeddings => Api::Embeddings,
            Endpoint::Responses => Api::Responses,
        }
    }
}
