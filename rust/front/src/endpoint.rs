//! The paths that are forwarded to upstreams: one table, and those of an operator's own.

use std::sync::Arc;

use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use sluicegate_core::api::Api;
use sluicegate_relay::Replies;

use crate::passthrough::{Goes, Passthrough};
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

    /// Where clients find it; empty for an operator's own, which may be at many paths.
    #[must_use]
    pub fn path(&self) -> &'static str {
        match &self.0 {
            Kind::Known(row) => row.path,
            Kind::Own(_) => "",
        }
    }

    /// Its name in logs and metrics, which several paths may share.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.0 {
            Kind::Known(row) => row.name,
            Kind::Own(own) => &own.name,
        }
    }

    /// The upstream that all of its requests go to, whatever model they are for.
    #[must_use]
    pub fn upstream(&self) -> Option<&str> {
        match &self.0 {
            Kind::Own(own) => match &own.goes {
                Goes::Upstream(name) => Some(name),
                _ => None,
            },
            Kind::Known(_) => None,
        }
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
        match &self.0 {
            Kind::Known(row) => row.api,
            Kind::Own(_) => Api::Other,
        }
    }

    pub(crate) fn replies(&self) -> Replies {
        match &self.0 {
            Kind::Known(row) => row.replies,
            Kind::Own(_) => Replies::Any,
        }
    }

    /// How the body of a request with these headers is read.
    pub(crate) fn takes<'a>(&self, headers: &'a HeaderMap) -> Takes<'a> {
        let content_type = || {
            let given = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
            given.unwrap_or_default()
        };
        match &self.0 {
            Kind::Known(row) if row.asks == Asks::Form && !is_json(content_type()) => {
                Takes::Form(content_type())
            }
            Kind::Known(_) => Takes::Json,
            Kind::Own(own) => match own.goes {
                Goes::Json => Takes::Json,
                Goes::Form => Takes::Form(content_type()),
                Goes::Upstream(_) | Goes::Path => Takes::Anything,
            },
        }
    }

    /// Whether a request may be sent to an upstream that may have got it before.
    pub(crate) fn may_repeat(&self, method: &Method) -> bool {
        match &self.0 {
            Kind::Known(_) => true,
            Kind::Own(own) => own.may_repeat(method),
        }
    }

    /// It asks for no reply of a model, but how many tokens its input has.
    pub(crate) fn counts(&self) -> bool {
        self.name() == "count_tokens"
    }
}

fn is_json(content_type: &[u8]) -> bool {
    let json = b"application/json";
    let start = content_type.get(..json.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(json))
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
