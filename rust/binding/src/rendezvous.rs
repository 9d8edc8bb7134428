//! `Rendezvous`: the order of a model's deployments for a conversation.

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use sluicegate_core::limits::Limits;
use sluicegate_core::rendezvous::Rendezvous;
use sluicegate_core::request::{Request, affinity};

use crate::errors;

#[pyclass(name = "Rendezvous", module = "sluicegate._core", frozen)]
pub(crate) struct PyRendezvous {
    inner: Rendezvous,
}

#[pymethods]
impl PyRendezvous {
    #[new]
    #[allow(clippy::needless_pass_by_value)] // Extracted from Python objects.
    fn new(names: Vec<PyBackedStr>, weights: Vec<f64>) -> PyResult<Self> {
        if names.len() != weights.len() {
            return Err(PyValueError::new_err("each name has one weight"));
        }
        let places = names.iter().map(|name| &**name).zip(weights);
        Ok(Self {
            inner: Rendezvous::new(places),
        })
    }

    fn ranked(&self, key: u64, most: usize) -> Vec<usize> {
        self.inner.ranked(key, most)
    }
}

#[pyfunction]
pub(crate) fn affinity_of_chat(py: Python<'_>, body: PyBackedBytes) -> PyResult<Option<u64>> {
    let parsed = Request::parse_conversation(Bytes::from_owner(body), &Limits::default());
    let (_, affinity) = parsed.map_err(|error| errors::parse_error(py, &error))?;
    Ok(affinity)
}

#[pyfunction]
pub(crate) fn affinity_of_key(key: &[u8]) -> u64 {
    affinity::of_key(key)
}
