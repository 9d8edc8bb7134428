//! `UsageMeter`: a reply's token counts.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use sluicegate_core::error::Error;
use sluicegate_core::meter::UsageMeter;

use super::{Failure, Shared, limits};
use crate::errors;
use crate::upstream::dialect_named;
use crate::usage::PyUsage;

struct Machine {
    meter: UsageMeter,
    failure: Failure,
}

impl Machine {
    fn call(
        &mut self,
        call: impl FnOnce(&mut UsageMeter) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.failure.check()?;
        let called = call(&mut self.meter);
        self.failure.note(called, false)
    }
}

/// Counts the tokens of a reply.
#[pyclass(name = "UsageMeter", module = "sluicegate", frozen)]
pub(crate) struct PyMeter(Shared<Machine>);

#[pymethods]
impl PyMeter {
    #[new]
    #[pyo3(signature = (dialect=None, *, max_event_bytes=None))]
    fn new(dialect: Option<&str>, max_event_bytes: Option<usize>) -> PyResult<Self> {
        Ok(PyMeter(Shared::new(Machine {
            meter: UsageMeter::new(dialect_named(dialect)?, limits(max_event_bytes)),
            failure: Failure::default(),
        })))
    }

    fn feed(&self, py: Python<'_>, data: PyBackedBytes) -> PyResult<()> {
        let size = data.len();
        self.0
            .with(py, size, |machine| {
                machine.call(|meter| meter.feed(Bytes::from_owner(data)))
            })
            .map_err(|error| errors::parse_error(py, &error))
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.0
            .with(py, 0, |machine| machine.call(UsageMeter::finish))
            .map_err(|error| errors::parse_error(py, &error))
    }

    #[getter]
    fn usage(&self, py: Python<'_>) -> Option<PyUsage> {
        let usage = self
            .0
            .with(py, 0, |machine| machine.meter.usage().cloned())?;
        Some(PyUsage { inner: usage })
    }
}
