//! The cases of `tests/corpus/fold` and `tests/corpus/unfold`: a stream and the completion that it is folded into, a
//! completion and the stream that it is unfolded into. Bytes are compared, the line end of the `.json` files aside.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // What fails here fails the test.

use std::path::{Path, PathBuf};

use sluicegate_core::limits::Limits;
use sluicegate_core::protocols::chat::fold::fold_chat;
use sluicegate_core::protocols::chat::unfold::{Unfold, unfold_chat};

/// The cases in a folder of the corpus: the name, the stream, the completion.
fn cases(folder: &str) -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus");
    let mut streams: Vec<PathBuf> = std::fs::read_dir(corpus.join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sse"))
        .collect();
    streams.sort();
    assert!(!streams.is_empty());
    streams
        .into_iter()
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let completion = std::fs::read(path.with_extension("json")).unwrap();
            let stream = std::fs::read(path).unwrap();
            (name, stream, completion.trim_ascii_end().to_vec())
        })
        .collect()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

const ASKED: Unfold = Unfold {
    include_usage: true,
};

#[test]
fn streams_fold_into_their_completions() {
    for (name, stream, completion) in cases("fold") {
        let folded = fold_chat(&stream, Limits::default()).unwrap();
        assert_eq!(text(&folded), text(&completion), "{name}");
    }
}

#[test]
fn completions_unfold_into_their_streams() {
    for (name, stream, completion) in cases("unfold") {
        let unfolded = unfold_chat(&completion, ASKED, Limits::default()).unwrap();
        assert_eq!(text(&unfolded), text(&stream), "{name}");
    }
}

#[test]
fn what_was_folded_unfolds_and_folds_into_the_same() {
    for (name, _, completion) in cases("fold").into_iter().chain(cases("unfold")) {
        let stream = unfold_chat(&completion, ASKED, Limits::default()).unwrap();
        let folded = fold_chat(&stream, Limits::default()).unwrap();
        let [folded, completion] = [folded, completion]
            .map(|json| serde_json::from_slice::<serde_json::Value>(&json).unwrap());
        assert_eq!(folded, completion, "{name}");
    }
}
