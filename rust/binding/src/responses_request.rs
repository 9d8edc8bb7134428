//! `ResponsesRequest`: a client's request for a response, read once.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sluicegate_core::limits::Limits;
use sluicegate_core::responses::request::ResponsesRequest;

use crate::errors;

#[pyclass(name = "ResponsesRequest", module = "sluicegate._core", frozen)]
pub(crate) struct PyResponsesRequest {
    pub(crate) inner: Arc<ResponsesRequest>,
    affinity: OnceLock<Option<u64>>,
}

impl PyResponsesRequest {
    pub(crate) fn new(inner: Arc<ResponsesRequest>) -> Self {
        Self {
            inner,
            affinity: OnceLock::new(),
        }
    }

    /// Looked for now, since whoever asks for it later must not wait.
    fn with_affinity(inner: ResponsesRequest) -> Self {
        let affinity = inner.affinity().into();
        let inner = Arc::new(inner);
        Self { inner, affinity }
    }

    pub(crate) fn affinity(&self) -> Option<u64> {
        *self.affinity.get_or_init(|| self.inner.affinity())
    }
}

#[pymethods]
impl PyResponsesRequest {
    #[new]
    fn parse(py: Python<'_>, body: PyBackedBytes) -> PyResult<Self> {
        let body = Bytes::from_owner(body);
        let made = py.detach(|| {
            let made = ResponsesRequest::parse(body, &Limits::default());
            made.map(Self::with_affinity)
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

    fn input_items<'py>(&self, py: Python<'py>, token: &str) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let items = py
            .detach(|| self.inner.input_items(token))
            .map_err(|refusal| errors::refusal(py, &refusal))?;
        Ok(items.iter().map(|item| PyBytes::new(py, item)).collect())
    }

    fn with_input_prefix(&self, py: Python<'_>, items: Vec<PyBackedBytes>) -> PyResult<Self> {
        let items: Vec<Bytes> = items.into_iter().map(Bytes::from_owner).collect();
        let made = py.detach(|| {
            let made = self.inner.with_input_prefix(&items, &Limits::default());
            made.map(Self::with_affinity)
        });
        made.map_err(|error| errors::parse_error(py, &error))
    }
}
