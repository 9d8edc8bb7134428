//! The paths that are forwarded to upstreams.

use std::fmt::Write as _;

use sluicegate_core::api::Api;
use sluicegate_core::protocols;

use crate::refusal::Form;

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
    /// `/v1/messages`
    Messages,
    /// `/v1/messages/count_tokens`
    CountTokens,
}

impl Endpoint {
    /// All of them.
    pub const ALL: [Endpoint; 6] = [
        Endpoint::ChatCompletions,
        Endpoint::Completions,
        Endpoint::Embeddings,
        Endpoint::Responses,
        Endpoint::Messages,
        Endpoint::CountTokens,
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
            Endpoint::Messages => "messages",
            Endpoint::CountTokens => "count_tokens",
        }
    }

    /// Where upstreams have it, below their base URL.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Endpoint::CountTokens => "/messages/count_tokens",
            _ => protocols::of(self.api()).path(),
        }
    }

    /// The same with the client's `query`, for the Messages interface: its SDKs ask for betas with `?beta=true`. Others
    /// have none.
    pub(crate) fn asked_path(self, query: Option<&str>) -> Box<str> {
        let mut path = self.path().to_owned();
        if let Some(query) = query.filter(|_| self.api() == Api::Messages) {
            let _ = write!(path, "?{query}");
        }
        path.into()
    }

    /// How its errors are written.
    pub(crate) fn form(self) -> Form {
        match self.api() {
            Api::Messages => Form::Anthropic,
            _ => Form::OpenAi,
        }
    }

    pub(crate) fn api(self) -> Api {
        match self {
            Endpoint::ChatCompletions => Api::Chat,
            Endpoint::Completions => Api::Completions,
            Endpoint::Embeddings => Api::Embeddings,
            Endpoint::Responses => Api::Responses,
            Endpoint::Messages | Endpoint::CountTokens => Api::Messages,
        }
    }
}
