//! One map from the errors of the Rust side to the exceptions of `sluicegate.errors`, and what clients are told.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use sluicegate_core::error::{Error, ErrorKind};
use sluicegate_core::protocols::messages::vocabulary::error_type;
use sluicegate_front::TlsError;
use sluicegate_relay::UpstreamError;

/// The exception class for an error's kind; exhaustive, so that a new kind does not compile until it has one.
fn class_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::EventTooLarge => "EventTooLarge",
        ErrorKind::DocumentTooLarge => "DocumentTooLarge",
        ErrorKind::TooDeep => "TooDeep",
        ErrorKind::TooManyItems => "LimitExceeded",
        ErrorKind::WrongType | ErrorKind::TooManyDuplicates => "InvalidRequest",
        ErrorKind::SecondReply
        | ErrorKind::ReportedError
        | ErrorKind::NoCompletion
        | ErrorKind::NotAReply
        | ErrorKind::Untranslatable => "ParseError",
        ErrorKind::UnexpectedEnd
        | ErrorKind::UnexpectedByte
        | ErrorKind::InvalidUtf8
        | ErrorKind::TrailingBytes
        | ErrorKind::NotAnObject => "InvalidJSON",
    }
}

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module =
        ERRORS.get_or_try_init(py, || py.import("sluicegate.errors").map(Bound::unbind))?;
    module.bind(py).getattr(name)
}

fn raise(
    py: Python<'_>,
    name: &str,
    arguments: impl for<'py> pyo3::call::PyCallArgs<'py>,
) -> PyErr {
    let exception =
        class(py, name).and_then(|class| class.cast_into::<PyType>().map_err(Into::into));
    match exception.and_then(|class| class.call1(arguments)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

pub(crate) fn parse_error(py: Python<'_>, error: &Error) -> PyErr {
    raise(
        py,
        class_name(error.kind),
        (error.kind.message(), error.offset),
    )
}

pub(crate) fn upstream_error(py: Python<'_>, error: &UpstreamError) -> PyErr {
    raise(py, "ConfigurationError", (error.to_string(),))
}

pub(crate) fn tls_error(py: Python<'_>, error: &TlsError) -> PyErr {
    raise(py, "ConfigurationError", (error.to_string(),))
}

/// The `type` of an error with this status, for clients of Messages.
#[pyfunction]
pub(crate) fn messages_error_type(status: u16) -> &'static str {
    error_type(status)
}
