//! `ResponsesToChat`: a reply of the Responses interface as a chat completion.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sluicegate_core::api::Api;
use sluicegate_core::pipeline::ReplyPlan;
use sluicegate_core::protocols::{ClientProtocol, ClientSide, UpstreamSide, UsageChunk};

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
        let usage = UsageChunk {
            include: include_usage,
            hide: false,
        };
        let client = ClientSide {
            protocol: ClientProtocol::Chat(usage),
            ..ClientSide::new(Api::Chat, stream)
        };
        let plan = ReplyPlan {
            clock: Some(now),
            ..ReplyPlan::between(client, UpstreamSide::new(Api::Responses))
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
