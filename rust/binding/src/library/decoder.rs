//! `SSEDecoder`: events as a browser would dispatch them.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use sluicegate_core::error::Error;
use sluicegate_core::sse::event::{Interpreter, RawEvent};
use sluicegate_core::sse::splitter::Splitter;

use super::{Failure, Shared, limits};
use crate::errors;

/// One decoded event.
#[pyclass(name = "ServerSentEvent", module = "sluicegate", frozen)]
pub(crate) struct PyEvent {
    event: Cow<'static, str>,
    data: String,
    id: Arc<str>,
}

#[pymethods]
impl PyEvent {
    #[getter]
    fn event(&self) -> &str {
        &self.event
    }

    #[getter]
    fn data(&self) -> &str {
        &self.data
    }

    #[getter]
    fn id(&self) -> &str {
        &self.id
    }

    fn __repr__(&self) -> String {
        format!(
            "ServerSentEvent(event={:?}, data={:?}, id={:?})",
            self.event, self.data, self.id
        )
    }
}

struct Machine {
    splitter: Splitter,
    reader: Reader,
    failure: Failure,
}

impl Machine {
    fn feed(&mut self, data: Bytes) -> Result<Vec<PyEvent>, Error> {
        self.failure.check()?;
        let (batch, fed) = self.splitter.feed(data);
        let events: Vec<_> = batch
            .events()
            .filter_map(|event| self.reader.decode(&event))
            .collect();
        self.failure.note(fed, !events.is_empty())?;
        Ok(events)
    }

    fn finish(&mut self) -> Result<Option<PyEvent>, Error> {
        self.failure.check()?;
        Ok(self
            .splitter
            .finish()
            .and_then(|tail| self.reader.decode(&RawEvent::parse(&tail.event()))))
    }
}

/// Bytes that are not UTF-8 are replaced, as the standard has it.
fn text(bytes: &[u8]) -> String {
    // This passes over ASCII word by word, where what replaces looks at each byte.
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Makes text of events.
#[derive(Default)]
struct Reader {
    interpreter: Interpreter,
    /// Shared by the events, since streams that set an id at all are few.
    id: Arc<str>,
}

impl Reader {
    fn decode(&mut self, raw: &RawEvent<'_>) -> Option<PyEvent> {
        let event = self.interpreter.dispatch(raw)?;
        if event.id != self.id.as_bytes() {
            self.id = text(event.id).into();
        }
        Some(PyEvent {
            event: match event.name {
                b"message" => Cow::Borrowed("message"),
                name => text(name).into(),
            },
            data: text(&event.data),
            id: Arc::clone(&self.id),
        })
    }
}

/// Decodes an event stream.
#[pyclass(name = "SSEDecoder", module = "sluicegate", frozen)]
pub(crate) struct PyDecoder(Shared<Machine>);

#[pymethods]
impl PyDecoder {
    #[new]
    #[pyo3(signature = (*, max_event_bytes=None))]
    fn new(max_event_bytes: Option<usize>) -> Self {
        PyDecoder(Shared::new(Machine {
            splitter: Splitter::new(&limits(max_event_bytes)),
            reader: Reader::default(),
            failure: Failure::default(),
        }))
    }

    fn feed(&self, py: Python<'_>, data: PyBackedBytes) -> PyResult<Vec<PyEvent>> {
        let size = data.len();
        self.0
            .with(py, size, |machine| machine.feed(Bytes::from_owner(data)))
            .map_err(|error| errors::parse_error(py, &error))
    }

    fn finish(&self, py: Python<'_>) -> PyResult<Option<PyEvent>> {
        self.0
            .with(py, 0, Machine::finish)
            .map_err(|error| errors::parse_error(py, &error))
    }
}
