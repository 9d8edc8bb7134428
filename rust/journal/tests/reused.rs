//! A segment that is used again: whatever pages of it a power cut leaves as they were before, no record is given what
//! was another's.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use sluicegate_journal::{Ending, Entry, Journal, SEGMENT_BYTES, Seen, Settings, read_segment};
use support::{CLOSING, closing, opening, settings, texts, tries, usage};
use tempfile::tempdir;

const PAGE: usize = 4096;
/// Pages that are mixed.
const PAGES: usize = 96;

/// A record whose every number and name tells its number.
fn open(journal: &Journal, number: u64) -> Entry {
    let name = "r".repeat((number % 7 * 40) as usize);
    let mut entry = journal.open(&opening(number), &texts(&name)).unwrap();
    entry.attempt("first", "model");
    entry.attempt(&format!("gpu-{number}"), &format!("model-{number}"));
    entry.first_token(number);
    entry.progress(number, 1_000_000 + number);
    entry.usage(&usage(number), number.is_multiple_of(2));
    entry
}

fn what_was_seen(number: u64) -> Seen {
    Seen {
        attempts: 2,
        token_events: number,
        bytes_in: 1_000_000 + number,
        first_token: Some(number),
        usage: Some(usage(number)),
        whole: number.is_multiple_of(2),
        moved: Some((
            format!("gpu-{number}").into(),
            format!("model-{number}").into(),
        )),
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

/// The pages of a file before it was used again and after that, and the numbers of the records by their ids.
fn uses() -> (Vec<u8>, Vec<u8>, HashMap<u128, u64>) {
    let folder = tempdir().unwrap();
    let journal = Journal::new(Settings {
        bytes: 2 * SEGMENT_BYTES,
        ..settings(folder.path())
    })
    .unwrap();
    let first = files(folder.path()).remove(0);
    let mut numbers = HashMap::new();
    let mut last = 0;
    let mut next = || {
        last += 1;
        let entry = open(&journal, last);
        numbers.insert(entry.id().as_u128(), last);
        (entry, last)
    };
    let ship = |(mut entry, number): (Entry, u64)| {
        if number.is_multiple_of(3) {
            entry.close(&closing(number), &usage(number), &CLOSING, &tries());
        }
        drop(entry);
        journal.shipped(journal.take(64));
    };
    // As long as one is open, the file is not used again.
    let (held, mut count) = (next(), 0);
    while files(folder.path()).len() == 1 {
        ship(next());
        count += 1;
    }
    let before = fs::read(&first).unwrap();
    ship(held);
    (0..count).for_each(|_| ship(next()));
    let entries: Vec<_> = (0..200).map(|_| next()).collect();
    let after = fs::read(&first).unwrap();
    drop(entries);
    (before, after, numbers)
}

#[test]
fn no_record_is_given_what_was_anothers() {
    let (before, after, numbers) = uses();
    assert_ne!(before, after, "it was used again");
    let begin = (0..before.len() / PAGE)
        .find(|page| before[page * PAGE..][..PAGE] != after[page * PAGE..][..PAGE])
        .unwrap();
    let end = (begin + PAGES) * PAGE;
    let mix = proptest::collection::vec(0_usize..3, PAGES);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&mix, |mix| {
            let mut bytes = after[..end].to_vec();
            for (page, from) in mix.into_iter().enumerate() {
                let page = (begin.saturating_sub(1) + page) * PAGE;
                let Some(place) = bytes.get_mut(page..page + PAGE) else {
                    break;
                };
                match from {
                    0 => place.copy_from_slice(&before[page..page + PAGE]),
                    1 => place.fill(0),
                    _ => {}
                }
            }
            for row in read_segment(&bytes) {
                let number = *numbers.get(&row.id).unwrap();
                prop_assert_eq!(row.opening, opening(number));
                let Ending::Interrupted(seen) = row.ending else {
                    continue;
                };
                let known = what_was_seen(number);
                prop_assert!(seen.attempts == 0 || seen.attempts == known.attempts);
                prop_assert!(seen.token_events == 0 || seen.token_events == known.token_events);
                prop_assert!(seen.bytes_in == 0 || seen.bytes_in == known.bytes_in);
                prop_assert!(seen.first_token.is_none() || seen.first_token == known.first_token);
                prop_assert!(seen.usage.is_none() || seen.usage == known.usage);
                prop_assert!(seen.moved.is_none() || seen.moved == known.moved);
                prop_assert!(!seen.whole || known.whole);
            }
            Ok(())
        })
        .unwrap();
}
