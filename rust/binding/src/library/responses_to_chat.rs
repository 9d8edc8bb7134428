//! `ResponsesToChat`: a reply of the Responses interface as a chat completion.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sluicegate_core::api::Api;
use sluicegate_core::pipeline::ReplyPlan;

use super::now;
use super::translation::Translation;

/// Makes a chat completion of a reply of the Responses interface.
#[pyclass(name = "ResponsesToChat", module = "sluicegate", frozen)]
pub(crate) struct PyResponsesToChat(Translation);

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
        PyResponsesToChat(Translation::new(plan))
    }

    fn feed<'py>(&self, py: Python<'py>, data: PyBackedBytes) -> PyResult<Bound<'py, PyBytes>> {
        self.0.feed(py, data)
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.0.finish(py)
    }
}
