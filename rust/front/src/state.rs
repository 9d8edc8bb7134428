//! What the connections of a front share.

use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use sluicegate_relay::Signal;
use tokio::sync::Semaphore;

use crate::bounds::{Bounds, Limits};
use crate::callers::Callers;
use crate::clock::Times;
use crate::decisions::Decisions;
use crate::facts::Wanted;
use crate::report::InFlight;

/// What all connections share.
pub(crate) struct State {
    pub(crate) limits: Limits,
    pub(crate) decisions: Arc<Decisions>,
    pub(crate) in_flight: InFlight,
    pub(crate) connections: AtomicUsize,
    /// No new requests are taken.
    pub(crate) draining: Signal,
    told: RwLock<Arc<Told>>,
}

/// What can be told anew while requests come; together, since each of them looks at both.
pub(crate) struct Told {
    pub(crate) callers: Arc<Callers>,
    pub(crate) wanted: Arc<Wanted>,
}

impl State {
    /// Nobody may call until it is said who.
    pub(crate) fn new(limits: Limits, decisions: Arc<Decisions>) -> Self {
        Self {
            limits,
            decisions,
            in_flight: InFlight::default(),
            connections: AtomicUsize::new(0),
            draining: Signal::default(),
            told: RwLock::new(Arc::new(Told {
                callers: Arc::new(Callers::nobody()),
                wanted: Arc::default(),
            })),
        }
    }

    pub(crate) fn told(&self) -> Arc<Told> {
        let told = self.told.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&told)
    }

    pub(crate) fn set_callers(&self, callers: Callers) {
        let mut told = self.told.write().unwrap_or_else(PoisonError::into_inner);
        *told = Arc::new(Told {
            callers: Arc::new(callers),
            wanted: Arc::clone(&told.wanted),
        });
    }

    pub(crate) fn set_wanted(&self, wanted: Wanted) {
        let mut told = self.told.write().unwrap_or_else(PoisonError::into_inner);
        *told = Arc::new(Told {
            callers: Arc::clone(&told.callers),
            wanted: Arc::new(wanted),
        });
    }
}

/// What the listeners add to it.
pub(crate) struct Listening {
    pub(crate) bounds: Bounds,
    pub(crate) times: Times,
    pub(crate) http2: bool,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// The Unix socket of the application.
    pub(crate) application: PathBuf,
    /// Room for connections.
    pub(crate) room: Arc<Semaphore>,
    /// The requests that the application has. One HTTP/2 connection can make many, and each takes descriptors.
    pub(crate) passed: InFlight,
}
