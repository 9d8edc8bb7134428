//! The core's machines for use from Python without the gateway. Each is guarded by a lock, so that threads may share one, and lets the
//! GIL go for inputs that take longer than that costs.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyList};
use sluicegate_core::chat::fold::fold_chat as fold;
use sluicegate_core::chat::unfold::{Unfold, unfold_chat as unfold};
use sluicegate_core::error::Error;
use sluicegate_core::limits::Limits;
use sluicegate_core::meter::UsageMeter;
use sluicegate_core::pipeline::{Api, Pipeline, Pricer, ReplyPlan};
use sluicegate_core::sse::event::{Interpreter, RawEvent};
use sluicegate_core::sse::splitter::{Batch, Splitter};
use sluicegate_core::usage::Usage;

use crate::errors;
use crate::upstream::dialect_named;
use crate::usage::PyUsage;

/// Inputs from this size on are worked on without the GIL, in bytes: letting it go and taking it again costs about what the splitter
/// needs for a few KiB.
const DETACH_FROM: usize = 32 * 1024;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A machine that panicked would be in an unknown state; the core does not, and says so by its lints.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Run `work`, without the GIL where `size` bytes are worth it.
fn run<T: Send>(
    py: Python<'_>,
    size: usize,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> PyResult<T> {
    let done = if size >= DETACH_FROM {
        py.detach(work)
    } else {
        work()
    };
    done.map_err(|error| errors::parse_error(py, &error))
}

fn limits(max_event_bytes: Option<usize>) -> Limits {
    let default = Limits::default();
    Limits {
        max_event: max_event_bytes.unwrap_or(default.max_event),
        ..default
    }
}

fn joined<'py>(py: Python<'py>, frames: &[Bytes]) -> PyResult<Bound<'py, PyBytes>> {
    match frames {
        [] => Ok(PyBytes::new(py, b"")),
        [frame] => Ok(PyBytes::new(py, frame)),
        frames => PyBytes::new_with(py, frames.iter().map(Bytes::len).sum(), |mut room| {
            for frame in frames {
                let (here, rest) = room.split_at_mut(frame.len());
                here.copy_from_slice(frame);
                room = rest;
            }
            Ok(())
        }),
    }
}

/// Splits an event stream into raw events.
#[pyclass(name = "SSESplitter", module = "sluicegate", frozen)]
pub(crate) struct PySplitter {
    inner: Mutex<(Splitter, Batch)>,
}

#[pymethods]
impl PySplitter {
    #[new]
    #[pyo3(signature = (*, max_event_bytes=None))]
    fn new(max_event_bytes: Option<usize>) -> Self {
        let splitter = Splitter::new(&limits(max_event_bytes));
        Self {
            inner: Mutex::new((splitter, Batch::default())),
        }
    }

    fn feed<'py>(&self, py: Python<'py>, data: PyBackedBytes) -> PyResult<Bound<'py, PyList>> {
        let size = data.len();
        let events = PyList::empty(py);
        let batch = run(py, size, || {
            let (splitter, batch) = &mut *lock(&self.inner);
            splitter.feed(Bytes::from_owner(data), batch)?;
            Ok(std::mem::take(batch))
        })?;
        for event in batch.events() {
            events.append(PyBytes::new(py, event.bytes()))?;
        }
        Ok(events)
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let tail = lock(&self.inner).0.finish();
        let tail = tail.map(|tail| [tail.rest, Bytes::from_static(tail.terminator)]);
        joined(py, tail.as_ref().map_or(&[], |parts| parts))
    }
}

/// One decoded event.
#[pyclass(name = "ServerSentEvent", module = "sluicegate", frozen, get_all)]
pub(crate) struct PyEvent {
    event: String,
    data: String,
    id: String,
}

#[pymethods]
impl PyEvent {
    fn __repr__(&self) -> String {
        format!(
            "ServerSentEvent(event={:?}, data={:?}, id={:?})",
            self.event, self.data, self.id
        )
    }
}

/// Decodes an event stream.
#[pyclass(name = "SSEDecoder", module = "sluicegate", frozen)]
pub(crate) struct PyDecoder {
    inner: Mutex<(Splitter, Batch, Interpreter)>,
}

fn decode(interpreter: &mut Interpreter, raw: &RawEvent<'_>) -> Option<PyEvent> {
    let event = interpreter.dispatch(raw)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(PyEvent {
        event: text(event.name),
        data: text(&event.data),
        id: text(event.id),
    })
}

#[pymethods]
impl PyDecoder {
    #[new]
    #[pyo3(signature = (*, max_event_bytes=None))]
    fn new(max_event_bytes: Option<usize>) -> Self {
        let splitter = Splitter::new(&limits(max_event_bytes));
        Self {
            inner: Mutex::new((splitter, Batch::default(), Interpreter::default())),
        }
    }

    fn feed(&self, py: Python<'_>, data: PyBackedBytes) -> PyResult<Vec<PyEvent>> {
        run(py, data.len(), || {
            let (splitter, batch, interpreter) = &mut *lock(&self.inner);
            splitter.feed(Bytes::from_owner(data), batch)?;
            Ok(batch
                .events()
                .filter_map(|raw| decode(interpreter, &raw))
                .collect())
        })
    }

    fn finish(&self) -> Option<PyEvent> {
        let (splitter, _, interpreter) = &mut *lock(&self.inner);
        let tail = splitter.finish()?;
        let event = [&tail.rest[..], tail.terminator].concat();
        decode(interpreter, &RawEvent::parse(&event))
    }
}

/// Counts the tokens of a reply.
#[pyclass(name = "UsageMeter", module = "sluicegate", frozen)]
pub(crate) struct PyMeter {
    inner: Mutex<UsageMeter>,
}

#[pymethods]
impl PyMeter {
    #[new]
    #[pyo3(signature = (dialect=None, *, max_event_bytes=None))]
    fn new(dialect: Option<&str>, max_event_bytes: Option<usize>) -> PyResult<Self> {
        let meter = UsageMeter::new(dialect_named(dialect)?, limits(max_event_bytes));
        Ok(Self {
            inner: Mutex::new(meter),
        })
    }

    fn feed(&self, py: Python<'_>, data: PyBackedBytes) -> PyResult<()> {
        run(py, data.len(), || {
            lock(&self.inner).feed(Bytes::from_owner(data))
        })
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        run(py, 0, || lock(&self.inner).finish())
    }

    #[getter]
    fn usage(&self) -> Option<PyUsage> {
        lock(&self.inner)
            .usage()
            .cloned()
            .map(|inner| PyUsage { inner })
    }
}

/// Asks a callable, and keeps the first exception it raises.
struct Price<'a, 'py>(&'a Option<Py<PyAny>>, Python<'py>, Option<PyErr>);

impl Pricer for Price<'_, '_> {
    fn price(&mut self, usage: &Usage) -> Option<Bytes> {
        let callable = self.0.as_ref()?;
        let usage = PyUsage {
            inner: usage.clone(),
        };
        let members = callable
            .bind(self.1)
            .call1((usage,))
            .and_then(|members| Ok(members.extract::<Option<PyBackedBytes>>()?));
        match members {
            Ok(members) => members.map(Bytes::from_owner),
            Err(error) => {
                self.2.get_or_insert(error);
                None
            }
        }
    }
}

/// What waits for the next read, and the room for frames.
type Machine = (Pipeline, Vec<Bytes>);

/// A reply's whole way through the core, as the gateway takes it.
#[pyclass(name = "Pipeline", module = "sluicegate._core", frozen)]
pub(crate) struct PyPipeline {
    inner: Mutex<Machine>,
    price: Option<Py<PyAny>>,
}

impl PyPipeline {
    /// The price may run any Python while this is held, other threads' among it: whoever waits must let the GIL go.
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Machine> {
        self.inner
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyPipeline {
    #[new]
    #[pyo3(signature = (api="chat", *, streams=true, hide_usage_chunk=false, include_usage=true, dialect=None, price=None))]
    fn new(
        api: &str,
        streams: bool,
        hide_usage_chunk: bool,
        include_usage: bool,
        dialect: Option<&str>,
        price: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let api = match api {
            "chat" => Api::Chat,
            "completions" => Api::Completions,
            "embeddings" => Api::Embeddings,
            "responses" => Api::Responses,
            "messages" => Api::Messages,
            _ => return Err(PyValueError::new_err(format!("unknown API '{api}'"))),
        };
        let plan = ReplyPlan {
            hide_usage_chunk,
            include_usage,
            dialect: dialect_named(dialect)?,
            ..ReplyPlan::new(api, streams)
        };
        Ok(Self {
            inner: Mutex::new((Pipeline::new(plan), Vec::new())),
            price,
        })
    }

    fn feed<'py>(
        &self,
        py: Python<'py>,
        data: Bound<'py, PyBytes>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let input = Bytes::from_owner(PyBackedBytes::from(data.clone()));
        let (pipeline, frames) = &mut *self.lock(py);
        frames.clear();
        let mut price = Price(&self.price, py, None);
        let fed = pipeline.feed(input, &mut price, frames);
        if let Some(error) = price.2 {
            return Err(error);
        }
        fed.map_err(|error| errors::parse_error(py, &error))?;
        match frames.as_slice() {
            [frame] if frame.len() == data.as_bytes().len() => Ok(data),
            frames => joined(py, frames),
        }
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let (pipeline, frames) = &mut *self.lock(py);
        frames.clear();
        let mut price = Price(&self.price, py, None);
        let finished = pipeline.finish(&mut price, frames);
        if let Some(error) = price.2 {
            return Err(error);
        }
        finished.map_err(|error| errors::parse_error(py, &error))?;
        joined(py, frames)
    }

    #[getter]
    fn usage(&self, py: Python<'_>) -> Option<PyUsage> {
        self.lock(py)
            .0
            .facts()
            .usage
            .clone()
            .map(|inner| PyUsage { inner })
    }

    #[getter]
    fn truncated(&self, py: Python<'_>) -> bool {
        self.lock(py).0.facts().truncated
    }
}

/// The chunks of a streamed chat completion, folded into one `chat.completion`.
#[pyfunction]
pub(crate) fn fold_chat<'py>(
    py: Python<'py>,
    stream: PyBackedBytes,
) -> PyResult<Bound<'py, PyBytes>> {
    let folded = run(py, stream.len(), || fold(&stream, Limits::default()))?;
    Ok(PyBytes::new(py, &folded))
}

/// A `chat.completion` as a stream.
#[pyfunction]
#[pyo3(signature = (completion, *, include_usage))]
pub(crate) fn unfold_chat<'py>(
    py: Python<'py>,
    completion: PyBackedBytes,
    include_usage: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let options = Unfold { include_usage };
    let stream = run(py, completion.len(), || {
        unfold(&completion, options, Limits::default())
    })?;
    Ok(PyBytes::new(py, &stream))
}
