//! `ResponsesRequest`: a client's request for a response, read once.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sluicegate_core::limits::Limits;
use sluicegate_core::protocols::responses::request::ResponsesRequest;

use crate::errors;
use crate::load_room::PyLoadShare;
use crate::stored::{by_id, run};

#[pyclass(name = "ResponsesRequest", module = "sluicegate._core", frozen)]
pub(crate) struct PyResponsesRequest {
    pub(crate) inner: Arc<ResponsesRequest>,
    affinity: OnceLock<Option<u64>>,
    input_tokens: OnceLock<u64>,
}

impl PyResponsesRequest {
    pub(crate) fn new(inner: Arc<ResponsesRequest>) -> Self {
        Self {
            inner,
            affinity: OnceLock::new(),
            input_tokens: OnceLock::new(),
        }
    }

    /// Looked up here, since the deciding thread, which reads it later, must not spend the time.
    fn looked_at(inner: ResponsesRequest) -> Self {
        Self {
            affinity: inner.affinity().into(),
            input_tokens: inner.request().estimated_input_tokens().into(),
            inner: Arc::new(inner),
        }
    }

    pub(crate) fn affinity(&self) -> Option<u64> {
        *self.affinity.get_or_init(|| self.inner.affinity())
    }
}

fn held(share: Option<&PyLoadShare>, body: Bytes) -> Bytes {
    match share {
        Some(share) => share.held_by(body),
        None => body,
    }
}

#[pymethods]
impl PyResponsesRequest {
    #[new]
    fn parse(py: Python<'_>, body: PyBackedBytes) -> PyResult<Self> {
        let body = Bytes::from_owner(body);
        let made = run(py, body.len(), || {
            let made = ResponsesRequest::parse(body, &Limits::default());
            made.map(Self::looked_at)
        });
        made.map_err(|error| errors::parse_error(py, &error))
    }

    #[getter]
    fn model(&self) -> Option<&str> {
        self.inner.model()
    }

    #[getter]
    fn stream(&self) -> bool {
        self.inner.stream()
    }

    #[getter]
    fn store(&self) -> bool {
        self.inner.store()
    }

    #[getter]
    fn background(&self) -> bool {
        self.inner.background()
    }

    #[getter]
    fn previous_response_id(&self) -> Option<&str> {
        self.inner.previous_response_id()
    }

    #[getter]
    fn refers(&self) -> bool {
        self.inner.refers()
    }

    #[getter]
    fn unstorable(&self) -> Option<&str> {
        self.inner.unstorable()
    }

    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.inner.body())
    }

    #[getter]
    fn size(&self) -> usize {
        self.inner.body().len()
    }

    #[getter]
    fn input_tokens_estimate(&self) -> u64 {
        *self
            .input_tokens
            .get_or_init(|| self.inner.request().estimated_input_tokens())
    }

    #[getter]
    fn references(&self, py: Python<'_>) -> Vec<String> {
        run(py, self.inner.body().len(), || self.inner.references())
    }

    #[pyo3(signature = (items, share=None))]
    fn with_items(
        &self,
        py: Python<'_>,
        items: BTreeMap<String, PyBackedBytes>,
        share: Option<&PyLoadShare>,
    ) -> PyResult<Self> {
        let items = by_id(items);
        let size = items.values().map(Bytes::len).sum::<usize>() + self.inner.body().len();
        let made = run(py, size, || {
            let hold = |body| held(share, body);
            let made = self.inner.with_items(&items, &Limits::default(), hold);
            made.map(Self::looked_at)
        });
        made.map_err(|error| errors::parse_error(py, &error))
    }

    #[pyo3(signature = (items, share=None))]
    fn with_input_prefix(
        &self,
        py: Python<'_>,
        items: PyBackedBytes,
        share: Option<&PyLoadShare>,
    ) -> PyResult<Self> {
        let items = [Bytes::from_owner(items)];
        let size = items.iter().map(Bytes::len).sum::<usize>() + self.inner.body().len();
        let made = run(py, size, || {
            let hold = |body| held(share, body);
            let made = self
                .inner
                .with_input_prefix(&items, &Limits::default(), hold);
            made.map(Self::looked_at)
        });
        made.map_err(|error| errors::parse_error(py, &error))
    }

    fn as_run<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let body = run(py, self.inner.body().len(), || self.inner.as_run());
        PyBytes::new(py, &body)
    }
}
