//! The cases of `tests/corpus/sse_cases.json`, and recorded streams where `SLUICEGATE_CORPUS` names a folder of them.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::Value;
use sluicegate_core::limits::Limits;
use sluicegate_core::sse::event::Interpreter;
use sluicegate_core::sse::splitter::Splitter;

/// What reading a stream gave.
#[derive(Debug, Default, PartialEq)]
struct Reading {
    bom: Vec<u8>,
    raw: Vec<Vec<u8>>,
    tail: Vec<u8>,
    terminator: Vec<u8>,
    /// Name, data and id.
    events: Vec<(String, String, String)>,
    comments: usize,
    retry: Option<u64>,
    last_event_id: String,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read<'a>(reads: impl IntoIterator<Item = &'a [u8]>) -> Reading {
    let mut splitter = Splitter::new(&Limits::default());
    let mut interpreter = Interpreter::default();
    let mut reading = Reading::default();
    for read in reads {
        let (batch, fed) = splitter.feed(Bytes::copy_from_slice(read));
        fed.unwrap();
        reading.bom.extend_from_slice(&batch.bom);
        if !batch.late_lf.is_empty() {
            reading
                .raw
                .last_mut()
                .unwrap()
                .extend_from_slice(&batch.late_lf);
        }
        for raw in batch.events() {
            reading.raw.push(raw.bytes().to_vec());
            reading.comments += raw.comments();
            if let Some(event) = interpreter.dispatch(&raw) {
                reading
                    .events
                    .push((text(event.name), text(&event.data), text(event.id)));
            }
        }
    }
    if let Some(tail) = splitter.finish() {
        reading.tail = tail.rest.to_vec();
        reading.terminator = tail.terminator.to_vec();
    }
    reading.retry = interpreter.retry();
    reading.last_event_id = text(interpreter.last_event_id());
    reading
}

/// A string whose characters stand for bytes.
fn bytes(value: &Value) -> Vec<u8> {
    value
        .as_str()
        .unwrap()
        .chars()
        .map(|char| u8::try_from(u32::from(char)).unwrap())
        .collect()
}

fn string(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn expected(case: &Value) -> Reading {
    let raw = case["raw"].as_array().unwrap();
    let events = case["events"].as_array().unwrap();
    Reading {
        bom: if case["bom"].as_bool().unwrap() {
            b"\xEF\xBB\xBF".to_vec()
        } else {
            Vec::new()
        },
        raw: raw.iter().map(bytes).collect(),
        tail: bytes(&case["tail"]),
        terminator: bytes(&case["terminator"]),
        events: events
            .iter()
            .map(|event| {
                (
                    string(&event["name"]),
                    string(&event["data"]),
                    string(&event["id"]),
                )
            })
            .collect(),
        comments: usize::try_from(case["comments"].as_u64().unwrap()).unwrap(),
        retry: case["retry"].as_u64(),
        last_event_id: string(&case["last_event_id"]),
    }
}

fn cases() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/sse_cases.json");
    let document: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    document["cases"].as_array().unwrap().clone()
}

fn streams() -> Vec<(String, Vec<u8>, Reading)> {
    cases()
        .iter()
        .map(|case| {
            let expected = expected(case);
            let stream = [&expected.bom[..], &expected.raw.concat(), &expected.tail].concat();
            (string(&case["name"]), stream, expected)
        })
        .collect()
}

#[test]
fn every_case_is_read_as_it_says() {
    let streams = streams();
    assert!(streams.len() > 80);
    for (name, stream, expected) in streams {
        assert_eq!(read([&stream[..]]), expected, "{name}");
    }
}

#[test]
fn the_web_platform_tests_have_their_cases() {
    // `eventsource/format-*.any.js`, those about a content type left out.
    let parsing = [
        "bom",
        "bom-2",
        "comments",
        "data-before-final-empty-line",
        "field-data",
        "field-event",
        "field-event-empty",
        "field-id",
        "field-id-2",
        "field-id-3",
        "field-id-null",
        "field-parsing",
        "field-retry",
        "field-retry-bogus",
        "field-retry-empty",
        "field-unknown",
        "leading-space",
        "newlines",
        "null-character",
        "utf-8",
    ];
    let cases = cases();
    let named = cases
        .iter()
        .filter_map(|case| case["web_platform"].as_str());
    let mut named: Vec<_> = named
        .filter_map(|name| name.strip_prefix("format-"))
        .collect();
    named.sort_unstable();
    assert_eq!(named, parsing);
}

#[test]
fn every_case_is_read_alike_wherever_it_is_cut() {
    for (name, stream, expected) in streams() {
        assert_eq!(read(stream.chunks(1)), expected, "{name}, byte by byte");
        for at in 0..=stream.len() {
            let (head, tail) = stream.split_at(at);
            assert_eq!(read([head, tail]), expected, "{name}, cut at {at}");
            for second in at..=stream.len().min(at + 3) {
                let (middle, tail) = tail.split_at(second - at);
                assert_eq!(
                    read([head, middle, tail]),
                    expected,
                    "{name}, cut at {at} and {second}"
                );
            }
        }
    }
}

#[test]
fn a_terminator_makes_the_tail_a_whole_event() {
    for (name, stream, expected) in streams() {
        let terminated = [&stream[..], &expected.terminator].concat();
        let reading = read([&terminated[..]]);
        assert!(reading.tail.is_empty(), "{name}");
        let has_tail = usize::from(!expected.tail.is_empty());
        assert_eq!(reading.raw.len(), expected.raw.len() + has_tail, "{name}");
    }
}

#[test]
fn recorded_streams_are_handed_on_byte_for_byte() {
    let Some(corpus) = std::env::var_os("SLUICEGATE_CORPUS").map(PathBuf::from) else {
        return;
    };
    let mut seen = 0;
    for provider in std::fs::read_dir(corpus.join("streams")).unwrap() {
        for file in std::fs::read_dir(provider.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "sse") {
                continue;
            }
            let stream = std::fs::read(&path).unwrap();
            let whole = read([&stream[..]]);
            let together = [&whole.bom[..], &whole.raw.concat(), &whole.tail].concat();
            assert!(together == stream, "{}", path.display());
            for size in [1, 7, 64, 1000, 16384] {
                assert!(
                    read(stream.chunks(size)) == whole,
                    "{} in reads of {size}",
                    path.display()
                );
            }
            seen += 1;
        }
    }
    assert!(seen > 0, "no streams in {}", corpus.display());
}
