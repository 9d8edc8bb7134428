use std::thread;

use sluicegate_core::pricing::{CostStyle, Pricing};

use super::*;
use crate::notice::tests::is_readable;

const PATIENCE: Duration = Duration::from_secs(20);

fn queue() -> Arc<Decisions> {
    Arc::new(Decisions::new(PATIENCE))
}

fn event(name: impl Into<String>) -> Event {
    Event::Died(name.into())
}

fn names(events: Vec<Event>) -> Vec<String> {
    let names = events.into_iter().map(|event| match event {
        Event::Died(name) => name,
        _ => "another".to_owned(),
    });
    names.collect()
}

#[test]
fn all_that_is_there_comes_at_once_and_in_its_order() {
    let queue = queue();
    queue.push(event("a"));
    queue.push(event("b"));
    assert_eq!(names(queue.wait(PATIENCE)), ["a", "b"]);
    assert!(queue.take().is_empty());
    queue.push(event("c"));
    assert_eq!(names(queue.take()), ["c"]);
}

#[test]
fn a_wait_ends_with_its_time() {
    assert!(queue().wait(Duration::from_millis(1)).is_empty());
    assert!(queue().wait(Duration::ZERO).is_empty());
}

#[test]
fn a_wait_without_an_end_is_ended_by_an_event_or_a_wake() {
    let queue = queue();
    for wakes in [false, true] {
        let waiting = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || names(queue.wait(Duration::MAX)))
        };
        while !queue.lock().waiting {
            thread::yield_now();
        }
        if wakes {
            queue.wake();
            assert!(waiting.join().unwrap().is_empty());
        } else {
            queue.push(event("a"));
            assert_eq!(waiting.join().unwrap(), ["a"]);
        }
    }
}

#[test]
fn a_wake_before_a_wait_ends_it_and_only_it() {
    let queue = queue();
    queue.wake();
    assert!(queue.wait(Duration::MAX).is_empty());
    assert!(queue.wait(Duration::from_millis(1)).is_empty());
    queue.wake();
    assert!(queue.take().is_empty());
    assert!(!queue.lock().woken);
}

#[test]
fn the_descriptor_is_readable_while_something_is_there() {
    let queue = queue();
    let readable = queue.descriptor().unwrap();
    assert!(!is_readable(readable));
    queue.push(event("a"));
    queue.push(event("b"));
    assert!(is_readable(readable));
    assert_eq!(queue.take().len(), 2);
    assert!(!is_readable(readable));
    queue.wake();
    assert!(is_readable(readable));
    assert!(queue.take().is_empty());
    assert!(!is_readable(readable));
}

#[test]
fn what_came_before_there_was_a_descriptor_is_told() {
    let queue = queue();
    queue.push(event("a"));
    let readable = queue.descriptor().unwrap();
    assert!(is_readable(readable));
    assert_eq!(queue.take().len(), 1);
    assert!(!is_readable(readable));
}

#[test]
fn nothing_of_many_threads_is_lost_or_changes_its_order() {
    const THREADS: usize = 4;
    const EVENTS: usize = 2_000;
    let queue = queue();
    let pushing = (0..THREADS).map(|thread| {
        let queue = Arc::clone(&queue);
        thread::spawn(move || {
            (0..EVENTS).for_each(|nth| queue.push(event(format!("{thread} {nth}"))));
        })
    });
    let pushing = pushing.collect::<Vec<_>>();
    let mut next = [0; THREADS];
    while next.iter().sum::<usize>() < THREADS * EVENTS {
        let events = names(queue.wait(PATIENCE));
        assert!(!events.is_empty(), "a wake-up was lost");
        for name in events {
            let (thread, nth) = name.split_once(' ').unwrap();
            let thread = thread.parse::<usize>().unwrap();
            assert_eq!(nth.parse::<usize>().unwrap(), next[thread]);
            next[thread] += 1;
        }
    }
    pushing
        .into_iter()
        .for_each(|pushing| pushing.join().unwrap());
}

#[tokio::test]
async fn whoever_waits_gets_ends_many_at_once() {
    let queue = queue();
    queue.push_for_later(event("end"));
    queue.push(event("a"));
    assert_eq!(names(queue.wait(PATIENCE)), ["end", "a"]);
    (0..WAKE_AT).for_each(|_| queue.push_for_later(event("end")));
    assert_eq!(names(queue.wait(PATIENCE)), ["end"; WAKE_AT]);
    queue.push_for_later(event("one"));
    assert_eq!(names(queue.take()), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_waits_for_is_told_in_a_moment() {
    let queue = queue();
    let readable = queue.descriptor().unwrap();
    queue.push_for_later(event("a"));
    queue.push_for_later(event("b"));
    assert!(!is_readable(readable));
    tokio::time::sleep(2 * LATER).await;
    assert!(is_readable(readable));
    assert_eq!(names(queue.take()), ["a", "b"]);
    queue.push_for_later(event("c"));
    queue.push(event("d"));
    assert!(is_readable(readable));
    assert_eq!(names(queue.take()), ["c", "d"], "in their order");
    tokio::time::sleep(2 * LATER).await;
    assert!(!is_readable(readable), "there is nothing to tell");
    queue.push_for_later(event("e"));
    tokio::time::sleep(2 * LATER).await;
    assert!(is_readable(readable), "a promise is kept each time");
}

#[test]
fn what_was_to_be_told_later_is_told_where_its_runtime_ends() {
    let queue = queue();
    let readable = queue.descriptor().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { queue.push_for_later(event("a")) });
    assert!(!is_readable(readable));
    runtime.shutdown_background();
    assert!(is_readable(readable));
    queue.take();
    queue.push_for_later(event("b"));
    assert!(
        is_readable(readable),
        "without a runtime it is told at once"
    );
}

#[test]
fn a_price_is_waited_for_and_one_that_does_not_come_is_none() {
    let queue = queue();
    let priced = {
        let decisions = Arc::clone(&queue);
        thread::spawn(move || {
            let mut pricer = AskedPricer {
                decisions,
                ticket: 7,
            };
            let usage = Usage::default();
            [
                pricer.price(&usage),
                pricer.price(&usage),
                pricer.price(&usage),
            ]
            .map(|members| members.map(|members| members.as_bytes().to_vec()))
        })
    };
    let unknown = Pricing::new(None, CostStyle::OpenRouter);
    for answers in [Some(true), Some(false), None] {
        let Some(Event::Price(asked)) = queue.wait(PATIENCE).pop() else {
            panic!("nothing was asked")
        };
        assert_eq!(asked.ticket, 7);
        let members = unknown.price(&asked.usage).1;
        if let Some(known) = answers {
            asked.answer.send(members.filter(|_| known)).unwrap();
        }
    }
    let expected = [Some(b"\"cost\":null".to_vec()), None, None];
    assert_eq!(priced.join().unwrap(), expected);
}
