//! `SSESplitter`: raw events.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};
use sluicegate_core::error::Error;
use sluicegate_core::sse::event::Events;
use sluicegate_core::sse::splitter::{Batch, Splitter};

use super::{Failure, Shared, joined, limits};
use crate::errors;

struct Machine {
    splitter: Splitter,
    /// An event whose last byte so far is the CR of its blank line. It waits for the next byte, which may be the line
    /// feed of a CRLF: events would depend on the cuts otherwise.
    at_cr: Vec<u8>,
    failure: Failure,
}

/// What a read completed, in its order.
struct Completed {
    waited: Option<Bytes>,
    batch: Batch,
}

impl Machine {
    fn feed(&mut self, data: Bytes) -> Result<Completed, Error> {
        self.failure.check()?;
        let is_empty = data.is_empty();
        let (mut batch, fed) = self.splitter.feed(data);
        let mut waited = None;
        if !is_empty && !self.at_cr.is_empty() {
            self.at_cr.extend_from_slice(&batch.late_lf);
            waited = Some(std::mem::take(&mut self.at_cr).into());
        }
        if fed.is_ok() && self.splitter.held() == 0 {
            let last = match batch.whole.is_empty() {
                true => &mut batch.spanning,
                false => &mut batch.whole,
            };
            if last.ends_with(b"\r")
                && let Some(event) = Events::new(last).last()
            {
                self.at_cr = last.split_off(event.range().start).into();
            }
        }
        let is_nothing = waited.is_none() && batch.spanning.is_empty() && batch.whole.is_empty();
        self.failure.note(fed, !is_nothing)?;
        Ok(Completed { waited, batch })
    }

    fn finish(&mut self) -> Result<Vec<Bytes>, Error> {
        self.failure.check()?;
        let waited = std::mem::take(&mut self.at_cr);
        let tail = self.splitter.finish();
        Ok(tail.map_or_else(
            || vec![waited.into()],
            |tail| vec![tail.rest, Bytes::from_static(tail.terminator)],
        ))
    }
}

/// Splits an event stream into raw events.
#[pyclass(name = "SSESplitter", module = "sluicegate", frozen)]
pub(crate) struct PySplitter(Shared<Machine>);

#[pymethods]
impl PySplitter {
    #[new]
    #[pyo3(signature = (*, max_event_bytes=None))]
    fn new(max_event_bytes: Option<usize>) -> Self {
        PySplitter(Shared::new(Machine {
            splitter: Splitter::new(&limits(max_event_bytes)),
            at_cr: Vec::new(),
            failure: Failure::default(),
        }))
    }

    fn feed<'py>(&self, py: Python<'py>, data: PyBackedBytes) -> PyResult<Bound<'py, PyList>> {
        let size = data.len();
        let completed = self
            .0
            .with(py, size, |machine| machine.feed(Bytes::from_owner(data)))
            .map_err(|error| errors::parse_error(py, &error))?;
        let events = PyList::empty(py);
        if let Some(event) = &completed.waited {
            events.append(PyBytes::new(py, event))?;
        }
        for event in completed.batch.events() {
            events.append(PyBytes::new(py, event.bytes()))?;
        }
        Ok(events)
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let last = self
            .0
            .with(py, 0, Machine::finish)
            .map_err(|error| errors::parse_error(py, &error))?;
        joined(py, &last)
    }
}
