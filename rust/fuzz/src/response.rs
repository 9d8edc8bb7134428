//! Any events of a response give a snapshot and an end that a client can read, of a size in proportion to what came.

use bytes::Bytes;
use serde_json::Value;
use sluicegate_core::limits::Limits;
use sluicegate_core::output::Failure;
use sluicegate_core::protocols::responses::closing::End;
use sluicegate_core::protocols::responses::fold::Fold;
use sluicegate_core::protocols::responses::numbering::Numbering;
use sluicegate_core::protocols::responses::unfolding::unfold;

const OWN: &[u8] = br#"{"id":"resp_1","object":"response","status":"queued","output":[]}"#;

/// What may come of so many bytes: each text is said four times where it is closed, a byte that is not UTF-8 becomes
/// three, and what frames them is longer than the shortest event.
fn most(size: usize) -> usize {
    64 * size + 4096
}

/// Checks the property on one input, an event stream.
pub fn check(input: &[u8]) {
    check_fold(input);
    let limits = Limits::default();
    let mut numbering = Numbering::new(3, Some(OWN), &limits);
    let mut kept = Vec::new();
    let mut cut = Numbering::new(3, Some(OWN), &limits);
    let mut cut_kept = Vec::new();
    let _ = numbering.feed(Bytes::copy_from_slice(input), 7, &mut kept);
    numbering.finish(7, &mut kept);
    for read in input.chunks(5) {
        let _ = cut.feed(Bytes::copy_from_slice(read), 7, &mut cut_kept);
    }
    cut.finish(7, &mut cut_kept);
    assert_eq!(kept, cut_kept, "cuts change nothing");
    assert_eq!(numbering.broken(), cut.broken());
    assert!(kept.len() <= most(input.len()));
    for (number, event) in (3..).zip(parsed(&kept)) {
        assert_eq!(event["sequence_number"], number);
    }
    let fold = check_fold(&kept);
    assert_eq!(
        fold.following(),
        if kept.is_empty() {
            0
        } else {
            numbering.following()
        }
    );
    assert_eq!(fold.has_ended(), numbering.ending().is_some());
    if let Some(ending) = numbering.ending() {
        assert_eq!(json(&fold.response(None)), json(&ending.response));
        check_unfolded(&ending.response);
    }
    check_unfolded(input);
}

fn check_fold(events: &[u8]) -> Fold {
    let limits = Limits::default();
    let mut fold = Fold::of(OWN, &limits);
    fold.take(events);
    let following = fold.following();
    let shown = fold.response(Some("in_progress"));
    assert!(shown.len() <= most(events.len()));
    assert!(json(&shown).is_object());
    if fold.has_ended() {
        return fold;
    }
    for end in [
        End::Cancelled,
        End::Failed {
            failure: Failure {
                message: "it broke off",
                ..Failure::default()
            },
            told: false,
        },
    ] {
        let mut out = Vec::new();
        let (response, next) = fold.end(end, following, None, &mut out);
        assert!(out.len() <= most(events.len()));
        let closing = parsed(&out);
        for (number, event) in (following..).zip(&closing) {
            assert_eq!(event["sequence_number"], number);
        }
        assert_eq!(next - following, closing.len() as u64);
        let last = closing.last().expect("a last event");
        let response = json(&response);
        assert_eq!(last["response"], response);
        let output = response["output"].as_array().expect("an output");
        for item in output {
            assert_ne!(item["status"], "in_progress");
        }
        let closed = closing
            .iter()
            .filter(|event| event["type"] == "response.output_item.done");
        for event in closed {
            assert!(output.contains(&event["item"]));
        }
        // Whoever has followed the events sees the same object.
        let mut again = Fold::of(OWN, &limits);
        again.take(events);
        again.take(&out);
        assert!(again.has_ended());
        assert_eq!(json(&again.response(None)), response);
    }
    fold
}

/// Folding what a response is unfolded into, but for the last event, gives the items of the response.
fn check_unfolded(response: &[u8]) {
    let limits = Limits::default();
    let Ok(events) = unfold(response, &limits) else {
        return;
    };
    assert!(events.len() <= most(response.len()));
    let whole = json(&String::from_utf8_lossy(response).into_owned().into_bytes());
    let items: Vec<_> = whole["output"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|item| item.is_object())
        .cloned()
        .collect();
    let text = String::from_utf8(events).expect("events are UTF-8");
    let last = text.trim_end().rfind("\n\n").map_or(0, |at| at + 2);
    let (before, last) = text.split_at(last);
    let mut fold = Fold::of(OWN, &limits);
    fold.take(before.as_bytes());
    assert_eq!(json(&fold.response(None))["output"], Value::Array(items));
    fold.take(last.as_bytes());
    assert!(fold.has_ended());
    assert_eq!(json(&fold.response(None)), whole);
}

fn json(text: &[u8]) -> Value {
    let text = String::from_utf8_lossy(text);
    match serde_json::from_str(&without_lone_surrogates(&text)) {
        Ok(value) => value,
        Err(error) => panic!("{error}: {text}"),
    }
}

/// Half of a surrogate pair in an escape is JSON by its grammar, and no text in Rust.
fn without_lone_surrogates(text: &str) -> String {
    let mut out = text.to_owned();
    for hex in ["\\ud", "\\uD"] {
        out = out.replace(hex, "\\\\ud");
    }
    out
}

fn parsed(events: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(events).expect("events are UTF-8");
    let frames = text.split_terminator("\n\n");
    frames
        .map(|frame| {
            let (_, data) = frame.split_once("\ndata: ").expect("an event with data");
            json(data.as_bytes())
        })
        .collect()
}
