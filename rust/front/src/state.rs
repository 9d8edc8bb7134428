//! What the connections of a front share.

use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, PoisonError, RwLock};

use http::Method;
use rustls::ServerConfig;
use sluicegate_relay::Signal;
use tokio::sync::Semaphore;

use crate::bounds::{Bounds, Limits};
use crate::callers::Callers;
use crate::clock::Times;
use crate::decisions::Decisions;
use crate::endpoint::{Endpoint, Target};
use crate::facts::Wanted;
use crate::passthrough::Passthroughs;
use crate::report::InFlight;
use crate::room::BodyRoom;

/// What all connections share.
pub(crate) struct FrontState {
    pub(crate) limits: Limits,
    pub(crate) decisions: Arc<Decisions>,
    pub(crate) in_flight: InFlight,
    /// For requests' bodies.
    pub(crate) body_room: Arc<BodyRoom>,
    /// Clients' connections, those included that wait for room once the gateway drains.
    pub(crate) connections: AtomicUsize,
    /// Listening sockets that may have connections in their queues.
    pub(crate) accepting: AtomicUsize,
    /// No new requests are taken.
    pub(crate) draining: Signal,
    settings: RwLock<Arc<Settings>>,
}

/// Settings that a reload replaces while requests come; together, since requests read several.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) callers: Arc<Callers>,
    pub(crate) wanted: Arc<Wanted>,
    pub(crate) passthroughs: Arc<Passthroughs>,
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
            accepting: AtomicUsize::new(0),
            draining: Signal::default(),
            settings: RwLock::new(Arc::new(Settings {
                callers: Arc::new(Callers::nobody()),
                wanted: Arc::default(),
                passthroughs: Arc::default(),
            })),
        }
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        let settings = self.settings.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&settings)
    }

    /// Where a request for `path` goes; None: to no upstream.
    pub(crate) fn target(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
    ) -> Option<Target> {
        if method == Method::POST
            && let Some(endpoint) = Endpoint::at(path)
        {
            return Some(Target::known(endpoint, query));
        }
        self.settings().passthroughs.find(method, path, query)
    }

    pub(crate) fn set_callers(&self, callers: Callers) {
        self.replace(|settings| Settings {
            callers: Arc::new(callers),
            ..settings
        });
    }

    pub(crate) fn set_wanted(&self, wanted: Wanted) {
        self.replace(|settings| Settings {
            wanted: Arc::new(wanted),
            ..settings
        });
    }

    pub(crate) fn set_passthroughs(&self, passthroughs: Passthroughs) {
        self.replace(|settings| Settings {
            passthroughs: Arc::new(passthroughs),
            ..settings
        });
    }

    fn replace(&self, change: impl FnOnce(Settings) -> Settings) {
        let mut settings = self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *settings = Arc::new(change(Settings::clone(&settings)));
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
