//! Replies of the Responses interface as chat completions.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use sluicegate_core::api::Api;
use sluicegate_core::input::seal::Seal;
use sluicegate_core::limits::Limits;
use sluicegate_core::pipeline::{ReplyPlan, Unpriced};
use sluicegate_core::protocols::chat::fold::fold_chat;
use sluicegate_core::protocols::{ClientSide, UpstreamSide};
use sluicegate_core::sse::event::Events;

use super::stream::translated_by;

pub(crate) fn plan(client_streams: bool) -> ReplyPlan {
    let client = ClientSide::new(Api::Chat, client_streams);
    ReplyPlan::between(client, UpstreamSide::new(Api::Responses))
}

/// The cases of `tests/corpus/responses`: the name, the stream, the completion.
pub(crate) fn cases() -> Vec<(String, Vec<u8>, Json)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/responses");
    let mut streams: Vec<PathBuf> = std::fs::read_dir(folder)
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
            let completion = serde_json::from_slice(&completion).unwrap();
            (name, std::fs::read(path).unwrap(), completion)
        })
        .collect()
}

/// The response that the last event of a stream carries.
pub(crate) fn last_response(stream: &[u8]) -> Json {
    let last = Events::new(stream).filter_map(|event| {
        let event: Json = serde_json::from_slice(&event.data()?).ok()?;
        event.get("response").cloned()
    });
    last.last().unwrap()
}

/// A completion, or the error that its stream ends in.
fn folded(stream: &[u8]) -> Json {
    match fold_chat(stream, Limits::default()) {
        Ok(completion) => {
            assert!(stream.ends_with(b"data: [DONE]\n\n"));
            read(&completion)
        }
        Err(_) => {
            let last = Events::new(stream).last().unwrap();
            serde_json::from_slice(&last.data().unwrap()).unwrap()
        }
    }
}

fn read(bytes: &[u8]) -> Json {
    serde_json::from_slice(bytes).unwrap_or_else(|_| panic!("{}", bytes.escape_ascii()))
}

/// With seals opened, and without the ids in them: an upstream may name an item anew in its last event.
fn opened(mut completion: Json) -> Json {
    let details = completion.pointer_mut("/choices/0/message/reasoning_details");
    let details = details.and_then(Json::as_array_mut);
    for detail in details.into_iter().flatten() {
        let seal = detail["data"]
            .as_str()
            .and_then(|data| Seal::of(data.as_bytes()));
        if let Some(content) = seal.and_then(|seal| seal.open()) {
            detail["data"] = read(&content);
            detail["data"]["id"] = Json::Null;
        }
    }
    completion
}

#[test]
fn streams_become_the_completions_that_they_mean() {
    for (name, stream, completion) in cases() {
        let whole = translated_by(plan(true), &[&stream], &mut Unpriced);
        assert_eq!(opened(folded(&whole)), opened(completion), "{name}");
        for size in [1, 7, 100] {
            let reads: Vec<_> = stream.chunks(size).collect();
            let cut = translated_by(plan(true), &reads, &mut Unpriced);
            assert_eq!(cut, whole, "{name}");
        }
    }
}

#[test]
fn streams_become_completions_for_clients_that_do_not_stream() {
    for (name, stream, completion) in cases() {
        let whole = translated_by(plan(false), &[&stream], &mut Unpriced);
        assert_eq!(opened(read(&whole)), opened(completion), "{name}");
    }
}

#[test]
fn whole_responses_become_completions_and_streams() {
    for (name, stream, mut completion) in cases() {
        let response = last_response(&stream).to_string();
        if let Some(error) = completion.get_mut("error") {
            // The response has no more than a code and a message.
            error["type"] = json!(null);
        }
        let of_stream = translated_by(plan(true), &[response.as_bytes()], &mut Unpriced);
        assert_eq!(
            opened(folded(&of_stream)),
            opened(completion.clone()),
            "{name}"
        );
        let whole = translated_by(plan(false), &[response.as_bytes()], &mut Unpriced);
        if let Some(error) = completion.get_mut("error") {
            error["type"] = "upstream_error".into();
        }
        assert_eq!(opened(read(&whole)), opened(completion), "{name}");
    }
}

#[test]
fn a_stream_that_breaks_off_ends_in_an_error() {
    let (_, stream, _) = cases()
        .into_iter()
        .find(|(name, ..)| name == "llama-cpp")
        .unwrap();
    let last = memchr::memmem::find(&stream, b"event: response.completed").unwrap();
    let broken = translated_by(plan(true), &[&stream[..last]], &mut Unpriced);
    let text = String::from_utf8(broken).unwrap();
    assert!(text.ends_with("data: {\"error\":{\"message\":\"it broke off\",\"type\":\"upstream_error\",\"code\":\"truncated\",\"param\":null}}\n\n"), "{text}");
    assert!(text.contains("\"content\":\" one\"") && !text.contains("[DONE]"));
    let whole = translated_by(plan(false), &[&stream[..last]], &mut Unpriced);
    assert_eq!(read(&whole)["error"]["code"], "truncated");
}

#[test]
fn an_error_without_a_failed_response_is_an_error() {
    let stream = b"event: error\ndata: {\"type\":\"error\",\"code\":\"c\",\"message\":\"m\",\"param\":null,\"sequence_number\":1}\n\n";
    let shown = translated_by(plan(true), &[stream], &mut Unpriced);
    assert_eq!(folded(&shown)["error"]["message"], "m");
    let failed = b"data: {\"type\":\"response.failed\",\"response\":{\"id\":\"r\",\"status\":\"failed\",\"error\":null,\"output\":[]}}\n\n";
    let shown = translated_by(plan(true), &[failed], &mut Unpriced);
    assert_eq!(
        folded(&shown)["error"]["message"],
        "the upstream failed without saying why"
    );
}

#[test]
fn an_error_document_stays_one() {
    let error = b"{\"error\":{\"message\":\"m\",\"type\":\"t\",\"code\":null,\"param\":null}}";
    let whole = translated_by(plan(false), &[error], &mut Unpriced);
    assert_eq!(whole, error);
    let shown = translated_by(plan(true), &[error], &mut Unpriced);
    assert_eq!(folded(&shown)["error"]["message"], "m");
}
