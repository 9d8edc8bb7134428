//! The connections to one upstream that one runtime keeps between exchanges.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::line::Line;
use crate::shared::Slot;

/// How often idle connections are looked at, at least: their peers may have closed them.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// What is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolLimits {
    /// The longest that a connection is kept without use.
    pub(crate) idle: Duration,
    /// Idle connections.
    pub(crate) connections: usize,
}

/// Sockets belong to the runtime that they were made on, and so does their pool.
pub(crate) struct Pool {
    runtime: Handle,
    limits: PoolLimits,
    idle: Mutex<Idle>,
    /// HTTP/2.
    pub(crate) slot: tokio::sync::Mutex<Slot>,
    /// The upstream could speak HTTP/2 and chose HTTP/1.1.
    http1_chosen: AtomicBool,
}

#[derive(Default)]
struct Idle {
    /// The most recently used one is the last.
    lines: VecDeque<Box<Line>>,
    /// A sweeper is at work.
    swept: bool,
}

impl Pool {
    pub(crate) fn new(runtime: Handle, limits: PoolLimits) -> Arc<Self> {
        Arc::new(Self {
            runtime,
            limits,
            idle: Mutex::default(),
            slot: tokio::sync::Mutex::default(),
            http1_chosen: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_of(&self, runtime: &Handle) -> bool {
        self.runtime.id() == runtime.id()
    }

    pub(crate) fn chose_http1(&self) -> bool {
        self.http1_chosen.load(Ordering::Relaxed)
    }

    pub(crate) fn set_chose_http1(&self, chosen: bool) {
        self.http1_chosen.store(chosen, Ordering::Relaxed);
    }

    /// The most recently used connection that is alive.
    pub(crate) fn checkout(&self) -> Option<Box<Line>> {
        let mut idle = self.idle();
        while let Some(mut line) = idle.lines.pop_back() {
            if line.idle_since().elapsed() >= self.limits.idle {
                // The others are older.
                idle.lines.clear();
                return None;
            }
            if line.is_alive() {
                return Some(line);
            }
        }
        None
    }

    /// Keep a connection that is idle; the one that has been for longest makes room for it.
    pub(crate) fn put(self: &Arc<Self>, line: Box<Line>) {
        if self.limits.connections == 0 || self.limits.idle.is_zero() {
            return;
        }
        let mut idle = self.idle();
        if idle.lines.len() >= self.limits.connections {
            idle.lines.pop_front();
        }
        idle.lines.push_back(line);
        self.watch(&mut idle);
    }

    /// An HTTP/2 connection is in the slot.
    pub(crate) fn watch_slot(self: &Arc<Self>) {
        self.watch(&mut self.idle());
    }

    fn watch(self: &Arc<Self>, idle: &mut Idle) {
        if !idle.swept {
            idle.swept = true;
            let pool = Arc::downgrade(self);
            self.runtime
                .spawn(sweep(pool, self.limits.idle.min(SWEEP_INTERVAL)));
        }
    }

    /// Let go of what is too old or has ended. Whether anything is left.
    fn sweep(&self) -> bool {
        let limit = self.limits.idle;
        let mut idle = self.idle();
        idle.lines
            .retain_mut(|line| line.idle_since().elapsed() < limit && line.is_alive());
        // If the slot is locked, an exchange is about to put a connection into it.
        let shared = self
            .slot
            .try_lock()
            .map_or(true, |mut slot| slot.sweep(limit));
        idle.swept = shared || !idle.lines.is_empty();
        idle.swept
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn idle_lines(&self) -> usize {
        self.idle().lines.len()
    }

    #[cfg(test)]
    pub(crate) fn is_swept(&self) -> bool {
        self.idle().swept
    }
}

async fn sweep(pool: Weak<Pool>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(pool) = pool.upgrade() else { return };
        // All of them are looked at, however many: the budget of a task would pass over those at the end, always the
        // same.
        let left = tokio::task::unconstrained(async { pool.sweep() }).await;
        if !left {
            return;
        }
    }
}
