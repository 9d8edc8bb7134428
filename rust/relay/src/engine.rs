//! The engine threads: each runs one current-thread runtime, on which an exchange lives from its first byte to its
//! last.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::signal::Signal;

/// How long exchanges may take to end once the engine closes.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// The part of it in which an exchange may still ask what to tell its client.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(700);

/// How many turns an engine's tasks get once no exchange is under way, in each of which some sixty of them run: over
/// HTTP/2 a connection is a task of its own, which has yet to write what its exchanges have handed over.
const LAST_TURNS: u32 = 256;

/// What all engines of a process share: nothing that a token's way touches.
#[derive(Default)]
pub(crate) struct Shared {
    active: AtomicUsize,
    /// Replies that are read on without a client.
    pub(crate) draining: AtomicUsize,
    /// All exchanges are to end.
    closing: Signal,
    idle: Notify,
}

/// An exchange under way; it is over when this is dropped.
pub struct Active(Arc<Shared>);

impl Drop for Active {
    fn drop(&mut self) {
        if self.0.active.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

/// One engine thread, as its tasks know it.
#[derive(Clone)]
pub struct Engine {
    handle: Handle,
    pub(crate) shared: Arc<Shared>,
}

impl Engine {
    /// Run `task` on this engine's thread.
    pub fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.handle.spawn(task);
    }

    /// Count an exchange.
    #[must_use]
    pub fn enter(&self) -> Active {
        self.shared.active.fetch_add(1, Ordering::AcqRel);
        Active(Arc::clone(&self.shared))
    }

    /// Exchanges under way on all engines.
    #[must_use]
    pub fn active(&self) -> usize {
        self.shared.active.load(Ordering::Acquire)
    }

    /// Given when all exchanges are to end.
    #[must_use]
    pub fn closing(&self) -> &Signal {
        &self.shared.closing
    }
}

/// The engine threads of a process.
pub struct Engines {
    engines: Vec<Engine>,
    next: AtomicUsize,
    stop: CancellationToken,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Engines {
    /// Start `count` threads. `died` is called on an engine's thread that ends although it was not asked to.
    ///
    /// # Errors
    /// Where the system gives no thread or no event queue.
    pub fn start(count: usize, died: impl Fn(String) + Send + Sync + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let stop = CancellationToken::new();
        let died = Arc::new(died);
        // Whole from the first thread on: where another cannot be had, its drop ends those that run.
        let mut started = Self {
            engines: Vec::with_capacity(count),
            next: AtomicUsize::new(0),
            stop: stop.clone(),
            threads: Mutex::default(),
        };
        for number in 1..=count.max(1) {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .on_thread_start(give_way)
                .build()?;
            started.engines.push(Engine {
                handle: runtime.handle().clone(),
                shared: Arc::clone(&shared),
            });
            let (shared, stop, died) = (Arc::clone(&shared), stop.clone(), Arc::clone(&died));
            let life = move || {
                let death = Death {
                    stop: stop.clone(),
                    number,
                    died: &*died,
                };
                live(runtime, until_closed(&stop, &shared), death);
            };
            let thread = std::thread::Builder::new()
                .name(format!("sluicegate-engine-{number}"))
                .spawn(life)?;
            if let Ok(threads) = started.threads.get_mut() {
                threads.push(thread);
            }
        }
        Ok(started)
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Engine] {
        &self.engines
    }

    /// One of them, in turn.
    #[must_use]
    pub fn any(&self) -> &Engine {
        let number = self.next.fetch_add(1, Ordering::Relaxed) % self.engines.len();
        &self.engines[number]
    }

    /// Whether [`close`](Self::close) was called.
    #[must_use]
    pub fn closed(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// End every exchange, and the threads. Idempotent; blocks until the threads are gone.
    pub fn close(&self) {
        self.stop.cancel();
        // Held until the threads have ended, so that a second caller of `close` waits for that, too.
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // A panic of the thread has been reported; there is nothing left to end.
            let _ = thread.join();
        }
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        self.close();
    }
}

/// How much less an engine's threads for large texts count than itself, where there are fewer cores than threads that
/// could use them. On two cores a stream beside eight texts of 32 MiB paused for 2 s without.
const NICE: i32 = 10;

/// What each thread for large texts begins with.
fn give_way() {
    // Without the right to it everything works, more slowly. On Linux this is about the calling thread alone.
    let _ = rustix::process::setpriority_process(None, NICE);
}

/// What an engine's thread does from its first moment to its last.
fn live(runtime: Runtime, life: impl Future<Output = ()>, death: Death<'_>) {
    runtime.block_on(life);
    runtime.shutdown_background();
    drop(death);
}

/// A thread's own task: it ends once everything is to end, and has, or has had its time for it.
async fn until_closed(stop: &CancellationToken, shared: &Shared) {
    stop.cancelled().await;
    shared.closing.give();
    let idle = shared.idle.notified();
    if shared.active.load(Ordering::Acquire) > 0 {
        // Past the grace the runtime drops what is left; each exchange settles its outcome when dropped.
        let _ = tokio::time::timeout(CLOSE_GRACE, idle).await;
    }
    for _ in 0..LAST_TURNS {
        tokio::task::yield_now().await;
    }
}

/// Reports a thread's end, by whatever way it came.
struct Death<'a> {
    stop: CancellationToken,
    number: usize,
    died: &'a dyn Fn(String),
}

impl Drop for Death<'_> {
    fn drop(&mut self) {
        if !self.stop.is_cancelled() {
            (self.died)(format!("engine {} ended", self.number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::resume_unwind;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// What is said of a thread with this life.
    fn deaths(
        stop: &CancellationToken,
        life: impl Future<Output = ()> + Send + 'static,
    ) -> Vec<String> {
        let (tell, told) = channel();
        let stop = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let died = move |why| tell.send(why).unwrap();
            let death = Death {
                stop,
                number: 7,
                died: &died,
            };
            live(runtime, life, death);
        });
        let _ = thread.join();
        told.try_iter().collect()
    }

    #[test]
    fn a_thread_that_ends_untold_is_reported() {
        let stop = CancellationToken::new();
        assert_eq!(deaths(&stop, async {}), ["engine 7 ended"]);
        let panics = async { resume_unwind(Box::new("as the test wants")) };
        assert_eq!(deaths(&stop, panics), ["engine 7 ended"]);
        stop.cancel();
        assert!(deaths(&stop, async {}).is_empty());
    }

    #[test]
    fn engines_that_are_closed_have_not_died() {
        let died = Arc::new(AtomicBool::new(false));
        let says = Arc::clone(&died);
        let engines = Engines::start(3, move |_| says.store(true, Ordering::SeqCst)).unwrap();
        assert_eq!(engines.all().len(), 3);
        engines.all().iter().for_each(|engine| {
            engine.spawn(async { resume_unwind(Box::new("a task's panic is its own")) });
        });
        engines.close();
        engines.close();
        assert!(engines.closed());
        drop(engines);
        assert!(!died.load(Ordering::SeqCst));
    }

    #[test]
    fn what_is_under_way_is_waited_for() {
        let engines = Engines::start(2, |_| {}).unwrap();
        let engine = engines.all()[0].clone();
        let (tell, told) = channel();
        let (active, closing) = (engine.enter(), engine.closing().given_owned());
        engine.spawn(async move {
            closing.await;
            // More than one turn of the engine after it was told to end.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            tell.send("ended").unwrap();
            drop(active);
        });
        assert_eq!(engines.all()[1].active(), 1, "all engines count together");
        engines.close();
        assert_eq!(told.try_recv(), Ok("ended"));
    }

    #[test]
    fn what_does_not_end_is_dropped_and_whoever_closes_waits_for_that() {
        struct Held(
            std::sync::mpsc::Sender<()>,
            Arc<AtomicBool>,
            #[allow(dead_code)] Active,
        );

        impl Drop for Held {
            fn drop(&mut self) {
                self.1.store(true, Ordering::SeqCst);
                self.0.send(()).unwrap();
            }
        }

        let engines = Arc::new(Engines::start(1, |_| {}).unwrap());
        let engine = engines.any().clone();
        let (tell, told) = channel();
        let dropped = Arc::new(AtomicBool::new(false));
        let held = Held(tell, Arc::clone(&dropped), engine.enter());
        engine.spawn(async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        let closers = [0, 1].map(|_| {
            let (engines, dropped) = (Arc::clone(&engines), Arc::clone(&dropped));
            std::thread::spawn(move || {
                engines.close();
                dropped.load(Ordering::SeqCst)
            })
        });
        told.recv_timeout(PATIENCE).unwrap();
        assert!(closers.into_iter().all(|closer| closer.join().unwrap()));
        assert_eq!(engine.active(), 0);
    }
}
