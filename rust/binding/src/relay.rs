//! `Relay`: the thread, and the way onto it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use sluicegate_core::limits::{Limits, MAX_DOCUMENT, MAX_EVENT};
use sluicegate_core::pipeline::Api;
use sluicegate_relay::{DrainLimits, Exchange, Relay, ResponsesAsked};

use crate::asgi::AsgiSink;
use crate::delivery;
use crate::director::PyDirector;
use crate::errors;
use crate::exchange::PyExchange;
use crate::request::PyRequest;
use crate::responses_request::PyResponsesRequest;
use crate::upstream::{PyRoute, seconds};

/// Bytes of one reply that wait for a slow client at most, where the server's own buffer is a quarter of it.
const DEFAULT_CLIENT_BUFFER: usize = 256 * 1024;

#[pyclass(name = "Relay", module = "sluicegate._core", frozen)]
pub(crate) struct PyRelay {
    inner: Relay,
    limits: Limits,
    client_buffer: usize,
    keepalive: Option<Duration>,
    drain: DrainLimits,
}

#[pymethods]
impl PyRelay {
    #[new]
    #[pyo3(signature = (
        *, max_event_bytes=MAX_EVENT, max_reply_bytes=MAX_DOCUMENT, client_buffer_bytes=DEFAULT_CLIENT_BUFFER, keepalive_seconds=None,
        drain_seconds=60.0, drain_bytes=16 * 1024 * 1024, drain_replies=100,
    ))]
    #[allow(clippy::too_many_arguments)] // Keyword arguments on the Python side.
    fn new(
        py: Python<'_>,
        max_event_bytes: usize,
        max_reply_bytes: usize,
        client_buffer_bytes: usize,
        keepalive_seconds: Option<f64>,
        drain_seconds: f64,
        drain_bytes: u64,
        drain_replies: usize,
    ) -> PyResult<Self> {
        let drain = DrainLimits {
            time: seconds("drain_seconds", Some(drain_seconds))?.unwrap_or_default(),
            bytes: drain_bytes,
            replies: drain_replies,
        };
        // The thread stays attached for its life and only lets the GIL go: attaching anew for each delivery would make a new
        // thread state each time.
        let around = |life: Box<dyn FnOnce() + Send>| {
            let _ = Python::try_attach(|py| py.detach(life));
        };
        let inner = Relay::start(delivery::deliver_ready, around)
            .map_err(|error| errors::relay_error(py, &error))?;
        let limits = Limits {
            max_event: max_event_bytes,
            max_document: max_reply_bytes,
            ..Limits::default()
        };
        Ok(Self {
            inner,
            limits,
            client_buffer: client_buffer_bytes,
            keepalive: seconds("keepalive_seconds", keepalive_seconds)?,
            drain,
        })
    }

    #[pyo3(signature = (request, path, route, headers, request_id, reply, *, response_id=None, keep=None))]
    #[allow(clippy::too_many_arguments)] // Each is a different thing; a record of them would be made anew for each request.
    fn forward(
        &self,
        py: Python<'_>,
        request: &Bound<'_, PyAny>,
        path: &str,
        route: &PyRoute,
        headers: &Bound<'_, PyAny>,
        request_id: &str,
        reply: Bound<'_, PyAny>,
        response_id: Option<&str>,
        keep: Option<usize>,
    ) -> PyResult<PyExchange> {
        let (request, responses) = match request.cast::<PyRequest>() {
            Ok(request) => (request.get().inner.clone(), None),
            Err(_) => {
                let request = &request.cast::<PyResponsesRequest>()?.get().inner;
                let asked = ResponsesAsked {
                    request: Arc::clone(request),
                    response_id: response_id.unwrap_or_default().into(),
                };
                (request.request().clone(), Some(asked))
            }
        };
        let api = match path {
            "/chat/completions" => Api::Chat,
            "/completions" => Api::Completions,
            "/embeddings" => Api::Embeddings,
            "/responses" => Api::Responses,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "no API is known at '{path}'"
                )));
            }
        };
        let mut list = Vec::new();
        for pair in headers.try_iter()? {
            let (name, value): (PyBackedBytes, PyBackedBytes) = pair?.extract()?;
            list.push((
                Bytes::copy_from_slice(&name),
                Bytes::copy_from_slice(&value),
            ));
        }
        let sink = AsgiSink::new(&reply, self.client_buffer, keep)?;
        let outlet = sink.outlet();
        let exchange = Exchange {
            request,
            api,
            responses,
            path: path.into(),
            headers: list,
            request_id: request_id.into(),
            route: route.inner.clone(),
            limits: self.limits,
            keepalive: self.keepalive,
            drain: self.drain,
            sink: Box::new(sink),
            director: Box::new(PyDirector {
                reply: reply.unbind(),
            }),
        };
        let control = self
            .inner
            .submit(exchange)
            .map_err(|error| errors::relay_error(py, &error))?;
        Ok(PyExchange { control, outlet })
    }

    #[getter]
    fn active(&self) -> usize {
        self.inner.active()
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.close());
    }
}
