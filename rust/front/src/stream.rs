//! The stall bound of one request over HTTP/2: only this stream is reset when its client does not open the stream's
//! window.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

#[derive(Default)]
struct StreamState {
    /// Since when a frame waits for the client to take it.
    waiting: Option<Instant>,
    stalled: bool,
}

/// Whether the client takes the reply to one HTTP/2 request. Shared by hyper's task for the request and by the reply's
/// body.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<Mutex<StreamState>>);

tokio::task_local! {
    static WATCH: Watch;
}

impl Watch {
    /// The watch of the task that is running; there is none over HTTP/1.1, where a connection has one reply and a
    /// clock.
    pub(crate) fn of_task() -> Option<Self> {
        WATCH.try_with(Self::clone).ok()
    }

    fn lock(&self) -> MutexGuard<'_, StreamState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A frame was handed over. hyper asks for the next one once there was room for this one.
    pub(crate) fn given(&self) {
        self.lock().waiting = Some(Instant::now());
    }

    /// The next frame is asked for.
    pub(crate) fn asked(&self) {
        self.lock().waiting = None;
    }

    /// The request was cut since its client took nothing.
    pub(crate) fn has_stalled(&self) -> bool {
        self.lock().stalled
    }
}

/// Runs hyper's tasks, each of which is one HTTP/2 request, and drops one whose client takes nothing for `stall`. h2
/// resets what is dropped unfinished.
#[derive(Clone)]
pub(crate) struct Streams {
    pub(crate) stall: Option<Duration>,
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        match self.stall {
            None => tokio::spawn(stream),
            Some(stall) => tokio::spawn(watched(stream, stall)),
        };
    }
}

async fn watched(stream: impl Future<Output = ()> + Send, stall: Duration) {
    let watch = Watch::default();
    let mut stream = pin!(WATCH.scope(watch.clone(), stream));
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Some(since) = watch.lock().waiting else {
            return Poll::Pending;
        };
        let at = since + stall;
        let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        // It was set for a frame before this one, and is never later.
        while timer.as_mut().poll(cx).is_ready() {
            if at <= Instant::now() {
                watch.lock().stalled = true;
                return Poll::Ready(());
            }
            timer.as_mut().reset(at);
        }
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn one_that_gets_on_is_not_cut() {
        let stream = async {
            let watch = Watch::of_task().unwrap();
            for _ in 0..5 {
                watch.given();
                tokio::time::sleep(STALL / 2).await;
                watch.asked();
                tokio::time::sleep(STALL * 2).await;
            }
        };
        let started = Instant::now();
        watched(stream, STALL).await;
        assert!(started.elapsed() >= STALL * 12);
    }

    #[tokio::test(start_paused = true)]
    async fn one_whose_client_takes_nothing_is_cut_in_time() {
        let (tell, told) = tokio::sync::oneshot::channel();
        let stream = async {
            let watch = Watch::of_task().unwrap();
            watch.given();
            tokio::time::sleep(STALL / 2).await;
            watch.asked();
            watch.given();
            let _ = tell.send(watch);
            std::future::pending::<()>().await;
        };
        let started = Instant::now();
        watched(stream, STALL).await;
        assert!(told.await.unwrap().has_stalled());
        assert!(started.elapsed() >= STALL + STALL / 2);
        assert!(started.elapsed() < STALL * 2);
    }

    #[tokio::test]
    async fn there_is_none_elsewhere() {
        assert!(Watch::of_task().is_none());
    }
}
