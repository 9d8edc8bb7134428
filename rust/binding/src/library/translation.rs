//! A reply in one protocol as a reply in another: what the translating classes share.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sluicegate_core::error::Error;
use sluicegate_core::pipeline::{Pipeline, ReplyPlan, Unpriced};

use super::{Failure, Shared, joined};
use crate::errors;

pub(super) struct Translation(Shared<Machine>);

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

impl Translation {
    pub(super) fn new(plan: ReplyPlan) -> Self {
        Translation(Shared::new(Machine {
            pipeline: Pipeline::new(plan),
            failure: Failure::default(),
        }))
    }

    fn work<'py>(
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

    pub(super) fn feed<'py>(
        &self,
        py: Python<'py>,
        data: PyBackedBytes,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let size = data.len();
        self.work(py, size, |pipeline, frames| {
            pipeline.feed(Bytes::from_owner(data), &mut Unpriced, frames)
        })
    }

    /// The end of the reply; one that breaks off has failed.
    pub(super) fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.work(py, 0, |pipeline, frames| {
            pipeline.finish(&mut Unpriced, frames)?;
            if pipeline.facts().truncated {
                let message = "the reply ended before it was complete";
                pipeline.fail("upstream_error", "truncated", message, frames);
            }
            Ok(())
        })
    }
}
