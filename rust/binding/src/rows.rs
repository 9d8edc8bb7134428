//! `JournalRows`: records of the journal, as the ledger's tables take them.

use std::collections::{BTreeMap, HashSet};

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyList, PyString, PyTuple};
use sluicegate_journal::ledger::{
    Column, FLAGS, LedgerRow, Source, TEXTS, Value, Values, columns, number,
};
use sluicegate_journal::sums::{Line, by_day, by_user};
use sluicegate_journal::{Attempt, Closing, Counts, Opening};
use uuid::Uuid;

const MINUTE: u64 = 60_000_000;

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

    #[pyo3(signature = (day, *, gateway, version, flags, values=0))]
    fn table(
        slf: &Bound<'_, Self>,
        day: &Bound<'_, PyAny>,
        gateway: &Bound<'_, PyString>,
        version: &Bound<'_, PyString>,
        flags: bool,
        values: usize,
    ) -> PyResult<(Vec<&'static str>, Vec<PyLines>)> {
        let held = slf.borrow();
        let rows = &held.rows;
        let days = Days::of(rows, day)?;
        let columns = slf.py().detach(|| known_columns(rows));
        let mut names: Vec<_> = columns.iter().map(|column| column.name).collect();
        names.extend(["day", "gateway", "version"]);
        let together = (values / names.len()).clamp(1, rows.len().max(1));
        let end = rows.len() - rows.len() % together;
        let of = |next, end, together| PyLines {
            rows: slf.clone().unbind(),
            next,
            end,
            together,
            texts: columns.iter().map(|_| None).collect(),
            columns: columns.clone(),
            day_of: days.rows.clone(),
            days: days.days.iter().map(|day| day.clone().unbind()).collect(),
            written_by: [gateway, version].map(|text| text.clone().unbind()),
            flags,
        };
        let mut lines = vec![of(0, end, together)];
        if end < rows.len() {
            lines.push(of(end, rows.len(), 1));
        }
        Ok((names, lines))
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

    fn daily<'py>(&self, py: Python<'py>, day: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let days = Days::of(&self.rows, day)?;
        let lines = py.detach(|| by_day(days.rows.iter().copied().zip(&self.rows)));
        days.lines(py, &lines, true)
    }

    fn users<'py>(&self, py: Python<'py>, day: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let days = Days::of(&self.rows, day)?;
        let lines = py.detach(|| by_user(days.rows.iter().copied().zip(&self.rows)));
        days.lines(py, &lines, false)
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
                let (model, upstream_model) = row.models();
                let about = PyDict::new(py);
                about.set_item("price_id", id)?;
                about.set_item("model", model)?;
                about.set_item("upstream_model", upstream_model)?;
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

/// The columns that some row has a value for: Python's sqlite3 takes longer for one that is None than for any other.
fn known_columns(rows: &[LedgerRow]) -> Vec<Column> {
    let columns = columns();
    let mut known = vec![false; columns.len()];
    for row in rows {
        let values = Values::of(row);
        for (known, column) in known.iter_mut().zip(&columns) {
            *known = *known || values.get(*column) != Value::Unknown;
        }
    }
    let columns = columns.into_iter().zip(known);
    columns
        .filter_map(|(column, known)| known.then_some(column))
        .collect()
}

/// The days of rows, by what Python says of each minute: everywhere, a day begins with one.
struct Days<'py> {
    /// Those that there are, in order.
    days: Vec<Bound<'py, PyAny>>,
    /// The number of each row's day.
    rows: Vec<usize>,
}

impl<'py> Days<'py> {
    fn of(rows: &[LedgerRow], ask: &Bound<'py, PyAny>) -> PyResult<Self> {
        let minute = |row: &LedgerRow| row.started_at() / MINUTE;
        let mut minutes: BTreeMap<_, _> = rows.iter().map(|row| (minute(row), 0)).collect();
        let mut days: Vec<Bound<'py, PyAny>> = Vec::new();
        for (minute, number) in &mut minutes {
            let day = ask.call1((*minute * 60,))?;
            let same = days.last().map_or(Ok(false), |last| last.eq(&day))?;
            if !same {
                days.push(day);
            }
            *number = days.len() - 1;
        }
        let numbers = rows.iter().map(minute).map(|minute| minutes.get(&minute));
        let rows = numbers.map(|number| number.copied().unwrap_or_default());
        Ok(Self {
            rows: rows.collect(),
            days,
        })
    }

    fn day(&self, number: usize) -> Bound<'py, PyAny> {
        self.days[number].clone()
    }

    /// Each line as a tuple: its day, its key, its caller's name where that is wanted, and its sums.
    fn lines<const TEXTS: usize, const SUMS: usize>(
        &self,
        py: Python<'py>,
        lines: &[Line<'_, TEXTS, SUMS>],
        named: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (day, key, sums) in lines {
            let mut cells = Vec::with_capacity(TEXTS + SUMS + 2);
            cells.push(self.day(*day));
            for text in key {
                cells.push(PyString::new(py, text).into_any());
            }
            if named {
                cells.push(sums.caller.into_pyobject(py)?);
            }
            for value in sums.values {
                cells.push(value.into_pyobject(py)?.into_any());
            }
            list.append(PyTuple::new(py, cells)?)?;
        }
        Ok(list)
    }
}

/// The lines of a table, each made when the driver asks for it: on its thread, and in no longer turn of the
/// interpreter than that.
#[pyclass(name = "JournalLines", module = "sluicegate._core")]
pub(crate) struct PyLines {
    rows: Py<PyRows>,
    next: usize,
    end: usize,
    /// How many rows a tuple has.
    #[pyo3(get)]
    together: usize,
    columns: Vec<Column>,
    /// By column: the row whose text was made last, and what was made of it. Most often the next row has the same.
    texts: Vec<Option<(usize, Py<PyString>)>>,
    /// The number of each row's day.
    day_of: Vec<usize>,
    days: Vec<Py<PyAny>>,
    written_by: [Py<PyString>; 2],
    flags: bool,
}

#[pymethods]
impl PyLines {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if self.next >= self.end {
            return Ok(None);
        }
        let mut cells = Vec::with_capacity(self.together * (self.columns.len() + 3));
        let rows = self.rows.clone_ref(py);
        let rows = rows.bind(py).borrow();
        for _ in 0..self.together {
            self.add(py, &rows.rows, &mut cells);
        }
        PyTuple::new(py, cells).map(Some)
    }
}

impl PyLines {
    /// The values of the next row.
    fn add<'py>(
        &mut self,
        py: Python<'py>,
        rows: &[LedgerRow],
        cells: &mut Vec<Bound<'py, PyAny>>,
    ) {
        let at = self.next;
        let Some(row) = rows.get(at) else {
            return;
        };
        self.next += 1;
        let values = Values::of(row);
        for (column, made) in self.columns.iter().zip(&mut self.texts) {
            cells.push(match values.get(*column) {
                Value::Unknown => py.None().into_bound(py),
                Value::Flag(flag) if self.flags => PyBool::new(py, flag).to_owned().into_any(),
                Value::Flag(flag) => PyInt::new(py, u8::from(flag)).into_any(),
                Value::Number(number) => PyInt::new(py, number).into_any(),
                Value::Id(id) => {
                    let mut text = Uuid::encode_buffer();
                    let text = Uuid::from_u128(id).hyphenated().encode_lower(&mut text);
                    PyString::new(py, text).into_any()
                }
                Value::Text(text) => {
                    let last = made.as_ref().filter(|(last, _)| {
                        let last = rows.get(*last);
                        last.is_some_and(|row| Values::text(row, *column) == Some(text))
                    });
                    match last {
                        Some((_, made)) => made.bind(py).clone().into_any(),
                        None => {
                            let new = PyString::new(py, text);
                            *made = Some((at, new.clone().unbind()));
                            new.into_any()
                        }
                    }
                }
            });
        }
        let day = self.day_of.get(at).and_then(|day| self.days.get(*day));
        cells.push(
            day.map_or_else(|| py.None(), |day| day.clone_ref(py))
                .into_bound(py),
        );
        for text in &self.written_by {
            cells.push(text.bind(py).clone().into_any());
        }
    }
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
    for (name, text) in TEXTS.iter().zip(&row.texts) {
        record.set_item(PyString::intern(py, name), text.as_deref())?;
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
    let mut texts = Vec::new();
    for name in TEXTS {
        texts.push(text(name)?.map(String::into_boxed_str));
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
