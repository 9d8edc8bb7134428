//! `DatedRows`: rows whose days are known, as lines of the ledger's tables.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyList, PyString, PyTuple};
use sluicegate_journal::ledger::{Column, LedgerRow, Value, Values, columns};
use sluicegate_journal::sums::{Line, by_day, by_user};
use uuid::Uuid;

use super::PyRows;

const MINUTE: u64 = 60_000_000;

/// A statement that adds more rows takes longer to prepare, and no less time for each of them.
const MOST_TOGETHER: usize = 32;

/// What is in a column.
#[derive(Clone, Copy)]
enum Cell {
    Of(Column),
    Day,
    Gateway,
    Version,
}

impl Cell {
    fn name(&self) -> &'static str {
        match self {
            Self::Of(column) => column.name,
            Self::Day => "day",
            Self::Gateway => "gateway",
            Self::Version => "version",
        }
    }
}

/// The text of a column that was made last, and the row that it was made of. Most often the next row has the same.
type Last = Option<(usize, Py<PyString>)>;

#[pyclass(name = "DatedRows", module = "sluicegate._core", frozen)]
pub(crate) struct PyDatedRows {
    rows: Py<PyRows>,
    /// The days that there are, in order.
    days: Vec<Py<PyAny>>,
    /// The number of each row's day.
    day_of: Vec<usize>,
}

impl PyDatedRows {
    /// By what Python says of each minute: everywhere, a day begins with one.
    pub(super) fn of(rows: &Bound<'_, PyRows>, ask: &Bound<'_, PyAny>) -> PyResult<Self> {
        let held = rows.borrow();
        let minute = |row: &LedgerRow| row.started_at() / MINUTE;
        let mut minutes: BTreeMap<_, _> = held.rows.iter().map(|row| (minute(row), 0)).collect();
        let mut days: Vec<Bound<'_, PyAny>> = Vec::new();
        for (minute, number) in &mut minutes {
            let day = ask.call1((*minute * 60,))?;
            let same = days.last().map_or(Ok(false), |last| last.eq(&day))?;
            if !same {
                days.push(day);
            }
            *number = days.len() - 1;
        }
        let numbers = held.rows.iter().map(|row| minutes.get(&minute(row)));
        Ok(Self {
            day_of: numbers
                .map(|number| number.copied().unwrap_or_default())
                .collect(),
            days: days.into_iter().map(Bound::unbind).collect(),
            rows: rows.clone().unbind(),
        })
    }

    fn day<'py>(&self, py: Python<'py>, number: usize) -> Bound<'py, PyAny> {
        let day = self.days.get(number).map(|day| day.clone_ref(py));
        day.unwrap_or_else(|| py.None()).into_bound(py)
    }

    fn dated<'a>(&'a self, rows: &'a [LedgerRow]) -> impl Iterator<Item = (usize, &'a LedgerRow)> {
        self.day_of.iter().copied().zip(rows)
    }

    /// The columns that all rows have one value in, where they may be shared, and the others that some row has a value
    /// for: Python's sqlite3 takes longer for one that is None than for any other.
    fn columns(&self, rows: &[LedgerRow], sharing: bool) -> (Vec<Cell>, Vec<Cell>) {
        let Some(first) = rows.first().map(Values::of) else {
            return (Vec::new(), Vec::new());
        };
        let columns: Vec<_> = columns()
            .into_iter()
            .map(|of| (of, first.get(of)))
            .collect();
        // An id is a row's own, whatever somebody puts into the journal's files.
        let mut found: Vec<_> = columns
            .iter()
            .map(|(_, value)| {
                (
                    *value != Value::Unknown,
                    sharing && !matches!(value, Value::Id(_)),
                )
            })
            .collect();
        for row in rows {
            let values = Values::of(row);
            for ((column, first), (known, same)) in columns.iter().zip(&mut found) {
                if !*known || *same {
                    let value = values.get(*column);
                    *known = *known || value != Value::Unknown;
                    *same = *same && value == *first;
                }
            }
        }
        let (mut shared, mut own) = (Vec::new(), Vec::new());
        for ((column, _), (known, same)) in columns.into_iter().zip(found) {
            if known {
                if same { &mut shared } else { &mut own }.push(Cell::Of(column));
            }
        }
        let one_day = sharing && self.days.len() == 1;
        if one_day { &mut shared } else { &mut own }.push(Cell::Day);
        if sharing { &mut shared } else { &mut own }.extend([Cell::Gateway, Cell::Version]);
        (shared, own)
    }

    /// Each line as a tuple: its day, its key, its caller's name where that is wanted, and its sums.
    fn lines<'py, const TEXTS: usize, const SUMS: usize>(
        &self,
        py: Python<'py>,
        lines: &[Line<'_, TEXTS, SUMS>],
        named: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (day, key, sums) in lines {
            let mut cells = Vec::with_capacity(TEXTS + SUMS + 2);
            cells.push(self.day(py, *day));
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

#[pymethods]
impl PyDatedRows {
    #[pyo3(signature = (*, gateway, version, flags, values=0))]
    fn table<'py>(
        slf: &Bound<'py, Self>,
        gateway: &Bound<'_, PyString>,
        version: &Bound<'_, PyString>,
        flags: bool,
        values: usize,
    ) -> PyResult<(Bound<'py, PyTuple>, usize, Vec<PyLines>)> {
        let py = slf.py();
        let dated = slf.get();
        let held = dated.rows.bind(py).borrow();
        let rows = &held.rows;
        let sharing = values > 0 && rows.len() > 1;
        let (shared, own) = py.detach(|| dated.columns(rows, sharing));
        let names: Vec<_> = shared.iter().chain(&own).map(Cell::name).collect();
        let names = PyTuple::new(py, names)?;
        let together = values.saturating_sub(shared.len()) / own.len().max(1);
        let together = together.clamp(1, MOST_TOGETHER).min(rows.len().max(1));
        let of = |columns: &[Cell], next, end, together, shared: &[Py<PyAny>]| PyLines {
            rows: slf.clone().unbind(),
            next,
            end,
            together,
            shared: shared.iter().map(|value| value.clone_ref(py)).collect(),
            columns: columns.iter().map(|column| (*column, None)).collect(),
            written_by: [gateway, version].map(|text| text.clone().unbind()),
            flags,
        };
        let mut values = Vec::new();
        of(&shared, 0, 1, 1, &[]).add(py, dated, rows, &mut values);
        let values: Vec<_> = values.into_iter().map(Bound::unbind).collect();
        let end = rows.len() - rows.len() % together;
        let mut lines = vec![of(&own, 0, end, together, &values)];
        if end < rows.len() {
            lines.push(of(&own, end, rows.len(), 1, &values));
        }
        Ok((names, shared.len(), lines))
    }

    fn daily<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let held = self.rows.bind(py).borrow();
        let rows = &held.rows;
        let lines = py.detach(|| by_day(self.dated(rows)));
        self.lines(py, &lines, true)
    }

    fn users<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let held = self.rows.bind(py).borrow();
        let rows = &held.rows;
        let lines = py.detach(|| by_user(self.dated(rows)));
        self.lines(py, &lines, false)
    }
}

/// The lines of a table, each made when the driver asks for it: on its thread, and in no longer turn of the
/// interpreter than that.
#[pyclass(name = "JournalLines", module = "sluicegate._core")]
pub(crate) struct PyLines {
    rows: Py<PyDatedRows>,
    next: usize,
    end: usize,
    /// How many rows a tuple has.
    #[pyo3(get)]
    together: usize,
    /// What comes before the rows of each tuple.
    shared: Vec<Py<PyAny>>,
    columns: Vec<(Cell, Last)>,
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
        let dated = self.rows.clone_ref(py);
        let dated = dated.get();
        let held = dated.rows.bind(py).borrow();
        let mut cells = Vec::with_capacity(self.shared.len() + self.together * self.columns.len());
        cells.extend(self.shared.iter().map(|value| value.bind(py).clone()));
        for _ in 0..self.together {
            self.add(py, dated, &held.rows, &mut cells);
        }
        PyTuple::new(py, cells).map(Some)
    }
}

impl PyLines {
    /// The values of the next row.
    fn add<'py>(
        &mut self,
        py: Python<'py>,
        dated: &PyDatedRows,
        rows: &[LedgerRow],
        cells: &mut Vec<Bound<'py, PyAny>>,
    ) {
        let at = self.next;
        let Some(row) = rows.get(at) else {
            return;
        };
        self.next += 1;
        let values = Values::of(row);
        let [gateway, version] = &self.written_by;
        for (cell, last) in &mut self.columns {
            cells.push(match cell {
                Cell::Of(column) => match values.get(*column) {
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
                        let same = last.as_ref().filter(|(last, _)| {
                            let last = rows.get(*last);
                            last.is_some_and(|row| Values::text(row, *column) == Some(text))
                        });
                        match same {
                            Some((_, made)) => made.bind(py).clone().into_any(),
                            None => {
                                let new = PyString::new(py, text);
                                *last = Some((at, new.clone().unbind()));
                                new.into_any()
                            }
                        }
                    }
                },
                Cell::Day => dated.day(py, dated.day_of.get(at).copied().unwrap_or_default()),
                Cell::Gateway => gateway.bind(py).clone().into_any(),
                Cell::Version => version.bind(py).clone().into_any(),
            });
        }
    }
}
