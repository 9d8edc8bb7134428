//! Nothing that is read is trusted: any bytes can be read, and a record is read as it was written or not at all.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashMap;
use std::fs;
use std::sync::LazyLock;

use proptest::prelude::*;
use sluicegate_journal::{Ending, Row, Seen, read_segment};
use support::{CLOSING, closing, journal, opening, texts, tries, usage};

/// The part of a segment that holds some records of each kind.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(folder.path());
    for at in 0..6 {
        let mut entry = journal.open(&opening(at), &texts("x")).unwrap();
        entry.attempt("gpu-a", "meta/llama");
        entry.progress(3, 30);
        if at % 2 == 0 {
            entry.attempt("gpu-b", "other");
            entry.usage(&usage(4), false);
        }
        if at % 3 == 0 {
            entry.close(&closing(200), &usage(at), &CLOSING, &tries());
        }
    }
    let mut files = fs::read_dir(folder.path()).unwrap();
    let mut bytes = fs::read(files.next().unwrap().unwrap().path()).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes.truncate(used + 4096);
    bytes
});

static ROWS: LazyLock<HashMap<u128, Row>> = LazyLock::new(|| {
    let rows = read_segment(&BYTES);
    assert_eq!(rows.len(), 6);
    rows.into_iter().map(|row| (row.id, row)).collect()
});

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        prop_assert_eq!(read_segment(&bytes).len(), 0);
    }

    #[test]
    fn any_words_after_a_tag_can_be_read(
        tag in prop_oneof![Just(0x5347_5245_u64), Just(0x5347_5246)],
        length in any::<u16>(),
        words in proptest::collection::vec(prop_oneof![0..64_u64, any::<u64>()], 8..600),
    ) {
        let mut all = vec![0; 8];
        all.push((tag << 32) | u64::from(length));
        all.extend(words);
        let bytes: Vec<u8> = all.iter().flat_map(|word| word.to_le_bytes()).collect();
        let _ = read_segment(&bytes);
    }

    #[test]
    fn a_record_is_read_as_it_was_opened_or_not_at_all(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        let mut bytes = BYTES.clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for row in read_segment(&bytes) {
            let Some(written) = ROWS.get(&row.id) else {
                return Err(TestCaseError::fail("nobody wrote this record"));
            };
            prop_assert_eq!((row.opening, &row.texts), (written.opening, &written.texts));
            // One whose ending was hurt is no longer closed; what is still closed is what was written.
            if let Ending::Closed { .. } = row.ending {
                prop_assert_eq!(&row.ending, &written.ending);
            }
        }
    }

    #[test]
    fn a_segment_that_ends_anywhere_can_be_read(end in any::<prop::sample::Index>()) {
        let end = end.index(BYTES.len());
        for row in read_segment(&BYTES[..end]) {
            prop_assert_eq!(ROWS.get(&row.id), Some(&row));
        }
    }
}

#[test]
fn what_a_power_cut_takes_from_the_middle_costs_no_more_than_that() {
    for page in 1..BYTES.len() / 4096 {
        let mut bytes = BYTES.clone();
        bytes[page * 4096..][..4096.min(BYTES.len() - page * 4096)].fill(0);
        let rows = read_segment(&bytes);
        assert!(rows.len() >= 2, "{} rows without page {page}", rows.len());
    }
}

/// Bytes that a version wrote whose records did not say whose their parts are.
#[test]
fn what_an_earlier_version_has_left_is_read() {
    let rows = read_segment(include_bytes!("support/earlier.journal"));
    let ids: Vec<_> = rows.iter().map(|row| row.texts.get(0)).collect();
    assert_eq!(ids, [Some("closed"), Some("open")]);
    let Ending::Closed {
        numbers,
        usage: used,
        ..
    } = &rows[0].ending
    else {
        unreachable!("it was closed")
    };
    assert_eq!((*numbers, *used), (closing(200), usage(40)));
    let seen = Seen {
        attempts: 2,
        token_events: 7,
        bytes_in: 700,
        first_token: Some(12),
        usage: Some(usage(40)),
        whole: false,
        moved: Some(("gpu-b".into(), "other".into())),
    };
    assert_eq!(rows[1].ending, Ending::Interrupted(seen));
}
