//! The Python extension module `sluicegate._core`: the only crate that knows PyO3.
#![allow(missing_docs)]

use pyo3::prelude::*;

/// The byte path of sluicegate.
#[pymodule]
mod _core {
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
