//! The relay's thread.

use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::exchange::{Control, Exchange};

/// How long the exchanges that are told to end at closing have for it.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// The relay cannot be used.
#[derive(Debug)]
pub enum RelayError {
    /// The thread could not be started.
    Start(io::Error),
    /// It was closed.
    Closed,
}

impl std::fmt::Display for RelayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RelayError::Start(e) => write!(f, "the relay's thread could not be started: {e}"),
            RelayError::Closed => f.write_str("the relay is closed"),
        }
    }
}

impl std::error::Error for RelayError {}

#[derive(Default)]
pub(crate) struct Shared {
    active: AtomicUsize,
    /// Replies that are read on without a client.
    pub(crate) draining: AtomicUsize,
    pub(crate) closing: CancellationToken,
    stop: Notify,
    idle: Notify,
}

impl Shared {
    /// An exchange begins; it ends when the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> Active {
        self.active.fetch_add(1, Ordering::AcqRel);
        Active(Arc::clone(self))
    }
}

pub(crate) struct Active(Arc<Shared>);

impl Drop for Active {
    fn drop(&mut self) {
        if self.0.active.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

/// One thread that does all upstream I/O of this process.
pub struct Relay {
    shared: Arc<Shared>,
    handle: Handle,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Relay {
    /// Start the thread. `before_park` runs on it whenever nothing is left to do until the next readiness event: what became ready
    /// in one turn of the reactor is delivered there together. `around` wraps the thread's whole life (to keep it attached to
    /// an interpreter, say).
    pub fn start(
        before_park: impl Fn() + Send + Sync + 'static,
        around: impl FnOnce(Box<dyn FnOnce() + Send>) + Send + 'static,
    ) -> Result<Self, RelayError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_park(before_park)
            .build()
            .map_err(RelayError::Start)?;
        let handle = runtime.handle().clone();
        let shared = Arc::new(Shared::default());
        let on_thread = Arc::clone(&shared);
        let body: Box<dyn FnOnce() + Send> = Box::new(move || {
            runtime.block_on(async {
                on_thread.stop.notified().await;
                on_thread.closing.cancel();
                let idle = on_thread.idle.notified();
                if on_thread.active.load(Ordering::Acquire) > 0 {
                    // Past the grace the runtime drops what is left; each exchange settles its outcome when dropped.
                    let _ = tokio::time::timeout(CLOSE_GRACE, idle).await;
                }
            });
            runtime.shutdown_background();
        });
        let thread = std::thread::Builder::new()
            .name("sluicegate-relay".to_owned())
            .spawn(move || around(body))
            .map_err(RelayError::Start)?;
        Ok(Self {
            shared,
            handle,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Send an exchange on its way.
    pub fn submit(&self, exchange: Exchange) -> Result<Arc<Control>, RelayError> {
        if self.thread.lock().map_or(true, |thread| thread.is_none()) {
            return Err(RelayError::Closed);
        }
        let control = Arc::new(Control::new());
        let active = self.shared.enter();
        self.handle
            .spawn(exchange.run(Arc::clone(&control), Arc::clone(&self.shared), active));
        Ok(control)
    }

    /// Exchanges under way.
    pub fn active(&self) -> usize {
        self.shared.active.load(Ordering::Acquire)
    }

    /// End every exchange, and the thread. Idempotent; blocks until the thread is gone.
    pub fn close(&self) {
        let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
        if let Some(thread) = thread {
            self.shared.stop.notify_one();
            // A panic of the thread has been reported by the panic hook; there is nothing left to end.
            let _ = thread.join();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.close();
    }
}
