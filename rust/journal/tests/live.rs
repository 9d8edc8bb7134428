//! Open records are read while they are written.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sluicegate_journal::{Counts, Ending, Row, Seen};
use support::{CLOSING, closing, journal, opening, texts, usage};
use tempfile::tempdir;
use uuid::Uuid;

fn seen(row: &Row) -> &Seen {
    match &row.ending {
        Ending::Interrupted(seen) => seen,
        Ending::Closed { .. } => panic!("it is closed"),
    }
}

#[test]
fn what_is_open_is_shown_with_what_was_seen_of_it() {
    let folder = tempdir().unwrap();
    let journal = journal(folder.path());
    assert!(journal.live(None, 10).is_empty());
    let mut entries: Vec<_> = (0..4)
        .map(|at| journal.open(&opening(at), &texts("x")).unwrap())
        .collect();
    assert!(
        journal.live(None, 10).is_empty(),
        "no upstream has heard of any"
    );
    for entry in &mut entries {
        entry.attempt("gpu-a", "meta/llama");
    }
    entries[1].progress(7, 700);
    entries[1].usage(&usage(7), false);
    entries[1].first_token(1234);
    entries[3].attempt("gpu-b", "other");
    entries[0].close(&closing(200), &usage(1), &CLOSING, &[]);

    let rows = journal.live(None, 10);
    let started: Vec<_> = rows.iter().map(|row| row.opening.started_at).collect();
    assert_eq!(started, [Some(1), Some(2), Some(3)]);
    let first = seen(&rows[0]);
    assert_eq!((first.token_events, first.bytes_in), (7, 700));
    assert_eq!(
        (first.first_token, first.usage),
        (Some(1234), Some(usage(7)))
    );
    assert_eq!(seen(&rows[2]).moved, Some(("gpu-b".into(), "other".into())));

    let page = journal.live(None, 2);
    assert_eq!(page, rows[..2]);
    let rest = journal.live(Some(Uuid::from_u128(page[1].id)), 2);
    assert_eq!(rest, rows[2..]);
    drop(entries);
    assert!(journal.live(None, 10).is_empty());
}

#[test]
fn usage_is_never_half_of_one_and_half_of_another() {
    let folder = tempdir().unwrap();
    let journal = journal(folder.path());
    let mut entry = journal.open(&opening(1), &texts("x")).unwrap();
    entry.attempt("gpu-a", "meta/llama");
    let over = AtomicBool::new(false);
    let read = thread::scope(|scope| {
        scope.spawn(|| {
            let mut count = 0;
            while !over.load(Ordering::Relaxed) {
                count += 1;
                let same = Counts {
                    input: Some(count),
                    cached_input: Some(count),
                    output: Some(count),
                    output_image: Some(count),
                    ..Counts::default()
                };
                entry.usage(&same, false);
                // As a reply does: something comes in between.
                thread::yield_now();
            }
        });
        let mut read = 0;
        for _ in 0..20_000 {
            for row in journal.live(None, 10) {
                if let Some(usage) = seen(&row).usage {
                    let all = [
                        usage.input,
                        usage.cached_input,
                        usage.output,
                        usage.output_image,
                    ];
                    assert!(all.iter().all(|count| *count == usage.input), "{usage:?}");
                    read += 1;
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        read
    });
    assert!(read > 0);
}
