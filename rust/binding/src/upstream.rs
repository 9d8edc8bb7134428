//! `Deadlines`, `Upstream`, `Route`: the settings of an upstream, given by Python once, at start.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};
use sluicegate_core::api::Api;
use sluicegate_core::json::node::Node;
use sluicegate_core::protocols::chat::request::{
    ChatTarget, EffortCeiling, InstructionsRole, LateSystem, ReasoningField, ThinkingOff,
};
use sluicegate_core::protocols::messages::request::{Cache, MessagesTarget, Rest, ThinkingForm};
use sluicegate_core::protocols::responses::request::ResponsesTarget;
use sluicegate_core::protocols::{Serves, Targets};
use sluicegate_core::request::MemberEdits;
use sluicegate_core::usage::Dialect;
use sluicegate_relay::{Deadlines, Paths, Route, Streaming, Upstream, UpstreamSettings};

use crate::errors;

pub(crate) type PyHeaders = Vec<(PyBackedBytes, PyBackedBytes)>;

fn header_list(headers: PyHeaders) -> Vec<(Bytes, Bytes)> {
    headers
        .into_iter()
        .map(|(name, value)| {
            (
                Bytes::copy_from_slice(&name),
                Bytes::copy_from_slice(&value),
            )
        })
        .collect()
}

fn header((name, value): &(PyBackedBytes, PyBackedBytes)) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::from_bytes(name).ok()?;
    Some((name, HeaderValue::from_bytes(value).ok()?))
}

/// Raises `ValueError` for what cannot be a header.
pub(crate) fn header_map(headers: &PyHeaders) -> PyResult<HeaderMap> {
    let wrong = || PyValueError::new_err("not a header");
    headers
        .iter()
        .map(|pair| header(pair).ok_or_else(wrong))
        .collect()
}

/// What cannot be a header is left out.
pub(crate) fn valid_headers(headers: &PyHeaders) -> HeaderMap {
    headers.iter().filter_map(header).collect()
}

/// As Python has them: names and values.
pub(crate) fn shown_headers<'py>(
    py: Python<'py>,
    headers: &HeaderMap,
) -> PyResult<Bound<'py, PyList>> {
    let pairs = headers.iter().map(|(name, value)| {
        let name = PyBytes::new(py, name.as_str().as_bytes());
        (name, PyBytes::new(py, value.as_bytes()))
    });
    PyList::new(py, pairs.collect::<Vec<_>>())
}

/// The longest duration: what is meant to be for ever is None.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

pub(crate) fn seconds(name: &str, value: Option<f64>) -> PyResult<Option<Duration>> {
    value
        .map(|value| {
            Duration::try_from_secs_f64(value)
                .ok()
                .filter(|duration| *duration <= LONGEST)
                .ok_or_else(|| {
                    let longest = LONGEST.as_secs();
                    PyValueError::new_err(format!("{name} is not between 0 and {longest} seconds"))
                })
        })
        .transpose()
}

pub(crate) fn dialect_named(name: Option<&str>) -> PyResult<Option<Dialect>> {
    name.map(|name| {
        Dialect::from_str(name)
            .map_err(|_| PyValueError::new_err(format!("unknown dialect '{name}'")))
    })
    .transpose()
}

#[pyclass(name = "Deadlines", module = "sluicegate._core", frozen)]
pub(crate) struct PyDeadlines {
    inner: Deadlines,
}

#[pymethods]
impl PyDeadlines {
    #[new]
    #[pyo3(signature = (*, connect=None, first_byte=None, first_token=None, between_tokens=None, total=None))]
    fn new(
        connect: Option<f64>,
        first_byte: Option<f64>,
        first_token: Option<f64>,
        between_tokens: Option<f64>,
        total: Option<f64>,
    ) -> PyResult<Self> {
        let inner = Deadlines {
            connect: seconds("connect", connect)?,
            first_byte: seconds("first_byte", first_byte)?,
            first_token: seconds("first_token", first_token)?,
            between_tokens: seconds("between_tokens", between_tokens)?,
            total: seconds("total", total)?,
        };
        Ok(Self { inner })
    }
}

/// How requests for a response are put to an upstream that serves Chat Completions.
#[pyclass(name = "ChatTarget", module = "sluicegate._core", frozen)]
pub(crate) struct PyChatTarget {
    pub(crate) inner: ChatTarget,
}

#[pymethods]
impl PyChatTarget {
    #[new]
    #[pyo3(signature = (
        *, instructions_role="system", reasoning_field="reasoning_content", late_system="system",
        effort_ceiling="high", thinking_off="nothing",
    ))]
    fn new(
        instructions_role: &str,
        reasoning_field: &str,
        late_system: &str,
        effort_ceiling: &str,
        thinking_off: &str,
    ) -> PyResult<Self> {
        let inner = ChatTarget {
            instructions_role: match instructions_role {
                "system" => InstructionsRole::System,
                "developer" => InstructionsRole::Developer,
                other => return Err(unknown("instructions_role", other)),
            },
            reasoning: match reasoning_field {
                "reasoning_content" => ReasoningField::ReasoningContent,
                "reasoning" => ReasoningField::Reasoning,
                "none" => ReasoningField::None,
                other => return Err(unknown("reasoning_field", other)),
            },
            late_system: match late_system {
                "system" => LateSystem::System,
                "user" => LateSystem::User,
                other => return Err(unknown("late_system", other)),
            },
            effort_ceiling: EffortCeiling(effort_ceiling.into()),
            thinking_off: match thinking_off {
                "nothing" => ThinkingOff::Nothing,
                "effort" => ThinkingOff::Effort,
                "template" => ThinkingOff::Template,
                other => return Err(unknown("thinking_off", other)),
            },
        };
        Ok(Self { inner })
    }
}

/// How requests to Chat Completions are put to an upstream that serves Responses.
#[pyclass(name = "ResponsesTarget", module = "sluicegate._core", frozen)]
pub(crate) struct PyResponsesTarget {
    inner: ResponsesTarget,
}

#[pymethods]
impl PyResponsesTarget {
    #[new]
    #[pyo3(signature = (*, takes_reasoning=false))]
    fn new(takes_reasoning: bool) -> Self {
        let inner = ResponsesTarget { takes_reasoning };
        Self { inner }
    }
}

/// How requests of other clients are put to an upstream that serves Messages.
#[pyclass(name = "MessagesTarget", module = "sluicegate._core", frozen)]
pub(crate) struct PyMessagesTarget {
    inner: MessagesTarget,
}

#[pymethods]
impl PyMessagesTarget {
    #[new]
    #[pyo3(signature = (
        *, max_tokens=8192, thinking="adaptive", signed=true, inline_system=false, cache="off", rest="pass",
    ))]
    fn new(
        max_tokens: u64,
        thinking: &str,
        signed: bool,
        inline_system: bool,
        cache: &str,
        rest: &str,
    ) -> PyResult<Self> {
        let inner = MessagesTarget {
            max_tokens,
            thinking: match thinking {
                "adaptive" => ThinkingForm::Adaptive,
                "budget" => ThinkingForm::Budget,
                "none" => ThinkingForm::None,
                other => return Err(unknown("thinking", other)),
            },
            signed,
            inline_system,
            cache: match cache {
                "off" => Cache::Off,
                "5m" => Cache::FiveMinutes,
                "1h" => Cache::OneHour,
                other => return Err(unknown("cache", other)),
            },
            rest: match rest {
                "pass" => Rest::Pass,
                "drop" => Rest::Drop,
                other => return Err(unknown("rest", other)),
            },
        };
        Ok(Self { inner })
    }
}

/// How members of requests to one interface differ for an upstream.
#[pyclass(name = "MemberEdits", module = "sluicegate._core", frozen)]
pub(crate) struct PyMemberEdits {
    inner: MemberEdits,
}

#[pymethods]
impl PyMemberEdits {
    #[new]
    #[pyo3(signature = (*, omit=None, rename=None, add=None))]
    fn new(
        omit: Option<Vec<String>>,
        rename: Option<Vec<(String, String)>>,
        add: Option<Vec<(String, String)>>,
    ) -> PyResult<Self> {
        let add = boxed(add.unwrap_or_default());
        for (name, value) in &add {
            if Node::document(value.as_bytes()).is_none() {
                return Err(PyValueError::new_err(format!(
                    "{name} is added without JSON"
                )));
            }
        }
        let omit = omit.unwrap_or_default();
        let inner = MemberEdits {
            omit: omit.into_iter().map(Into::into).collect(),
            rename: boxed(rename.unwrap_or_default()),
            add,
        };
        Ok(Self { inner })
    }
}

fn boxed(pairs: Vec<(String, String)>) -> Vec<(Box<str>, Box<str>)> {
    let pairs = pairs.into_iter();
    pairs
        .map(|(key, value)| (key.into(), value.into()))
        .collect()
}

fn unknown(name: &str, value: &str) -> PyErr {
    PyValueError::new_err(format!("{name} cannot be '{value}'"))
}

/// The protocols that an upstream serves, by their names.
fn served(names: Vec<String>) -> PyResult<Serves> {
    let apis: Option<Vec<Api>> = names.iter().map(|name| Api::named(name)).collect();
    apis.and_then(Serves::new)
        .ok_or_else(|| unknown("serves", &names.join(", ")))
}

#[pyclass(name = "Upstream", module = "sluicegate._core", frozen)]
pub(crate) struct PyUpstream {
    inner: Arc<Upstream>,
}

#[pymethods]
impl PyUpstream {
    #[new]
    #[pyo3(signature = (
        name, base_url, *, paths=None, stream_paths=None, query="", headers=None, api_key=None, key_header=None,
        serves=None, chat=None, responses=None, messages=None, edits=None, repair=false, harmony=false, deadlines=None, dialect=None, ask_usage=true, streaming="auto",
        forward_authorization=false, forward_headers=None, reply_headers=None, http2=false, socket=None, ca_file=None,
        client_certificate=None, pool_idle_seconds=4.0, pool_max_idle=256,
    ))]
    #[allow(clippy::too_many_arguments)] // Keyword arguments on the Python side, a settings struct on this one.
    fn new(
        py: Python<'_>,
        name: &str,
        base_url: String,
        paths: Option<Vec<(String, String)>>,
        stream_paths: Option<Vec<(String, String)>>,
        query: &str,
        headers: Option<PyHeaders>,
        api_key: Option<PyBackedBytes>,
        key_header: Option<String>,
        serves: Option<Vec<String>>,
        chat: Option<&PyChatTarget>,
        responses: Option<&PyResponsesTarget>,
        messages: Option<&PyMessagesTarget>,
        edits: Option<Vec<(String, PyRef<'_, PyMemberEdits>)>>,
        repair: bool,
        harmony: bool,
        deadlines: Option<&PyDeadlines>,
        dialect: Option<&str>,
        ask_usage: bool,
        streaming: &str,
        forward_authorization: bool,
        forward_headers: Option<Vec<String>>,
        reply_headers: Option<Vec<String>>,
        http2: bool,
        socket: Option<String>,
        ca_file: Option<String>,
        client_certificate: Option<(String, String)>,
        pool_idle_seconds: f64,
        pool_max_idle: usize,
    ) -> PyResult<Self> {
        let dialect = dialect_named(dialect)?;
        let edits = edits.unwrap_or_default().into_iter().map(|(api, edits)| {
            let api = Api::named(&api).ok_or_else(|| unknown("edits", &api))?;
            Ok((api, edits.inner.clone()))
        });
        let settings = UpstreamSettings {
            base_url,
            paths: Paths {
                paths: boxed(paths.unwrap_or_default()),
                stream_paths: boxed(stream_paths.unwrap_or_default()),
                query: query.into(),
            },
            headers: headers.map(header_list).unwrap_or_default(),
            key: api_key.map(|key| Bytes::copy_from_slice(&key)),
            key_header,
            serves: serves.map(served).transpose()?.unwrap_or_default(),
            targets: Targets {
                chat: chat.map(|chat| chat.inner.clone()).unwrap_or_default(),
                responses: responses
                    .map(|responses| responses.inner.clone())
                    .unwrap_or_default(),
                messages: messages
                    .map(|messages| messages.inner.clone())
                    .unwrap_or_default(),
            },
            edits: edits.collect::<PyResult<_>>()?,
            repair,
            harmony,
            deadlines: deadlines
                .map(|deadlines| deadlines.inner)
                .unwrap_or_default(),
            dialect,
            ask_usage,
            streaming: Streaming::from_str(streaming).map_err(|()| {
                PyValueError::new_err(format!(
                    "streaming is auto, always or never, not '{streaming}'"
                ))
            })?,
            forward_authorization,
            forward_headers: forward_headers.unwrap_or_default(),
            reply_headers: reply_headers.unwrap_or_default(),
            http2,
            socket,
            ca_file,
            client_certificate,
            pool_idle: seconds("pool_idle_seconds", Some(pool_idle_seconds))?.unwrap_or_default(),
            pool_max_idle,
        };
        let inner =
            Upstream::new(name, settings).map_err(|error| errors::upstream_error(py, &error))?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.inner.name
    }
}

#[pyclass(name = "Route", module = "sluicegate._core", frozen)]
pub(crate) struct PyRoute {
    pub(crate) inner: Route,
    upstream: Py<PyUpstream>,
}

#[pymethods]
impl PyRoute {
    #[new]
    #[pyo3(signature = (upstream, model, *, reply_model=None, drain=false))]
    fn new(upstream: Py<PyUpstream>, model: &str, reply_model: Option<&str>, drain: bool) -> Self {
        let inner = Route {
            upstream: Arc::clone(&upstream.get().inner),
            model: model.into(),
            reply_model: reply_model.map(Into::into),
            drain,
        };
        Self { inner, upstream }
    }

    #[getter]
    fn upstream(&self, py: Python<'_>) -> Py<PyUpstream> {
        self.upstream.clone_ref(py)
    }

    #[getter]
    fn model(&self) -> &str {
        &self.inner.model
    }
}
