//! Where everything is in a segment, and how a record is written there and read.
//!
//! A record begins with a tag that tells its length, a checksum of what it was opened with, and its state. The opening
//! part follows, whose length depends on its texts; then what is seen while the request runs, and what closes it, which
//! always take the same room. The tag is stored last when a record is opened, and the state last when it is closed.
//!
//! Segments are used again, and a power cut may leave some of their pages as they were before. So whatever follows the
//! opening part says whose it is: numbers carry bits that are made of the record's id, and checksums begin with bits of
//! it. What says that it is another record's is not read.

use crate::owner::Owner;
use crate::packed::{Packing, Unpacking, WORD, word, words};
use crate::record::{
    Attempt, CLOSING_TEXTS, Closing, ClosingTexts, Counts, Ending, LONGEST_CLOSING_TEXT,
    LONGEST_OPENING_TEXT, OPENING_TEXTS, Opening, OpeningTexts, Row, Seen, UNKNOWN,
};

/// The first words of a segment are its own.
pub(crate) const FIRST: usize = 8;
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"SGJRNL02");

const TAG: u64 = 0x5347_5246 << 32;
/// Of a record that an earlier version has left: nothing in it says whose it is.
const UNMARKED_TAG: u64 = 0x5347_5245 << 32;
const TAG_MASK: u64 = 0xffff_ffff_0000_0000;

/// Words of a record before its opening part.
const HEAD: usize = 3;
pub(crate) const STATE: usize = 2;
/// The id, the numbers, and how many words of texts follow.
const OPENING: usize = 2 + Opening::COUNT + 1;
const MOST_OPENING_TEXT: usize = (OPENING_TEXTS.len() * (2 + LONGEST_OPENING_TEXT)).div_ceil(WORD);

// What is seen, counted from its first word.
/// 0 while nothing is known of the usage; else [`IS_USED`] and its checksum.
const USED: usize = 0;
pub(crate) const ATTEMPTS: usize = 1;
pub(crate) const TOKENS: usize = 2;
pub(crate) const BYTES: usize = 3;
pub(crate) const FIRST_TOKEN: usize = 4;
const WHOLE: usize = 5;
const USAGE: usize = 6;
const MOVED: usize = USAGE + Counts::COUNT;
const MOVED_WORDS: usize = 32;
const SEEN: usize = MOVED + 1 + MOVED_WORDS;
const IS_USED: u64 = 1 << 32;

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

/// A new record.
pub(crate) struct Draft {
    pub(crate) tag: u64,
    /// What follows the tag, which is the first word.
    pub(crate) bytes: Vec<u8>,
    /// Where the words of what is seen begin.
    pub(crate) seen: usize,
    pub(crate) length: usize,
    pub(crate) owner: Owner,
}

/// `attempts`: how many upstreams have heard of it, as far as a power cut right now is concerned.
pub(crate) fn draft(id: u128, opening: &Opening, texts: &OpeningTexts<'_>, attempts: u64) -> Draft {
    // In bytes, counted from behind the tag.
    const OPENED: usize = (HEAD - 1) * WORD;
    const COUNT: usize = OPENED + (OPENING - 1) * WORD;
    let lengths = texts.iter().map(|text| 2 + text.map_or(0, str::len));
    let mut packing =
        Packing::with_capacity(COUNT + (1 + MOVED) * WORD + lengths.sum::<usize>() + WORD);
    packing.numbers(&[0, 0, (id >> 64) as u64, id as u64]);
    packing.numbers(&opening.words());
    packing.number(0);
    let first = packing.0.len();
    for text in texts {
        packing.text(*text, LONGEST_OPENING_TEXT);
    }
    packing.fill();
    packing.put(COUNT, ((packing.0.len() - first) / WORD) as u64);
    let crc = crc32fast::hash(packing.0.get(OPENED..).unwrap_or_default());
    packing.put(0, crc.into());
    let seen = 1 + packing.0.len() / WORD;
    let owner = Owner::of(Some(id));
    packing.numbers(&[0; MOVED + 1]);
    packing.put((seen - 1 + ATTEMPTS) * WORD, owner.mark(ATTEMPTS, attempts));
    let length = seen + SEEN + CLOSING + CLOSING_TEXT;
    Draft {
        tag: TAG | length as u64,
        bytes: packing.0,
        seen,
        length,
        owner,
    }
}

/// The words that usage is stored as, from the returned word on, and what is stored in [`USED_WORD`] after them.
pub(crate) fn used(
    owner: Owner,
    usage: &Counts,
    whole: bool,
) -> (usize, [u64; 1 + Counts::COUNT], u64) {
    let mut words = [u64::from(whole); 1 + Counts::COUNT];
    words[1..].copy_from_slice(&usage.words());
    let crc = owner.checksum_of_words(&words);
    (WHOLE, words, IS_USED | u64::from(crc))
}

pub(crate) const USED_WORD: usize = USED;
pub(crate) const MOVED_WORD: usize = MOVED;

/// A change of deployment: its first word, which is stored last, and what follows that.
pub(crate) fn moved(owner: Owner, upstream: &str, model: &str) -> (u64, Vec<u8>) {
    // Half of the room each.
    let longest = MOVED_WORDS * WORD / 2 - 2;
    let mut packing = Packing::with_capacity(MOVED_WORDS * WORD);
    packing.text(Some(upstream), longest);
    packing.text(Some(model), longest);
    packing.fill();
    let words = (packing.0.len() / WORD) as u64;
    let first = (words << 32) | u64::from(owner.checksum(&packing.0));
    (first, packing.0)
}

/// What closes a record, from the returned word after what is seen on, and its state.
pub(crate) fn closing(
    owner: Owner,
    numbers: &Closing,
    usage: &Counts,
    texts: &ClosingTexts<'_>,
    attempts: &[Attempt<&str>],
) -> (usize, Vec<u8>, u64) {
    const TEXT: usize = CLOSING * WORD;
    let mut packing = Packing::with_capacity(TEXT + CLOSING_TEXT * WORD);
    packing.numbers(&numbers.words());
    packing.numbers(&usage.words());
    packing.number(0);
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
        if packing.0.len() > TEXT + CLOSING_TEXT * WORD {
            break;
        }
        fitting = packing.0.len();
    }
    packing.0.truncate(fitting);
    packing.put(TEXT - WORD, (fitting - TEXT) as u64);
    packing.fill();
    let state = CLOSED | u64::from(owner.checksum(&packing.0));
    (SEEN, packing.0, state)
}

/// Whether a record of this state is in the ledger, or need not be.
pub(crate) fn is_finished(state: u64) -> bool {
    matches!(state & STATE_MASK, VOID | SHIPPED)
}

/// Words of the record that begins with this tag; none where it is no tag.
pub(crate) fn length(tag: u64) -> Option<usize> {
    if !matches!(tag & TAG_MASK, TAG | UNMARKED_TAG) {
        return None;
    }
    let length = usize::try_from(tag & !TAG_MASK).ok()?;
    (length <= LONGEST).then_some(length)
}

/// Where what is seen begins in a record.
pub(crate) fn seen_at(record: &[u8]) -> Option<usize> {
    let text_words = usize::try_from(word(record, HEAD + OPENING - 1)?).ok()?;
    (text_words <= MOST_OPENING_TEXT).then_some(HEAD + OPENING + text_words)
}

/// How many words of a record of `length` say something. `word`: what is at a place in it.
pub(crate) fn telling(length: usize, word: impl Fn(usize) -> u64) -> usize {
    let rest = length.saturating_sub(CLOSING_TEXT);
    let bytes = usize::try_from(word(rest.saturating_sub(1))).unwrap_or(usize::MAX);
    rest + bytes.div_ceil(WORD).min(CLOSING_TEXT)
}

/// The record at the beginning of `bytes`, and its length in words. Nothing in it is trusted.
pub(crate) fn read(bytes: &[u8]) -> Option<(usize, Option<Row>)> {
    let length = length(word(bytes, 0)?)?;
    Some((length, read_record(words(bytes, 0, length)?, length)?))
}

/// The record of `length` words, of which those that are [`telling`] suffice. None where it is none; `Some(None)` where
/// it is in the ledger, or no upstream has heard of it.
#[allow(clippy::option_option)]
pub(crate) fn read_record(record: &[u8], length: usize) -> Option<Option<Row>> {
    let state = word(record, STATE)?;
    let seen_at = seen_at(record)?;
    let opening = words(record, HEAD, seen_at)?;
    if u64::from(crc32fast::hash(opening)) != word(record, 1)?
        || length != seen_at + SEEN + CLOSING + CLOSING_TEXT
    {
        return None;
    }
    if is_finished(state) {
        return Some(None);
    }
    let id = (u128::from(word(opening, 0)?) << 64) | u128::from(word(opening, 1)?);
    let marked = word(record, 0)? & TAG_MASK == TAG;
    let owner = Owner::of(marked.then_some(id));
    let closed = (state & STATE_MASK == CLOSED)
        .then(|| {
            let part = record.get((seen_at + SEEN) * WORD..)?;
            read_closing(owner, part, state & !STATE_MASK)
        })
        .flatten();
    Some(Some(Row {
        id,
        opening: Opening::read(words(opening, 2, 2 + Opening::COUNT)?),
        texts: Unpacking(opening.get(OPENING * WORD..)?).texts(OPENING_TEXTS.len())?,
        ending: match closed {
            Some(closed) => closed,
            None => Ending::Interrupted(read_seen(owner, words(record, seen_at, seen_at + SEEN)?)?),
        },
    }))
}

fn read_seen(owner: Owner, seen: &[u8]) -> Option<Seen> {
    let number = |at| Some(owner.unmark(at, word(seen, at)?));
    let used = word(seen, USED)?;
    let is_used = if owner.is_known() {
        used == IS_USED | u64::from(owner.checksum(words(seen, WHOLE, MOVED)?))
    } else {
        // A version; an odd one was being written.
        used > 0 && used % 2 == 0
    };
    let usage = is_used
        .then(|| words(seen, USAGE, MOVED).map(Counts::read))
        .flatten();
    Some(Seen {
        attempts: number(ATTEMPTS)?.unwrap_or_default(),
        token_events: number(TOKENS)?.unwrap_or_default(),
        bytes_in: number(BYTES)?.unwrap_or_default(),
        first_token: number(FIRST_TOKEN)?,
        whole: usage.is_some() && word(seen, WHOLE)? == 1,
        usage,
        moved: read_moved(owner, seen.get(MOVED * WORD..)?),
    })
}

/// Whether a copy of a record was made while its usage changed. `seen`: where what is seen begins in it.
pub(crate) fn is_torn(record: &[u8], seen: usize, row: &Row) -> bool {
    let used = word(record, seen + USED).unwrap_or_default();
    used != 0 && matches!(&row.ending, Ending::Interrupted(seen) if seen.usage.is_none())
}

fn read_moved(owner: Owner, moved: &[u8]) -> Option<(Box<str>, Box<str>)> {
    let first = word(moved, 0)?;
    let count = usize::try_from(first >> 32).ok()?;
    let bytes = words(moved, 1, count.checked_add(1)?)?;
    if count == 0 || u64::from(owner.checksum(bytes)) != first & 0xffff_ffff {
        return None;
    }
    let mut reading = Unpacking(bytes);
    Some((reading.text()??.into(), reading.text()??.into()))
}

fn read_closing(owner: Owner, bytes: &[u8], crc: u64) -> Option<Ending> {
    let length = usize::try_from(word(bytes, CLOSING - 1)?).ok()?;
    if length > CLOSING_TEXT * WORD {
        return None;
    }
    let part = words(bytes, 0, CLOSING + length.div_ceil(WORD))?;
    if u64::from(owner.checksum(part)) != crc {
        return None;
    }
    let mut reading = Unpacking(part.get(CLOSING * WORD..)?.get(..length)?);
    let texts = reading.texts(CLOSING_TEXTS.len())?;
    let mut attempts = Vec::new();
    while !reading.0.is_empty() {
        attempts.push(Attempt {
            upstream: reading.text()??.into(),
            upstream_model: reading.text()??.into(),
            fault: reading.text()?.map(Box::from),
            status: reading
                .number()
                .map(|status| Some(status).filter(|status| *status != UNKNOWN))?,
            began: reading.number()?,
            took: reading.number()?,
        });
    }
    Some(Ending::Closed {
        numbers: Closing::read(part),
        usage: Counts::read(part.get(Closing::COUNT * WORD..)?),
        texts,
        attempts,
    })
}

/// Every record in a segment's bytes that is not in the ledger yet. What cannot be read is passed over, so that a page
/// that a power cut took costs no more than what was in it.
pub(crate) fn read_all(bytes: &[u8]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut at = FIRST;
    while let Some(rest) = bytes.get(at * WORD..).filter(|rest| !rest.is_empty()) {
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
