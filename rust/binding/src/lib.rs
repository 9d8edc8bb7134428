//! The Python extension module `sluicegate._core`: the only crate that knows PyO3.
//!
//! | file | what |
//! | --- | --- |
//! | `decisions` | the queue of decisions, and its events |
//! | `front`, `outcome`, `record`, `upstream`, `request`, `responses_request`, `tariff`, `usage` | the classes |
//! | `journal`, `rows` | the journal of the ledger, and rows of the ledger that are made of it |
//! | `limits`, `lease` | what requests are held against, and what they hold of it |
//! | `rendezvous` | the order of deployments for a conversation |
//! | `stored` | events and items of stored responses |
//! | `library` | the core's machines for use without the gateway |
//! | `errors` | one map of errors to exceptions |
#![allow(missing_docs)] // The stub `_core.pyi` is the documentation of what Python sees.

mod decisions;
mod errors;
mod front;
mod journal;
mod lease;
mod library;
mod limits;
mod load_room;
mod outcome;
mod record;
mod rendezvous;
mod request;
mod responses_request;
mod rows;
mod stored;
mod tariff;
mod upstream;
mod usage;

use pyo3::prelude::*;

/// Reads and frames live for microseconds on one thread and are freed there: the C library grows and shrinks that
/// thread's heap for them, with a system call and fresh pages each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The byte path of sluicegate. Private: `sluicegate` re-exports what is public.
#[pymodule]
mod _core {
    use pyo3::prelude::*;
    use pyo3::types::PyTuple;
    use sluicegate_front::Endpoint;
    use sluicegate_relay::{FaultKind, Reason};

    #[pymodule_export]
    use super::decisions::{
        PyArrived, PyDecisions, PyDied, PyEnded, PyFailed, PyFirstOutput, PyPriceAsked,
        PyUnrecorded,
    };
    #[pymodule_export]
    use super::errors::messages_error_type;
    #[pymodule_export]
    use super::front::{PyExchange, PyFront, PyListenBounds, PyTls};
    #[pymodule_export]
    use super::journal::{PyAbandoned, PyBatch, PyEntry, PyJournal};
    #[pymodule_export]
    use super::lease::{PyExcess, PyLease};
    #[pymodule_export]
    use super::library::{
        PyChatToResponses, PyDecoder, PyEvent, PyHarmonyDecoder, PyMeter, PyPipeline,
        PyResponsesToChat, PySplitter, fold_chat, unfold_chat,
    };
    #[pymodule_export]
    use super::limits::{PyClock, PyDemand, PyEstimates, PyLimit, PyLimits, PyWindow};
    #[pymodule_export]
    use super::load_room::{PyLoadRoom, PyLoadShare};
    #[pymodule_export]
    use super::outcome::{PyFault, PyOutcome};
    #[pymodule_export]
    use super::record::PyRecord;
    #[pymodule_export]
    use super::rendezvous::{PyRendezvous, affinity_of_chat, affinity_of_key};
    #[pymodule_export]
    use super::request::PyRequest;
    #[pymodule_export]
    use super::responses_request::PyResponsesRequest;
    #[pymodule_export]
    use super::rows::{PyDatedRows, PyLines, PyRows};
    #[pymodule_export]
    use super::stored::{
        PyResponseFold, PyResponseNumbering, error_message, find_items, first_events,
        in_progress_event, item_ids, list_items, queued_response, read_response, repeated_items,
        skip_events, unfold_response,
    };
    #[pymodule_export]
    use super::tariff::{PyPricing, PyTariff};
    #[pymodule_export]
    use super::upstream::{
        PyChatTarget, PyDeadlines, PyMemberEdits, PyMessagesTarget, PyResponsesTarget, PyRoute,
        PyUpstream,
    };
    #[pymodule_export]
    use super::usage::PyUsage;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("BUILD", env!("SLUICEGATE_BUILD"))?;
        let row = |at: Endpoint| (at.path(), at.name().to_owned(), at.is_anthropic());
        let endpoints = Endpoint::all().map(row);
        let endpoints = endpoints.collect::<Vec<_>>();
        module.add("ENDPOINTS", PyTuple::new(module.py(), endpoints)?)?;
        let kinds = FaultKind::ALL.map(FaultKind::as_str);
        module.add("FAULT_KINDS", PyTuple::new(module.py(), kinds)?)?;
        let reasons = Reason::ALL.map(Reason::as_str);
        module.add("FAULT_REASONS", PyTuple::new(module.py(), reasons)?)
    }
}
