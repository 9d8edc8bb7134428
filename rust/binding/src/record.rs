//! `RequestRecord`: what is known of one request once it is over, and its line in the log.
//!
//! It is made and written here because every request pays for it: as a Python object with its line formatted in Python
//! it took a tenth of what a small request costs.

mod attempts;
mod line;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use sluicegate_core::json::writer::Writer;
use sluicegate_relay::{FaultKind, Outcome};

use self::attempts::Attempts;
use self::line::Line;
use crate::outcome::{PyTry, py_try};

#[pyclass(name = "RequestRecord", module = "sluicegate._core", frozen)]
pub(crate) struct PyRecord {
    request_id: String,
    endpoint: String,
    #[pyo3(get)]
    status: u16,
    result: String,
    #[pyo3(get)]
    duration: f64,
    id: Option<String>,
    caller: Option<String>,
    key_id: Option<String>,
    model: String,
    requested_model: Option<String>,
    code: Option<String>,
    limit: Option<String>,
    path: Option<String>,
    response_id: Option<String>,
    #[pyo3(get)]
    client_left: bool,
    #[pyo3(get)]
    stalled: bool,
    attempts: Attempts,
}

impl PyRecord {
    /// The record of a request that ended with `outcome`. `code` and `price` (what it cost, and whether that is known)
    /// stand in place of the outcome's.
    #[allow(clippy::too_many_arguments)] // Each is a member.
    pub(crate) fn ended(
        request_id: &str,
        endpoint: &str,
        outcome: &Outcome,
        result: String,
        id: Option<String>,
        caller: Option<String>,
        key_id: Option<String>,
        model: &str,
        requested_model: Option<String>,
        code: Option<String>,
        limit: Option<String>,
        response_id: Option<String>,
        price: Option<(Option<String>, bool)>,
    ) -> Self {
        let mut attempts = Attempts::default();
        if outcome.attempts > 0 {
            attempts = Attempts::of(outcome);
            if let Some((cost, priced)) = price {
                attempts.cost = cost;
                attempts.unpriced = !priced;
            }
        }
        PyRecord {
            request_id: request_id.into(),
            endpoint: endpoint.into(),
            status: outcome.status,
            result,
            duration: outcome.duration.as_secs_f64(),
            // A request of which no upstream has heard has no row.
            id: id.filter(|_| outcome.attempts > 0),
            caller,
            key_id,
            model: model.into(),
            requested_model,
            code: code.or_else(|| outcome.code.map(Into::into)),
            limit,
            path: None,
            // A run of a background response has no client that could leave.
            client_left: outcome.client_left && response_id.is_none(),
            stalled: outcome.stalled,
            response_id,
            attempts,
        }
    }

    fn write(&self, line: &mut Line) {
        line.text("request_id", &self.request_id);
        line.text("endpoint", &self.endpoint);
        line.number("status", self.status);
        line.text("result", &self.result);
        line.seconds("duration", self.duration);
        line.text_of("id", self.id.as_deref());
        line.text_of("caller", self.caller.as_deref());
        line.text_of("key_id", self.key_id.as_deref());
        if !self.model.is_empty() {
            line.text("model", &self.model);
        }
        line.text_of("requested_model", self.requested_model.as_deref());
        line.text_of("code", self.code.as_deref());
        line.text_of("limit", self.limit.as_deref());
        line.text_of("path", self.path.as_deref());
        line.text_of("response_id", self.response_id.as_deref());
        if self.client_left {
            line.flag("client_left", true);
            line.flag_where("stalled", self.stalled);
        }
        if self.attempts.count > 0 {
            self.attempts.write(line);
        }
    }
}

#[pymethods]
impl PyRecord {
    #[new]
    #[pyo3(signature = (
        request_id, endpoint, status, result, duration, *, id=None, caller=None, key_id=None, model="",
        requested_model=None, code=None, limit=None, path=None, response_id=None, client_left=false, stalled=false,
        **attempts
    ))]
    #[allow(clippy::too_many_arguments)] // Keyword arguments on the Python side.
    fn new(
        request_id: String,
        endpoint: String,
        status: u16,
        result: String,
        duration: f64,
        id: Option<String>,
        caller: Option<String>,
        key_id: Option<String>,
        model: &str,
        requested_model: Option<String>,
        code: Option<String>,
        limit: Option<String>,
        path: Option<String>,
        response_id: Option<String>,
        client_left: bool,
        stalled: bool,
        attempts: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let attempts = attempts.map(|given| given.extract()).transpose()?;
        Ok(PyRecord {
            request_id,
            endpoint,
            status,
            result,
            duration,
            id,
            caller,
            key_id,
            model: model.into(),
            requested_model,
            code,
            limit,
            path,
            response_id,
            client_left,
            stalled,
            attempts: attempts.unwrap_or_default(),
        })
    }

    #[getter]
    fn request_id(&self) -> &str {
        &self.request_id
    }

    #[getter]
    fn endpoint(&self) -> &str {
        &self.endpoint
    }

    #[getter]
    fn result(&self) -> &str {
        &self.result
    }

    #[getter]
    fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    #[getter]
    fn caller(&self) -> Option<&str> {
        self.caller.as_deref()
    }

    #[getter]
    fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    #[getter]
    fn model(&self) -> &str {
        &self.model
    }

    #[getter]
    fn requested_model(&self) -> Option<&str> {
        self.requested_model.as_deref()
    }

    #[getter]
    fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    #[getter]
    fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    #[getter]
    fn response_id(&self) -> Option<&str> {
        self.response_id.as_deref()
    }

    #[getter]
    fn upstream(&self) -> &str {
        &self.attempts.upstream
    }

    #[getter]
    fn upstream_model(&self) -> &str {
        &self.attempts.upstream_model
    }

    #[getter]
    fn attempts(&self) -> u32 {
        self.attempts.count
    }

    #[getter]
    fn fault(&self) -> Option<&'static str> {
        self.attempts.fault.map(FaultKind::as_str)
    }

    #[getter]
    fn last_failed(&self) -> Option<PyTry<'_>> {
        self.attempts.last_failed().map(py_try)
    }

    #[getter]
    fn failed_attempts(&self) -> Vec<PyTry<'_>> {
        self.attempts
            .failed()
            .map(|(tried, _)| py_try(tried))
            .collect()
    }

    #[getter]
    fn streamed(&self) -> bool {
        self.attempts.streamed
    }

    #[getter]
    fn time_to_first_token(&self) -> Option<f64> {
        self.attempts.time_to_first_token
    }

    #[getter]
    fn inter_token_latency(&self) -> Option<f64> {
        self.attempts.inter_token_latency
    }

    #[getter]
    fn client_blocked(&self) -> f64 {
        self.attempts.client_blocked
    }

    #[getter]
    fn input_tokens(&self) -> Option<u64> {
        self.attempts.input_tokens
    }

    #[getter]
    fn cached_input_tokens(&self) -> Option<u64> {
        self.attempts.cached_input_tokens
    }

    #[getter]
    fn cache_write_tokens(&self) -> Option<u64> {
        self.attempts.cache_write_tokens
    }

    #[getter]
    fn output_tokens(&self) -> Option<u64> {
        self.attempts.output_tokens
    }

    #[getter]
    fn reasoning_tokens(&self) -> Option<u64> {
        self.attempts.reasoning_tokens
    }

    #[getter]
    fn estimated(&self) -> bool {
        self.attempts.estimated
    }

    #[getter]
    fn implausible(&self) -> bool {
        self.attempts.implausible
    }

    #[getter]
    fn cost(&self) -> Option<&str> {
        self.attempts.cost.as_deref()
    }

    #[getter]
    fn priced(&self) -> bool {
        !self.attempts.unpriced
    }

    fn line<'py>(&self, py: Python<'py>, time: &str, level: &str) -> Bound<'py, PyBytes> {
        let mut line = Line(Writer::with_capacity(1024));
        line.0.open(b'{');
        line.text("time", time);
        line.text("level", level);
        line.text("event", "request");
        self.write(&mut line);
        line.0.close(b'}');
        let mut text = line.0.into_bytes();
        text.push(b'\n');
        PyBytes::new(py, &text)
    }
}
