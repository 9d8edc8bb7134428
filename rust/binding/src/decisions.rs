//! `Decisions` and its events: the questions to Python, and the methods that answer them.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList};
use sluicegate_core::cost::Members;
use sluicegate_core::pricing::Cost;
use sluicegate_core::request::Request;
use sluicegate_front::decisions::{
    Arrived, Decision, Decisions, Ended, Event, Failed, Forward, PriceAsked, RequestCopy,
};
use sluicegate_front::{AskedRequest, Endpoint, Facts};
use sluicegate_limits::Form;
use sluicegate_relay::{
    Attempt, ErrorReply, FaultKind, Next, NotCopied, Pricing, ReplyCopy, Tally,
};
use tokio::sync::oneshot;

use crate::errors;
use crate::journal::PyEntry;
use crate::lease::PyLease;
use crate::outcome::{PyFault, PyOutcome};
use crate::record::PyRecord;
use crate::request::PyRequest;
use crate::responses_request::PyResponsesRequest;
use crate::tariff::PyPricing;
use crate::upstream::{PyHeaders, PyRoute, header_map, seconds, valid_headers};
use crate::usage::PyUsage;

/// The answer to one question, given once.
struct Answer<T>(Mutex<Option<oneshot::Sender<T>>>);

impl<T> Answer<T> {
    fn new(sender: oneshot::Sender<T>) -> Self {
        Self(Mutex::new(Some(sender)))
    }

    /// Whether anybody still waits for it.
    fn give(&self, answer: T) -> bool {
        let sender = self.0.lock().ok().and_then(|mut sender| sender.take());
        sender.is_some_and(|sender| sender.send(answer).is_ok())
    }
}

pub(crate) fn error_reply(status: u16, headers: &PyHeaders, body: &PyBackedBytes) -> ErrorReply {
    ErrorReply {
        status,
        headers: valid_headers(headers),
        body: Bytes::copy_from_slice(body),
    }
}

fn attempt(
    route: &PyRoute,
    pricing: Option<&PyPricing>,
    last: bool,
    trial: bool,
    after: f64,
    headers: &PyHeaders,
) -> PyResult<Attempt> {
    Ok(Attempt {
        route: route.inner.clone(),
        pricing: match pricing {
            Some(pricing) => Pricing::Rates(Arc::clone(&pricing.inner)),
            None => Pricing::Asked,
        },
        last,
        trial,
        after: seconds("after", Some(after))?.unwrap_or_default(),
        headers: header_map(headers)?,
    })
}

fn py_request(py: Python<'_>, request: &AskedRequest) -> PyResult<Option<Py<PyAny>>> {
    Ok(Some(match request {
        AskedRequest::Plain(request) => {
            let inner = Request::clone(request);
            Py::new(py, PyRequest { inner })?.into_any()
        }
        AskedRequest::Responses(request) => {
            let request = PyResponsesRequest::new(Arc::clone(request));
            Py::new(py, request)?.into_any()
        }
        AskedRequest::Upload(_) => return Ok(None),
    }))
}

#[pyclass(name = "Arrived", module = "sluicegate._core", frozen)]
pub(crate) struct PyArrived {
    about: Arc<sluicegate_front::decisions::About>,
    size: usize,
    request: Result<AskedRequest, sluicegate_core::error::Error>,
    facts: Facts,
    answer: Answer<Decision>,
}

impl PyArrived {
    pub(crate) fn about(&self) -> &sluicegate_front::decisions::About {
        &self.about
    }

    pub(crate) fn asks_for_stream(&self) -> bool {
        self.stream()
    }
}

#[pymethods]
impl PyArrived {
    #[getter]
    fn ticket(&self) -> u64 {
        self.about.ticket
    }

    #[getter]
    fn tag(&self) -> Option<u64> {
        self.about.tag
    }

    #[getter]
    fn endpoint(&self) -> &str {
        self.about.endpoint.as_ref().map_or("", Endpoint::name)
    }

    #[getter]
    fn anthropic(&self) -> bool {
        self.about.is_anthropic()
    }

    #[getter]
    fn upstream(&self) -> Option<&str> {
        self.about.endpoint.as_ref()?.upstream()
    }

    #[getter]
    fn request_id(&self) -> &str {
        &self.about.request_id
    }

    #[getter]
    fn key(&self) -> Option<&[u8]> {
        self.about.key.as_ref().map(|key| &key[..])
    }

    #[getter]
    fn model(&self) -> Option<&str> {
        self.request.as_ref().ok()?.model()
    }

    #[getter]
    fn stream(&self) -> bool {
        let request = self.request.as_ref();
        request.is_ok_and(AskedRequest::stream)
    }

    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    #[getter]
    fn max_output_tokens(&self) -> Option<u64> {
        self.request.as_ref().ok()?.json()?.output_bound()
    }

    #[getter]
    fn user(&self) -> Option<&str> {
        self.request.as_ref().ok()?.json()?.user()
    }

    #[getter]
    pub(crate) fn input_tokens_estimate(&self) -> Option<u64> {
        self.facts.input_tokens
    }

    #[getter]
    fn affinity(&self) -> Option<u64> {
        self.facts.affinity
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let headers = PyDict::new(py);
        for (name, value) in &self.facts.headers {
            // ISO 8859-1, in which any bytes are text.
            let value: String = value.as_bytes().iter().copied().map(char::from).collect();
            headers.set_item(name.as_str(), value)?;
        }
        Ok(headers)
    }

    #[getter]
    fn request(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let request = self.request.as_ref().ok();
        request.map_or(Ok(None), |request| py_request(py, request))
    }

    #[getter]
    fn error<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let error = self.request.as_ref().err()?;
        Some(
            errors::parse_error(py, error)
                .into_value(py)
                .into_bound(py)
                .into_any(),
        )
    }

    fn affinity_of(&self, request: &PyResponsesRequest) -> Option<u64> {
        if self.facts.by_body {
            request.affinity()
        } else {
            self.facts.affinity
        }
    }

    // By place: names would be looked up for each request.
    #[pyo3(signature = (
        route, pricing, last, trial, after, headers, lease, entry, estimated_input, /, request=None,
        response_id=None, keep=None,
    ))]
    #[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)] // Arguments of a Python method.
    fn forward(
        &self,
        route: &PyRoute,
        pricing: Option<&PyPricing>,
        last: bool,
        trial: bool,
        after: f64,
        headers: PyHeaders,
        lease: Option<&PyLease>,
        entry: Option<&PyEntry>,
        estimated_input: Option<u64>,
        request: Option<&PyResponsesRequest>,
        response_id: Option<&str>,
        keep: Option<usize>,
    ) -> PyResult<bool> {
        let mut attempt = attempt(route, pricing, last, trial, after, &headers)?;
        if let Some(lease) = lease {
            let form = if self.anthropic() {
                Form::Anthropic
            } else {
                Form::OpenAi
            };
            lease.add_headers(form, &mut attempt.headers);
        }
        Ok(self.answer.give(Decision::Forward(Box::new(Forward {
            attempt,
            request: request.map(|request| Arc::clone(&request.inner)),
            response_id: response_id.map(Into::into),
            keep,
            tally: entry.and_then(PyEntry::take),
            estimated_input,
        }))))
    }

    #[allow(clippy::needless_pass_by_value)] // Extracted from a Python object.
    fn reply(&self, status: u16, headers: PyHeaders, body: PyBackedBytes) -> bool {
        self.answer
            .give(Decision::Reply(error_reply(status, &headers, &body)))
    }
}

#[pyclass(name = "Failed", module = "sluicegate._core", frozen)]
pub(crate) struct PyFailed {
    #[pyo3(get)]
    ticket: u64,
    #[pyo3(get)]
    fault: Py<PyFault>,
    #[pyo3(get)]
    attempts: u32,
    answer: Answer<Next>,
}

#[pymethods]
impl PyFailed {
    #[pyo3(name = "attempt", signature = (route, pricing, last, trial, after, headers, /))]
    #[allow(clippy::needless_pass_by_value)] // Extracted from a Python object.
    fn next(
        &self,
        route: &PyRoute,
        pricing: Option<&PyPricing>,
        last: bool,
        trial: bool,
        after: f64,
        headers: PyHeaders,
    ) -> PyResult<bool> {
        let attempt = attempt(route, pricing, last, trial, after, &headers)?;
        Ok(self.answer.give(Next::Attempt(Box::new(attempt))))
    }

    #[allow(clippy::needless_pass_by_value)] // Extracted from a Python object.
    fn reply(&self, status: u16, headers: PyHeaders, body: PyBackedBytes) -> bool {
        self.answer
            .give(Next::Reply(error_reply(status, &headers, &body)))
    }
}

#[pyclass(name = "FirstOutput", module = "sluicegate._core", frozen)]
pub(crate) struct PyFirstOutput {
    #[pyo3(get)]
    ticket: u64,
}

#[pyclass(name = "PriceAsked", module = "sluicegate._core", frozen)]
pub(crate) struct PyPriceAsked {
    #[pyo3(get)]
    ticket: u64,
    #[pyo3(get)]
    usage: Py<PyUsage>,
    answer: Mutex<Option<mpsc::SyncSender<Option<Members>>>>,
}

#[pymethods]
impl PyPriceAsked {
    #[allow(clippy::needless_pass_by_value)] // Extracted from a Python object.
    fn answer(&self, members: Option<PyBackedBytes>) -> bool {
        let members = members.and_then(|members| Members::parse(Bytes::copy_from_slice(&members)));
        let sender = self.answer.lock().ok().and_then(|mut sender| sender.take());
        sender.is_some_and(|sender| sender.try_send(members).is_ok())
    }
}

#[pyclass(name = "Ended", module = "sluicegate._core", frozen)]
pub(crate) struct PyEnded {
    about: Arc<sluicegate_front::decisions::About>,
    model: Option<Box<str>>,
    #[pyo3(get)]
    outcome: Py<PyOutcome>,
    #[pyo3(get)]
    not_kept: Option<&'static str>,
    kept: Option<ReplyCopy>,
    request: Option<RequestCopy>,
    tally: Mutex<Option<Box<dyn Tally>>>,
    /// What a price policy of the user's own says that it cost.
    charged: OnceLock<u64>,
}

#[pymethods]
impl PyEnded {
    #[getter]
    fn ticket(&self) -> u64 {
        self.about.ticket
    }

    #[getter]
    fn tag(&self) -> Option<u64> {
        self.about.tag
    }

    #[getter]
    fn endpoint(&self) -> &str {
        self.about.endpoint.as_ref().map_or("", Endpoint::name)
    }

    #[getter]
    fn request_id(&self) -> &str {
        &self.about.request_id
    }

    #[getter]
    fn key(&self) -> Option<&[u8]> {
        self.about.key.as_ref().map(|key| &key[..])
    }

    #[getter]
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn settle(&self, py: Python<'_>, lease: &PyLease) -> PyResult<()> {
        let outcome = &self.outcome.get().inner;
        if outcome.attempts == 0 {
            return lease.unused(py);
        }
        let usage = outcome.usage.as_ref();
        let known = outcome.cost.as_deref().and_then(Cost::in_picodollars);
        let fault = outcome.fault.as_ref().map(|fault| fault.kind);
        lease.ended(
            py,
            usage.and_then(|usage| usage.input_tokens),
            usage.and_then(|usage| usage.output_tokens),
            known.map_or_else(|| self.charged.get().copied(), |[total, ..]| Some(total)),
            // A client that does not want to wait any longer has failed by itself.
            outcome.status >= 500 && fault != Some(FaultKind::ClientTimeout),
            outcome.estimated_input,
        )
    }

    fn charge(&self, costs: Option<(u64, u64, u64, u64, u64, u64)>) {
        if let Some((total, ..)) = costs {
            let _ = self.charged.set(total);
        }
        let tally = self.tally.lock().ok().and_then(|mut tally| tally.take());
        if let Some(mut tally) = tally {
            tally.charge(costs.map(|costs| costs.into()));
            tally.close(&self.outcome.get().inner);
        }
    }

    #[getter]
    fn kept<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.kept.as_ref().map(|kept| PyBytes::new(py, kept))
    }

    #[getter]
    fn request(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let kept = self.request.as_ref();
        kept.map_or(Ok(None), |kept| py_request(py, &kept.request))
    }

    #[pyo3(signature = (
        result, *, id=None, caller=None, key_id=None, model="", requested_model=None, code=None, limit=None,
        response_id=None, price=None
    ))]
    #[allow(clippy::too_many_arguments)] // Keyword arguments on the Python side.
    fn record(
        &self,
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
    ) -> PyRecord {
        let endpoint = self.about.endpoint.as_ref().map_or("other", Endpoint::name);
        PyRecord::ended(
            &self.about.request_id,
            endpoint,
            &self.outcome.get().inner,
            result,
            id,
            caller,
            key_id,
            model,
            requested_model,
            code,
            limit,
            response_id,
            price,
        )
    }
}

#[pyclass(name = "Unrecorded", module = "sluicegate._core", frozen)]
pub(crate) struct PyUnrecorded {
    #[pyo3(get)]
    requests: u64,
}

#[pyclass(name = "Died", module = "sluicegate._core", frozen)]
pub(crate) struct PyDied {
    #[pyo3(get)]
    message: String,
}

fn py_event(py: Python<'_>, event: Event) -> PyResult<Py<PyAny>> {
    Ok(match event {
        Event::Arrived(Arrived {
            about,
            size,
            request,
            facts,
            answer,
        }) => {
            let answer = Answer::new(answer);
            let arrived = PyArrived {
                about,
                size,
                request,
                facts,
                answer,
            };
            Py::new(py, arrived)?.into_any()
        }
        Event::Failed(Failed {
            ticket,
            fault,
            attempts,
            answer,
        }) => {
            let failed = PyFailed {
                ticket,
                fault: Py::new(py, PyFault { inner: fault })?,
                attempts,
                answer: Answer::new(answer),
            };
            Py::new(py, failed)?.into_any()
        }
        Event::FirstOutput(ticket) => Py::new(py, PyFirstOutput { ticket })?.into_any(),
        Event::Price(PriceAsked {
            ticket,
            usage,
            answer,
        }) => {
            let asked = PyPriceAsked {
                ticket,
                usage: Py::new(py, PyUsage { inner: usage })?,
                answer: Mutex::new(Some(answer)),
            };
            Py::new(py, asked)?.into_any()
        }
        Event::Ended(ended) => {
            let Ended {
                about,
                model,
                outcome,
                kept,
                request,
                tally,
                ..
            } = *ended;
            let ended = PyEnded {
                about,
                model,
                not_kept: outcome.not_copied.map(NotCopied::as_str),
                outcome: Py::new(py, PyOutcome { inner: outcome })?,
                kept,
                request,
                tally: Mutex::new(tally),
                charged: OnceLock::new(),
            };
            Py::new(py, ended)?.into_any()
        }
        Event::Unrecorded(requests) => Py::new(py, PyUnrecorded { requests })?.into_any(),
        Event::Died(message) => Py::new(py, PyDied { message })?.into_any(),
    })
}

fn py_events(py: Python<'_>, events: Vec<Event>) -> PyResult<Bound<'_, PyList>> {
    let events = events
        .into_iter()
        .map(|event| py_event(py, event))
        .collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, events)
}

#[pyclass(name = "Decisions", module = "sluicegate._core", frozen)]
pub(crate) struct PyDecisions {
    pub(crate) inner: Arc<Decisions>,
}

#[pymethods]
impl PyDecisions {
    #[new]
    #[pyo3(signature = (*, patience=15.0))]
    fn new(patience: f64) -> PyResult<Self> {
        let patience = seconds("patience", Some(patience))?.unwrap_or_default();
        Ok(Self {
            inner: Arc::new(Decisions::new(patience)),
        })
    }

    #[pyo3(name = "wait")]
    fn wait_for<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Bound<'py, PyList>> {
        let time = crate::upstream::seconds("seconds", Some(seconds))?.unwrap_or(Duration::ZERO);
        let events = py.detach(|| self.inner.wait(time));
        py_events(py, events)
    }

    fn wake(&self) {
        self.inner.wake();
    }

    fn fileno(&self) -> PyResult<RawFd> {
        Ok(self.inner.descriptor()?)
    }

    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        py_events(py, self.inner.take())
    }
}
