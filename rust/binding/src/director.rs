//! The relay's decisions, asked of the Python object that stands for one reply.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use sluicegate_core::usage::Usage;
use sluicegate_relay::{Director, ErrorReply, Fault, Next};

use crate::exchange::PyFault;
use crate::upstream::{PyHeaders, PyRoute, header_list};
use crate::usage::PyUsage;

/// The reply where the Python side failed to make one.
const INTERNAL_ERROR: &[u8] = br#"{"error":{"message":"The gateway failed to answer.","type":"server_error","code":"internal","param":null}}"#;

pub(crate) struct PyDirector {
    pub(crate) reply: Py<PyAny>,
}

impl Director for PyDirector {
    fn price(&mut self, usage: &Usage) -> Option<Bytes> {
        Python::try_attach(|py| {
            let usage = PyUsage {
                inner: usage.clone(),
            };
            let priced = self
                .reply
                .bind(py)
                .call_method1(pyo3::intern!(py, "price"), (usage,))
                .and_then(|members| Ok(members.extract::<Option<PyBackedBytes>>()?));
            match priced {
                Ok(members) => members.map(|members| Bytes::copy_from_slice(&members)),
                Err(error) => {
                    error.write_unraisable(py, Some(self.reply.bind(py)));
                    None
                }
            }
        })
        .flatten()
    }

    fn failed(&mut self, fault: &Fault) -> Next {
        Python::try_attach(|py| {
            let fault = PyFault {
                inner: fault.clone(),
            };
            let next = self
                .reply
                .bind(py)
                .call_method1(pyo3::intern!(py, "failed"), (fault,));
            match next.and_then(|next| read_next(&next)) {
                Ok(next) => next,
                Err(error) => {
                    error.write_unraisable(py, Some(self.reply.bind(py)));
                    internal_error()
                }
            }
        })
        .unwrap_or_else(internal_error)
    }
}

fn read_next(next: &Bound<'_, PyAny>) -> PyResult<Next> {
    if let Ok(route) = next.cast::<PyRoute>() {
        return Ok(Next::Route(route.get().inner.clone()));
    }
    let (status, headers, body): (u16, PyHeaders, PyBackedBytes) = next.extract()?;
    let body = Bytes::copy_from_slice(&body);
    Ok(Next::Reply(ErrorReply {
        status,
        headers: header_list(headers),
        body,
    }))
}

fn internal_error() -> Next {
    Next::Reply(ErrorReply {
        status: 500,
        headers: vec![(
            Bytes::from_static(b"content-type"),
            Bytes::from_static(b"application/json"),
        )],
        body: Bytes::from_static(INTERNAL_ERROR),
    })
}
