//! `Pipeline`: a reply's whole way through the core.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sluicegate_core::api::Api;
use sluicegate_core::cost::Members;
use sluicegate_core::error::Error;
use sluicegate_core::pipeline::{Pipeline, Pricer, ReplyPlan};
use sluicegate_core::protocols::{ClientProtocol, UsageChunk};
use sluicegate_core::usage::Usage;

use super::{Failure, Shared, joined};
use crate::errors;
use crate::upstream::dialect_named;
use crate::usage::PyUsage;

/// Where the members come from that are added to a usage object.
enum Price {
    Nothing,
    /// The same for any usage.
    Members(Members),
    Callable(Py<PyAny>),
}

/// The thread that is asking the callable now, which must not come back for the machine it holds; 0: none.
#[derive(Default)]
struct Asker(AtomicUsize);

impl Asker {
    /// A number that no other living thread has, for less than the standard library's costs: the callable may be asked
    /// once an event.
    fn this_thread() -> usize {
        thread_local!(static PLACE: u8 = const { 0 });
        PLACE.with(|place| std::ptr::from_ref(place).addr())
    }

    // A thread only ever looks for its own number, which it has stored itself.
    fn asks<T>(&self, ask: impl FnOnce() -> T) -> T {
        self.0.store(Self::this_thread(), Ordering::Relaxed);
        let answer = ask();
        self.0.store(0, Ordering::Relaxed);
        answer
    }

    fn is_this_thread(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::this_thread()
    }
}

struct Asking<'a> {
    price: &'a Price,
    asker: &'a Asker,
    /// The first exception. Nothing more is asked after it.
    raised: Option<PyErr>,
}

impl Asking<'_> {
    fn ask(&self, callable: &Py<PyAny>, usage: &Usage) -> PyResult<Option<Members>> {
        Python::attach(|py| {
            let usage = PyUsage {
                inner: usage.clone(),
            };
            let members = self.asker.asks(|| callable.bind(py).call1((usage,)))?;
            let members: Option<PyBackedBytes> = members.extract()?;
            Ok(members.map(Bytes::from_owner).and_then(Members::parse))
        })
    }
}

impl Pricer for Asking<'_> {
    fn price(&mut self, usage: &Usage) -> Option<Members> {
        match self.price {
            Price::Nothing => None,
            Price::Members(members) => Some(members.clone()),
            Price::Callable(_) if self.raised.is_some() => None,
            Price::Callable(callable) => self.ask(callable, usage).unwrap_or_else(|error| {
                self.raised = Some(error);
                None
            }),
        }
    }
}

struct Machine {
    pipeline: Pipeline,
    /// What `price` kept from being handed out by raising.
    kept: Vec<Bytes>,
    failure: Failure,
}

enum Stopped {
    Failed(Error),
    Raised(PyErr),
}

/// A reply's whole way through the core, as the gateway takes it.
#[pyclass(name = "Pipeline", module = "sluicegate._core", frozen)]
pub(crate) struct PyPipeline {
    machine: Shared<Machine>,
    price: Price,
    asker: Asker,
}

impl PyPipeline {
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        size: usize,
        work: impl FnOnce(&mut Machine) -> R + Send,
    ) -> PyResult<R> {
        if self.asker.is_this_thread() {
            return Err(PyRuntimeError::new_err(
                "a pipeline cannot be used by its own price",
            ));
        }
        Ok(self.machine.with(py, size, work))
    }

    fn frames(
        &self,
        py: Python<'_>,
        size: usize,
        call: impl FnOnce(&mut Pipeline, &mut Asking<'_>, &mut Vec<Bytes>) -> Result<(), Error> + Send,
    ) -> PyResult<Vec<Bytes>> {
        // A callable would have to wait for the GIL each time it is asked, were it let go.
        let size = match self.price {
            Price::Callable(_) => 0,
            _ => size,
        };
        let done = self.with(py, size, |machine| {
            machine.failure.check().map_err(Stopped::Failed)?;
            let mut asking = Asking {
                price: &self.price,
                asker: &self.asker,
                raised: None,
            };
            let mut frames = std::mem::take(&mut machine.kept);
            let result = call(&mut machine.pipeline, &mut asking, &mut frames);
            let noted = machine.failure.note(result, !frames.is_empty());
            if let Some(error) = asking.raised {
                machine.kept = frames;
                return Err(Stopped::Raised(error));
            }
            noted.map_err(Stopped::Failed)?;
            Ok(frames)
        })?;
        done.map_err(|stopped| match stopped {
            Stopped::Failed(error) => errors::parse_error(py, &error),
            Stopped::Raised(error) => error,
        })
    }
}

#[pymethods]
impl PyPipeline {
    #[new]
    #[pyo3(signature = (
        api="chat", *, streams=true, hide_usage_chunk=false, include_usage=true, dialect=None, price=None
    ))]
    fn new(
        api: &str,
        streams: bool,
        hide_usage_chunk: bool,
        include_usage: bool,
        dialect: Option<&str>,
        price: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let api =
            Api::named(api).ok_or_else(|| PyValueError::new_err(format!("unknown API '{api}'")))?;
        let mut plan = ReplyPlan::new(api, streams);
        plan.upstream.dialect = dialect_named(dialect)?;
        if let ClientProtocol::Chat(usage) | ClientProtocol::Completions(usage) =
            &mut plan.client.protocol
        {
            *usage = UsageChunk {
                include: include_usage,
                hide: hide_usage_chunk,
            };
        }
        let price = match price {
            None => Price::Nothing,
            Some(price) => match price.extract::<PyBackedBytes>() {
                Ok(members) => Members::parse(Bytes::from_owner(members))
                    .map(Price::Members)
                    .ok_or_else(|| PyValueError::new_err("the price is not JSON members"))?,
                Err(_) => Price::Callable(price.unbind()),
            },
        };
        Ok(Self {
            machine: Shared::new(Machine {
                pipeline: Pipeline::new(plan),
                kept: Vec::new(),
                failure: Failure::default(),
            }),
            price,
            asker: Asker::default(),
        })
    }

    fn feed<'py>(
        &self,
        py: Python<'py>,
        data: Bound<'py, PyBytes>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let input = Bytes::from_owner(PyBackedBytes::from(data.clone()));
        let frames = self.frames(py, input.len(), |pipeline, asking, frames| {
            pipeline.feed(input, asking, frames)
        })?;
        match frames.as_slice() {
            // Nothing changed: it is the very object.
            [frame] if std::ptr::eq(&**frame, data.as_bytes()) => Ok(data),
            frames => joined(py, frames),
        }
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let frames = self.frames(py, 0, |pipeline, asking, frames| {
            pipeline.finish(asking, frames)
        })?;
        joined(py, &frames)
    }

    #[getter]
    fn usage(&self, py: Python<'_>) -> PyResult<Option<PyUsage>> {
        let usage = self.with(py, 0, |machine| machine.pipeline.facts().usage.clone())?;
        Ok(usage.map(|inner| PyUsage { inner }))
    }

    #[getter]
    fn truncated(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, 0, |machine| machine.pipeline.facts().truncated)
    }
}
