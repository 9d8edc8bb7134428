//! `ChatToResponses`: a chat completion as a reply of the Responses interface.

use std::sync::Arc;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sluicegate_core::api::Api;
use sluicegate_core::limits::Limits;
use sluicegate_core::pipeline::ReplyPlan;
use sluicegate_core::protocols::responses::echo::{Asked, Echo};
use sluicegate_core::protocols::responses::request::ResponsesRequest;
use sluicegate_core::protocols::{ClientProtocol, ClientSide, UpstreamSide};

use super::translation::Translation;
use super::{now, random_id};
use crate::errors;

/// Makes a reply of the Responses interface of a chat completion.
#[pyclass(name = "ChatToResponses", module = "sluicegate", frozen)]
pub(crate) struct PyChatToResponses(Translation);

#[pymethods]
impl PyChatToResponses {
    #[new]
    #[pyo3(signature = (request, *, response_id=None, created_at=None))]
    fn new(
        py: Python<'_>,
        request: PyBackedBytes,
        response_id: Option<String>,
        created_at: Option<u64>,
    ) -> PyResult<Self> {
        let limits = Limits::default();
        let request = ResponsesRequest::parse(Bytes::from_owner(request), &limits)
            .map_err(|error| errors::parse_error(py, &error))?;
        let response_id = match response_id {
            Some(id) => id,
            None => random_id(py, "resp_")?,
        };
        let created_at = created_at.unwrap_or_else(now);
        let echo = Arc::new(Echo::of(&request, &response_id, created_at));
        let client = ClientSide {
            protocol: ClientProtocol::Responses(Some(Asked::Echo(echo))),
            ..ClientSide::new(Api::Responses, request.stream())
        };
        let plan = ReplyPlan {
            clock: Some(now),
            ..ReplyPlan::between(client, UpstreamSide::new(Api::Chat))
        };
        Ok(PyChatToResponses(Translation::new(plan)))
    }

    fn feed<'py>(&self, py: Python<'py>, data: PyBackedBytes) -> PyResult<Bound<'py, PyBytes>> {
        self.0.feed(py, data)
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.0.finish(py)
    }
}
