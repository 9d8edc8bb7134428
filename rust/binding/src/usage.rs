//! `Usage`: token counts in the normal form.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sluicegate_core::usage::Usage;

#[pyclass(name = "Usage", module = "sluicegate._core", frozen)]
pub(crate) struct PyUsage {
    pub(crate) inner: Usage,
}

impl PyUsage {
    fn counts(&self) -> [(&'static str, Option<u64>); 11] {
        let u = &self.inner;
        [
            ("input_tokens", u.input_tokens),
            ("cached_input_tokens", u.cached_input_tokens),
            ("cache_write_tokens", u.cache_write_tokens),
            ("cache_write_1h_tokens", u.cache_write_1h_tokens),
            ("output_tokens", u.output_tokens),
            ("reasoning_tokens", u.reasoning_tokens),
            ("input_audio_tokens", u.input_audio_tokens),
            ("output_audio_tokens", u.output_audio_tokens),
            ("input_image_tokens", u.input_image_tokens),
            ("output_image_tokens", u.output_image_tokens),
            ("total_tokens", u.total_tokens()),
        ]
    }
}

#[pymethods]
impl PyUsage {
    #[getter]
    fn input_tokens(&self) -> Option<u64> {
        self.inner.input_tokens
    }

    #[getter]
    fn cached_input_tokens(&self) -> Option<u64> {
        self.inner.cached_input_tokens
    }

    #[getter]
    fn cache_write_tokens(&self) -> Option<u64> {
        self.inner.cache_write_tokens
    }

    #[getter]
    fn cache_write_1h_tokens(&self) -> Option<u64> {
        self.inner.cache_write_1h_tokens
    }

    #[getter]
    fn output_tokens(&self) -> Option<u64> {
        self.inner.output_tokens
    }

    #[getter]
    fn reasoning_tokens(&self) -> Option<u64> {
        self.inner.reasoning_tokens
    }

    #[getter]
    fn input_audio_tokens(&self) -> Option<u64> {
        self.inner.input_audio_tokens
    }

    #[getter]
    fn output_audio_tokens(&self) -> Option<u64> {
        self.inner.output_audio_tokens
    }

    #[getter]
    fn input_image_tokens(&self) -> Option<u64> {
        self.inner.input_image_tokens
    }

    #[getter]
    fn output_image_tokens(&self) -> Option<u64> {
        self.inner.output_image_tokens
    }

    #[getter]
    fn total_tokens(&self) -> Option<u64> {
        self.inner.total_tokens()
    }

    #[getter]
    fn upstream_cost(&self) -> Option<&str> {
        self.inner.upstream_cost.as_deref()
    }

    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, count) in self.counts() {
            if let Some(count) = count {
                dict.set_item(name, count)?;
            }
        }
        if let Some(cost) = &self.inner.upstream_cost {
            dict.set_item("upstream_cost", &**cost)?;
        }
        Ok(dict)
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.inner == other.inner
    }

    fn __repr__(&self) -> String {
        let fields = self
            .counts()
            .into_iter()
            .filter_map(|(name, count)| count.map(|count| format!("{name}={count}")))
            .collect::<Vec<_>>();
        format!("Usage({})", fields.join(", "))
    }
}
