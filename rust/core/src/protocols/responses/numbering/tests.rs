use serde_json::{Value as Json, json};

use super::*;
use crate::limits::MAX_ITEMS;

const OWN: &[u8] = br#"{"id":"resp_1","status":"queued","background":true,"output":[]}"#;

fn sse(events: &[Json]) -> Vec<u8> {
    let frame = |event: &Json| format!("event: x\ndata: {event}\n\n");
    events.iter().map(frame).collect::<String>().into_bytes()
}

fn numbered(own: Option<&[u8]>, stream: &[u8]) -> (Numbering, Vec<Json>) {
    let mut numbering = Numbering::new(3, own, &Limits::default());
    let mut out = Vec::new();
    for read in stream.chunks(7) {
        let fed = numbering.feed(Bytes::copy_from_slice(read), 7, &mut out);
        fed.unwrap();
    }
    numbering.finish(7, &mut out);
    let events = String::from_utf8(out).unwrap();
    let events: Vec<Json> = events
        .split_terminator("\n\n")
        .map(|event| {
            let (name, data) = event.split_once("\ndata: ").unwrap();
            let data: Json = serde_json::from_str(data).unwrap();
            assert_eq!(name.strip_prefix("event: ").unwrap(), data["type"]);
            data
        })
        .collect();
    for (number, event) in (3..).zip(&events) {
        assert_eq!(event["sequence_number"], json!(number));
    }
    (numbering, events)
}

fn added(item: &Json) -> Json {
    json!({"type": "response.output_item.added", "output_index": 0, "item": item})
}

#[test]
fn a_reply_is_kept_under_our_name_and_numbers() {
    let item = json!({"type": "message", "id": "m"});
    let (numbering, events) = numbered(
        Some(OWN),
        &sse(&[
            json!({"type": "response.created", "sequence_number": 0, "response": {"id": "theirs"}}),
            added(&item),
            json!({"type": "response.output_item.done", "sequence_number": 99, "output_index": 0, "item": item}),
            json!({"type": "response.completed", "response": {"id": "theirs", "status": "completed", "model": "m", "output": [item]}}),
            json!({"type": "response.completed", "response": {}}),
        ]),
    );
    assert_eq!(events.len(), 3);
    let response = json!({"id": "resp_1", "background": true, "status": "completed", "model": "m", "output": [item], "completed_at": 7});
    assert_eq!(events[2]["response"], response);
    let ending = numbering.ending().unwrap();
    assert_eq!(ending.status, "completed");
    let kept: Json = serde_json::from_slice(&ending.response).unwrap();
    assert_eq!(kept, response);
    assert_eq!(numbering.following(), 6);
}

#[test]
fn what_a_client_has_seen_is_changed_in_its_numbers_only() {
    let stream = "data: {\"type\":\"response.created\",\"sequence_number\":5,\n data: 1}\n\ndata: {\"type\":\"response.created\",\"sequence_number\" : 5,\r\ndata: \"response\":{\"n\":1.50}}\n\n: ping\n\ndata: [DONE]\n\n";
    let mut numbering = Numbering::new(0, None, &Limits::default());
    let mut out = Vec::new();
    numbering
        .feed(Bytes::from_static(stream.as_bytes()), 7, &mut out)
        .unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\" : 0, \"response\":{\"n\":1.50}}\n\n"
    );
}

#[test]
fn an_error_waits_for_the_end_that_follows_it() {
    let error = json!({"type": "error", "code": "busy", "message": "Too much."});
    let failed = json!({"type": "response.failed", "response": {"error": {"code": "x", "message": "Gone."}}});
    let (numbering, events) = numbered(Some(OWN), &sse(std::slice::from_ref(&error)));
    assert_eq!((events.len(), numbering.ending()), (0, None));
    assert_eq!(numbering.error().unwrap().message, "Too much.");
    let (numbering, events) = numbered(Some(OWN), &sse(&[error, failed.clone()]));
    assert_eq!(events[0]["type"], "error");
    assert_eq!(numbering.ending().unwrap().status, "failed");
    let (numbering, events) = numbered(Some(OWN), &sse(&[added(&json!({})), failed]));
    assert_eq!((events.len(), numbering.ending()), (1, None));
    let error = Reported {
        code: "x".into(),
        message: "Gone.".into(),
    };
    assert_eq!(numbering.broken(), Some(&Broken::Unclosed(error)));
}

#[test]
fn what_no_client_could_read_is_refused() {
    let kind = "response.output_text.delta";
    let cases = [
        json!({"type": "response.output_item.added", "output_index": 0}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": "x"}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": null}),
        json!({"type": "response.output_item.added", "output_index": "0", "item": {}}),
        json!({"type": "response.content_part.added", "content_index": 1_000_000_000, "part": {}}),
        json!({"type": "response.content_part.added", "content_index": 1e300, "part": {}}),
        json!({"type": "response.content_part.done", "content_index": 0, "part": [1]}),
        json!({"type": kind, "output_index": 0, "content_index": 0}),
        json!({"type": kind, "output_index": 0, "content_index": 0, "delta": 5}),
        json!({"type": "response.output_text.done", "output_index": 0, "text": ["x"]}),
        json!({"type": "response.completed"}),
        json!({"type": "response.completed", "response": "x"}),
        json!({"type": "response.completed", "response": {"output": {}}}),
        json!({"type": "response.completed", "response": {"output": [1]}}),
        json!({"type": "response.completed", "response": {"output": vec![json!({}); MAX_ITEMS + 1]}}),
    ];
    for case in cases {
        let stream = sse(&[
            case.clone(),
            json!({"type": "response.completed", "response": {}}),
        ]);
        let (numbering, events) = numbered(Some(OWN), &stream);
        assert!(
            matches!(numbering.broken(), Some(Broken::Malformed(_))),
            "{}",
            case["type"]
        );
        assert_eq!((events.len(), numbering.ending()), (0, None));
        // A client that has seen it has seen it.
        let (numbering, events) = numbered(None, &stream);
        let is_end = case["type"] == "response.completed";
        assert_eq!(events.len(), if is_end { 1 } else { 2 });
        assert_eq!(numbering.broken(), None);
    }
    let escaped = b"data: {\"type\":\"response\\u002ecompleted\"}\n\n";
    let (numbering, _) = numbered(Some(OWN), escaped);
    assert!(matches!(numbering.broken(), Some(Broken::Malformed(_))));
}

#[test]
fn so_many_items_are_refused() {
    let item = sse(&[added(&json!({}))]);
    let (numbering, events) = numbered(Some(OWN), &item.repeat(MAX_ITEMS + 5));
    assert_eq!(events.len(), MAX_ITEMS);
    assert!(matches!(numbering.broken(), Some(Broken::Malformed(_))));
}

#[test]
fn a_negative_index_is_taken_for_none() {
    let event = json!({"type": "response.output_text.delta", "output_index": 0, "content_index": -1, "delta": "x"});
    let (numbering, events) = numbered(Some(OWN), &sse(&[event]));
    assert_eq!((events.len(), numbering.broken()), (1, None));
}
