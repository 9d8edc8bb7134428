//! The paths that are forwarded to upstreams: one table, and those of an operator's own.

use std::borrow::Cow;
use std::sync::Arc;

use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use sluicegate_core::api::Api;
use sluicegate_relay::Replies;

use crate::passthrough::Passthrough;
use crate::refusal::Form;

/// What there is to know of an endpoint.
#[derive(Debug)]
pub(crate) struct Row {
    /// Empty for an operator's own, which may be at many paths.
    pub(crate) path: &'static str,
    pub(crate) name: Cow<'static, str>,
    pub(crate) api: Api,
    pub(crate) asks: Asks,
    /// What a reply may be beside JSON and events.
    pub(crate) replies: Replies,
    /// The upstream that all of its requests go to, whatever model they are for.
    pub(crate) upstream: Option<Box<str>>,
}

/// What a request's body is, and where its model is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// An object, by its member `model`. It is read whole.
    Json,
    /// `multipart/form-data`, by its field `model`; it is sent on as it comes. Or an object, where it says that it is
    /// JSON.
    Form,
    /// Anything, and not in the body; it is sent on as it comes.
    Anything,
}

const fn known(
    path: &'static str,
    name: &'static str,
    api: Api,
    asks: Asks,
    replies: Replies,
) -> Row {
    Row {
        path,
        name: Cow::Borrowed(name),
        api,
        asks,
        replies,
        upstream: None,
    }
}

const fn row(path: &'static str, name: &'static str, api: Api, replies: Replies) -> Row {
    known(path, name, api, Asks::Json, replies)
}

const fn form(path: &'static str, name: &'static str, replies: Replies) -> Row {
    known(path, name, Api::Other, Asks::Form, replies)
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

/// An endpoint that is forwarded: a row of the table, or what an operator has of their own.
#[derive(Clone)]
pub struct Endpoint(Kind);

#[derive(Clone)]
enum Kind {
    Known(&'static Row),
    Own(Arc<Passthrough>),
}

/// How a request's body is read.
pub(crate) enum Takes<'a> {
    /// Whole, as JSON.
    Json,
    /// As it comes: a form of this `Content-Type`.
    Form(&'a [u8]),
    /// As it comes, whatever it is.
    Anything,
}

impl Endpoint {
    /// Those of the table.
    pub fn all() -> impl Iterator<Item = Endpoint> {
        TABLE.iter().map(|row| Endpoint(Kind::Known(row)))
    }

    /// That of the table at `path`, which is POSTed to.
    #[must_use]
    pub fn at(path: &str) -> Option<Self> {
        let row = TABLE.iter().find(|row| row.path == path)?;
        Some(Endpoint(Kind::Known(row)))
    }

    pub(crate) fn own(own: &Arc<Passthrough>) -> Self {
        Endpoint(Kind::Own(Arc::clone(own)))
    }

    fn row(&self) -> &Row {
        match &self.0 {
            Kind::Known(row) => row,
            Kind::Own(own) => &own.row,
        }
    }

    /// Where clients find it; empty for an operator's own, which may be at many paths.
    #[must_use]
    pub fn path(&self) -> &'static str {
        self.row().path
    }

    /// Its name in logs and metrics, which several paths may share.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.row().name
    }

    /// The upstream that all of its requests go to, whatever model they are for.
    #[must_use]
    pub fn upstream(&self) -> Option<&str> {
        self.row().upstream.as_deref()
    }

    /// How its errors are written for a client that sends these headers.
    pub(crate) fn form(&self, headers: &HeaderMap) -> Form {
        match &self.0 {
            Kind::Known(row) if row.api == Api::Messages => Form::Anthropic,
            Kind::Known(_) => Form::OpenAi,
            Kind::Own(_) => Form::of_client(headers),
        }
    }

    /// Whether it is one of the Messages interface.
    #[must_use]
    pub fn is_anthropic(&self) -> bool {
        self.api() == Api::Messages
    }

    pub(crate) fn api(&self) -> Api {
        self.row().api
    }

    pub(crate) fn replies(&self) -> Replies {
        self.row().replies
    }

    /// How the body of a request with these headers is read.
    pub(crate) fn takes<'a>(&self, headers: &'a HeaderMap) -> Takes<'a> {
        let given = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let given = given.unwrap_or_default();
        let json = b"application/json";
        let is_json = given
            .get(..json.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(json));
        match self.row().asks {
            Asks::Anything => Takes::Anything,
            Asks::Form if !is_json => Takes::Form(given),
            Asks::Form | Asks::Json => Takes::Json,
        }
    }

    /// Whether a request may be sent to an upstream that may have got it before. Of one that is for no model nothing is
    /// known but what its method says (RFC 9110, section 9.2.2).
    pub(crate) fn may_repeat(&self, method: &Method) -> bool {
        self.row().upstream.is_none() || method.is_idempotent()
    }

    /// It asks for no reply of a model, but how many tokens its input has.
    pub(crate) fn counts(&self) -> bool {
        self.name() == "count_tokens"
    }
}

/// Where a request goes.
pub struct Target {
    /// The endpoint.
    pub endpoint: Endpoint,
    pub(crate) method: Method,
    /// Where clients find it, with the query that goes on, and with `{model}` in place of a model's name.
    pub(crate) path: Box<str>,
    /// The model that the path names.
    pub(crate) model: Option<Box<str>>,
}

impl Target {
    /// A request to an endpoint of the table. Of these only the Messages interface has a query: its SDKs ask for betas
    /// with `?beta=true`.
    pub(crate) fn known(endpoint: Endpoint, query: Option<&str>) -> Self {
        let path = match query.filter(|_| endpoint.api() == Api::Messages) {
            Some(query) => format!("{}?{query}", endpoint.path()).into(),
            None => endpoint.path().into(),
        };
        Self {
            endpoint,
            method: Method::POST,
            path,
            model: None,
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
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
