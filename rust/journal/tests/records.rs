//! Records are read as they were written, by whoever wrote them and by whoever comes after.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sluicegate_journal::{
    Ending, Full, Journal, LONGEST_OPENING_TEXT, SEGMENT_BYTES, Seen, Settings, Sync, abandoned_in,
};
use support::{CLOSING, closing, is_closed, journal, left, opening, settings, texts, tries, usage};
use tempfile::{TempDir, tempdir};

/// What a process that dies now would leave.
fn copy_of(folder: &Path) -> TempDir {
    let copy = tempdir().unwrap();
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn what_is_closed_is_taken_as_it_was_written() {
    let folder = tempdir().unwrap();
    let journal = journal(folder.path());
    let mut entry = journal.open(&opening(5), &texts("one")).unwrap();
    assert_eq!((journal.opened(), journal.waiting()), (1, 0));
    entry.attempt("gpu-a", "meta/llama");
    let id = entry.id();
    entry.close(&closing(200), &usage(40), &CLOSING, &tries());
    assert_eq!((journal.opened(), journal.waiting()), (0, 1));

    let batch = journal.take(64);
    let [row] = &batch.rows[..] else {
        panic!("{} rows", batch.rows.len())
    };
    assert_eq!((row.id, row.opening), (id.as_u128(), opening(5)));
    assert!(row.texts.iter().eq(texts("one")));
    let Ending::Closed {
        numbers,
        usage: used,
        texts,
        attempts,
    } = &row.ending
    else {
        panic!("it is not closed")
    };
    assert_eq!((*numbers, *used), (closing(200), usage(40)));
    assert!(texts.iter().eq(CLOSING));
    let attempts: Vec<_> = attempts
        .iter()
        .map(|tried| {
            (
                &*tried.upstream,
                tried.fault.as_deref(),
                tried.status,
                tried.took,
            )
        })
        .collect();
    assert_eq!(
        attempts,
        [
            ("gpu-b", Some("connect"), None, 2),
            ("gpu-a", None, Some(200), 6)
        ]
    );
    journal.shipped(batch);
    assert!(journal.take(64).rows.is_empty());
}

#[test]
fn what_is_given_back_comes_again_in_its_order() {
    let folder = tempdir().unwrap();
    let journal = journal(folder.path());
    for at in 0..5 {
        let mut entry = journal.open(&opening(at), &texts("x")).unwrap();
        entry.attempt("gpu-a", "meta/llama");
        entry.close(&closing(200), &usage(1), &CLOSING, &[]);
    }
    let batch = journal.take(3);
    journal.give_back(batch);
    let batch = journal.take(64);
    let started: Vec<_> = batch
        .rows
        .iter()
        .map(|row| row.opening.started_at)
        .collect();
    assert_eq!(started, [Some(0), Some(1), Some(2), Some(3), Some(4)]);
}

#[test]
fn an_entry_that_no_upstream_has_heard_of_is_nothing() {
    let folder = tempdir().unwrap();
    let journal = journal(folder.path());
    drop(journal.open(&opening(1), &texts("void")).unwrap());
    assert_eq!((journal.opened(), journal.waiting()), (0, 0));
    drop(journal);
    assert_eq!(left(folder.path()), []);
}

#[test]
fn an_entry_that_is_dropped_while_it_runs_is_interrupted() {
    let folder = tempdir().unwrap();
    let journal = journal(folder.path());
    let mut entry = journal.open(&opening(1), &texts("cut")).unwrap();
    entry.attempt("gpu-a", "meta/llama");
    entry.progress(7, 700);
    entry.first_token(12);
    drop(entry);
    let batch = journal.take(64);
    let Ending::Interrupted(seen) = &batch.rows[0].ending else {
        panic!("it is closed")
    };
    let expected = Seen {
        attempts: 1,
        token_events: 7,
        bytes_in: 700,
        first_token: Some(12),
        ..Seen::default()
    };
    assert_eq!(*seen, expected);
}

#[test]
fn what_a_dead_process_leaves_is_found_with_what_was_seen() {
    let folder = tempdir().unwrap();
    let journal = journal(folder.path());
    let mut closed = journal.open(&opening(1), &texts("closed")).unwrap();
    closed.attempt("gpu-a", "meta/llama");
    closed.close(&closing(200), &usage(3), &CLOSING, &[]);
    let mut whole = journal.open(&opening(2), &texts("whole")).unwrap();
    whole.attempt("gpu-a", "meta/llama");
    whole.usage(&usage(1), false);
    whole.usage(&usage(50), true);
    let mut moved = journal.open(&opening(3), &texts("moved")).unwrap();
    moved.attempt("gpu-a", "meta/llama");
    moved.progress(9, 90);
    moved.usage(&usage(9), true);
    moved.attempt("gpu-b", "x");
    moved.progress(2, 20);
    let unheard = journal.open(&opening(4), &texts("unheard")).unwrap();
    assert!(
        abandoned_in(folder.path()).unwrap().is_none(),
        "its process lives"
    );

    // As a killed process does: nothing is told, and the lock goes with the file.
    let copy = copy_of(folder.path());
    drop((whole, moved, unheard));
    let rows = left(copy.path());
    let ids: Vec<_> = rows.iter().map(|row| row.texts.get(0).unwrap()).collect();
    assert_eq!(ids, ["closed", "whole", "moved"]);
    assert!(is_closed(&rows[0]));
    let seen = |row: usize| match &rows[row].ending {
        Ending::Interrupted(seen) => seen.clone(),
        Ending::Closed { .. } => panic!("it is closed"),
    };
    assert_eq!((seen(1).usage, seen(1).whole), (Some(usage(50)), true));
    let moved = seen(2);
    assert_eq!(moved.moved, Some(("gpu-b".into(), "x".into())));
    assert_eq!(
        (moved.usage, moved.token_events, moved.whole),
        (None, 2, false)
    );
}

#[test]
fn what_is_shipped_is_not_found_again_and_its_segment_goes() {
    let folder = tempdir().unwrap();
    let journal = journal(folder.path());
    for at in 0..10 {
        let mut entry = journal.open(&opening(at), &texts("x")).unwrap();
        entry.attempt("gpu-a", "meta/llama");
        entry.close(&closing(200), &usage(1), &CLOSING, &[]);
    }
    let first = journal.take(4);
    journal.shipped(first);
    journal.close();
    assert_eq!(
        journal.bytes().unwrap(),
        SEGMENT_BYTES,
        "six are left in it"
    );
    drop(journal);
    let left = abandoned_in(folder.path()).unwrap().unwrap();
    assert_eq!(left.rows.len(), 6);
    assert!(
        abandoned_in(folder.path()).unwrap().is_none(),
        "it is taken"
    );
    left.finish().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn segments_follow_each_other_and_empty_ones_are_deleted() {
    let folder = tempdir().unwrap();
    let journal = journal(folder.path());
    let mut open = Vec::new();
    for at in 0..9_000 {
        let mut entry = journal.open(&opening(at), &texts("x")).unwrap();
        entry.attempt("gpu-a", "meta/llama");
        if at % 1000 == 0 {
            open.push(entry);
            continue;
        }
        entry.close(&closing(200), &usage(1), &CLOSING, &[]);
    }
    assert!(journal.bytes().unwrap() >= 3 * SEGMENT_BYTES);
    let batch = journal.take(usize::MAX);
    assert_eq!(batch.rows.len(), 8_991);
    journal.shipped(batch);
    drop(open);
    let batch = journal.take(usize::MAX);
    assert_eq!(batch.rows.len(), 9);
    journal.shipped(batch);
    journal.close();
    assert_eq!(journal.bytes().unwrap(), 0);
}

#[test]
fn a_segment_that_is_empty_is_used_again_and_nothing_of_its_past_is_found() {
    let folder = tempdir().unwrap();
    let journal = journal(folder.path());
    let mut seen = BTreeSet::from_iter(files(folder.path()));
    for at in 0..20_000 {
        let mut entry = journal.open(&opening(at), &texts("past")).unwrap();
        entry.attempt("gpu-a", "meta/llama");
        entry.close(&closing(200), &usage(1), &CLOSING, &[]);
        if at % 500 == 0 {
            journal.shipped(journal.take(usize::MAX));
            journal.prepare().unwrap();
            seen.extend(files(folder.path()));
        }
    }
    journal.shipped(journal.take(usize::MAX));
    assert_eq!(seen.len(), 2, "one in use, one that waits");
    let mut entry = journal.open(&opening(0), &texts("closed")).unwrap();
    entry.attempt("gpu-a", "meta/llama");
    entry.close(&closing(200), &usage(1), &CLOSING, &[]);
    let mut entry = journal.open(&opening(0), &texts("open")).unwrap();
    entry.attempt("gpu-a", "meta/llama");
    let copy = copy_of(folder.path());
    let rows = left(copy.path());
    let ids: Vec<_> = rows.iter().map(|row| row.texts.get(0)).collect();
    assert_eq!(ids, [Some("closed"), Some("open")]);
}

#[test]
fn nothing_is_in_a_segment_that_is_to_be_used_again() {
    let folder = tempdir().unwrap();
    let journal = journal(folder.path());
    let long = "x".repeat(LONGEST_OPENING_TEXT);
    let mut first: Option<PathBuf> = None;
    for at in 0..8_000 {
        first = first.or_else(|| files(folder.path()).pop());
        let mut entry = journal
            .open(
                &opening(at),
                &[Some(long.get(at as usize % 512..).unwrap()); 13],
            )
            .unwrap();
        if at % 3 > 0 {
            entry.attempt("gpu-a", "meta/llama");
            entry.attempt(&long, &long);
            entry.progress(5, 9);
            entry.first_token(7);
            entry.usage(&usage(50), true);
        }
        if at % 3 == 2 {
            let texts = [Some(long.as_str()); 8];
            entry.close(&closing(200), &usage(1), &texts, &tries());
        }
        drop(entry);
    }
    journal.shipped(journal.take(usize::MAX));
    journal.prepare().unwrap();
    let bytes = fs::read(first.unwrap()).unwrap();
    assert!(bytes[64..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_journal_that_is_full_says_so_until_there_is_room_again() {
    let folder = tempdir().unwrap();
    let journal = Journal::new(Settings {
        bytes: 0,
        ..settings(folder.path())
    })
    .unwrap();
    let mut count = 0;
    let full = loop {
        match journal.open(&opening(count), &texts("x")) {
            Ok(mut entry) => {
                entry.attempt("gpu-a", "meta/llama");
                entry.close(&closing(200), &usage(1), &CLOSING, &[]);
            }
            Err(full) => break full,
        }
        count += 1;
    };
    assert!(matches!(full, Full::Bytes));
    assert_eq!(journal.bytes().unwrap(), 2 * SEGMENT_BYTES);
    let batch = journal.take(usize::MAX);
    assert_eq!(batch.rows.len() as u64, count);
    journal.shipped(batch);
    let until = Instant::now() + Duration::from_secs(20);
    while journal.open(&opening(0), &texts("x")).is_err() {
        assert!(Instant::now() < until, "there is room");
        std::thread::yield_now();
    }
}

#[test]
fn long_texts_are_cut_at_a_character() {
    let folder = tempdir().unwrap();
    let journal = journal(folder.path());
    let long = "ä".repeat(LONGEST_OPENING_TEXT);
    let mut entry = journal
        .open(&opening(1), &[Some(long.as_str()); 13])
        .unwrap();
    entry.attempt(&long, &long);
    entry.attempt(&long, &long);
    entry.close(
        &closing(200),
        &usage(1),
        &[Some(long.as_str()); 8],
        &tries(),
    );
    let batch = journal.take(1);
    let row = &batch.rows[0];
    assert!(
        row.texts
            .iter()
            .flatten()
            .all(|text| text == "ä".repeat(256))
    );
    let Ending::Closed { texts, .. } = &row.ending else {
        panic!("it is not closed")
    };
    assert!(texts.iter().flatten().all(|text| text == "ä".repeat(80)));
}

#[test]
fn nobody_else_may_look_and_every_way_to_sync_works() {
    for sync in [Sync::Never, Sync::Called, Sync::Always] {
        let folder = tempdir().unwrap();
        let inner = folder.path().join("journal");
        let journal = Journal::new(Settings {
            sync,
            ..settings(&inner)
        })
        .unwrap();
        let mut entry = journal.open(&opening(1), &texts("x")).unwrap();
        entry.attempt("gpu-a", "meta/llama");
        entry.close(&closing(200), &usage(1), &CLOSING, &[]);
        journal.sync().unwrap();
        let mode =
            |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&inner), 0o700);
        for file in fs::read_dir(&inner).unwrap() {
            assert_eq!(mode(&file.unwrap().path()), 0o600);
        }
        assert_eq!(journal.take(9).rows.len(), 1);
    }
}

#[test]
fn what_was_left_in_the_making_is_removed() {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("0192.new"), b"half").unwrap();
    let journal = journal(folder.path());
    assert!(!folder.path().join("0192.new").exists());
    drop(journal);
}
