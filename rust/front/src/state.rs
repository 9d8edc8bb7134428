//! What the connections of a front share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::bounds::{Bounds, Limits};
use crate::callers::Callers;
use crate::clock::Times;
use crate::decisions::Decisions;
use crate::report::InFlight;

/// What all connections share.
pub(crate) struct State {
    pub(crate) limits: Limits,
    pub(crate) decisions: Arc<Decisions>,
    pub(crate) in_flight: InFlight,
    pub(crate) connections: AtomicUsize,
    pub(crate) draining: CancellationToken,
    /// The same as a flag: a look at the token takes a lock, which all connections share.
    drained: AtomicBool,
    callers: RwLock<Arc<Callers>>,
}

impl State {
    /// Nobody may call until it is said who.
    pub(crate) fn new(limits: Limits, decisions: Arc<Decisions>) -> Self {
        Self {
            limits,
            decisions,
            in_flight: InFlight::default(),
            connections: AtomicUsize::new(0),
            draining: CancellationToken::new(),
            drained: AtomicBool::new(false),
            callers: RwLock::new(Arc::new(Callers::nobody())),
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.drained.load(Ordering::Acquire)
    }

    pub(crate) fn drain(&self) {
        self.drained.store(true, Ordering::Release);
        self.draining.cancel();
    }

    pub(crate) fn callers(&self) -> Arc<Callers> {
        let callers = self.callers.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&callers)
    }

    pub(crate) fn set_callers(&self, callers: Callers) {
        let mut current = self.callers.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(callers);
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
