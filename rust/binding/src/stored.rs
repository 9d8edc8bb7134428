//! Stored responses: their events and items, bytes in and bytes out.

use std::collections::BTreeMap;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyBytes;
use sluicegate_core::error::Error;
use sluicegate_core::json::node::Node;
use sluicegate_core::limits::Limits;
use sluicegate_core::output::Failure as Reason;
use sluicegate_core::protocols::responses::beginning;
use sluicegate_core::protocols::responses::closing::End;
use sluicegate_core::protocols::responses::conversation::{Page, Turn, Whole, page, repeated};
use sluicegate_core::protocols::responses::fold::Fold;
use sluicegate_core::protocols::responses::numbering::{Broken, Numbering, Reported};
use sluicegate_core::protocols::responses::unfolding::unfold;
use sluicegate_core::sse::event::Events;

use crate::errors;
use crate::library::{Failure, Shared, limits, now};
use crate::responses_request::PyResponsesRequest;

/// Inputs from this size on are worked on without the GIL, in bytes: neither the event loop nor the deciding thread
/// must wait for whoever comes here.
const DETACH_FROM: usize = 64 << 10;

/// Does `work`, without the GIL where `size` bytes are worth it.
pub(crate) fn run<T: Send>(py: Python<'_>, size: usize, work: impl FnOnce() -> T + Send) -> T {
    if size > DETACH_FROM {
        py.detach(work)
    } else {
        work()
    }
}

fn parse_error(py: Python<'_>) -> impl Fn(Error) -> PyErr {
    move |error| errors::parse_error(py, &error)
}

struct Machine {
    numbering: Numbering,
    failure: Failure,
    /// Bytes since something last came out: an event that is not whole is read all at once when it is.
    unread: usize,
}

/// A reply's bytes → its events as they are kept.
#[pyclass(name = "ResponseNumbering", module = "sluicegate._core", frozen)]
pub(crate) struct PyResponseNumbering(Shared<Machine, DETACH_FROM>);

#[pymethods]
impl PyResponseNumbering {
    #[new]
    #[pyo3(signature = (following, own, *, max_event_bytes=None))]
    fn new(
        py: Python<'_>,
        following: u64,
        own: Option<&[u8]>,
        max_event_bytes: Option<usize>,
    ) -> Self {
        let numbering = run(py, own.map_or(0, <[u8]>::len), || {
            Numbering::new(following, own, &limits(max_event_bytes))
        });
        PyResponseNumbering(Shared::new(Machine {
            numbering,
            failure: Failure::default(),
            unread: 0,
        }))
    }

    fn feed<'py>(&self, py: Python<'py>, data: PyBackedBytes) -> PyResult<Bound<'py, PyBytes>> {
        let size = data.len();
        let now = now();
        let events = self.0.with(py, self.unread(py) + size, |machine| {
            machine.failure.check()?;
            machine.unread += size;
            let mut out = Vec::with_capacity(size + size / 8);
            let fed = machine
                .numbering
                .feed(Bytes::from_owner(data), now, &mut out);
            if !out.is_empty() {
                machine.unread = 0;
            }
            machine.failure.note(fed, !out.is_empty())?;
            Ok(out)
        });
        Ok(PyBytes::new(py, &events.map_err(parse_error(py))?))
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let now = now();
        let events = self.0.with(py, self.unread(py), |machine| {
            machine.failure.check()?;
            let mut out = Vec::new();
            machine.numbering.finish(now, &mut out);
            Ok(out)
        });
        Ok(PyBytes::new(py, &events.map_err(parse_error(py))?))
    }

    #[getter]
    fn following(&self, py: Python<'_>) -> u64 {
        self.0.with(py, 0, |machine| machine.numbering.following())
    }

    #[getter]
    fn ending<'py>(&self, py: Python<'py>) -> Option<(&'static str, Bound<'py, PyBytes>)> {
        let ending = self
            .0
            .with(py, 0, |machine| machine.numbering.ending().cloned())?;
        Some((ending.status, PyBytes::new(py, &ending.response)))
    }

    #[getter]
    fn has_ended(&self, py: Python<'_>) -> bool {
        self.0
            .with(py, 0, |machine| machine.numbering.ending().is_some())
    }

    #[getter]
    fn error(&self, py: Python<'_>) -> Option<String> {
        self.0.with(py, 0, |machine| {
            let numbering = &machine.numbering;
            match numbering.broken() {
                Some(Broken::Unclosed(reported)) => Some(reported.message.clone()),
                Some(Broken::Malformed(said)) => Some(said.clone()),
                None => numbering.error().map(|error| error.message.clone()),
            }
        })
    }

    #[getter]
    fn error_code(&self, py: Python<'_>) -> Option<String> {
        self.0.with(py, 0, |machine| {
            let numbering = &machine.numbering;
            let reported = match numbering.broken() {
                Some(Broken::Unclosed(reported)) => Some(reported),
                Some(Broken::Malformed(_)) => None,
                None => numbering.error(),
            };
            reported.map(|error| error.code.clone())
        })
    }

    #[getter]
    fn malformed(&self, py: Python<'_>) -> bool {
        self.0.with(py, 0, |machine| {
            matches!(machine.numbering.broken(), Some(Broken::Malformed(_)))
        })
    }
}

impl PyResponseNumbering {
    fn unread(&self, py: Python<'_>) -> usize {
        self.0.with(py, 0, |machine| machine.unread)
    }
}

/// A response as its events tell it.
#[pyclass(name = "ResponseFold", module = "sluicegate._core", frozen)]
pub(crate) struct PyResponseFold(Shared<Fold, DETACH_FROM>);

#[pymethods]
impl PyResponseFold {
    #[new]
    fn new(py: Python<'_>, response: &[u8], max_bytes: usize) -> Self {
        let limits = Limits {
            max_document: max_bytes,
            ..Limits::default()
        };
        let fold = run(py, response.len(), || Fold::of(response, &limits));
        PyResponseFold(Shared::new(fold))
    }

    #[getter]
    fn following(&self, py: Python<'_>) -> u64 {
        self.0.with(py, 0, |fold| fold.following())
    }

    #[getter]
    fn held(&self, py: Python<'_>) -> usize {
        self.0.with(py, 0, |fold| fold.held())
    }

    fn take(&self, py: Python<'_>, events: PyBackedBytes) {
        self.0.with(py, events.len(), |fold| fold.take(&events));
    }

    fn response<'py>(&self, py: Python<'py>, status: &str) -> Bound<'py, PyBytes> {
        let size = self.held(py);
        let shown = self.0.with(py, size, |fold| fold.response(Some(status)));
        PyBytes::new(py, &shown)
    }

    #[pyo3(signature = (error=None))]
    fn end<'py>(
        &self,
        py: Python<'py>,
        error: Option<(String, String)>,
    ) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>, u64) {
        let size = self.held(py);
        let (events, response, following) = self.0.with(py, size, |fold| {
            let end = match &error {
                Some((code, message)) => End::Failed {
                    failure: Reason {
                        message,
                        code: Some(code),
                        kind: None,
                    },
                    told: false,
                },
                None => End::Cancelled,
            };
            let mut events = Vec::new();
            let (response, following) = fold.end(end, fold.following(), None, &mut events);
            (events, response, following)
        });
        let bytes = |text: &[u8]| PyBytes::new(py, text);
        (bytes(&events), bytes(&response), following)
    }
}

/// The events of a response that came whole.
#[pyfunction]
pub(crate) fn unfold_response<'py>(
    py: Python<'py>,
    response: PyBackedBytes,
) -> PyResult<Bound<'py, PyBytes>> {
    let events = run(py, response.len(), || unfold(&response, &Limits::default()));
    Ok(PyBytes::new(py, &events.map_err(parse_error(py))?))
}

/// Whole events without the first `count`.
#[pyfunction]
pub(crate) fn skip_events<'py>(
    py: Python<'py>,
    events: PyBackedBytes,
    count: usize,
) -> Bound<'py, PyBytes> {
    let start = run(py, events.len(), || {
        let last = count
            .checked_sub(1)
            .map(|last| Events::new(&events).nth(last).map(|it| it.range().end));
        match last {
            None => 0,
            Some(end) => end.unwrap_or(events.len()),
        }
    });
    PyBytes::new(py, events.get(start..).unwrap_or_default())
}

/// The object of a background response that has just been taken on.
#[pyfunction]
pub(crate) fn queued_response<'py>(
    py: Python<'py>,
    request: &PyResponsesRequest,
    id: &str,
    created_at: u64,
    model: &str,
) -> Bound<'py, PyBytes> {
    let inner = &request.inner;
    let object = run(py, inner.body().len(), || {
        beginning::queued(inner, id, created_at, model)
    });
    PyBytes::new(py, &object)
}

/// Its first two events.
#[pyfunction]
pub(crate) fn first_events<'py>(py: Python<'py>, response: PyBackedBytes) -> Bound<'py, PyBytes> {
    let events = run(py, response.len(), || beginning::first_events(&response));
    PyBytes::new(py, &events)
}

/// The event that says that it is being worked on.
#[pyfunction]
pub(crate) fn in_progress_event<'py>(
    py: Python<'py>,
    response: PyBackedBytes,
    number: u64,
) -> Bound<'py, PyBytes> {
    let event = run(py, response.len(), || {
        beginning::in_progress(&response, number)
    });
    PyBytes::new(py, &event)
}

/// What an error body says.
#[pyfunction]
pub(crate) fn error_message(body: &[u8]) -> Option<String> {
    let document = Node::document(body)?;
    document.members().next()?;
    Some(Reported::of(Some(document)).message)
}

/// The id and the status of a Response object that has ended.
#[pyfunction]
pub(crate) fn read_response(
    py: Python<'_>,
    response: PyBackedBytes,
) -> Option<(String, &'static str)> {
    let whole = run(py, response.len(), || Whole::read(&response))?;
    Some((whole.id, whole.status))
}

type PyTurn = (String, PyBackedBytes, PyBackedBytes);

fn turns(given: &[PyTurn]) -> (Vec<Turn<'_>>, usize) {
    let turns: Vec<_> = given
        .iter()
        .map(|(id, request, response)| Turn {
            id,
            request,
            response,
        })
        .collect();
    let size = |turn: &Turn<'_>| turn.request.len() + turn.response.len();
    let size = turns.iter().map(size).sum();
    (turns, size)
}

/// The ids of the items of a turn.
#[pyfunction]
pub(crate) fn item_ids(py: Python<'_>, turn: PyTurn) -> Vec<String> {
    let given = [turn];
    let (turns, size) = turns(&given);
    run(py, size, || turns.iter().flat_map(Turn::ids).collect())
}

/// Items of a turn, as they are listed.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // Extracted from Python objects.
pub(crate) fn find_items<'py>(
    py: Python<'py>,
    turn: PyTurn,
    ids: Vec<PyBackedStr>,
) -> BTreeMap<String, Bound<'py, PyBytes>> {
    let given = [turn];
    let (turns, size) = turns(&given);
    let ids: Vec<&str> = ids.iter().map(|id| &**id).collect();
    let found = run(py, size, || {
        turns.iter().map(|turn| turn.find(&ids)).collect::<Vec<_>>()
    });
    let of_python = |(id, item): (String, Vec<u8>)| (id, PyBytes::new(py, &item));
    found.into_iter().flatten().map(of_python).collect()
}

/// The items of a conversation as they are sent to an upstream.
#[pyfunction]
pub(crate) fn repeated_items<'py>(
    py: Python<'py>,
    conversation: Vec<PyTurn>,
) -> Bound<'py, PyBytes> {
    let (turns, size) = turns(&conversation);
    let items = run(py, size, || repeated(&turns));
    PyBytes::new(py, &items)
}

/// A page of the items of a conversation.
#[pyfunction]
pub(crate) fn list_items<'py>(
    py: Python<'py>,
    conversation: Vec<PyTurn>,
    ascending: bool,
    after: Option<&str>,
    limit: usize,
) -> Option<Bound<'py, PyBytes>> {
    let (turns, size) = turns(&conversation);
    let asked = Page {
        ascending,
        after,
        limit,
    };
    let found = run(py, size, || page(&turns, &asked))?;
    Some(PyBytes::new(py, &found))
}

/// Items by their ids, as Python gives them.
pub(crate) fn by_id(items: BTreeMap<String, PyBackedBytes>) -> BTreeMap<String, Bytes> {
    let owned = |(id, item)| (id, Bytes::from_owner::<PyBackedBytes>(item));
    items.into_iter().map(owned).collect()
}
