//! The paths that are forwarded to upstreams: one table.

use std::fmt::Write as _;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use sluicegate_core::api::Api;
use sluicegate_relay::Replies;

use crate::refusal::Form;

/// What there is to know of a path.
struct Row {
    path: &'static str,
    name: &'static str,
    api: Api,
    asks: Asks,
    /// What a reply may be beside JSON and events.
    replies: Replies,
}

/// What a request's body is, and where its model is named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// An object, by its member `model`. It is read whole.
    Json,
    /// `multipart/form-data`, by its field `model`; it is sent on as it comes. Or an object, where it says that it is
    /// JSON.
    Form,
}

const fn row(path: &'static str, name: &'static str, api: Api, replies: Replies) -> Row {
    Row {
        path,
        name,
        api,
        asks: Asks::Json,
        replies,
    }
}

const fn form(path: &'static str, name: &'static str, replies: Replies) -> Row {
    Row {
        asks: Asks::Form,
        ..row(path, name, Api::Other, replies)
    }
}

/// Each path that clients POST to.
static TABLE: [Row; 20] = {
    use Api::{Chat, Completions, Embeddings, Messages, Other, Responses};
    use Replies::{Audio, Json, Text};
    [
        row("/v1/chat/completions", "chat_completions", Chat, Json),
        row("/v1/completions", "completions", Completions, Json),
        row("/v1/embeddings", "embeddings", Embeddings, Json),
        row("/v1/responses", "responses", Responses, Json),
        row("/v1/messages", "messages", Messages, Json),
        row("/v1/messages/count_tokens", "count_tokens", Messages, Json),
        row("/v1/audio/speech", "speech", Other, Audio),
        form("/v1/audio/transcriptions", "transcriptions", Text),
        form("/v1/audio/translations", "translations", Text),
        row("/v1/images/generations", "image_generations", Other, Json),
        form("/v1/images/edits", "image_edits", Json),
        form("/v1/images/variations", "image_variations", Json),
        row("/v1/moderations", "moderations", Other, Json),
        // Of the three, each server has one or another (vLLM all of them, Cohere the last, Jina the first).
        row("/v1/rerank", "rerank", Other, Json),
        row("/rerank", "rerank", Other, Json),
        row("/v2/rerank", "rerank", Other, Json),
        // vLLM's.
        row("/v1/score", "score", Other, Json),
        row("/score", "score", Other, Json),
        row("/tokenize", "tokenize", Other, Json),
        row("/detokenize", "detokenize", Other, Json),
    ]
};

/// An endpoint that is forwarded: a row of the table.
#[derive(Clone, Copy)]
pub struct Endpoint(&'static Row);

impl Endpoint {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Endpoint> {
        TABLE.iter().map(Endpoint)
    }

    /// The endpoint at `path`, which is POSTed to.
    #[must_use]
    pub fn at(path: &str) -> Option<Self> {
        Self::all().find(|endpoint| endpoint.path() == path)
    }

    /// Where clients find it.
    #[must_use]
    pub fn path(self) -> &'static str {
        self.0.path
    }

    /// Its name in logs and metrics, which several paths may share.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Its path with the client's `query`, for the Messages interface: its SDKs ask for betas with `?beta=true`. Others
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

    /// Whether its errors are of the form of the Messages interface.
    #[must_use]
    pub fn is_anthropic(self) -> bool {
        self.form() == Form::Anthropic
    }

    pub(crate) fn api(self) -> Api {
        self.0.api
    }

    pub(crate) fn replies(self) -> Replies {
        self.0.replies
    }

    /// The `Content-Type` of a request with these headers, where its body is to be read as a form.
    pub(crate) fn form_of(self, headers: &HeaderMap) -> Option<&[u8]> {
        let given = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let given = given.unwrap_or_default();
        let json = b"application/json";
        let is_json = given
            .get(..json.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(json));
        (self.0.asks == Asks::Form && !is_json).then_some(given)
    }

    /// It asks for no reply of a model, but how many tokens its input has.
    pub(crate) fn counts(self) -> bool {
        self.name() == "count_tokens"
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_leads_to_one_endpoint() {
        for (at, endpoint) in Endpoint::all().enumerate() {
            let found = Endpoint::all().position(|other| other.path() == endpoint.path());
            assert_eq!(found, Some(at), "{endpoint:?}");
            assert!(endpoint.path().starts_with('/'));
        }
        for path in ["", "/", "/v1", "/v1/chat/completions/", "/v1/Embeddings"] {
            assert!(Endpoint::at(path).is_none(), "{path}");
        }
    }
}
