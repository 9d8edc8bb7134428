//! `Journal`, `JournalEntry`, `JournalBatch`, `AbandonedSegment`: the journal of the ledger.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use sluicegate_core::pricing::{Cost, MOST_COST};
use sluicegate_core::usage::{MOST_TOKENS, Usage};
use sluicegate_journal::ledger::{self, LedgerRow};
use sluicegate_journal::{
    Abandoned, Attempt, Batch, Closing, Counts, Entry, Full, Journal, OnSync, Opening, Settings,
    Sync,
};
use sluicegate_relay::tally::Progress;
use sluicegate_relay::{FaultKind, Outcome, Route, Tally, Try};

use crate::decisions::PyArrived;
use crate::rows::{PyRows, record_of};
use crate::upstream::PyRoute;

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX - 1)
}

fn counts(usage: &Usage) -> Counts {
    Counts {
        input: usage.input_tokens,
        cached_input: usage.cached_input_tokens,
        cache_write: usage.cache_write_tokens,
        cache_write_1h: usage.cache_write_1h_tokens,
        output: usage.output_tokens,
        reasoning: usage.reasoning_tokens,
        input_audio: usage.input_audio_tokens,
        output_audio: usage.output_audio_tokens,
        input_image: usage.input_image_tokens,
        output_image: usage.output_image_tokens,
    }
}

// What is believed of an upstream is what the journal's files may say.
const _: () = assert!(MOST_TOKENS == ledger::MOST_TOKENS && MOST_COST == ledger::MOST_COST);

/// An entry as the relay sees it.
pub(crate) struct Account {
    entry: Entry,
    opened: Instant,
    is_accepted: bool,
    has_output: bool,
    /// What a price policy of the user's own says that it cost.
    charged: Option<[u64; 6]>,
}

impl Tally for Account {
    fn attempt(&mut self, route: &Route) {
        (self.has_output, self.is_accepted) = (false, false);
        self.entry.attempt(&route.upstream.name, &route.model);
    }

    fn accepted(&mut self) {
        if !std::mem::replace(&mut self.is_accepted, true) {
            self.entry.accepted();
        }
    }

    fn progress(&mut self, progress: Progress<'_>) {
        self.entry
            .progress(progress.token_events, progress.bytes_in);
        if progress.token_events > 0 && !self.has_output {
            self.has_output = true;
            self.entry.first_token(micros(self.opened.elapsed()));
        }
        if let Some(usage) = progress.usage {
            self.entry.usage(&counts(usage), progress.whole);
        }
    }

    fn charge(&mut self, costs: Option<[u64; 6]>) {
        self.charged = costs;
    }

    fn close(&mut self, outcome: &Outcome) {
        let usage = outcome.usage.as_ref().map(counts).unwrap_or_default();
        let flag = |set: bool| Some(u64::from(set));
        let time = |time: Option<Duration>| time.map(micros);
        let asked: Duration = outcome.tries.iter().map(|tried| tried.took).sum();
        let known = outcome.cost.as_deref().and_then(Cost::in_picodollars);
        let known = known.or(self.charged);
        let [
            cost,
            cost_input,
            cost_cached_input,
            cost_cache_write,
            cost_output,
            cost_reasoning,
        ] = known.map_or([None; 6], |costs| costs.map(Some));
        let numbers = Closing {
            status: Some(outcome.status.into()),
            attempts: Some(outcome.attempts.into()),
            streamed: flag(outcome.streamed),
            client_left: flag(outcome.client_left),
            fault_status: outcome
                .fault
                .as_ref()
                .and_then(|fault| fault.status)
                .map(u64::from),
            wait: Some(micros(outcome.duration.saturating_sub(asked))),
            first_byte: time(outcome.first_byte),
            first_token: time(outcome.first_token),
            last_token: time(outcome.last_token),
            longest_gap: time(outcome.longest_gap),
            duration: Some(micros(outcome.duration)),
            estimated: flag(outcome.estimated),
            bytes_in: Some(outcome.bytes_in),
            bytes_out: Some(outcome.bytes_out),
            events: Some(outcome.events),
            malformed: Some(outcome.malformed),
            token_events: Some(outcome.token_events),
            cost,
            cost_input,
            cost_cached_input,
            cost_cache_write,
            cost_output,
            cost_reasoning,
        };
        let upstream_cost = outcome
            .usage
            .as_ref()
            .and_then(|usage| usage.upstream_cost.as_deref());
        let texts = [
            Some(&*outcome.upstream),
            Some(&*outcome.upstream_model),
            outcome.price_id.as_deref(),
            outcome.upstream_request_id.as_deref(),
            upstream_cost,
            outcome.finish_reason.as_deref(),
            outcome.fault.as_ref().map(|fault| fault.kind.as_str()),
            outcome.answered.as_deref().or(outcome.code),
        ];
        // One attempt is the record itself.
        let tries: &[Try] = if outcome.tries.len() > 1 {
            &outcome.tries
        } else {
            &[]
        };
        let attempts: Vec<_> = tries.iter().map(attempt).collect();
        self.entry.close(&numbers, &usage, &texts, &attempts);
    }
}

fn attempt(tried: &Try) -> Attempt<&str> {
    Attempt {
        upstream: &tried.upstream,
        upstream_model: &tried.model,
        fault: tried.fault.map(FaultKind::as_str),
        status: tried.status.map(u64::from),
        began: micros(tried.began),
        took: micros(tried.took),
    }
}

#[pyclass(name = "JournalEntry", module = "sluicegate._core", frozen)]
pub(crate) struct PyEntry {
    #[pyo3(get)]
    id: String,
    account: Mutex<Option<Box<Account>>>,
}

impl PyEntry {
    /// The account, which has one keeper.
    pub(crate) fn take(&self) -> Option<Box<dyn Tally>> {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.take().map(|account| account as Box<dyn Tally>)
    }
}

#[pyclass(name = "Journal", module = "sluicegate._core", frozen)]
pub(crate) struct PyJournal {
    inner: Journal,
}

#[pymethods]
impl PyJournal {
    #[new]
    #[pyo3(signature = (folder, *, max_bytes, sync))]
    fn new(folder: PathBuf, max_bytes: u64, sync: &str) -> PyResult<Self> {
        let sync = match sync {
            "never" => Sync::Never,
            "second" => Sync::Called,
            "always" => Sync::Always,
            other => {
                let message = format!("sync is never, second or always, not '{other}'");
                return Err(PyValueError::new_err(message));
            }
        };
        let inner = Journal::new(Settings {
            folder,
            bytes: max_bytes,
            sync,
            on_sync: OnSync::default(),
        })?;
        Ok(Self { inner })
    }

    // By place: names would be looked up for each request.
    #[pyo3(signature = (
        arrived, route, model, requested_model, caller_id, caller, key_id, team, user_id, estimated_input,
        response_id=None, run=None, /
    ))]
    #[allow(clippy::too_many_arguments)] // Arguments of a Python method.
    fn open(
        &self,
        arrived: &PyArrived,
        route: &PyRoute,
        model: &str,
        requested_model: Option<&str>,
        caller_id: Option<&str>,
        caller: Option<&str>,
        key_id: Option<&str>,
        team: Option<&str>,
        user_id: Option<&str>,
        estimated_input: Option<u64>,
        response_id: Option<&str>,
        run: Option<u64>,
    ) -> PyResult<Option<PyEntry>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let opening = Opening {
            started_at: Some(micros(now.unwrap_or_default())),
            run: Some(run.unwrap_or(1)),
            background: Some(run.is_some().into()),
            streamed: Some(arrived.asks_for_stream().into()),
            estimated_input,
            estimated_output: None,
        };
        let about = arrived.about();
        let texts = [
            Some(&*about.request_id),
            response_id,
            None,
            about.endpoint.as_ref().map(|endpoint| endpoint.name()),
            caller_id,
            caller,
            key_id,
            team,
            user_id,
            Some(model),
            requested_model,
            Some(&*route.inner.upstream.name),
            Some(&*route.inner.model),
        ];
        let entry = match self.inner.open(&opening, &texts) {
            Ok(entry) => entry,
            Err(Full::Bytes | Full::Disk(_)) => return Ok(None),
            Err(Full::Unsynced(error)) => return Err(error.into()),
        };
        Ok(Some(PyEntry {
            id: entry.id().to_string(),
            account: Mutex::new(Some(Box::new(Account {
                entry,
                opened: Instant::now(),
                is_accepted: false,
                has_output: false,
                charged: None,
            }))),
        }))
    }

    fn take(&self, py: Python<'_>, most: usize) -> PyResult<PyBatch> {
        let (batch, rows) = py.detach(|| {
            let mut batch = self.inner.take(most);
            let rows = std::mem::take(&mut batch.rows);
            (batch, rows.into_iter().map(LedgerRow::from).collect())
        });
        Ok(PyBatch {
            rows: Py::new(py, PyRows::new(rows))?,
            inner: Mutex::new(Some(batch)),
        })
    }

    fn shipped(&self, py: Python<'_>, batch: &PyBatch) {
        if let Some(batch) = batch.take() {
            py.detach(|| self.inner.shipped(batch));
        }
    }

    fn give_back(&self, batch: &PyBatch) {
        if let Some(batch) = batch.take() {
            self.inner.give_back(batch);
        }
    }

    #[pyo3(signature = (after, most))]
    fn live<'py>(
        &self,
        py: Python<'py>,
        after: Option<&str>,
        most: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let after = after.map(uuid::Uuid::parse_str).transpose();
        let after = after.map_err(|_| PyValueError::new_err("`after` is no id"))?;
        let rows = py.detach(|| self.inner.live(after, most));
        let records = rows
            .into_iter()
            .map(|row| record_of(py, &LedgerRow::from(row)));
        PyList::new(py, records.collect::<PyResult<Vec<_>>>()?)
    }

    fn prepare(&self, py: Python<'_>) -> PyResult<bool> {
        match py.detach(|| self.inner.prepare()) {
            Ok(()) => Ok(true),
            Err(Full::Bytes) => Ok(false),
            Err(Full::Disk(error) | Full::Unsynced(error)) => Err(error.into()),
        }
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.inner.sync())?)
    }

    fn abandoned(&self, py: Python<'_>) -> PyResult<Option<PyAbandoned>> {
        let found = py.detach(|| self.inner.abandoned())?;
        Ok(found.map(PyAbandoned::new))
    }

    #[getter]
    fn is_failing(&self) -> bool {
        self.inner.is_failing()
    }

    #[getter]
    fn waiting(&self) -> usize {
        self.inner.waiting()
    }

    #[getter]
    fn opened(&self) -> usize {
        self.inner.opened()
    }

    #[getter]
    fn bytes(&self) -> PyResult<u64> {
        Ok(self.inner.bytes()?)
    }

    fn close(&self) {
        self.inner.close();
    }
}

#[pyclass(name = "JournalBatch", module = "sluicegate._core", frozen)]
pub(crate) struct PyBatch {
    #[pyo3(get)]
    rows: Py<PyRows>,
    inner: Mutex<Option<Batch>>,
}

impl PyBatch {
    fn take(&self) -> Option<Batch> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.take()
    }
}

#[pyclass(name = "AbandonedSegment", module = "sluicegate._core", frozen)]
pub(crate) struct PyAbandoned {
    inner: Mutex<Option<Abandoned>>,
    count: usize,
}

impl PyAbandoned {
    fn new(found: Abandoned) -> Self {
        Self {
            count: found.rows.len(),
            inner: Mutex::new(Some(found)),
        }
    }
}

#[pymethods]
impl PyAbandoned {
    fn __len__(&self) -> usize {
        self.count
    }

    fn rows(&self, py: Python<'_>, first: usize, most: usize) -> PyRows {
        py.detach(|| {
            let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let rows = inner.as_ref().map_or(&[][..], |found| &found.rows);
            let rows = rows.iter().skip(first).take(most).cloned();
            PyRows::new(rows.map(LedgerRow::from).collect())
        })
    }

    fn finish(&self) -> PyResult<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.take() {
            Some(found) => Ok(found.finish()?),
            None => Ok(()),
        }
    }
}
