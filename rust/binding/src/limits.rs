//! `Clock`, `Window`, `Limit`, `Limits`: what requests are held against.
//!
//! All of it belongs to the thread that decides. Nothing is locked here while Python runs.

use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use sluicegate_core::pricing::{Cost, Pricing};
use sluicegate_core::usage::Usage;
use sluicegate_limits::{
    Amount, Calendar, Clock, Counter, Demand, Estimates, Excess, Held, Limit, Moment, Resource,
    Span, Unit, Whose, admit, excess, refused, take,
};

use crate::lease::{PyExcess, PyLease};
use crate::tariff::PyPricing;

fn unlocked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name_of(unit: Calendar) -> &'static str {
    match unit {
        Calendar::Day => "day",
        Calendar::Week => "week",
        Calendar::Month => "month",
    }
}

#[pyclass(name = "Clock", module = "sluicegate._core", frozen)]
pub(crate) struct PyClock {
    inner: Mutex<Clock>,
    bounds: Py<PyAny>,
}

impl PyClock {
    pub(crate) fn now(&self, py: Python<'_>) -> PyResult<Moment> {
        let now = unlocked(&self.inner).now();
        let mut ended = now.ended().peekable();
        if ended.peek().is_none() {
            return Ok(now);
        }
        for unit in ended {
            let found = self.bounds.call1(py, (name_of(unit), now.wall))?;
            let (began, ends) = found.extract(py)?;
            unlocked(&self.inner).begin(unit, Span { began, ends });
        }
        Ok(unlocked(&self.inner).now())
    }
}

#[pymethods]
impl PyClock {
    #[new]
    fn new(bounds: Py<PyAny>) -> Self {
        Self {
            inner: Mutex::default(),
            bounds,
        }
    }

    fn hear(&self, at: f64) -> PyResult<()> {
        if !at.is_finite() {
            return Err(PyValueError::new_err("a time is a finite number"));
        }
        unlocked(&self.inner).hear(at);
        Ok(())
    }

    fn hold(&self, monotonic: f64, wall: f64) {
        unlocked(&self.inner).hold(monotonic, wall);
    }
}

#[pyclass(name = "Window", module = "sluicegate._core", frozen, weakref)]
pub(crate) struct PyWindow {
    inner: Counter,
    clock: Py<PyClock>,
}

impl PyWindow {
    fn now(&self, py: Python<'_>) -> PyResult<Moment> {
        self.clock.get().now(py)
    }
}

#[pymethods]
impl PyWindow {
    #[new]
    fn new(clock: Py<PyClock>, unit: &str) -> PyResult<Self> {
        let unit = Unit::from_str(unit)
            .map_err(|()| PyValueError::new_err(format!("'{unit}' is no window")))?;
        let inner = Counter::new(unit);
        Ok(Self { inner, clock })
    }

    #[getter]
    fn used(&self, py: Python<'_>) -> PyResult<Amount> {
        let now = self.now(py)?;
        Ok(self.inner.at(&now).used())
    }

    #[getter]
    fn reset(&self, py: Python<'_>) -> PyResult<f64> {
        let now = self.now(py)?;
        Ok(self.inner.at(&now).reset(&now))
    }

    #[getter]
    fn slice(&self) -> Option<f64> {
        self.inner.lock().slice()
    }

    #[getter]
    fn span(&self, py: Python<'_>) -> PyResult<Option<(i64, f64)>> {
        let now = self.now(py)?;
        Ok(self.inner.at(&now).span())
    }

    fn add(&self, py: Python<'_>, amount: Amount) -> PyResult<i64> {
        let now = self.now(py)?;
        Ok(self.inner.at(&now).add(amount))
    }

    fn recall(&self, py: Python<'_>, at: f64) -> PyResult<Option<i64>> {
        let now = self.now(py)?;
        Ok(self.inner.at(&now).recall(at, &now))
    }

    fn raise_to(&self, place: i64, amount: Amount) {
        self.inner.lock().raise_to(place, amount);
    }

    #[allow(clippy::needless_pass_by_value)] // Extracted from a Python object.
    fn load_slices(&self, number: i64, amounts: Vec<(i64, Amount)>) {
        self.inner.lock().load_slices(number, &amounts);
    }

    fn load_total(&self, began: i64, used: Amount) {
        self.inner.lock().load_total(began, used);
    }
}

#[pyclass(name = "Limit", module = "sluicegate._core", frozen)]
pub(crate) struct PyLimit {
    inner: Limit,
    #[pyo3(get)]
    window: Py<PyWindow>,
    #[pyo3(get)]
    key: Py<PyAny>,
    #[pyo3(get)]
    name: Py<PyString>,
}

#[pymethods]
impl PyLimit {
    #[new]
    fn new(
        resource: &str,
        amount: Amount,
        window: Py<PyWindow>,
        key: Py<PyAny>,
        name: Py<PyString>,
    ) -> PyResult<Self> {
        let mut known = Resource::ALL.into_iter();
        let found = known.find(|known| known.as_str() == resource);
        let inner = Limit {
            resource: found
                .ok_or_else(|| PyValueError::new_err(format!("'{resource}' is not limited")))?,
            amount,
            window: window.get().inner.clone(),
        };
        Ok(Self {
            inner,
            window,
            key,
            name,
        })
    }

    #[getter]
    fn resource(&self) -> &'static str {
        self.inner.resource.as_str()
    }

    #[getter]
    fn amount(&self) -> Amount {
        self.inner.amount
    }
}

#[pyclass(name = "Estimates", module = "sluicegate._core", frozen)]
#[derive(Default)]
pub(crate) struct PyEstimates {
    inner: Arc<Mutex<Estimates>>,
}

#[pymethods]
impl PyEstimates {
    #[new]
    fn new() -> Self {
        Self::default()
    }
}

/// What a request will use, and what is to be learnt from what it has used.
#[pyclass(name = "Demand", module = "sluicegate._core", frozen)]
#[derive(Clone, Copy)]
pub(crate) struct PyDemand {
    pub(crate) inner: Demand,
    /// Its rough input, where something is to be learnt.
    pub(crate) learns: Option<u64>,
}

#[pymethods]
impl PyDemand {
    #[getter]
    fn input(&self) -> Amount {
        self.inner.input
    }

    fn of(&self, limit: &PyLimit) -> Amount {
        self.inner.of(limit.inner.resource)
    }
}

/// What tokens cost: by rates, or by what Python knows.
#[derive(FromPyObject)]
pub(crate) enum Price<'py> {
    Rates(Bound<'py, PyPricing>),
    Asked(Bound<'py, PyAny>),
}

impl Price<'_> {
    fn of(&self, input: u64, output: u64) -> PyResult<Option<u64>> {
        match self {
            Price::Rates(rates) => Ok(likely_cost(&rates.get().inner, input, output)),
            Price::Asked(asked) => asked.call1((input, output))?.extract(),
        }
    }
}

fn likely_cost(rates: &Pricing, input: u64, output: u64) -> Option<u64> {
    let usage = Usage {
        input_tokens: Some(input),
        output_tokens: Some(output),
        ..Usage::default()
    };
    let cost = rates.cost(&usage)?;
    // What the ledger has no number for is more than any budget.
    Some(Cost::in_picodollars(&cost).map_or(u64::MAX, |[total, ..]| total))
}

/// A limit as Python made it: callers share theirs, and there may be very many.
pub(crate) struct BoundLimit(Py<PyLimit>);

impl AsRef<Limit> for BoundLimit {
    fn as_ref(&self) -> &Limit {
        &self.0.get().inner
    }
}

#[pyclass(name = "Limits", module = "sluicegate._core", frozen)]
pub(crate) struct PyLimits {
    inner: Box<[BoundLimit]>,
    clock: Py<PyClock>,
    estimates: Arc<Mutex<Estimates>>,
    whose: Whose,
    learns: bool,
    by_maximum: bool,
    refuses_unpriced: bool,
    counts_cost: bool,
}

impl PyLimits {
    pub(crate) fn limits(&self) -> &[BoundLimit] {
        &self.inner
    }

    /// The limit at `position`, as Python made it.
    pub(crate) fn shown<'py>(
        &self,
        py: Python<'py>,
        position: usize,
    ) -> PyResult<Bound<'py, PyLimit>> {
        let limit = self.inner.get(position);
        let limit = limit.ok_or_else(|| PyIndexError::new_err("there is no such limit"))?;
        Ok(limit.0.bind(py).clone())
    }

    pub(crate) fn now(&self, py: Python<'_>) -> PyResult<Moment> {
        self.clock.get().now(py)
    }

    pub(crate) fn estimate_input(&self, rough: u64) -> u64 {
        unlocked(&self.estimates).input(&self.whose, rough)
    }

    /// The refusal, as Python has it; it takes back what the estimates have learnt where they alone refuse.
    fn excess(this: &Bound<'_, Self>, excess: Excess, now: Moment) -> PyExcess {
        if excess.by_estimate {
            let limits = this.get();
            unlocked(&limits.estimates).heal(&limits.whose);
        }
        PyExcess::new(this, excess, now)
    }

    pub(crate) fn learn(&self, rough: u64, input: Option<u64>, output: Option<u64>) {
        unlocked(&self.estimates).learn(&self.whose, rough, input, output);
    }
}

#[pymethods]
impl PyLimits {
    #[new]
    #[pyo3(signature = (
        limits, clock, estimates, *, caller, model, by_maximum=false, refuses_unpriced=false
    ))]
    #[allow(clippy::too_many_arguments)] // Keyword arguments on the Python side.
    fn new(
        limits: Vec<Py<PyLimit>>,
        clock: Py<PyClock>,
        estimates: &PyEstimates,
        caller: &str,
        model: &str,
        by_maximum: bool,
        refuses_unpriced: bool,
    ) -> Self {
        let inner: Box<[_]> = limits.into_iter().map(BoundLimit).collect();
        let of = |resource| {
            inner
                .iter()
                .any(|limit| limit.as_ref().resource == resource)
        };
        Self {
            counts_cost: of(Resource::Cost),
            inner,
            clock,
            estimates: Arc::clone(&estimates.inner),
            whose: Whose::new(caller, model),
            learns: !model.is_empty(),
            by_maximum,
            refuses_unpriced,
        }
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let limits = self.inner.iter().map(|limit| &limit.0);
        Ok(PyTuple::new(py, limits)?.try_iter()?.into_any())
    }

    #[getter]
    fn refuses_unpriced(&self) -> bool {
        self.refuses_unpriced
    }

    #[getter]
    fn wants_price(&self) -> bool {
        self.counts_cost || self.refuses_unpriced
    }

    #[pyo3(signature = (rough_input, output_bound, price=None, requests=1, work="reply", /))]
    #[allow(clippy::needless_pass_by_value)] // Extracted from a Python object.
    fn demand(
        &self,
        rough_input: u64,
        output_bound: Option<u64>,
        price: Option<Price<'_>>,
        requests: u32,
        work: &str,
    ) -> PyResult<Option<PyDemand>> {
        let requests = requests.into();
        let concurrent = match work {
            "none" => 0,
            "count" | "reply" => 1,
            _ => {
                let message = format!("'{work}' is no work of a request");
                return Err(PyValueError::new_err(message));
            }
        };
        if work != "reply" {
            let inner = Demand {
                requests,
                concurrent,
                ..Demand::default()
            };
            return Ok(Some(PyDemand {
                inner,
                learns: None,
            }));
        }
        let price = |input, output| {
            let price = price.as_ref();
            price.map_or(Ok(None), |price| price.of(input, output))
        };
        if self.refuses_unpriced && price(1, 1)?.is_none() {
            return Ok(None);
        }
        let (input, likely) = {
            let estimates = unlocked(&self.estimates);
            let input = estimates.input(&self.whose, rough_input);
            (input, estimates.output(&self.whose, output_bound))
        };
        let most = output_bound.filter(|_| self.by_maximum);
        let output = most.unwrap_or(likely);
        let unlearnt = Estimates::unlearnt(rough_input, output_bound);
        let unlearnt = (unlearnt.0.into(), most.unwrap_or(unlearnt.1).into());
        let cost = if self.counts_cost {
            price(input, output)?.unwrap_or(0)
        } else {
            0
        };
        let inner = Demand {
            requests,
            concurrent,
            input: input.into(),
            output: output.into(),
            cost: cost.into(),
            unlearnt,
        };
        Ok(Some(PyDemand {
            inner,
            learns: self.learns.then_some(rough_input),
        }))
    }

    #[pyo3(signature = (demand, times=1, tell=None))]
    fn admit<'py>(
        this: &Bound<'py, Self>,
        demand: &PyDemand,
        times: u32,
        tell: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, times) = (this.py(), times.max(1));
        let now = this.get().now(py)?;
        let found = match admit(&this.get().inner, &demand.inner, &now, times.into()) {
            Ok(held) => {
                let lease = PyLease::new(this, *demand, held, now, times, tell);
                Bound::new(py, lease)?.into_any()
            }
            Err(excess) => Bound::new(py, Self::excess(this, excess, now))?.into_any(),
        };
        Ok(found)
    }

    #[pyo3(name = "excess", signature = (demand, times=1))]
    fn refuses(
        this: &Bound<'_, Self>,
        demand: &PyDemand,
        times: u32,
    ) -> PyResult<Option<PyExcess>> {
        let now = this.get().now(this.py())?;
        let found = excess(&this.get().inner, &demand.inner, &now, times.max(1).into());
        Ok(found.map(|excess| Self::excess(this, excess, now)))
    }

    #[pyo3(signature = (demand, times=1, tell=None))]
    fn take(
        this: &Bound<'_, Self>,
        demand: &PyDemand,
        times: u32,
        tell: Option<Py<PyAny>>,
    ) -> PyResult<PyLease> {
        let times = times.max(1);
        let now = this.get().now(this.py())?;
        let held = take(&this.get().inner, &demand.inner, &now, times.into());
        Ok(PyLease::new(this, *demand, held, now, times, tell))
    }

    fn taken(
        this: &Bound<'_, Self>,
        demand: &PyDemand,
        held: Vec<(i64, Amount)>,
        tell: Py<PyAny>,
    ) -> PyResult<PyLease> {
        let held = held.into_iter();
        let held = held.map(|(place, amount)| Held { place, amount });
        let now = this.get().now(this.py())?;
        Ok(PyLease::new(
            this,
            *demand,
            held.collect(),
            now,
            1,
            Some(tell),
        ))
    }

    #[allow(clippy::needless_pass_by_value)] // Extracted from a Python object.
    fn refused(
        this: &Bound<'_, Self>,
        demand: &PyDemand,
        over: Vec<(usize, Amount)>,
    ) -> PyResult<PyExcess> {
        let now = this.get().now(this.py())?;
        let excess = refused(&this.get().inner, &over, &demand.inner, &now, 1);
        let excess = excess.ok_or_else(|| PyValueError::new_err("no limit refuses"))?;
        Ok(Self::excess(this, excess, now))
    }
}
