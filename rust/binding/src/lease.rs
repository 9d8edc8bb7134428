//! `Lease`, `Excess`: what a request holds of limits, and what refuses it.

use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyTuple};
use sluicegate_limits::{Amount, Excess, Form, Held, Moment, Used, left, settle};

use crate::limits::{PyDemand, PyLimit, PyLimits};

/// The names of all headers, made once.
static NAMES: PyOnceLock<[[[Py<PyBytes>; 3]; 2]; 2]> = PyOnceLock::new();

/// What is left of `limits`, as headers.
fn headers<'py>(
    py: Python<'py>,
    limits: &PyLimits,
    form: &str,
    now: &Moment,
) -> PyResult<Bound<'py, PyList>> {
    let form = Form::from_str(form)
        .map_err(|()| PyValueError::new_err("headers are of openai or anthropic"))?;
    let names = NAMES.get_or_init(py, || {
        let made = |name: &str| PyBytes::new(py, name.as_bytes()).unbind();
        Form::ALL.map(|form| form.names().map(|names| names.map(made)))
    });
    let found = PyList::empty(py);
    let of_form = names[form as usize].iter();
    for (names, left) in of_form.zip(left(limits.limits(), now)) {
        let values = left.map(|left| left.values(form, now));
        for (name, value) in names.iter().zip(values.iter().flatten()) {
            let value = PyBytes::new(py, value.as_bytes());
            found.append(PyTuple::new(py, [name.bind(py), &value])?)?;
        }
    }
    Ok(found)
}

#[pyclass(name = "Lease", module = "sluicegate._core", frozen)]
pub(crate) struct PyLease {
    #[pyo3(get)]
    limits: Py<PyLimits>,
    #[pyo3(get)]
    demand: PyDemand,
    /// Until it is settled.
    held: Mutex<Option<Vec<Held>>>,
    admitted: Moment,
    times: u32,
    tell: Option<Py<PyAny>>,
    /// The rough input of which something is to be learnt.
    rough: Mutex<Option<u64>>,
}

impl PyLease {
    pub(crate) fn new(
        limits: &Bound<'_, PyLimits>,
        demand: PyDemand,
        held: Vec<Held>,
        admitted: Moment,
        times: u32,
        tell: Option<Py<PyAny>>,
    ) -> Self {
        Self {
            limits: limits.clone().unbind(),
            demand,
            rough: Mutex::new(demand.learns),
            held: Mutex::new(Some(held)),
            admitted,
            times,
            tell,
        }
    }

    /// What is left of its limits, as [`Form`] says.
    pub(crate) fn add_headers(&self, form: Form, headers: &mut HeaderMap) {
        let found = left(self.limits.get().limits(), &self.admitted);
        for (names, left) in form.names().into_iter().zip(found) {
            let values = left.map(|left| left.values(form, &self.admitted));
            for (name, value) in names.into_iter().zip(values.into_iter().flatten()) {
                if let Ok(value) = HeaderValue::try_from(value) {
                    headers.insert(HeaderName::from_static(name), value);
                }
            }
        }
    }

    /// What it holds, which is then settled: once.
    fn take(&self) -> Option<Vec<Held>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.take()
    }

    fn settle(&self, py: Python<'_>, held: &[Held], used: &Used) -> PyResult<()> {
        let limits = self.limits.get();
        let now = limits.now(py)?;
        let changes = settle(limits.limits(), held, used, &now, self.times.into());
        match &self.tell {
            Some(tell) if !changes.is_empty() => {
                let changes = self.shown(py, changes)?;
                tell.call1(py, (changes,)).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Each with its limit.
    fn shown<'py>(
        &self,
        py: Python<'py>,
        held: impl IntoIterator<Item = (usize, Held)>,
    ) -> PyResult<Vec<(Bound<'py, PyLimit>, i64, Amount)>> {
        let limits = self.limits.get();
        held.into_iter()
            .map(|(position, Held { place, amount })| {
                Ok((limits.shown(py, position)?, place, amount))
            })
            .collect()
    }
}

#[pymethods]
impl PyLease {
    #[getter]
    fn held<'py>(&self, py: Python<'py>) -> PyResult<Vec<(Bound<'py, PyLimit>, i64, Amount)>> {
        let held = {
            let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.clone().unwrap_or_default()
        };
        self.shown(py, held.into_iter().enumerate())
    }

    fn headers<'py>(&self, py: Python<'py>, form: &str) -> PyResult<Bound<'py, PyList>> {
        headers(py, self.limits.get(), form, &self.admitted)
    }

    #[pyo3(signature = (rough, /))]
    fn estimate_input(&self, rough: u64) -> u64 {
        let mut learns = self.rough.lock().unwrap_or_else(PoisonError::into_inner);
        *learns = learns.map(|_| rough);
        self.limits.get().estimate_input(rough)
    }

    #[pyo3(signature = (input, output, cost, *, failed, estimated_input=false))]
    pub(crate) fn ended(
        &self,
        py: Python<'_>,
        input: Option<u64>,
        output: Option<u64>,
        cost: Option<u64>,
        failed: bool,
        estimated_input: bool,
    ) -> PyResult<()> {
        let Some(held) = self.take() else {
            return Ok(());
        };
        let failed = failed && output.unwrap_or(0) == 0;
        let learns = *self.rough.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rough) = learns.filter(|_| !failed) {
            let told = input.filter(|_| !estimated_input);
            self.limits.get().learn(rough, told, output);
        }
        // As the ledger adds rows up.
        let used = Used {
            requests: if failed {
                0
            } else {
                self.demand.inner.requests
            },
            tokens: Amount::from(input.unwrap_or(0)) + Amount::from(output.unwrap_or(0)),
            cost: cost.unwrap_or(0).into(),
        };
        self.settle(py, &held, &used)
    }

    pub(crate) fn unused(&self, py: Python<'_>) -> PyResult<()> {
        match self.take() {
            Some(held) => self.settle(py, &held, &Used::default()),
            None => Ok(()),
        }
    }

    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let Some(held) = self.take() else {
            return Ok(());
        };
        let demand = &self.demand.inner;
        let used = Used {
            requests: demand.requests,
            tokens: demand.input + demand.output,
            cost: demand.cost,
        };
        self.settle(py, &held, &used)
    }
}

#[pyclass(name = "Excess", module = "sluicegate._core", frozen)]
pub(crate) struct PyExcess {
    limits: Py<PyLimits>,
    inner: Excess,
    refused: Moment,
}

impl PyExcess {
    pub(crate) fn new(limits: &Bound<'_, PyLimits>, inner: Excess, refused: Moment) -> Self {
        Self {
            limits: limits.clone().unbind(),
            inner,
            refused,
        }
    }
}

#[pymethods]
impl PyExcess {
    #[getter]
    fn limit<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyLimit>> {
        self.limits.get().shown(py, self.inner.limit)
    }

    #[getter]
    fn wait(&self) -> f64 {
        self.inner.wait
    }

    #[getter]
    fn never(&self) -> bool {
        self.inner.never
    }

    #[getter]
    fn used(&self) -> Amount {
        self.inner.used
    }

    fn headers<'py>(&self, py: Python<'py>, form: &str) -> PyResult<Bound<'py, PyList>> {
        headers(py, self.limits.get(), form, &self.refused)
    }
}
