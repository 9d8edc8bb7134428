//! The core's parsers and converters, for use from Python without the gateway.

mod chat_to_responses;
mod decoder;
mod harmony;
mod meter;
mod pipeline;
mod responses_to_chat;
mod splitter;
mod translation;

pub(crate) use chat_to_responses::PyChatToResponses;
pub(crate) use decoder::{PyDecoder, PyEvent};
pub(crate) use harmony::PyHarmonyDecoder;
pub(crate) use meter::PyMeter;
pub(crate) use pipeline::PyPipeline;
pub(crate) use responses_to_chat::PyResponsesToChat;
pub(crate) use splitter::PySplitter;

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::MutexExt;
use pyo3::types::PyBytes;
use sluicegate_core::error::Error;
use sluicegate_core::limits::Limits;
use sluicegate_core::protocols::chat::fold::fold_chat as fold;
use sluicegate_core::protocols::chat::unfold::{Unfold, unfold_chat as unfold};

use crate::errors;

/// Inputs from this size on are worked on without the GIL, in bytes.
///
/// Another thread that is busy gives the GIL back only after the interpreter's switch interval, 5 ms. So letting it go
/// pays where the work takes a good part of that, and would make many times slower what takes microseconds, such as a
/// read from a socket.
const DETACH_FROM: usize = 1 << 20;

/// Does `work`, without the GIL where `size` bytes are worth it.
fn run<T: Send>(py: Python<'_>, size: usize, work: impl FnOnce() -> T + Send) -> T {
    if size >= DETACH_FROM {
        py.detach(work)
    } else {
        work()
    }
}

/// A machine that threads may share: one at a time is inside.
///
/// Inputs from `DETACH` bytes on are worked on without the GIL.
pub(crate) struct Shared<T, const DETACH: usize = DETACH_FROM>(Mutex<T>);

impl<T: Send, const DETACH: usize> Shared<T, DETACH> {
    pub(crate) fn new(machine: T) -> Self {
        Shared(Mutex::new(machine))
    }

    /// Lets `work` use the machine, on `size` bytes. Whoever waits for it does so without the GIL.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        size: usize,
        work: impl FnOnce(&mut T) -> R + Send,
    ) -> R {
        // After a panic its state would be unknown. The core does not panic: its lints forbid it.
        if size >= DETACH {
            py.detach(|| work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
        } else {
            let machine = self.0.lock_py_attached(py);
            work(&mut machine.unwrap_or_else(PoisonError::into_inner))
        }
    }
}

/// An error that ends a machine's life: from when it happened, each call gives it.
#[derive(Default)]
pub(crate) struct Failure(Option<Error>);

impl Failure {
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.0.map_or(Ok(()), Err)
    }

    /// Notes how a call ended. What it completed before the error is handed out first, so that it does not depend on
    /// how the stream was cut; the next call gives the error.
    pub(crate) fn note(&mut self, result: Result<(), Error>, completed: bool) -> Result<(), Error> {
        self.0 = result.err();
        if completed { Ok(()) } else { self.check() }
    }
}

pub(crate) fn limits(max_event_bytes: Option<usize>) -> Limits {
    let default = Limits::default();
    Limits {
        max_event: max_event_bytes.unwrap_or(default.max_event),
        ..default
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// An id that cannot be guessed.
fn random_id(py: Python<'_>, prefix: &str) -> PyResult<String> {
    let random = py.import("secrets")?.call_method1("token_hex", (16,))?;
    Ok(format!("{prefix}{}", random.extract::<String>()?))
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

/// The chunks of a streamed chat completion, folded into one `chat.completion`.
#[pyfunction]
pub(crate) fn fold_chat<'py>(
    py: Python<'py>,
    stream: PyBackedBytes,
) -> PyResult<Bound<'py, PyBytes>> {
    let folded = run(py, stream.len(), || fold(&stream, Limits::default()))
        .map_err(|error| errors::parse_error(py, &error))?;
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
    })
    .map_err(|error| errors::parse_error(py, &error))?;
    Ok(PyBytes::new(py, &stream))
}
