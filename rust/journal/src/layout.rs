//! Where everything is in a segment, and how a record is written there and read.
//!
//! A record begins with a tag that tells its length, a checksum of what it was opened with, and its state. The opening
//! part follows, whose length depends on its texts; then what is seen while the request runs, and what closes it, which
//! always take the same room. The tag is stored last when a record is opened, and the state last when it is closed.

use crate::packed::{Packing, Unpacking, bytes_of, crc_of};
use crate::record::{
    Attempt, CLOSING_TEXTS, Closing, ClosingTexts, Counts, Ending, LONGEST_CLOSING_TEXT,
    LONGEST_OPENING_TEXT, OPENING_TEXTS, Opening, OpeningTexts, Row, Seen, UNKNOWN,
};

pub(crate) const WORD: usize = size_of::<u64>();

/// The first words of a segment are its own.
pub(crate) const FIRST: usize = 8;
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"SGJRNL01");

const TAG: u64 = 0x5347_5245 << 32;
const TAG_MASK: u64 = 0xffff_ffff_0000_0000;

/// Words of a record before its opening part.
const HEAD: usize = 3;
pub(crate) const STATE: usize = 2;
/// The id, the numbers, and how many words of texts follow.
const OPENING: usize = 2 + Opening::COUNT + 1;
const MOST_OPENING_TEXT: usize = (OPENING_TEXTS.len() * (2 + LONGEST_OPENING_TEXT)).div_ceil(WORD);

// What is seen, counted from its first word.
const VERSION: usize = 0;
pub(crate) const ATTEMPTS: usize = 1;
pub(crate) const TOKENS: usize = 2;
pub(crate) const BYTES: usize = 3;
pub(crate) const FIRST_TOKEN: usize = 4;
const WHOLE: usize = 5;
const USAGE: usize = 6;
const MOVED: usize = USAGE + Counts::COUNT;
const MOVED_WORDS: usize = 32;
const SEEN: usize = MOVED + 1 + MOVED_WORDS;

/// Numbers, usage, and how many bytes of texts and attempts follow.
const CLOSING: usize = Closing::COUNT + Counts::COUNT + 1;
const CLOSING_TEXT: usize = 192;

/// The states of a record. An open one is 0; a closed one has the checksum of its closing part beside this.
pub(crate) const CLOSED: u64 = 1 << 32;
/// No upstream has heard of it.
pub(crate) const VOID: u64 = 2 << 32;
/// It is in the ledger.
pub(crate) const SHIPPED: u64 = 3 << 32;
/// It is over, and nobody closed it: read as one that is open, but for those who look at what is.
pub(crate) const LEFT: u64 = 4 << 32;
const STATE_MASK: u64 = 0xffff_ffff_0000_0000;

/// The longest record, in words.
const LONGEST: usize = HEAD + OPENING + MOST_OPENING_TEXT + SEEN + CLOSING + CLOSING_TEXT;

/// A new record: all of its words but the tag, which is the first.
pub(crate) struct Draft {
    pub(crate) tag: u64,
    pub(crate) words: Vec<u64>,
    /// Where the words of what is seen begin.
    pub(crate) seen: usize,
    pub(crate) length: usize,
}

pub(crate) fn draft(id: u128, opening: &Opening, texts: &OpeningTexts<'_>) -> Draft {
    let mut packing = Packing::default();
    for text in texts {
        packing.text(*text, LONGEST_OPENING_TEXT);
    }
    let text_words = packing.words();
    let mut part = Vec::with_capacity(OPENING + text_words.len());
    part.extend([(id >> 64) as u64, id as u64]);
    part.extend(opening.words());
    part.push(text_words.len() as u64);
    part.extend(text_words);
    let seen = HEAD + part.len();
    let length = seen + SEEN + CLOSING + CLOSING_TEXT;
    let tag = TAG | length as u64;
    let mut words = vec![crc_of(&part).into(), 0];
    words.extend(part);
    words.extend([0; FIRST_TOKEN]);
    words.extend([UNKNOWN, 0]);
    words.extend([UNKNOWN; Counts::COUNT]);
    Draft {
        tag,
        words,
        seen,
        length,
    }
}

/// The words that usage is stored in, from the returned offset on, after the version, which is odd meanwhile.
pub(crate) fn usage_words(usage: &Counts, whole: bool) -> (usize, [u64; Counts::COUNT + 1]) {
    let mut words = [0; Counts::COUNT + 1];
    words[0] = u64::from(whole);
    words[1..].copy_from_slice(&usage.words());
    (WHOLE, words)
}

pub(crate) const VERSION_WORD: usize = VERSION;
pub(crate) const MOVED_WORD: usize = MOVED;

/// The words of a change of deployment that follow its first, and the first, which is stored last.
pub(crate) fn moved_words(upstream: &str, model: &str) -> (u64, Vec<u64>) {
    // Half of the room each.
    let longest = MOVED_WORDS * WORD / 2 - 2;
    let mut packing = Packing::default();
    packing.text(Some(upstream), longest);
    packing.text(Some(model), longest);
    let words = packing.words();
    let first = ((words.len() as u64) << 32) | u64::from(crc_of(&words));
    (first, words)
}

/// The words that close a record, from the returned offset after what is seen on, and its state.
pub(crate) fn closing_words(
    numbers: &Closing,
    usage: &Counts,
    texts: &ClosingTexts<'_>,
    attempts: &[Attempt<&str>],
) -> (usize, Vec<u64>, u64) {
    let mut packing = Packing::default();
    for text in texts {
        packing.text(*text, LONGEST_CLOSING_TEXT);
    }
    let mut fitting = packing.0.len();
    for attempt in attempts {
        packing.text(Some(attempt.upstream), LONGEST_CLOSING_TEXT);
        packing.text(Some(attempt.upstream_model), LONGEST_CLOSING_TEXT);
        packing.text(attempt.fault, LONGEST_CLOSING_TEXT);
        packing.number(attempt.status.unwrap_or(UNKNOWN));
        packing.number(attempt.began);
        packing.number(attempt.took);
        if packing.0.len() > CLOSING_TEXT * WORD {
            break;
        }
        fitting = packing.0.len();
    }
    packing.0.truncate(fitting);
    let mut words = Vec::with_capacity(CLOSING + CLOSING_TEXT);
    words.extend(numbers.words());
    words.extend(usage.words());
    words.push(packing.0.len() as u64);
    words.extend(packing.words());
    let state = CLOSED | u64::from(crc_of(&words));
    (SEEN, words, state)
}

/// Whether a record of this state is in the ledger, or need not be.
pub(crate) fn is_finished(state: u64) -> bool {
    matches!(state & STATE_MASK, VOID | SHIPPED)
}

/// Words of the record that begins with this tag; none where it is no tag.
pub(crate) fn length(tag: u64) -> Option<usize> {
    if tag & TAG_MASK != TAG {
        return None;
    }
    let length = usize::try_from(tag & !TAG_MASK).ok()?;
    (length <= LONGEST).then_some(length)
}

/// Where what is seen begins in a record.
pub(crate) fn seen_at(words: &[u64]) -> Option<usize> {
    let text_words = usize::try_from(*words.get(HEAD + OPENING - 1)?).ok()?;
    (text_words <= MOST_OPENING_TEXT).then_some(HEAD + OPENING + text_words)
}

/// How many words of a record of `length` say something. `word`: what is at a place in it.
pub(crate) fn used(length: usize, word: impl Fn(usize) -> u64) -> usize {
    let rest = length.saturating_sub(CLOSING_TEXT);
    let bytes = usize::try_from(word(rest.saturating_sub(1))).unwrap_or(usize::MAX);
    rest + bytes.div_ceil(WORD).min(CLOSING_TEXT)
}

/// The record at the beginning of `words`, and its length in words. Nothing in it is trusted.
pub(crate) fn read(words: &[u64]) -> Option<(usize, Option<Row>)> {
    let length = length(*words.first()?)?;
    Some((length, read_record(words.get(..length)?, length)?))
}

/// The record of `length` words, of which those that are [`used`] suffice. None where it is none; `Some(None)` where it
/// is in the ledger, or no upstream has heard of it.
#[allow(clippy::option_option)]
pub(crate) fn read_record(words: &[u64], length: usize) -> Option<Option<Row>> {
    let state = *words.get(STATE)?;
    let seen_at = seen_at(words)?;
    let opening = words.get(HEAD..seen_at)?;
    let opening_bytes = bytes_of(opening);
    if u64::from(crc32fast::hash(&opening_bytes)) != *words.get(1)?
        || length != seen_at + SEEN + CLOSING + CLOSING_TEXT
    {
        return None;
    }
    if is_finished(state) {
        return Some(None);
    }
    let texts = Unpacking(opening_bytes.get(OPENING * WORD..)?).texts(OPENING_TEXTS.len())?;
    let seen = words.get(seen_at..seen_at + SEEN)?;
    let closing = words.get(seen_at + SEEN..)?;
    let closed = (state & STATE_MASK == CLOSED)
        .then(|| read_closing(closing, state & !STATE_MASK))
        .flatten();
    Some(Some(Row {
        id: (u128::from(*opening.first()?) << 64) | u128::from(*opening.get(1)?),
        opening: Opening::read(opening.get(2..2 + Opening::COUNT)?),
        texts,
        ending: match closed {
            Some(closed) => closed,
            None => Ending::Interrupted(read_seen(seen)?),
        },
    }))
}

fn read_seen(words: &[u64]) -> Option<Seen> {
    let version = *words.get(VERSION)?;
    // An odd one was being written.
    let usage = (version > 0 && version % 2 == 0)
        .then(|| words.get(USAGE..MOVED).map(Counts::read))
        .flatten();
    Some(Seen {
        attempts: *words.get(ATTEMPTS)?,
        token_events: *words.get(TOKENS)?,
        bytes_in: *words.get(BYTES)?,
        first_token: words.get(FIRST_TOKEN).copied().filter(|at| *at != UNKNOWN),
        whole: usage.is_some() && *words.get(WHOLE)? == 1,
        usage,
        moved: read_moved(words.get(MOVED..)?),
    })
}

fn read_moved(words: &[u64]) -> Option<(Box<str>, Box<str>)> {
    let first = *words.first()?;
    let count = usize::try_from(first >> 32).ok()?;
    let words = words.get(1..)?.get(..count)?;
    if count == 0 || u64::from(crc_of(words)) != first & 0xffff_ffff {
        return None;
    }
    let bytes = bytes_of(words);
    let mut reading = Unpacking(&bytes);
    Some((reading.text()??, reading.text()??))
}

fn read_closing(words: &[u64], crc: u64) -> Option<Ending> {
    let length = usize::try_from(*words.get(CLOSING - 1)?).ok()?;
    if length > CLOSING_TEXT * WORD {
        return None;
    }
    let part = words.get(..CLOSING + length.div_ceil(WORD))?;
    let bytes = bytes_of(part);
    if u64::from(crc32fast::hash(&bytes)) != crc {
        return None;
    }
    let mut reading = Unpacking(bytes.get(CLOSING * WORD..)?.get(..length)?);
    let texts = reading.texts(CLOSING_TEXTS.len())?;
    let mut attempts = Vec::new();
    while !reading.0.is_empty() {
        attempts.push(Attempt {
            upstream: reading.text()??,
            upstream_model: reading.text()??,
            fault: reading.text()?,
            status: reading
                .number()
                .map(|status| Some(status).filter(|status| *status != UNKNOWN))?,
            began: reading.number()?,
            took: reading.number()?,
        });
    }
    Some(Ending::Closed {
        numbers: Closing::read(part),
        usage: Counts::read(part.get(Closing::COUNT..)?),
        texts,
        attempts,
    })
}

/// Every record in a segment's words that is not in the ledger yet. What cannot be read is passed over, so that a page
/// that a power cut took costs no more than what was in it.
pub(crate) fn read_all(words: &[u64]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut at = FIRST;
    while let Some(rest) = words.get(at..).filter(|rest| !rest.is_empty()) {
        match read(rest) {
            Some((length, row)) => {
                rows.extend(row.filter(Row::is_real));
                at += length;
            }
            None => at += 1,
        }
    }
    rows
}
