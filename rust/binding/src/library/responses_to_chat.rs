//! `ResponsesToChat`: a reply of the Responses interface as a chat completion.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sluicegate_core::error::Error;
use sluicegate_core::pipeline::{Api, Pipeline, ReplyPlan, Unpriced};

use super::{Failure, Shared, joined, now};
use crate::errors;

struct Machine {
    pipeline: Pipeline,
    failure: Failure,
}

impl Machine {
    fn new(plan: ReplyPlan) -> Self {
        Machine {
            pipeline: Pipeline::new(plan),
            failure: Failure::default(),
        }
    }

    fn feed(&mut self, data: PyBackedBytes) -> Result<Vec<Bytes>, Error> {
        let data = Bytes::from_owner(data);
        self.call(|pipeline, frames| pipeline.feed(data, &mut Unpriced, frames))
    }

    /// The end of the reply; one that breaks off has failed.
    fn finish(&mut self) -> Result<Vec<Bytes>, Error> {
        self.call(|pipeline, frames| {
            pipeline.finish(&mut Unpriced, frames)?;
            if pipeline.facts().truncated {
                let message = "the reply ended before it was complete";
                pipeline.fail("upstream_error", "truncated", message, frames);
            }
            Ok(())
        })
    }

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

/// Lets a machine work, and joins what it gives.
fn work<'py>(
    py: Python<'py>,
    machine: &Shared<Machine>,
    size: usize,
    call: impl FnOnce(&mut Machine) -> Result<Vec<Bytes>, Error> + Send,
) -> PyResult<Bound<'py, PyBytes>> {
    let frames = machine
        .with(py, size, call)
        .map_err(|error| errors::parse_error(py, &error))?;
    joined(py, &frames)
}

/// Makes a chat completion of a reply of the Responses interface.
#[pyclass(name = "ResponsesToChat", module = "sluicegate", frozen)]
pub(crate) struct PyResponsesToChat(Shared<Machine>);

#[pymethods]
impl PyResponsesToChat {
    #[new]
    #[pyo3(signature = (*, stream=true, include_usage=false))]
    fn new(stream: bool, include_usage: bool) -> Self {
        let plan = ReplyPlan {
            upstream_api: Api::Responses,
            include_usage,
            clock: Some(now),
            ..ReplyPlan::new(Api::Chat, stream)
        };
        PyResponsesToChat(Shared::new(Machine::new(plan)))
    }

    fn feed<'py>(&self, py: Python<'py>, data: PyBackedBytes) -> PyResult<Bound<'py, PyBytes>> {
        work(py, &self.0, data.len(), |machine| machine.feed(data))
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        work(py, &self.0, 0, Machine::finish)
    }
}
