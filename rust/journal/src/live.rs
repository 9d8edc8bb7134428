//! The records that are open, read while their engines write them.

use std::sync::atomic::{Ordering, fence};

use crate::layout::{self, FIRST, STATE, VERSION_WORD};
use crate::map::Words;
use crate::record::Row;

/// How often a record is read that changes while it is.
const TRIES: usize = 8;

/// The records in `words`, up to the word `end`, that are open and that an upstream may have heard of.
pub(crate) fn open_in(words: &Words, end: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut at = FIRST;
    while at < end {
        // The tag is stored last: where there is none yet, the record is being opened.
        let Some(length) = layout::length(words.load(at, Ordering::Acquire)) else {
            at += 1;
            continue;
        };
        if words.load(at + STATE, Ordering::Acquire) == 0 {
            rows.extend(read(words, at, length));
        }
        at += length;
    }
    rows
}

fn read(words: &Words, at: usize, length: usize) -> Option<Row> {
    let mut copy = Vec::new();
    for _ in 0..TRIES {
        copy = words.copy(at, length);
        fence(Ordering::Acquire);
        let seen = layout::seen_at(&copy)?;
        let watched = [STATE, seen + VERSION_WORD];
        if watched
            .iter()
            .all(|word| copy.get(*word) == Some(&words.load(at + word, Ordering::Acquire)))
        {
            return open_row(&copy);
        }
    }
    // Its usage never stood still, and is not said then: an odd version is one that is being written.
    let seen = layout::seen_at(&copy)?;
    *copy.get_mut(seen + VERSION_WORD)? = 1;
    open_row(&copy)
}

fn open_row(copy: &[u64]) -> Option<Row> {
    if *copy.get(STATE)? != 0 {
        return None;
    }
    layout::read(copy)?.1.filter(Row::is_real)
}
