#![allow(clippy::unwrap_used, unreachable_pub, dead_code)] // What fails here fails the test.
//! Records to write and to look for.

use std::path::Path;

use sluicegate_journal::{
    Attempt, Closing, ClosingTexts, Counts, Ending, Journal, OnSync, Opening, OpeningTexts, Row,
    SEGMENT_BYTES, Settings, Sync, abandoned_in,
};

pub fn journal(folder: &Path) -> Journal {
    Journal::new(settings(folder)).unwrap()
}

pub fn settings(folder: &Path) -> Settings {
    Settings {
        folder: folder.to_owned(),
        bytes: 16 * SEGMENT_BYTES,
        sync: Sync::Never,
        on_sync: OnSync::default(),
    }
}

pub fn opening(started_at: u64) -> Opening {
    Opening {
        started_at: Some(started_at),
        run: Some(1),
        background: Some(0),
        streamed: Some(1),
        estimated_input: Some(17),
        estimated_output: None,
    }
}

pub fn texts(request_id: &str) -> OpeningTexts<'_> {
    let mut texts = [None; 13];
    texts[0] = Some(request_id);
    texts[3] = Some("chat_completions");
    texts[9] = Some("llama");
    texts[11] = Some("gpu-a");
    texts[12] = Some("meta/llama");
    texts
}

pub fn usage(output: u64) -> Counts {
    Counts {
        input: Some(100),
        cached_input: Some(60),
        output: Some(output),
        ..Counts::default()
    }
}

pub fn closing(status: u64) -> Closing {
    Closing {
        status: Some(status),
        attempts: Some(1),
        cost: Some(1_234_567),
        duration: Some(9),
        ..Closing::default()
    }
}

pub const CLOSING: ClosingTexts<'static> = [
    Some("gpu-a"),
    Some("meta/llama"),
    None,
    Some("req-1"),
    None,
    Some("stop"),
    None,
    None,
];

pub fn tries() -> Vec<Attempt<&'static str>> {
    vec![
        Attempt {
            upstream: "gpu-b",
            upstream_model: "other",
            fault: Some("connect"),
            status: None,
            began: 1,
            took: 2,
        },
        Attempt {
            upstream: "gpu-a",
            upstream_model: "meta/llama",
            fault: None,
            status: Some(200),
            began: 3,
            took: 6,
        },
    ]
}

/// The rows that are found in the folder of a journal whose process is gone.
pub fn left(folder: &Path) -> Vec<Row> {
    // Each is held, or it would be found again.
    let segments: Vec<_> = std::iter::from_fn(|| abandoned_in(folder).unwrap()).collect();
    segments.into_iter().flat_map(|found| found.rows).collect()
}

pub fn is_closed(row: &Row) -> bool {
    matches!(row.ending, Ending::Closed { .. })
}
