//! `Outcome`, `Fault`: how an exchange ended.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use sluicegate_relay::{Fault, FaultKind, Outcome, Reason, Try};

use crate::upstream::shown_headers;
use crate::usage::PyUsage;

#[pyclass(name = "Fault", module = "sluicegate._core", frozen)]
pub(crate) struct PyFault {
    pub(crate) inner: Fault,
}

#[pymethods]
impl PyFault {
    #[getter]
    fn kind(&self) -> &'static str {
        self.inner.kind.as_str()
    }

    #[getter]
    fn upstream(&self) -> &str {
        &self.inner.upstream
    }

    #[getter]
    fn message(&self) -> String {
        self.inner.message()
    }

    #[getter]
    fn status(&self) -> Option<u16> {
        self.inner.status
    }

    #[getter]
    fn reason(&self) -> Option<&'static str> {
        self.inner.reason.map(Reason::as_str)
    }

    #[getter]
    fn spent(&self) -> bool {
        self.inner.spent
    }

    #[getter]
    fn param(&self) -> Option<&str> {
        self.inner.param.as_deref()
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        shown_headers(py, &self.inner.headers)
    }

    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.inner.body)
    }

    fn __repr__(&self) -> String {
        format!("Fault({}: {})", self.inner.kind, self.inner.message())
    }
}

#[pyclass(name = "Outcome", module = "sluicegate._core", frozen)]
pub(crate) struct PyOutcome {
    pub(crate) inner: Outcome,
}

#[pymethods]
impl PyOutcome {
    #[getter]
    fn status(&self) -> u16 {
        self.inner.status
    }

    #[getter]
    fn upstream(&self) -> &str {
        &self.inner.upstream
    }

    #[getter]
    fn upstream_model(&self) -> &str {
        &self.inner.upstream_model
    }

    #[getter]
    fn attempts(&self) -> u32 {
        self.inner.attempts
    }

    #[getter]
    fn streamed(&self) -> bool {
        self.inner.streamed
    }

    #[getter]
    fn usage(&self) -> Option<PyUsage> {
        self.inner.usage.clone().map(|inner| PyUsage { inner })
    }

    #[getter]
    fn finish_reason(&self) -> Option<&str> {
        self.inner.finish_reason.as_deref()
    }

    #[getter]
    fn fault(&self) -> Option<PyFault> {
        self.inner.fault.clone().map(|inner| PyFault { inner })
    }

    #[getter]
    fn client_left(&self) -> bool {
        self.inner.client_left
    }

    #[getter]
    fn events(&self) -> u64 {
        self.inner.events
    }

    #[getter]
    fn malformed(&self) -> u64 {
        self.inner.malformed
    }

    #[getter]
    fn token_events(&self) -> u64 {
        self.inner.token_events
    }

    #[getter]
    fn bytes_in(&self) -> u64 {
        self.inner.bytes_in
    }

    #[getter]
    fn bytes_out(&self) -> u64 {
        self.inner.bytes_out
    }

    #[getter]
    fn left_out(&self) -> Vec<&str> {
        self.inner.left_out.iter().map(|part| &**part).collect()
    }

    #[getter]
    fn first_byte(&self) -> Option<f64> {
        self.inner.first_byte.as_ref().map(Duration::as_secs_f64)
    }

    #[getter]
    fn first_token(&self) -> Option<f64> {
        self.inner.first_token.as_ref().map(Duration::as_secs_f64)
    }

    #[getter]
    fn last_token(&self) -> Option<f64> {
        self.inner.last_token.as_ref().map(Duration::as_secs_f64)
    }

    #[getter]
    fn longest_gap(&self) -> Option<f64> {
        self.inner.longest_gap.as_ref().map(Duration::as_secs_f64)
    }

    #[getter]
    fn client_blocked(&self) -> f64 {
        self.inner.client_blocked.as_secs_f64()
    }

    #[getter]
    fn duration(&self) -> f64 {
        self.inner.duration.as_secs_f64()
    }

    #[getter]
    fn upstream_request_id(&self) -> Option<&str> {
        self.inner.upstream_request_id.as_deref()
    }

    #[getter]
    fn tries(&self) -> Vec<PyTry<'_>> {
        self.inner.tries.iter().map(py_try).collect()
    }

    #[getter]
    fn code(&self) -> Option<&'static str> {
        self.inner.code
    }

    #[getter]
    fn estimated(&self) -> bool {
        self.inner.estimated
    }

    #[getter]
    fn cost(&self) -> Option<String> {
        self.inner.cost.as_ref().map(|cost| cost.total())
    }

    #[getter]
    fn priced(&self) -> bool {
        !self.inner.unpriced
    }

    #[getter]
    fn stalled(&self) -> bool {
        self.inner.stalled
    }
}

/// Upstream, its name of the model, kind, status and reason of its fault, seconds from the start to its begin, seconds
/// it took.
pub(crate) type PyTry<'a> = (
    &'a str,
    &'a str,
    Option<&'static str>,
    Option<u16>,
    Option<&'static str>,
    f64,
    f64,
);

pub(crate) fn py_try(tried: &Try) -> PyTry<'_> {
    (
        &tried.upstream,
        &tried.model,
        tried.fault.map(FaultKind::as_str),
        tried.status,
        tried.reason.map(Reason::as_str),
        tried.began.as_secs_f64(),
        tried.took.as_secs_f64(),
    )
}
