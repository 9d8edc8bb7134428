//! What counts as opened or closed is on the disk, and a disk that fails is told of.
#![allow(clippy::unwrap_used)]

mod support;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use sluicegate_journal::{Full, Journal, OnSync, Settings, Sync};
use support::{CLOSING, closing, left, opening, settings, texts, usage};
use tempfile::tempdir;

/// A disk that fails while `broken` says so.
fn journal_on(folder: &Path, sync: Sync, broken: &Arc<AtomicBool>) -> Journal {
    let broken = Arc::clone(broken);
    let on_sync = OnSync::new(move || match broken.load(Ordering::SeqCst) {
        true => Err(io::Error::from_raw_os_error(5)),
        false => Ok(()),
    });
    Journal::new(Settings {
        sync,
        on_sync,
        ..settings(folder)
    })
    .unwrap()
}

fn is_refused(journal: &Journal) -> bool {
    let opened = journal.open(&opening(1), &texts("refused"));
    matches!(opened, Err(Full::Unsynced(_)))
}

#[test]
fn a_record_that_is_not_on_the_disk_is_not_opened() {
    let folder = tempdir().unwrap();
    let broken = Arc::new(AtomicBool::new(true));
    let journal = journal_on(folder.path(), Sync::Always, &broken);
    for _ in 0..50 {
        assert!(is_refused(&journal));
    }
    assert!(journal.is_failing());
    assert!(journal.sync().is_err());
    assert_eq!((journal.opened(), journal.waiting()), (0, 0));
    assert!(journal.bytes().unwrap() <= 4 * sluicegate_journal::SEGMENT_BYTES);

    broken.store(false, Ordering::SeqCst);
    // What failed before is told of first.
    let _ = journal.sync();
    assert!(!journal.is_failing());
    assert!(journal.sync().is_ok());
    let mut entry = journal.open(&opening(2), &texts("served")).unwrap();
    entry.attempt("gpu-a", "meta/llama");
    drop((entry, journal));
    let left = left(folder.path());
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].texts.get(0), Some("served"));
}

#[test]
fn an_end_that_is_not_on_the_disk_is_told_of_and_comes_to_the_ledger() {
    let folder = tempdir().unwrap();
    let broken = Arc::new(AtomicBool::new(false));
    let journal = journal_on(folder.path(), Sync::Always, &broken);
    let mut first = journal.open(&opening(1), &texts("first")).unwrap();
    let mut second = journal.open(&opening(2), &texts("second")).unwrap();
    for entry in [&mut first, &mut second] {
        entry.attempt("gpu-a", "meta/llama");
    }
    broken.store(true, Ordering::SeqCst);
    first.close(&closing(200), &usage(1), &CLOSING, &[]);
    assert!(journal.is_failing());
    assert!(journal.sync().is_err());
    broken.store(false, Ordering::SeqCst);
    let _ = journal.sync();
    assert!(!journal.is_failing());

    // Its file is given up: others are opened all the same, and it is told that this one is not on the disk.
    second.close(&closing(200), &usage(1), &CLOSING, &[]);
    assert!(!journal.is_failing());
    assert!(journal.sync().is_err());
    assert!(journal.sync().is_ok());
    assert!(!is_refused(&journal));
    let batch = journal.take(64);
    assert_eq!(batch.rows.len(), 2);
    journal.shipped(batch);
}

#[test]
fn a_disk_that_fails_each_second_is_told_of_each_time_and_refuses_nobody() {
    let folder = tempdir().unwrap();
    let broken = Arc::new(AtomicBool::new(true));
    let journal = journal_on(folder.path(), Sync::Called, &broken);
    for _ in 0..3 {
        let mut entry = journal.open(&opening(1), &texts("x")).unwrap();
        entry.attempt("gpu-a", "meta/llama");
        assert!(journal.sync().is_err());
        assert!(journal.is_failing());
        entry.close(&closing(200), &usage(1), &CLOSING, &[]);
    }
    broken.store(false, Ordering::SeqCst);
    let _running = journal.open(&opening(1), &texts("x")).unwrap();
    assert!(journal.sync().is_ok());
    assert!(!journal.is_failing());
    assert_eq!(journal.take(64).rows.len(), 3);
}

#[test]
fn power_that_fails_after_a_record_was_opened_leaves_its_row() {
    let folder = tempdir().unwrap();
    let kept = tempdir().unwrap();
    let journal = journal_on(folder.path(), Sync::Always, &Arc::default());
    let _entry = journal.open(&opening(1), &texts("sent")).unwrap();
    // Nothing that is stored from here on is on the disk.
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), kept.path().join(file.file_name())).unwrap();
    }
    assert_eq!(left(kept.path()).len(), 1);
}

#[test]
fn whoever_is_told_that_it_is_on_the_disk_has_waited_for_a_sync_of_its_own() {
    const THREADS: usize = 4;
    let folder = tempdir().unwrap();
    let [begun, ended] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let count = (Arc::clone(&begun), Arc::clone(&ended));
    let on_sync = OnSync::new(move || {
        count.0.fetch_add(1, Ordering::SeqCst);
        // A slow disk.
        thread::sleep(Duration::from_micros(200));
        count.1.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let journal = Journal::new(Settings {
        sync: Sync::Always,
        on_sync,
        ..settings(folder.path())
    })
    .unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..200 {
                    let before = begun.load(Ordering::SeqCst);
                    let entry = journal.open(&opening(1), &texts("x")).unwrap();
                    // One that had begun before cannot have covered it.
                    assert!(ended.load(Ordering::SeqCst) > before);
                    drop(entry);
                }
            });
        }
    });
}
