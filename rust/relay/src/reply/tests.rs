use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::thread;

use proptest::prelude::*;

use super::*;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Bytes that say when nobody holds them any more.
struct Tracked(Vec<u8>, Arc<AtomicBool>);

impl AsRef<[u8]> for Tracked {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.1.store(true, Ordering::SeqCst);
    }
}

fn tracked(size: usize) -> (Bytes, Arc<AtomicBool>) {
    let freed = Arc::new(AtomicBool::new(false));
    let owner = Tracked(vec![b'x'; size], Arc::clone(&freed));
    (Bytes::from_owner(owner), freed)
}

fn frame(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[test]
fn the_sink_has_room_below_the_bound() {
    let (mut sink, mut reply) = reply(10);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let cx = &mut Context::from_waker(&waker);
    sink.push(&mut vec![frame("123456789")]);
    assert!(sink.poll_room(cx).is_ready());
    sink.push(&mut vec![frame("0")]);
    assert!(sink.poll_room(cx).is_pending());
    assert_eq!(count.get(), 0);
    assert!(matches!(reply.take(), Taken::Frame(_)));
    assert_eq!(count.get(), 1);
    assert!(sink.poll_room(cx).is_ready());
    // Nobody waits: taking wakes nobody.
    assert!(matches!(reply.take(), Taken::Frame(_)));
    assert_eq!(count.get(), 1);
}

#[test]
fn a_frame_behind_others_holds_no_more_than_itself() {
    let (mut sink, mut reply) = reply(1 << 20);
    let ((first, first_freed), (second, second_freed)) = (tracked(64_000), tracked(64_000));
    sink.push(&mut vec![first.slice(..10)]);
    sink.push(&mut vec![second.slice(..20)]);
    drop((first, second));
    assert!(
        !first_freed.load(Ordering::SeqCst),
        "it is handed on as it is"
    );
    assert!(second_freed.load(Ordering::SeqCst), "it may wait for long");
    let batch = reply.take_all();
    assert_eq!(
        batch.body.iter().map(Bytes::len).collect::<Vec<_>>(),
        [10, 20]
    );
}

#[test]
fn a_copy_is_all_of_it_or_nothing() {
    let (mut sink, mut reply) = reply(100);
    let copies = Copies::new(1 << 20);
    sink.copy(6, &copies);
    sink.push(&mut vec![frame("abc")]);
    assert!(matches!(reply.take(), Taken::Frame(_)));
    sink.push(&mut vec![frame("d"), frame("ef")]);
    assert_eq!(&*sink.take_copy().unwrap().unwrap(), b"abcdef");
    assert!(sink.take_copy().is_none(), "once");

    sink.copy(2, &copies);
    sink.push(&mut vec![frame("ab")]);
    sink.push(&mut vec![frame("c")]);
    sink.push(&mut vec![frame("d")]);
    let given_up = sink.take_copy().unwrap().unwrap_err();
    assert_eq!(given_up, NotCopied::TooLarge, "more than the bound");

    let full = Copies::new(2);
    sink.copy(100, &full);
    sink.push(&mut vec![frame("ab")]);
    assert_eq!(full.taken(), 2);
    sink.push(&mut vec![frame("c")]);
    assert_eq!(full.taken(), 0, "it is given up");
    let given_up = sink.take_copy().unwrap().unwrap_err();
    assert_eq!(given_up, NotCopied::NoRoom);

    sink.copy(100, &copies);
    sink.push(&mut vec![frame("ab")]);
    reply.leave(false);
    sink.push(&mut vec![frame("c")]);
    assert!(sink.take_copy().is_none(), "a part is missing");
}

#[test]
fn a_copy_holds_no_read() {
    let (mut sink, mut reply) = reply(100);
    let (read, freed) = tracked(64_000);
    sink.copy(100, &Copies::new(1 << 20));
    sink.push(&mut vec![read.slice(..10)]);
    drop((read, reply.take_all()));
    assert!(freed.load(Ordering::SeqCst));
    assert_eq!(sink.take_copy().unwrap().unwrap().len(), 10);
}

#[test]
fn an_abort_comes_behind_the_frames_that_are_on_their_way() {
    let (mut sink, mut reply) = reply(100);
    sink.start(200, HeaderMap::new());
    sink.push(&mut vec![frame("a")]);
    sink.abort();
    sink.end();
    assert_eq!(reply.take_head().unwrap().unwrap().status, 200);
    assert!(matches!(reply.take(), Taken::Frame(_)));
    assert!(
        matches!(reply.take(), Taken::Aborted),
        "the first end counts"
    );
    assert!(matches!(reply.take(), Taken::Aborted));
}

#[test]
fn a_sink_that_is_dropped_aborts_what_has_not_ended() {
    let (sink, mut unfinished) = reply(100);
    drop(sink);
    assert!(matches!(unfinished.take_head(), Some(Err(Aborted))));
    let (mut sink, mut whole) = reply(100);
    sink.start(204, HeaderMap::new());
    sink.end();
    drop(sink);
    assert!(matches!(
        whole.take_head(),
        Some(Ok(Head { status: 204, .. }))
    ));
    assert!(matches!(whole.take(), Taken::Ended));
}

#[test]
fn a_reply_that_is_whole_is_not_left() {
    let (mut sink, mut all_taken) = reply(100);
    sink.end();
    all_taken.leave(true);
    assert!(!sink.has_left());
    let (mut sink, unfinished) = reply(100);
    sink.push(&mut vec![frame("a")]);
    sink.end();
    drop(unfinished);
    assert!(sink.has_left());
    let (sink, mut stalled) = reply(100);
    stalled.leave(true);
    stalled.leave(false);
    assert!(sink.has_left() && sink.has_stalled());
}

#[test]
fn what_came_at_once_is_taken_in_two_frames_at_most() {
    let (mut sink, mut taken) = reply(100);
    sink.push(&mut vec![frame("a"), frame("b")]);
    sink.push(&mut vec![frame(""), frame("c")]);
    assert!(matches!(taken.take(), Taken::Frame(first) if first == "a"));
    sink.push(&mut vec![frame("d")]);
    assert!(matches!(taken.take(), Taken::Frame(second) if second == "bc"));
    assert!(matches!(taken.take(), Taken::Frame(third) if third == "d"));
    assert!(matches!(taken.take(), Taken::Nothing));
}

#[test]
fn one_task_that_takes_makes_room() {
    let (mut sink, mut taken) = inline_reply();
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut cx = Context::from_waker(&waker);
    assert!(sink.poll_room(&mut cx).is_ready());
    sink.push(&mut vec![Bytes::from(vec![b'a'; INLINE_BOUND])]);
    assert!(sink.poll_room(&mut cx).is_pending());
    assert!(matches!(taken.take(), Taken::Frame(_)));
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(sink.poll_room(&mut cx).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_cut_and_one_that_takes_is_not() {
    let stall = Duration::from_secs(10);
    let (mut sink, mut slow) = reply(100);
    sink.push(&mut vec![frame("a"), frame("b"), frame("c")]);
    sink.end();
    let flushing = tokio::spawn(sink.flushed(Some(stall)));
    for _ in 0..2 {
        tokio::time::sleep(stall - Duration::from_secs(1)).await;
        assert!(matches!(slow.take(), Taken::Frame(_)));
    }
    assert!(flushing.await.unwrap());
    assert!(matches!(slow.take(), Taken::Ended));

    let (mut sink, mut none) = reply(100);
    sink.push(&mut vec![frame("a")]);
    sink.end();
    assert!(!sink.flushed(Some(stall)).await);
    assert!(matches!(none.take(), Taken::Aborted));

    let (mut sink, gone) = reply(100);
    sink.push(&mut vec![frame("a")]);
    let flushing = tokio::spawn(sink.flushed(None));
    tokio::task::yield_now().await;
    drop(gone);
    assert!(flushing.await.unwrap());
}

#[test]
fn an_exchange_counts_until_its_last_frame_is_taken() {
    let engines = crate::Engines::start(1, |_| {}).unwrap();
    let engine = engines.any();
    let (mut sink, mut reply) = reply(100);
    sink.push(&mut vec![frame("a")]);
    sink.end();
    sink.hold(Some(engine.enter()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let flushing = runtime.spawn(sink.flushed(None));
    runtime.block_on(tokio::task::yield_now());
    assert_eq!(engine.active(), 1);
    assert!(matches!(reply.take(), Taken::Frame(_)));
    assert!(runtime.block_on(flushing).unwrap());
    assert_eq!(engine.active(), 0);
}

#[derive(Debug, Clone)]
enum Step {
    Start,
    Push(Vec<usize>),
    End,
    Abort,
    AskRoom,
    AskLeft,
    DropSink,
    TakeHead,
    Take,
    TakeAll,
    Register,
    Leave,
    DropReply,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::Start),
        6 => prop::collection::vec(0usize..6, 0..4).prop_map(Step::Push),
        1 => Just(Step::End),
        1 => Just(Step::Abort),
        4 => Just(Step::AskRoom),
        4 => Just(Step::AskLeft),
        1 => Just(Step::DropSink),
        2 => Just(Step::TakeHead),
        6 => Just(Step::Take),
        1 => Just(Step::TakeAll),
        4 => Just(Step::Register),
        1 => Just(Step::Leave),
        1 => Just(Step::DropReply),
    ]
}

const BOUND: usize = 8;

/// What a reply should be, said in the plainest way.
#[derive(Default)]
struct Model {
    head: bool,
    frames: VecDeque<Vec<u8>>,
    end: Option<bool>,
    left: bool,
}

impl Model {
    fn room(&self) -> bool {
        self.left || self.frames.iter().map(Vec::len).sum::<usize>() < BOUND
    }

    /// What is behind another frame is one with what else is.
    fn push(&mut self, frame: &[u8]) {
        match self.frames.len() {
            _ if frame.is_empty() => {}
            0 | 1 => self.frames.push_back(frame.to_vec()),
            _ => self.frames[1].extend_from_slice(frame),
        }
    }

    fn leave(&mut self) {
        if self.end.is_none() || !self.frames.is_empty() {
            self.left = true;
            self.frames.clear();
        }
    }
}

/// One end's waker, and how often it had woken when it was last registered.
#[derive(Default)]
struct Waiting {
    count: Arc<Count>,
    since: Option<usize>,
}

impl Waiting {
    fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.count))
    }

    fn begin(&mut self) {
        self.since = Some(self.count.get());
    }

    fn must_be_woken(&mut self) {
        if let Some(since) = self.since.take() {
            assert!(self.count.get() > since, "a wake-up was lost");
        }
    }
}

fn play(steps: Vec<Step>) {
    let (sink, reply) = reply(BOUND);
    let (mut sink, mut reply) = (Some(sink), Some(reply));
    let mut model = Model::default();
    let (mut for_room, mut for_left, mut for_new) =
        (Waiting::default(), Waiting::default(), Waiting::default());
    let mut number = 0u8;
    for step in steps {
        match (step, &mut sink, &mut reply) {
            (Step::Start, Some(sink), _) if !model.head => {
                model.head = true;
                sink.start(200, HeaderMap::new());
                for_new.must_be_woken();
            }
            (Step::Push(sizes), Some(sink), _) if model.end.is_none() => {
                let mut frames = Vec::new();
                for size in sizes {
                    number = number.wrapping_add(1);
                    frames.push(Bytes::from(vec![number; size]));
                }
                if !model.left {
                    frames.iter().for_each(|frame| model.push(frame));
                }
                sink.push(&mut frames);
                assert!(frames.is_empty());
                if !model.left {
                    for_new.must_be_woken();
                }
            }
            (Step::End, Some(sink), _) => {
                model.end.get_or_insert(true);
                sink.end();
                for_new.must_be_woken();
            }
            (Step::Abort, Some(sink), _) => {
                model.end.get_or_insert(false);
                sink.abort();
                for_new.must_be_woken();
            }
            // One task waits for one thing at a time, or for both with one waker; the later waker counts.
            (Step::AskRoom, Some(sink), _) => {
                let waker = for_room.waker();
                let ready = sink.poll_room(&mut Context::from_waker(&waker)).is_ready();
                assert_eq!(ready, model.room());
                if !ready {
                    for_left.since = None;
                    for_room.begin();
                }
            }
            (Step::AskLeft, Some(sink), _) => {
                let waker = for_left.waker();
                let ready = sink.poll_left(&mut Context::from_waker(&waker)).is_ready();
                assert_eq!(ready, model.left);
                assert_eq!(sink.has_left(), model.left);
                for_room.since = None;
                for_left.since = None;
                if !ready {
                    for_left.begin();
                }
            }
            (Step::DropSink, Some(_), _) => {
                sink = None;
                model.end.get_or_insert(false);
                (for_room.since, for_left.since) = (None, None);
                for_new.must_be_woken();
            }
            (Step::TakeHead, _, Some(reply)) => match reply.take_head() {
                None => assert!(model.end.is_none()),
                Some(Ok(_)) => assert!(model.head),
                Some(Err(Aborted)) => assert!(model.end.is_some()),
            },
            (Step::Take, _, Some(reply)) => {
                match (reply.take(), model.frames.pop_front(), model.end) {
                    (Taken::Frame(frame), Some(expected), _) => assert_eq!(frame, expected),
                    (Taken::Nothing, None, None)
                    | (Taken::Ended, None, Some(true))
                    | (Taken::Aborted, None, Some(false)) => {}
                    (taken, expected, end) => panic!("{taken:?}, and not {expected:?}, {end:?}"),
                }
            }
            (Step::TakeAll, _, Some(reply)) => {
                let batch = reply.take_all();
                assert!(
                    batch
                        .body
                        .iter()
                        .eq(model.frames.drain(..).collect::<Vec<_>>().iter())
                );
                assert_eq!(
                    (batch.ended, batch.aborted),
                    (model.end == Some(true), model.end == Some(false))
                );
            }
            (Step::Register, _, Some(reply)) => {
                reply.register(&mut Context::from_waker(&for_new.waker()));
                for_new.begin();
            }
            (Step::Leave, _, Some(reply)) => {
                reply.leave(false);
                model.leave();
            }
            (Step::DropReply, _, Some(_)) => {
                reply = None;
                for_new.since = None;
                model.leave();
            }
            _ => {}
        }
        if model.room() {
            for_room.must_be_woken();
        }
        if model.left {
            for_left.must_be_woken();
        }
    }
}

proptest! {
    #[test]
    fn what_was_pushed_is_taken_in_its_order_and_no_wake_up_is_lost(
        steps in prop::collection::vec(step(), 0..60),
    ) {
        play(steps);
    }
}

proptest! {
    // Threads are dear; what they could do is above.
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn two_threads_pass_a_reply_on(
        sizes in prop::collection::vec(0usize..20, 0..200),
        whole: bool,
        leaves_after in prop::option::of(0usize..50),
    ) {
        pass_on(sizes, whole, leaves_after);
    }
}

/// One thread fills a reply while another takes it, each waiting for the other.
fn pass_on(sizes: Vec<usize>, whole: bool, leaves_after: Option<usize>) {
    let (mut sink, mut reply) = reply(BOUND);
    let number = |nth: usize| u8::try_from(nth % 251).unwrap();
    let expected = sizes
        .iter()
        .enumerate()
        .flat_map(|(nth, size)| vec![number(nth); *size]);
    let expected = expected.collect::<Vec<_>>();
    let filling = thread::spawn(move || {
        let fill = async {
            for (nth, size) in sizes.into_iter().enumerate() {
                std::future::poll_fn(|cx| sink.poll_room(cx)).await;
                sink.push(&mut vec![Bytes::from(vec![number(nth); size])]);
            }
            if whole {
                sink.end();
            } else {
                sink.abort();
            }
            sink.flushed(None).await
        };
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(fill)
    });
    let mut got = Vec::new();
    let mut frames = 0;
    let take = async {
        loop {
            if leaves_after.is_some_and(|most| frames >= most) {
                return None;
            }
            let taken = std::future::poll_fn(|cx| {
                reply.register(cx);
                match reply.take() {
                    Taken::Nothing => Poll::Pending,
                    taken => Poll::Ready(taken),
                }
            });
            match taken.await {
                Taken::Frame(frame) => {
                    got.extend_from_slice(&frame);
                    frames += 1;
                }
                end => return Some(matches!(end, Taken::Ended)),
            }
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let patience = Duration::from_secs(20);
    let end = runtime.block_on(async { tokio::time::timeout(patience, take).await });
    let end = end.expect("a wake-up was lost");
    drop(reply);
    assert!(filling.join().unwrap());
    assert!(expected.starts_with(&got));
    if let Some(ended) = end {
        assert_eq!(ended, whole);
        assert_eq!(got, expected);
    }
}
