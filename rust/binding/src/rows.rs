//! `JournalRows`: records of the journal, on their way to the ledger's tables.

mod dated;

use std::collections::HashSet;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyString};
use sluicegate_journal::ledger::{FLAGS, LedgerRow, Source, TEXTS, number};
use sluicegate_journal::{Attempt, Closing, Counts, Opening, Texts};
use uuid::Uuid;

pub(crate) use self::dated::{PyDatedRows, PyLines};

#[pyclass(name = "JournalRows", module = "sluicegate._core")]
pub(crate) struct PyRows {
    rows: Vec<LedgerRow>,
}

impl PyRows {
    pub(crate) fn new(rows: Vec<LedgerRow>) -> Self {
        Self { rows }
    }

    fn row(&mut self, index: usize) -> PyResult<&mut LedgerRow> {
        let missing = || PyIndexError::new_err("there is no such row");
        self.rows.get_mut(index).ok_or_else(missing)
    }
}

#[pymethods]
impl PyRows {
    #[new]
    fn made(records: Vec<Bound<'_, PyAny>>) -> PyResult<Self> {
        let rows = records.iter().map(row_of).collect::<PyResult<_>>()?;
        Ok(Self { rows })
    }

    fn __len__(&self) -> usize {
        self.rows.len()
    }

    #[getter]
    fn ids(&self) -> Vec<String> {
        self.rows.iter().map(|row| id_of(row.id)).collect()
    }

    fn record<'py>(&mut self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyDict>> {
        record_of(py, self.row(index)?)
    }

    #[getter]
    fn unfinished(&self) -> Vec<usize> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| row.interrupted)
            .map(|(index, _)| index)
            .collect()
    }

    fn charge(
        &mut self,
        index: usize,
        price_id: &str,
        costs: Option<[Bound<'_, PyInt>; 6]>,
    ) -> PyResult<()> {
        // What is too large for a number is above the bound of what a request may cost as well.
        let costs = costs.map(|costs| costs.map(|cost| cost.extract().unwrap_or(u64::MAX)));
        self.row(index)?.charge(price_id, costs);
        Ok(())
    }

    fn without(&self, ids: Vec<String>) -> Self {
        let ids: HashSet<_> = ids.into_iter().collect();
        let rows = self.rows.iter();
        Self::new(
            rows.filter(|row| !ids.contains(&id_of(row.id)))
                .cloned()
                .collect(),
        )
    }

    fn halves(&self) -> (Self, Self) {
        let (first, second) = self.rows.split_at(self.rows.len() / 2);
        (Self::new(first.into()), Self::new(second.into()))
    }

    fn dated(slf: &Bound<'_, Self>, day: &Bound<'_, PyAny>) -> PyResult<PyDatedRows> {
        PyDatedRows::of(slf, day)
    }

    fn attempts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for row in self.rows.iter().filter(|row| !row.attempts.is_empty()) {
            let id = PyString::new(py, &id_of(row.id));
            for (n, tried) in (1_u64..).zip(&row.attempts) {
                let started_at = number(row.started_at().saturating_add(tried.began));
                list.append((
                    &id,
                    n,
                    &*tried.upstream,
                    &*tried.upstream_model,
                    tried.fault.as_deref(),
                    tried.status.map(number),
                    started_at,
                    number(tried.took),
                ))?;
            }
        }
        Ok(list)
    }

    fn prices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        let mut last = None;
        for row in &self.rows {
            let Some(id) = row.price_id().filter(|id| last != Some(*id)) else {
                continue;
            };
            last = Some(id);
            if !found.contains(id)? {
                let (model, upstream_model, upstream) = row.models();
                let about = PyDict::new(py);
                about.set_item("price_id", id)?;
                about.set_item("model", model)?;
                about.set_item("upstream_model", upstream_model)?;
                about.set_item("upstream", upstream)?;
                about.set_item("started_at", number(row.started_at()))?;
                found.set_item(id, about)?;
            }
        }
        Ok(found)
    }
}

fn id_of(id: u128) -> String {
    Uuid::from_u128(id).to_string()
}

// === one record as a mapping ===

fn set_numbers(
    record: &Bound<'_, PyDict>,
    names: &[&'static str],
    values: &[Option<u64>],
) -> PyResult<()> {
    for (name, value) in names.iter().zip(values) {
        let key = PyString::intern(record.py(), name);
        if FLAGS.contains(name) {
            record.set_item(key, *value == Some(1))?;
        } else {
            record.set_item(key, value.map(number))?;
        }
    }
    Ok(())
}

/// The record by its names; see `JournalRows.record`.
pub(crate) fn record_of<'py>(py: Python<'py>, row: &LedgerRow) -> PyResult<Bound<'py, PyDict>> {
    let record = PyDict::new(py);
    record.set_item("id", id_of(row.id))?;
    set_numbers(&record, Opening::NAMES, &row.opening.values())?;
    set_numbers(&record, Closing::NAMES, &row.closing.values())?;
    set_numbers(&record, Counts::NAMES, &row.usage.values())?;
    for (name, text) in TEXTS.iter().zip(row.texts.iter()) {
        record.set_item(PyString::intern(py, name), text)?;
    }
    record.set_item("interrupted", row.interrupted)?;
    record.set_item("usage_source", row.source.as_str())?;
    let tries = row.attempts.iter().map(|tried| {
        (
            &*tried.upstream,
            &*tried.upstream_model,
            tried.fault.as_deref(),
            tried.status,
            tried.began,
            tried.took,
        )
    });
    record.set_item("tries", tries.collect::<Vec<_>>())?;
    Ok(record)
}

/// What `record_of` is made of.
fn row_of(record: &Bound<'_, PyAny>) -> PyResult<LedgerRow> {
    let get = |name: &str| {
        let value = record.call_method1("get", (name,))?;
        PyResult::Ok((!value.is_none()).then_some(value))
    };
    let text = |name: &str| get(name)?.map(|text| text.extract()).transpose();
    let id: Option<String> = text("id")?;
    let id = Uuid::parse_str(&id.unwrap_or_default());
    let id = id.map_err(|_| PyValueError::new_err("a record has no id"))?;
    let number = |name: &&str| match get(name)? {
        Some(flag) if FLAGS.contains(name) => Ok(Some(flag.is_truthy()?.into())),
        value => value.map(|value| value.extract()).transpose(),
    };
    let mut texts = Texts::default();
    for name in TEXTS {
        texts.push(text(name)?.as_deref());
    }
    let source = match text("usage_source")?.as_deref() {
        Some("upstream") => Source::Upstream,
        Some("estimated") => Source::Estimated,
        _ => Source::None,
    };
    let mut attempts = Vec::new();
    for tried in get("tries")?.map_or(Ok(Vec::new()), |tries| tries.extract())? {
        let (upstream, upstream_model, fault, status, began, took): Tried = tried;
        attempts.push(Attempt {
            upstream: upstream.into(),
            upstream_model: upstream_model.into(),
            fault: fault.map(String::into_boxed_str),
            status,
            began,
            took,
        });
    }
    let mut row = LedgerRow::new(
        id.as_u128(),
        Opening::of(values(Opening::NAMES, number)?),
        Closing::of(values(Closing::NAMES, number)?),
        (Counts::of(values(Counts::NAMES, number)?), source),
        texts,
        attempts,
    );
    let interrupted = get("interrupted")?;
    row.interrupted = interrupted.map_or(Ok(false), |interrupted| interrupted.is_truthy())?;
    Ok(row)
}

type Tried = (String, String, Option<String>, Option<u64>, u64, u64);

fn values<const COUNT: usize>(
    names: &'static [&'static str],
    value: impl Fn(&&'static str) -> PyResult<Option<u64>>,
) -> PyResult<[Option<u64>; COUNT]> {
    let mut values = [None; COUNT];
    for (place, name) in values.iter_mut().zip(names) {
        *place = value(name)?;
    }
    Ok(values)
}
