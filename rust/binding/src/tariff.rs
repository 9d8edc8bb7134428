//! `Tariff`, `Pricing`: the prices of a route, given by Python once; costs are then computed in Rust.

use std::str::FromStr;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyBytes;
use sluicegate_core::pricing::{CostStyle, Pricing, Rates, Tariff};
use sluicegate_core::usage::Usage;

type PyRates = [Option<PyBackedStr>; 11];

fn rates(texts: &PyRates) -> PyResult<Rates> {
    let texts = texts
        .each_ref()
        .map(|text| text.as_ref().map(|text| &**text));
    Rates::parse(&texts).map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pyclass(name = "Tariff", module = "sluicegate._core", frozen)]
pub(crate) struct PyTariff {
    inner: Arc<Tariff>,
}

#[pymethods]
impl PyTariff {
    #[new]
    #[allow(clippy::needless_pass_by_value)] // Extracted from Python objects.
    fn new(base: PyRates, tiers: Vec<(u64, PyRates)>) -> PyResult<Self> {
        let tiers = tiers
            .iter()
            .map(|(above, texts)| Ok((*above, rates(texts)?)))
            .collect::<PyResult<_>>()?;
        let inner = Arc::new(Tariff::new(rates(&base)?, tiers));
        Ok(Self { inner })
    }
}

#[pyclass(name = "Pricing", module = "sluicegate._core", frozen)]
pub(crate) struct PyPricing {
    pub(crate) inner: Arc<Pricing>,
}

#[pymethods]
impl PyPricing {
    #[new]
    #[pyo3(signature = (tariff, style, id=None))]
    fn new(tariff: Option<&PyTariff>, style: &str, id: Option<&str>) -> PyResult<Self> {
        let style = CostStyle::from_str(style).map_err(|()| {
            PyValueError::new_err(format!(
                "style is openrouter, cocoon or none, not '{style}'"
            ))
        })?;
        let tariff = tariff.map(|tariff| Arc::clone(&tariff.inner));
        let mut pricing = Pricing::new(tariff, style);
        if let Some(id) = id {
            pricing = pricing.named(id.into());
        }
        let inner = Arc::new(pricing);
        Ok(Self { inner })
    }

    #[pyo3(signature = (
        *, input_tokens=None, cached_input_tokens=None, cache_write_tokens=None, cache_write_1h_tokens=None,
        output_tokens=None, reasoning_tokens=None, input_audio_tokens=None, output_audio_tokens=None,
        input_image_tokens=None, output_image_tokens=None,
    ))]
    #[allow(clippy::too_many_arguments)] // Keyword arguments on the Python side.
    fn price<'py>(
        &self,
        py: Python<'py>,
        input_tokens: Option<u64>,
        cached_input_tokens: Option<u64>,
        cache_write_tokens: Option<u64>,
        cache_write_1h_tokens: Option<u64>,
        output_tokens: Option<u64>,
        reasoning_tokens: Option<u64>,
        input_audio_tokens: Option<u64>,
        output_audio_tokens: Option<u64>,
        input_image_tokens: Option<u64>,
        output_image_tokens: Option<u64>,
    ) -> (Option<String>, Option<Bound<'py, PyBytes>>) {
        let (cost, members) = self.inner.price(&Usage {
            input_tokens,
            cached_input_tokens,
            cache_write_tokens,
            cache_write_1h_tokens,
            output_tokens,
            reasoning_tokens,
            input_audio_tokens,
            output_audio_tokens,
            input_image_tokens,
            output_image_tokens,
            ..Usage::default()
        });
        (
            cost.map(|cost| cost.total()),
            members.map(|members| PyBytes::new(py, members.as_bytes())),
        )
    }
}
