//! The bodies of all replies.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use sluicegate_relay::Aborted;

use crate::carried::Carried;
use crate::clock::Underway;
use crate::report::Entered;
use crate::stream::Watch;

/// The body of a reply. Dropped when the last of it is with the connection, or the client has gone.
pub(crate) struct ReplyBody {
    source: Source,
    watch: Option<Watch>,
    underway: Underway,
}

enum Source {
    /// All of it is there.
    Whole { frames: VecDeque<Bytes>, left: u64 },
    /// It comes.
    Carried {
        first: VecDeque<Bytes>,
        carried: Carried,
        aborted: bool,
    },
    /// The application's.
    Application { body: Incoming, _entered: Entered },
}

impl ReplyBody {
    pub(crate) fn whole(frames: impl Into<VecDeque<Bytes>>, underway: Underway) -> Self {
        let frames = frames.into();
        let left = frames.iter().map(|frame| frame.len() as u64).sum();
        Self {
            source: Source::Whole { frames, left },
            watch: Watch::of_task(),
            underway,
        }
    }

    pub(crate) fn carried(first: VecDeque<Bytes>, carried: Carried, underway: Underway) -> Self {
        Self {
            source: Source::Carried {
                first,
                carried,
                aborted: false,
            },
            watch: Watch::of_task(),
            underway,
        }
    }

    pub(crate) fn application(body: Incoming, entered: Entered, underway: Underway) -> Self {
        Self {
            source: Source::Application {
                body,
                _entered: entered,
            },
            watch: Watch::of_task(),
            underway,
        }
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        // Whoever knows that nothing follows does not ask for it.
        if self.source.is_end_stream() {
            self.underway.is_whole();
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        if let Some(watch) = &self.watch {
            watch.asked();
        }
        let frame = self.source.poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Ok(_))) => {
                if let Some(watch) = &self.watch {
                    watch.given();
                }
            }
            Poll::Ready(None | Some(Err(_))) => self.underway.is_whole(),
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.size_hint()
    }
}

impl Source {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        match self {
            Source::Whole { frames, left } => Poll::Ready(frames.pop_front().map(|frame| {
                *left -= frame.len() as u64;
                Ok(Frame::data(frame))
            })),
            Source::Carried {
                first,
                carried,
                aborted,
            } => {
                if let Some(frame) = first.pop_front() {
                    return Poll::Ready(Some(Ok(Frame::data(frame))));
                }
                if *aborted {
                    return Poll::Ready(Some(Err(Aborted)));
                }
                match ready!(carried.poll_frame(cx)) {
                    Some(Err(Aborted)) => {
                        // On an error the connection drops what it has not written, so it is given a turn to write
                        // first.
                        *aborted = true;
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }
                    frame => Poll::Ready(frame.map(|frame| frame.map(Frame::data))),
                }
            }
            Source::Application { body, .. } => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(|_| Aborted)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Source::Whole { frames, .. } => frames.is_empty(),
            Source::Carried { .. } => false,
            Source::Application { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Source::Whole { left, .. } => SizeHint::with_exact(*left),
            Source::Carried { .. } => SizeHint::default(),
            Source::Application { body, .. } => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};
    use std::time::Duration;

    use sluicegate_relay::{Engines, Sink, reply};

    use super::*;
    use crate::clock::{Clock, Expired, Times};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn clock() -> Arc<Clock> {
        Clock::new(Times {
            head: Duration::from_secs(1),
            idle: Duration::from_secs(1),
            stall: None,
            resets: 1,
        })
    }

    fn carried(first: &[&'static str]) -> (Sink, ReplyBody, Arc<Clock>, Engines) {
        let engines = Engines::start(1, |_| {}).unwrap();
        let (sink, reply) = reply(1024);
        let clock = clock();
        let carried = Carried::over(reply, engines.any(), &clock);
        let first = first.iter().map(|text| Bytes::from_static(text.as_bytes()));
        let body = ReplyBody::carried(first.collect(), carried, clock.begin());
        (sink, body, clock, engines)
    }

    fn poll(body: &mut ReplyBody, waker: &Waker) -> Poll<Option<Result<Bytes, Aborted>>> {
        let frame = ready!(Pin::new(body).poll_frame(&mut Context::from_waker(waker)));
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.into_data().unwrap())))
    }

    fn text(frame: &Poll<Option<Result<Bytes, Aborted>>>) -> &[u8] {
        match frame {
            Poll::Ready(Some(Ok(frame))) => frame,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_taken_before_comes_first() {
        let (mut sink, mut body, ..) = carried(&["a", "b"]);
        sink.push(&mut vec![Bytes::from_static(b"c")]);
        sink.end();
        for expected in [b"a", b"b", b"c"] {
            assert_eq!(text(&poll(&mut body, Waker::noop())), expected);
        }
        assert!(matches!(poll(&mut body, Waker::noop()), Poll::Ready(None)));
    }

    #[test]
    fn an_abort_lets_the_connection_write_first() {
        let (mut sink, mut body, ..) = carried(&[]);
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        sink.push(&mut vec![Bytes::from_static(b"a")]);
        sink.abort();
        assert_eq!(text(&poll(&mut body, &waker)), b"a");
        // The connection has a turn in which it finds nothing to do but to write.
        assert!(poll(&mut body, &waker).is_pending());
        assert_eq!(
            count.0.load(Ordering::SeqCst),
            1,
            "and it is woken to hear the rest"
        );
        assert!(matches!(
            poll(&mut body, &waker),
            Poll::Ready(Some(Err(Aborted)))
        ));
    }

    #[test]
    fn a_body_that_comes_wakes_its_connection() {
        let (mut sink, mut body, ..) = carried(&[]);
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        assert!(poll(&mut body, &waker).is_pending());
        sink.push(&mut vec![Bytes::from_static(b"a")]);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(text(&poll(&mut body, &waker)), b"a");
        assert!(!body.is_end_stream());
        assert_eq!(body.size_hint().exact(), None);
    }

    #[test]
    fn a_body_that_is_dropped_has_lost_its_client_and_ended_its_request() {
        let (sink, body, clock, _engines) = carried(&["a"]);
        assert_eq!(clock.next(), None);
        drop(body);
        assert!(sink.has_left() && !sink.has_stalled());
        assert!(matches!(clock.next(), Some((_, Expired::Idle))));
        let (sink, body, clock, _engines) = carried(&[]);
        clock.stall();
        drop(body);
        assert!(sink.has_stalled());
    }

    #[test]
    fn a_whole_body_says_how_long_it_is() {
        let frames = [Bytes::from_static(b"abc"), Bytes::from_static(b"de")];
        let mut body = ReplyBody::whole(frames, clock().begin());
        assert_eq!(body.size_hint().exact(), Some(5));
        assert_eq!(text(&poll(&mut body, Waker::noop())), b"abc");
        assert_eq!(body.size_hint().exact(), Some(2));
        assert!(!body.is_end_stream());
        assert_eq!(text(&poll(&mut body, Waker::noop())), b"de");
        assert!(body.is_end_stream());
        assert!(matches!(poll(&mut body, Waker::noop()), Poll::Ready(None)));
    }
}
