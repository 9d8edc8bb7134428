//! Records of which something may still come, looked at while their engines write them.

use std::sync::atomic::{Ordering, fence};

use crate::layout::{self, FIRST, STATE};
use crate::map::Words;
use crate::packed::word;
use crate::record::Row;

/// How often a record is read that changes while it is.
const TRIES: usize = 8;

/// Where each record in `words` begins, up to the word `end`, and its length.
pub(crate) fn records(words: &Words, end: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut at = FIRST;
    std::iter::from_fn(move || {
        while at < end {
            // The tag is stored last: where there is none yet, the record is being opened.
            if let Some(length) = layout::length(words.load(at, Ordering::Acquire)) {
                let found = at;
                at += length;
                return Some((found, length));
            }
            at += 1;
        }
        None
    })
}

/// The records in `words`, up to the word `end`, that are open and that an upstream may have heard of.
pub(crate) fn open_in(words: &Words, end: usize) -> Vec<Row> {
    records(words, end)
        .filter(|(at, _)| words.load(at + STATE, Ordering::Acquire) == 0)
        .filter_map(|(at, length)| read(words, at, length))
        .collect()
}

/// Where the records end of which nothing is to be put into the ledger any more, from the record at the word `from` on
/// and up to the word `end`. One that is being opened is not among them.
pub(crate) fn finished_until(words: &Words, from: usize, end: usize) -> usize {
    let mut at = from;
    while at < end
        && let Some(length) = layout::length(words.load(at, Ordering::Acquire))
        && layout::is_finished(words.load(at + STATE, Ordering::Acquire))
    {
        at += length;
    }
    at
}

fn read(words: &Words, at: usize, length: usize) -> Option<Row> {
    let mut row = None;
    for _ in 0..TRIES {
        let copy = words.copy(at, length);
        fence(Ordering::Acquire);
        if words.load(at + STATE, Ordering::Acquire) != 0 {
            return None;
        }
        let found = open_row(&copy)?;
        let torn = layout::is_torn(&copy, layout::seen_at(&copy)?, &found);
        row = Some(found);
        if !torn {
            break;
        }
    }
    // Where its usage never stood still it is not said.
    row
}

fn open_row(copy: &[u8]) -> Option<Row> {
    if word(copy, STATE)? != 0 {
        return None;
    }
    layout::read(copy)?.1.filter(Row::is_real)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{CLOSED, LEFT, SHIPPED, VOID, draft};
    use crate::record::{OPENING_TEXTS, Opening};

    #[test]
    #[allow(clippy::unwrap_used)]
    fn the_records_that_are_in_the_ledger() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 16).unwrap();
        let words = Words::map(&file).unwrap();
        let mut at = FIRST;
        let mut places = Vec::new();
        for id in 0..4 {
            let draft = draft(id, &Opening::default(), &[None; OPENING_TEXTS.len()], 0);
            words.store_all(at + 1, &draft.bytes);
            words.store(at, draft.tag, Ordering::Release);
            places.push(at);
            at += draft.length;
        }
        let end = at;
        let state = |record: usize, state| {
            words.store(places[record] + STATE, state, Ordering::Release);
            let until = finished_until(&words, FIRST, end);
            assert_eq!(finished_until(&words, until, end), until);
            until
        };
        assert_eq!(state(1, SHIPPED), places[0]);
        assert_eq!(state(0, VOID), places[2]);
        assert_eq!(state(2, CLOSED | 7), places[2]);
        assert_eq!(state(2, SHIPPED), places[3]);
        assert_eq!(state(3, LEFT), places[3]);
        assert_eq!(state(3, SHIPPED), end);
        words.store(places[0], 0, Ordering::Release);
        assert_eq!(state(1, 0), places[0], "one is being opened");
    }
}
