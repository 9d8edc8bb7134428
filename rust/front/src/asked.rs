//! A client's request, read once.

use std::sync::Arc;

use bytes::Bytes;
use sluicegate_core::error::Error;
use sluicegate_core::limits::Limits;
use sluicegate_core::request::Request;
use sluicegate_core::responses::request::ResponsesRequest;
use sluicegate_relay::offload::{LARGE, offload};

use crate::endpoint::Endpoint;
use crate::refusal::Refusal;

/// A client's request, read once.
#[derive(Debug, Clone)]
pub enum AskedRequest {
    /// To any endpoint but Responses.
    Plain(Arc<Request>),
    /// For a response.
    Responses(Arc<ResponsesRequest>),
}

impl AskedRequest {
    /// Read `body` as what `endpoint` takes.
    ///
    /// # Errors
    /// As [`Request::parse`] and [`ResponsesRequest::parse`] give them.
    pub fn parse(endpoint: Endpoint, body: Bytes, limits: &Limits) -> Result<Self, Error> {
        Ok(match endpoint {
            Endpoint::Responses => {
                Self::Responses(Arc::new(ResponsesRequest::parse(body, limits)?))
            }
            _ => Self::Plain(Arc::new(Request::parse(body, limits)?)),
        })
    }

    /// What all requests have in common.
    #[must_use]
    pub fn request(&self) -> &Request {
        match self {
            Self::Plain(request) => request,
            Self::Responses(request) => request.request(),
        }
    }

    /// It asks for a response in the background.
    pub(crate) fn background(&self) -> bool {
        matches!(self, Self::Responses(request) if request.background())
    }
}

/// [`AskedRequest::parse`], away from the engine where the body is large.
pub(crate) async fn parse(
    endpoint: Endpoint,
    body: Bytes,
    limits: Limits,
) -> Result<Result<AskedRequest, Error>, Refusal> {
    let large = body.len() > LARGE;
    offload(large, move || AskedRequest::parse(endpoint, body, &limits))
        .await
        .ok_or(Refusal::Stopping)
}
