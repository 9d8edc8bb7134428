//! A client's request, parsed once.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use sluicegate_core::api::Api;
use sluicegate_core::error::Error;
use sluicegate_core::limits::Limits;
use sluicegate_core::protocols::responses::request::ResponsesRequest;
use sluicegate_core::request::Request;
use sluicegate_relay::offload::{LARGE, offload};

use crate::endpoint::{Endpoint, Target};
use crate::facts::{Facts, Wanted};
use crate::refusal::Refusal;
use crate::upload::{self, Reader, Uploaded};

/// A client's request, read once.
#[derive(Debug, Clone)]
pub enum AskedRequest {
    /// To any endpoint but Responses.
    Plain(Arc<Request>),
    /// For a response.
    Responses(Arc<ResponsesRequest>),
    /// A form, or anything else that is not read as JSON.
    Upload(Uploaded),
}

impl AskedRequest {
    /// Read `body` as what `endpoint` takes.
    ///
    /// # Errors
    /// As [`Request::parse`] and [`ResponsesRequest::parse`] give them.
    pub fn parse(endpoint: &Endpoint, body: Bytes, limits: &Limits) -> Result<Self, Error> {
        Ok(match endpoint.api() {
            Api::Responses => Self::Responses(Arc::new(ResponsesRequest::parse(body, limits)?)),
            _ => Self::Plain(Arc::new(Request::parse(body, limits)?)),
        })
    }

    /// [`parse`](Self::parse), and the number of the conversation, where the endpoint has any.
    fn parse_conversation(
        endpoint: &Endpoint,
        body: Bytes,
        limits: &Limits,
    ) -> Result<(Self, Option<u64>), Error> {
        if matches!(endpoint.api(), Api::Chat | Api::Messages) {
            let (request, affinity) = Request::parse_conversation(body, limits)?;
            return Ok((Self::Plain(Arc::new(request)), affinity));
        }
        let request = Self::parse(endpoint, body, limits)?;
        let affinity = match &request {
            Self::Responses(request) => request.affinity(),
            Self::Plain(_) | Self::Upload(_) => None,
        };
        Ok((request, affinity))
    }

    /// The JSON that it is, if it is that.
    #[must_use]
    pub fn json(&self) -> Option<&Request> {
        match self {
            Self::Plain(request) => Some(request),
            Self::Responses(request) => Some(request.request()),
            Self::Upload(_) => None,
        }
    }

    /// The model that it names.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        match self {
            Self::Upload(uploaded) => uploaded.model.as_deref(),
            _ => self.json()?.model(),
        }
    }

    /// Whether it asks for a stream.
    #[must_use]
    pub fn stream(&self) -> bool {
        match self {
            Self::Upload(uploaded) => uploaded.stream,
            _ => self.json().is_some_and(Request::stream),
        }
    }

    /// Bytes of its body.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Upload(uploaded) => uploaded.upload.size(),
            _ => self.json().map_or(0, |request| request.body().len()),
        }
    }

    /// It asks for a response in the background.
    pub(crate) fn background(&self) -> bool {
        matches!(self, Self::Responses(request) if request.background())
    }
}

/// [`AskedRequest::parse`] and what is wanted beside that, away from the engine where the body is large.
pub(crate) async fn parse(
    target: &Target,
    headers: &HeaderMap,
    body: Bytes,
    wanted: &Wanted,
) -> Result<(Result<AskedRequest, Error>, Facts), Refusal> {
    let mut facts = wanted.of_head(headers);
    if let Some(reader) = Reader::of(target, headers)? {
        let read = offload(body.len() > LARGE, move || upload::whole(reader, body));
        let uploaded = read.await.ok_or(Refusal::Stopping)??;
        return Ok((Ok(AskedRequest::Upload(uploaded)), facts));
    }
    let endpoint = target.endpoint.clone();
    let by_body = facts.by_body;
    let counts = wanted.input_tokens || endpoint.counts();
    let large = body.len() > LARGE;
    let parsed = offload(large, move || {
        let limits = Limits::default();
        let (request, affinity) = if by_body {
            AskedRequest::parse_conversation(&endpoint, body, &limits)?
        } else {
            (AskedRequest::parse(&endpoint, body, &limits)?, None)
        };
        let estimate = counts
            .then(|| request.json().map(Request::estimated_input_tokens))
            .flatten();
        Ok((request, affinity, estimate))
    });
    let request = parsed.await.ok_or(Refusal::Stopping)?;
    let request = request.map(|(request, affinity, estimate)| {
        facts.affinity = facts.affinity.or(affinity);
        facts.input_tokens = estimate;
        request
    });
    Ok((request, facts))
}
