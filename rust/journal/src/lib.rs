//! The journal of the ledger: a record of each request that outlives the process that writes it.
//!
//! It is a folder of segments, files of 8 MiB that are made at full size and mapped, each locked by its process. What
//! is stored there is in the kernel's file cache at once: a killed process loses nothing of it.
//!
//! 1. [`Journal::open`] makes a record before an upstream hears of a request.
//! 2. The [`Entry`] is told what is seen while the request runs: a few plain stores.
//! 3. [`Entry::close`] says how it ended; the word that says so is stored last.
//! 4. [`Journal::take`] gives what is over, and [`Journal::shipped`] says that it is in the ledger. A segment is
//!    deleted once all that is in it is.
//! 5. [`Journal::abandoned`] reads what dead processes have left: what they closed, and what they did not, with what
//!    had been seen by then. Nothing that is read is trusted.
//!
//! | file | what |
//! | --- | --- |
//! | `record`, `texts` | what a record holds |
//! | `layout`, `packed` | where it is in a segment; nothing else knows |
//! | `owner` | whose the words of a record are, where pages of an earlier use are between them |
//! | `map` | a mapped file: the only unsafe code |
//! | `segment`, `sync` | files, their locks and their names; writing them to the disk |
//! | `journal`, `entry` | one process's journal, and one request's entry in it |
//! | `live` | the records that are open, for whoever looks on |
//! | `ledger`, `sums` | rows of the ledger, made of records, and their sums |

mod entry;
mod journal;
mod layout;
pub mod ledger;
mod live;
mod map;
mod owner;
mod packed;
mod record;
mod segment;
pub mod sums;
mod sync;
mod texts;

pub use entry::Entry;
pub use journal::{Abandoned, Batch, Full, Journal, Settings, abandoned_in};
pub use record::{
    Attempt, CLOSING_TEXTS, Closing, ClosingTexts, Counts, Ending, LONGEST_CLOSING_TEXT,
    LONGEST_OPENING_TEXT, OPENING_TEXTS, Opening, OpeningTexts, Row, Seen,
};
pub use segment::SEGMENT_BYTES;
pub use sync::{OnSync, Sync};
pub use texts::Texts;

/// The records in a segment's bytes that are not in the ledger yet. Any bytes have some, or none.
#[must_use]
pub fn read_segment(bytes: &[u8]) -> Vec<Row> {
    layout::read_all(bytes)
}
