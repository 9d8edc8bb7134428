//! `Outcome`, `Fault`: how an exchange ended.

use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use sluicegate_core::usage::Usage;
use sluicegate_relay::{Fault, FaultKind, Outcome, Reason};

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
    fn param(&self) -> Option<&str> {
        self.inner.param.as_deref()
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let pairs = self
            .inner
            .headers
            .iter()
            .map(|(name, value)| (PyBytes::new(py, name), PyBytes::new(py, value)));
        PyList::new(py, pairs.collect::<Vec<_>>())
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
        self.inner
            .tries
            .iter()
            .map(|tried| {
                (
                    &*tried.upstream,
                    &*tried.model,
                    tried.fault.map(FaultKind::as_str),
                    tried.status,
                    tried.reason.map(Reason::as_str),
                    tried.began.as_secs_f64(),
                    tried.took.as_secs_f64(),
                )
            })
            .collect()
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
    fn counted_output(&self) -> u64 {
        self.inner.counted_output
    }

    #[getter]
    fn cost(&self) -> Option<&str> {
        self.inner.cost.as_deref()
    }

    #[getter]
    fn priced(&self) -> bool {
        !self.inner.unpriced
    }

    #[getter]
    fn stalled(&self) -> bool {
        self.inner.stalled
    }

    /// One call in place of many, since every request ends with it.
    fn figures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let outcome = &self.inner;
        let usage = outcome.usage.as_ref();
        let tokens = |count: fn(&Usage) -> Option<u64>| usage.and_then(count);
        let streamed = outcome.streamed;
        let counted = outcome.estimated.then_some(outcome.counted_output);
        PyTuple::new(
            py,
            [
                outcome.upstream.into_bound_py_any(py)?,
                outcome.upstream_model.into_bound_py_any(py)?,
                self.upstream_request_id().into_bound_py_any(py)?,
                outcome.attempts.into_bound_py_any(py)?,
                self.tries().into_bound_py_any(py)?,
                outcome
                    .fault
                    .as_ref()
                    .map(|fault| fault.kind.as_str())
                    .into_bound_py_any(py)?,
                PyTuple::new(py, self.left_out())?.into_any(),
                self.finish_reason().into_bound_py_any(py)?,
                outcome.events.into_bound_py_any(py)?,
                outcome.malformed.into_bound_py_any(py)?,
                outcome.bytes_in.into_bound_py_any(py)?,
                outcome.bytes_out.into_bound_py_any(py)?,
                streamed.into_bound_py_any(py)?,
                self.first_token()
                    .filter(|_| streamed)
                    .into_bound_py_any(py)?,
                self.inter_token_latency()
                    .filter(|_| streamed)
                    .into_bound_py_any(py)?,
                self.longest_gap()
                    .filter(|_| streamed)
                    .into_bound_py_any(py)?,
                self.client_blocked().into_bound_py_any(py)?,
                tokens(|usage| usage.input_tokens).into_bound_py_any(py)?,
                tokens(|usage| usage.cached_input_tokens).into_bound_py_any(py)?,
                tokens(|usage| usage.cache_write_tokens).into_bound_py_any(py)?,
                counted
                    .or(tokens(|usage| usage.output_tokens))
                    .into_bound_py_any(py)?,
                tokens(|usage| usage.reasoning_tokens).into_bound_py_any(py)?,
                outcome.estimated.into_bound_py_any(py)?,
                self.cost().into_bound_py_any(py)?,
                usage
                    .and_then(|usage| usage.upstream_cost.as_deref())
                    .into_bound_py_any(py)?,
                self.priced().into_bound_py_any(py)?,
            ],
        )
    }
}

impl PyOutcome {
    /// The mean gap between the events that bore tokens, in seconds, without the time in which the client took nothing.
    fn inter_token_latency(&self) -> Option<f64> {
        let outcome = &self.inner;
        let gaps = outcome
            .token_events
            .checked_sub(1)
            .filter(|gaps| *gaps > 0)?;
        #[allow(clippy::cast_precision_loss)] // 2^53 tokens.
        Some(outcome.gaps.as_secs_f64() / gaps as f64)
    }
}

/// Upstream, its name of the model, kind, status and reason of its fault, seconds from the start to its begin, seconds it took.
type PyTry<'a> = (
    &'a str,
    &'a str,
    Option<&'static str>,
    Option<u16>,
    Option<&'static str>,
    f64,
    f64,
);
