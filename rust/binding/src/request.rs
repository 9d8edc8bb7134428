//! `Request`: a client's JSON body, read once.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use sluicegate_core::limits::Limits;
use sluicegate_core::request::Request;

use crate::errors;

#[pyclass(name = "Request", module = "sluicegate._core", frozen)]
pub(crate) struct PyRequest {
    pub(crate) inner: Request,
}

#[pymethods]
impl PyRequest {
    #[new]
    fn new(py: Python<'_>, body: PyBackedBytes) -> PyResult<Self> {
        let body = Bytes::from_owner(body);
        let inner = py
            .detach(|| Request::parse(body, &Limits::default()))
            .map_err(|error| errors::parse_error(py, &error))?;
        Ok(Self { inner })
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
    fn include_usage(&self) -> bool {
        self.inner.include_usage()
    }

    #[getter]
    fn size(&self) -> usize {
        self.inner.body().len()
    }
}
