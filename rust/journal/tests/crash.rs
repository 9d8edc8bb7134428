//! A process that is killed loses nothing that it had stored.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::HashMap;
use std::env;
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_journal::{Ending, Journal, Settings, Sync};
use support::{CLOSING, closing, is_closed, left, opening, settings, texts, tries, usage};

const FOLDER: &str = "SLUICEGATE_TEST_JOURNAL";
const WRITERS: u64 = 4;
const KILLS: usize = 12;

/// The process that is killed: it says what it has opened, seen and closed, each once it has.
#[test]
#[ignore = "run by the other test, as a process of its own"]
fn child() {
    let folder = PathBuf::from(env::var_os(FOLDER).unwrap());
    let journal = Journal::new(Settings {
        sync: Sync::Called,
        ..settings(&folder)
    })
    .unwrap();
    let number = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (journal, number) = (journal.clone(), Arc::clone(&number));
            std::thread::spawn(move || {
                loop {
                    let n = number.fetch_add(1, Ordering::Relaxed);
                    let Ok(mut entry) = journal.open(&opening(n), &texts("x")) else {
                        // As full as it may be: there is enough to look at.
                        std::thread::park();
                        continue;
                    };
                    entry.attempt("gpu-a", "meta/llama");
                    say(&format!("opened {n}\n"));
                    for tokens in 1..=n % 5 {
                        entry.progress(tokens, tokens * 10);
                        say(&format!("seen {n} {tokens}\n"));
                    }
                    if n % 7 == 0 {
                        std::mem::forget(entry);
                        continue;
                    }
                    entry.usage(&usage(n), true);
                    say(&format!("used {n}\n"));
                    entry.close(&closing(200 + n % 3), &usage(n), &CLOSING, &tries());
                    say(&format!("closed {n}\n"));
                }
            })
        })
        .collect();
    for writer in writers {
        let _ = writer.join();
    }
}

/// In one write, so that no line is cut by another's.
fn say(line: &str) {
    let _ = stdout().lock().write_all(line.as_bytes());
    let _ = stdout().lock().flush();
}

#[test]
fn a_process_that_is_killed_loses_nothing() {
    for kill in 0..KILLS {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "child", "--ignored", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said: HashMap<u64, (u64, bool, bool)> = HashMap::new();
        let mut heard = 0;
        let mut hear = |line: &str| {
            let mut words = line.split(' ');
            let what = words.next().unwrap_or_default();
            let mut number = || words.next()?.parse::<u64>().ok();
            let Some(n) = number() else { return false };
            match what {
                "opened" => drop(said.insert(n, (0, false, false))),
                "seen" => said.get_mut(&n).unwrap().0 = number().unwrap(),
                "used" => said.get_mut(&n).unwrap().1 = true,
                "closed" => said.get_mut(&n).unwrap().2 = true,
                _ => return false,
            }
            true
        };
        // At another moment each time, in the middle of whatever it does.
        while heard < 50 + kill * 379 {
            heard += usize::from(hear(&lines.next().unwrap().unwrap()));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had said before it died, but for a line that was cut.
        let mut rest: Vec<_> = lines.map_while(Result::ok).collect();
        rest.pop();
        for line in rest {
            hear(&line);
        }
        let rows = left(folder.path());
        let found: HashMap<_, _> = rows
            .iter()
            .map(|row| (row.opening.started_at.unwrap(), row))
            .collect();
        assert_eq!(found.len(), rows.len(), "a record is there twice");
        for (n, (tokens, used, closed)) in said {
            let row = found
                .get(&n)
                .unwrap_or_else(|| panic!("record {n} is lost"));
            assert!(!closed || is_closed(row), "record {n} was closed");
            match &row.ending {
                Ending::Closed {
                    numbers,
                    usage: counts,
                    attempts,
                    ..
                } => {
                    assert_eq!((numbers.status, *counts), (Some(200 + n % 3), usage(n)));
                    assert_eq!(attempts.len(), 2);
                }
                Ending::Interrupted(seen) => {
                    assert!(seen.token_events >= tokens);
                    assert!(!used || (seen.usage == Some(usage(n)) && seen.whole));
                }
            }
        }
    }
}
