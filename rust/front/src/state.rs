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
use crate::room::BodyRoom;

/// What all connections share.
pub(crate) struct FrontState {
    pub(crate) limits: Limits,
    pub(crate) decisions: Arc<Decisions>,
    pub(crate) in_flight: InFlight,
    /// For requests' bodies.
    pub(crate) body_room: Arc<BodyRoom>,
    pub(crate) connections: AtomicUsize,
    /// No new requests are taken.
    pub(crate) draining: Signal,
    settings: RwLock<Arc<Settings>>,
}

/// Settings that a reload replaces while requests come; together, since each request reads both.
pub(crate) struct Settings {
    pub(crate) callers: Arc<Callers>,
    pub(crate) wanted: Arc<Wanted>,
}

impl FrontState {
    /// No caller is accepted until [`set_callers`](Self::set_callers) has been called.
    pub(crate) fn new(limits: Limits, decisions: Arc<Decisions>) -> Self {
        Self {
            body_room: BodyRoom::new(limits.all_bodies),
            limits,
            decisions,
            in_flight: InFlight::default(),
            connections: AtomicUsize::new(0),
            draining: Signal::default(),
            settings: RwLock::new(Arc::new(Settings {
                callers: Arc::new(Callers::nobody()),
                wanted: Arc::default(),
            })),
        }
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        let settings = self.settings.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&settings)
    }

    pub(crate) fn set_callers(&self, callers: Callers) {
        let mut settings = self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *settings = Arc::new(Settings {
            callers: Arc::new(callers),
            wanted: Arc::clone(&settings.wanted),
        });
    }

    pub(crate) fn set_wanted(&self, wanted: Wanted) {
        let mut settings = self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *settings = Arc::new(Settings {
            callers: Arc::clone(&settings.callers),
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
