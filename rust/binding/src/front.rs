//! `Front`, `Exchange`, `Tls`, `ListenBounds`: the engine threads, and what they serve.

use std::collections::HashSet;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::task::Context;

use bytes::Bytes;
use http::{HeaderName, Method};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyTuple};
use sluicegate_front::{
    Bounds, Callers, Digest, Front, Goes, InForms, Limits, Pace, Passthrough, Pattern, Readiness,
    Ready, Submission, TlsFiles, Wanted, server_config,
};
use sluicegate_relay::{Copies, DrainLimits, Reply};

use crate::decisions::{PyDecisions, error_reply};
use crate::errors;
use crate::upstream::{PyHeaders, seconds, shown_headers, valid_headers};

#[pyclass(name = "Tls", module = "sluicegate._core", frozen)]
pub(crate) struct PyTls {
    files: TlsFiles,
}

#[pymethods]
impl PyTls {
    #[new]
    #[pyo3(signature = (cert_file, key_file, *, key_password=None, min_version="1.2", client_ca_file=None))]
    fn new(
        py: Python<'_>,
        cert_file: String,
        key_file: String,
        key_password: Option<String>,
        min_version: &str,
        client_ca_file: Option<String>,
    ) -> PyResult<Self> {
        let files = TlsFiles {
            certificate: cert_file,
            key: key_file,
            key_password,
            only_13: match min_version {
                "1.2" => false,
                "1.3" => true,
                other => {
                    let message = format!("min_version is 1.2 or 1.3, not '{other}'");
                    return Err(PyValueError::new_err(message));
                }
            },
            client_authorities: client_ca_file,
        };
        // Looked at now, so that what is wrong is known before anybody connects.
        server_config(&files, false).map_err(|error| errors::tls_error(py, &error))?;
        Ok(Self { files })
    }
}

#[pyclass(name = "ListenBounds", module = "sluicegate._core", frozen)]
pub(crate) struct PyListenBounds {
    inner: Bounds,
}

#[pymethods]
impl PyListenBounds {
    #[new]
    #[pyo3(signature = (
        *, head_bytes, url_bytes, headers, head_seconds, body_pause_seconds, body_bytes_per_second, idle_seconds,
        connections, http2_streams, http2_resets, stall_seconds,
    ))]
    #[allow(clippy::too_many_arguments)] // Keyword arguments on the Python side.
    fn new(
        head_bytes: usize,
        url_bytes: usize,
        headers: usize,
        head_seconds: f64,
        body_pause_seconds: f64,
        body_bytes_per_second: NonZeroU32,
        idle_seconds: f64,
        connections: usize,
        http2_streams: u32,
        http2_resets: usize,
        stall_seconds: Option<f64>,
    ) -> PyResult<Self> {
        let time = |name, value| seconds(name, Some(value)).map(Option::unwrap_or_default);
        let inner = Bounds {
            head_bytes,
            url_bytes,
            headers,
            head_time: time("head_seconds", head_seconds)?,
            body_pace: Pace {
                pause: time("body_pause_seconds", body_pause_seconds)?,
                rate: body_bytes_per_second,
            },
            idle: time("idle_seconds", idle_seconds)?,
            stall: seconds("stall_seconds", stall_seconds)?,
            connections,
            http2_streams,
            http2_resets,
        };
        Ok(Self { inner })
    }
}

#[pyclass(name = "Exchange", module = "sluicegate._core", frozen)]
pub(crate) struct PyExchange {
    #[pyo3(get)]
    ticket: u64,
    reply: Mutex<Reply>,
    readiness: Arc<Readiness>,
}

#[pymethods]
impl PyExchange {
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let mut reply = self.lock()?;
        // The notice is armed before the queue is checked, so that an event in between is not missed.
        reply.register(&mut Context::from_waker(&self.readiness.rearm()));
        let batch = reply.take_all();
        drop(reply);
        let head = match batch.head {
            None => None,
            Some(head) => Some((head.status, shown_headers(py, &head.headers)?)),
        };
        let body = match batch.body.as_slice() {
            [frame] => PyBytes::new(py, frame),
            frames => PyBytes::new(py, &frames.concat()),
        };
        (head, body, batch.ended, batch.aborted).into_pyobject(py)
    }

    fn leave(&self) -> PyResult<()> {
        self.lock()?.leave(false);
        Ok(())
    }
}

impl PyExchange {
    fn lock(&self) -> PyResult<std::sync::MutexGuard<'_, Reply>> {
        let broken = |_| PyValueError::new_err("the exchange is broken");
        self.reply.lock().map_err(broken)
    }
}

#[pyclass(name = "Front", module = "sluicegate._core", frozen)]
pub(crate) struct PyFront {
    inner: Front,
    ready: Arc<Ready>,
}

/// An error in each form: status, headers, body.
type PyReply = (u16, PyHeaders, PyBackedBytes);

fn in_forms([openai, anthropic]: [PyReply; 2]) -> InForms {
    let reply = |(status, headers, body): PyReply| error_reply(status, &headers, &body);
    InForms {
        openai: reply(openai),
        anthropic: reply(anthropic),
    }
}

/// The digests that stand in `digests`, one after the other.
fn each_digest(digests: &[u8]) -> PyResult<HashSet<Digest>> {
    let (each, rest) = digests.as_chunks();
    if rest.is_empty() {
        Ok(each.iter().copied().collect())
    } else {
        Err(PyValueError::new_err("a digest has 32 bytes"))
    }
}

/// One of the operator's own paths: its name, path, methods, where the model is named (`json`, `form`, `path`), and the
/// upstream in its place.
type PyPassthrough = (String, String, Vec<String>, Option<String>, Option<String>);

fn passthrough((name, path, methods, model, upstream): &PyPassthrough) -> PyResult<Passthrough> {
    let wrong = |what: &str| PyValueError::new_err(format!("{path}: {what}"));
    let pattern = Pattern::new(path).ok_or_else(|| wrong("it is no path"))?;
    let goes = match (model.as_deref(), upstream) {
        (None, Some(upstream)) => Goes::Upstream(upstream.as_str().into()),
        (Some("json"), None) => Goes::Json,
        (Some("form"), None) => Goes::Form,
        (Some("path"), None) => Goes::Path,
        _ => return Err(wrong("it needs a model or an upstream")),
    };
    let methods = methods.iter().map(|method| parsed_method(method));
    let methods = methods.collect::<PyResult<_>>()?;
    Passthrough::new(name.clone(), pattern, methods, goes)
        .ok_or_else(|| wrong("its path has a {model}, or its model is in the path, and not both"))
}

fn parsed_method(method: &str) -> PyResult<Method> {
    Method::from_bytes(method.as_bytes())
        .map_err(|_| PyValueError::new_err(format!("'{method}' is no method")))
}

#[pymethods]
impl PyFront {
    #[new]
    #[pyo3(signature = (
        decisions, *, threads=1, max_body_bytes, all_bodies_bytes, hold_upload_bytes, max_event_bytes, max_reply_bytes,
        client_buffer_bytes, keepalive_seconds, client_stall_seconds, drain_seconds, drain_bytes, drain_replies, max_requests, copies_bytes,
    ))]
    #[allow(clippy::too_many_arguments)] // Keyword arguments on the Python side.
    fn new(
        decisions: &PyDecisions,
        threads: usize,
        max_body_bytes: usize,
        all_bodies_bytes: usize,
        hold_upload_bytes: usize,
        max_event_bytes: usize,
        max_reply_bytes: usize,
        client_buffer_bytes: usize,
        keepalive_seconds: Option<f64>,
        client_stall_seconds: Option<f64>,
        drain_seconds: f64,
        drain_bytes: u64,
        drain_replies: usize,
        max_requests: usize,
        copies_bytes: usize,
    ) -> PyResult<Self> {
        let limits = Limits {
            max_body: max_body_bytes,
            all_bodies: all_bodies_bytes,
            hold_upload: hold_upload_bytes,
            max_event: max_event_bytes,
            max_reply: max_reply_bytes,
            client_buffer: client_buffer_bytes,
            keepalive: seconds("keepalive_seconds", keepalive_seconds)?,
            client_stall: seconds("client_stall_seconds", client_stall_seconds)?,
            drain: DrainLimits {
                time: seconds("drain_seconds", Some(drain_seconds))?.unwrap_or_default(),
                bytes: drain_bytes,
                replies: drain_replies,
            },
            max_requests,
            copies: Copies::new(copies_bytes),
        };
        let inner = Front::start(threads, limits, Arc::clone(&decisions.inner))?;
        Ok(Self {
            inner,
            ready: Arc::default(),
        })
    }

    fn callers(
        &self,
        py: Python<'_>,
        digests: Option<PyBackedBytes>,
        missing: (PyReply, PyReply),
        unknown: (PyReply, PyReply),
    ) -> PyResult<()> {
        let (missing, unknown) = (in_forms(missing.into()), in_forms(unknown.into()));
        // Of many keys this takes longer than others should wait for the interpreter.
        py.detach(|| {
            let digests = digests.as_deref().map(each_digest).transpose()?;
            self.inner.set_callers(Callers {
                digests,
                missing,
                unknown,
            });
            Ok(())
        })
    }

    #[pyo3(signature = (*, headers, affinity, affinity_header, input_tokens))]
    #[allow(clippy::needless_pass_by_value)] // Extracted from Python objects.
    fn facts(
        &self,
        headers: Vec<String>,
        affinity: bool,
        affinity_header: Option<String>,
        input_tokens: bool,
    ) -> PyResult<()> {
        let name = |name: &String| {
            HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| PyValueError::new_err(format!("'{name}' is no header's name")))
        };
        self.inner.set_wanted(Wanted {
            headers: headers.iter().map(name).collect::<PyResult<_>>()?,
            affinity,
            affinity_header: affinity_header.as_ref().map(name).transpose()?,
            input_tokens,
        });
        Ok(())
    }

    #[pyo3(signature = (host, port, application, *, http2, tls, bounds))]
    #[allow(clippy::too_many_arguments)] // Keyword arguments on the Python side.
    fn listen(
        &self,
        py: Python<'_>,
        host: IpAddr,
        port: u16,
        application: PathBuf,
        http2: bool,
        tls: Option<&PyTls>,
        bounds: &PyListenBounds,
    ) -> PyResult<()> {
        let tls = tls
            .map(|tls| server_config(&tls.files, http2))
            .transpose()
            .map_err(|error| errors::tls_error(py, &error))?;
        let address = (host, port).into();
        Ok(self
            .inner
            .listen(address, application, http2, tls, bounds.inner.clone())?)
    }

    #[allow(clippy::needless_pass_by_value)] // Extracted from Python objects.
    fn passthrough(&self, paths: Vec<PyPassthrough>) -> PyResult<()> {
        let paths = paths.iter().map(passthrough);
        self.inner.set_passthroughs(paths.collect::<PyResult<_>>()?);
        Ok(())
    }

    fn passthrough_methods(&self, path: &str) -> Vec<(String, String)> {
        let methods = self.inner.passthrough_methods(path).into_iter();
        methods
            .map(|(method, name)| (method.to_string(), name))
            .collect()
    }

    #[pyo3(signature = (method, path, headers, body, request_id, *, query=None, tag=None))]
    #[allow(clippy::too_many_arguments)] // Arguments of a Python method.
    fn submit(
        &self,
        method: &str,
        path: &str,
        headers: PyHeaders,
        body: PyBackedBytes,
        request_id: &str,
        query: Option<&str>,
        tag: Option<u64>,
    ) -> PyResult<PyExchange> {
        let method = parsed_method(method)?;
        let target = self.inner.target(&method, path, query);
        let target = target
            .ok_or_else(|| PyValueError::new_err(format!("nothing takes {method} at '{path}'")))?;
        let submitted = self.inner.submit(Submission {
            target,
            headers: valid_headers(&headers),
            body: Bytes::from_owner(body),
            request_id: request_id.into(),
            tag,
        });
        let readiness = Readiness::new(submitted.ticket, &self.ready);
        submitted
            .reply
            .register(&mut Context::from_waker(&readiness.rearm()));
        Ok(PyExchange {
            ticket: submitted.ticket,
            reply: Mutex::new(submitted.reply),
            readiness,
        })
    }

    fn fileno(&self) -> PyResult<RawFd> {
        Ok(self.ready.descriptor()?)
    }

    fn ready(&self) -> Vec<u64> {
        self.ready.take()
    }

    fn drain(&self) {
        self.inner.drain();
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.close());
    }

    #[getter]
    fn active(&self) -> usize {
        self.inner.active()
    }

    #[getter]
    fn connections(&self) -> usize {
        self.inner.connections()
    }
}
