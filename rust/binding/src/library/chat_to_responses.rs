//! `ChatToResponses`: a chat completion as a reply of the Responses interface.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sluicegate_core::error::Error;
use sluicegate_core::limits::Limits;
use sluicegate_core::pipeline::{Api, Pipeline, ReplyPlan, Unpriced};
use sluicegate_core::responses::echo::Echo;
use sluicegate_core::responses::request::ResponsesRequest;

use super::{Failure, Shared, joined};
use crate::errors;

struct Machine {
    pipeline: Pipeline,
    failure: Failure,
}

impl Machine {
    fn call(
        &mut self,
        call: impl FnOnce(&mut Pipeline, &mut Vec<Bytes>) -> Result<(), Error>,
    ) -> Result<Vec<Bytes>, Error> {
        self.failure.check()?;
        let mut frames = Vec::new();
        let called = call(&mut self.pipeline, &mut frames);
        self.failure.note(called, !frames.is_empty())?;
        Ok(frames)
    }
}

/// Makes a reply of the Responses interface of a chat completion.
#[pyclass(name = "ChatToResponses", module = "sluicegate", frozen)]
pub(crate) struct PyChatToResponses(Shared<Machine>);

impl PyChatToResponses {
    fn frames<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        call: impl FnOnce(&mut Pipeline, &mut Vec<Bytes>) -> Result<(), Error> + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let frames = self
            .0
            .with(py, size, |machine| machine.call(call))
            .map_err(|error| errors::parse_error(py, &error))?;
        joined(py, &frames)
    }
}

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
            None => {
                let random = py.import("secrets")?.call_method1("token_hex", (16,))?;
                format!("resp_{}", random.extract::<String>()?)
            }
        };
        let created_at = created_at.unwrap_or_else(now);
        let plan = ReplyPlan {
            upstream_api: Api::Chat,
            responses: Some(Arc::new(Echo::of(&request, &response_id, created_at))),
            clock: Some(now),
            ..ReplyPlan::new(Api::Responses, request.stream())
        };
        Ok(PyChatToResponses(Shared::new(Machine {
            pipeline: Pipeline::new(plan),
            failure: Failure::default(),
        })))
    }

    fn feed<'py>(&self, py: Python<'py>, data: PyBackedBytes) -> PyResult<Bound<'py, PyBytes>> {
        let size = data.len();
        self.frames(py, size, |pipeline, frames| {
            pipeline.feed(Bytes::from_owner(data), &mut Unpriced, frames)
        })
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.frames(py, 0, |pipeline, frames| {
            pipeline.finish(&mut Unpriced, frames)?;
            if pipeline.facts().truncated {
                let message = "the reply ended before it was complete";
                pipeline.fail("upstream_error", "truncated", message, frames);
            }
            Ok(())
        })
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
