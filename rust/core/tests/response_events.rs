//! Events of responses, sensible ones and others: folded, closed, numbered.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "what fails here fails the test; the property is a crate of its own elsewhere"
)]

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use sluicegate_core::api::Api;
use sluicegate_core::limits::{Limits, MAX_ITEMS};
use sluicegate_core::output::{Annotation, Call, Ending, Failure, Piece, Reasoning, Text, Writer};
use sluicegate_core::protocols::responses::closing::End;
use sluicegate_core::protocols::responses::echo::Echo;
use sluicegate_core::protocols::responses::fold::Fold;
use sluicegate_core::protocols::responses::writing::ResponsesWriter;

#[path = "../../fuzz/src/response.rs"]
mod property;

fn sse(events: &[Json]) -> String {
    let frame = |event: &Json| format!("data: {event}\n\n");
    events.iter().map(frame).collect()
}

/// A value of a kind that may not be the one that is asked for.
fn any_value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        Just(json!(1e300)),
        "[a-z\"\\\\\u{2028}é]{0,4}".prop_map(Json::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Json::from),
            vec(("[a-c]|type|text|content|id", inner), 0..3)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

fn or_any(sensible: impl Strategy<Value = Json> + 'static) -> impl Strategy<Value = Json> {
    prop_oneof![9 => sensible.boxed(), 1 => any_value().boxed()]
}

fn index() -> impl Strategy<Value = Json> {
    or_any(prop_oneof![
        8 => (0..3u64).prop_map(Json::from),
        1 => Just(json!(1_000_000_000)),
    ])
}

fn part() -> impl Strategy<Value = Json> {
    let kinds = prop::sample::select(vec![
        "output_text",
        "refusal",
        "reasoning_text",
        "summary_text",
        "input_image",
    ]);
    or_any((kinds, or_any("[a-z]{0,3}".prop_map(Json::from))).prop_map(
        |(kind, text)| json!({"type": kind, "text": text, "refusal": text, "annotations": [], "extra": 1}),
    ))
}

fn item() -> impl Strategy<Value = Json> {
    let kinds = prop::sample::select(vec![
        "message",
        "reasoning",
        "function_call",
        "custom_tool_call",
        "mcp_call",
        "web_search_call",
    ]);
    let content = or_any(vec(part(), 0..3).prop_map(Json::from));
    or_any((kinds, "[a-c]", content).prop_map(|(kind, id, content)| {
        json!({"type": kind, "id": id, "status": "in_progress", "content": content, "summary": [], "arguments": "", "input": ""})
    }))
}

fn event() -> impl Strategy<Value = Json> {
    let kinds = prop::sample::select(vec![
        "response.created",
        "response.output_item.added",
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.added",
        "response.content_part.added",
        "response.content_part.done",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.output_text.annotation.added",
        "response.refusal.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.custom_tool_call_input.delta",
        "response.mcp_call_arguments.done",
        "response.completed",
        "response.failed",
        "error",
    ]);
    let said = or_any("[a-z]{0,3}".prop_map(Json::from));
    let kinds = or_any(kinds.prop_map(Json::from));
    (kinds, index(), index(), item(), part(), said, any::<u16>()).prop_map(
        |(kind, output, content, item, part, said, left_out)| {
            let mut event = json!({
                "type": kind, "sequence_number": 5, "output_index": output, "content_index": content,
                "summary_index": content, "item": item, "part": part, "delta": said, "text": said,
                "arguments": said, "annotation": {"type": "x"}, "logprobs": [],
                "response": {"id": "x", "status": "in_progress", "output": [item]},
            });
            let members = event.as_object_mut().unwrap();
            let names: Vec<_> = members.keys().cloned().collect();
            // Now and then one of them is missing.
            if let Some(name) = names.get(usize::from(left_out) % 40) {
                members.remove(name);
            }
            event
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 256 }))]

    #[test]
    fn any_response_has_an_end(events in vec(event(), 0..14)) {
        let mut events = events;
        for (number, event) in (0..).zip(&mut events) {
            event["sequence_number"] = json!(number);
        }
        property::check(sse(&events).as_bytes());
    }

    #[test]
    fn any_bytes_have_an_end(bytes in vec(any::<u8>(), 0..200)) {
        property::check(&bytes);
    }

    #[test]
    fn any_object_is_a_response(output in any_value(), status in any_value(), items in vec(item(), 0..4)) {
        property::check(json!({"id": "x", "status": status, "output": output}).to_string().as_bytes());
        property::check(json!({"id": "x", "status": "completed", "output": items}).to_string().as_bytes());
    }

    #[test]
    fn folding_what_the_writer_wrote_gives_its_last_event(pieces in vec((0..7u8, "[a-z ]{0,6}"), 0..20), kept in any::<prop::sample::Index>()) {
        let echo = Arc::new(Echo::new("resp_1", 7, "m"));
        let mut writer = ResponsesWriter::new(echo, None, true);
        let mut written = Vec::new();
        for (kind, text) in &pieces {
            let text = text.as_bytes();
            let call = |custom| Call { id: b"call_1", name: b"f", arguments: text, custom, ..Call::default() };
            let piece = match kind {
                0 => Piece::Reasoning(Reasoning::Text(text)),
                1 => Piece::Reasoning(Reasoning::Summary(text)),
                2 => Piece::Refusal(text),
                3 => Piece::Call(call(false)),
                4 => Piece::Part,
                5 => Piece::Annotation(Annotation {
                    api: Api::Chat,
                    json: br#"{"type":"url_citation","url_citation":{"url":"u","title":"t","start_index":0,"end_index":1}}"#,
                }),
                _ => Piece::Text(Text { text, ..Text::default() }),
            };
            writer.write(&piece, &mut written);
        }
        writer.end(Ending::Regular, None, None, &mut written);
        let text = String::from_utf8(written).unwrap();
        let mut frames: Vec<&str> = text.split_inclusive("\n\n").collect();
        prop_assert_eq!(frames.pop(), Some("data: [DONE]\n\n"));
        let last = frames.pop().unwrap();
        let (_, data) = last.split_once("data: ").unwrap();
        let whole: Json = serde_json::from_str(data).unwrap();
        let of = |frames: &[&str]| {
            let mut fold = Fold::of(b"{\"output\":[]}", &Limits::default());
            fold.take(frames.concat().as_bytes());
            fold
        };
        let shown = |fold: &Fold| serde_json::from_slice::<Json>(&fold.response(None)).unwrap();
        let before = shown(&of(&frames));
        prop_assert_eq!(&before["output"], &whole["response"]["output"]);
        let mut all = frames.clone();
        all.push(last);
        prop_assert_eq!(shown(&of(&all)), whole["response"].clone());
        // What was said is known without the events that say it once more.
        let deltas: Vec<&str> = frames
            .iter()
            .copied()
            .filter(|frame| !frame.split_once('\n').unwrap().0.ends_with(".done"))
            .collect();
        let mut open = shown(&of(&deltas))["output"].clone();
        for item in open.as_array_mut().unwrap() {
            item["status"] = json!("completed");
        }
        prop_assert_eq!(&open, &whole["response"]["output"]);
        // Wherever it breaks off, what is open is closed once.
        let kept = &frames[..kept.index(frames.len() + 1)];
        let fold = of(kept);
        let mut end = Vec::new();
        let failure = Failure { message: "it broke off", ..Failure::default() };
        fold.end(End::Failed { failure, told: false }, fold.following(), None, &mut end);
        let end = String::from_utf8(end).unwrap();
        let mut names: Vec<String> = Vec::new();
        for frame in kept.iter().copied().chain(end.split_inclusive("\n\n")) {
            let (_, data) = frame.split_once("data: ").unwrap();
            let event: Json = serde_json::from_str(data).unwrap();
            let place = [&event["output_index"], &event["content_index"], &event["summary_index"]];
            names.push(format!("{} {place:?}", event["type"]));
        }
        let is_end = |name: &&String| name.contains("done");
        let mut ends: Vec<_> = names.iter().filter(is_end).collect();
        let count = ends.len();
        ends.sort();
        ends.dedup();
        prop_assert_eq!(ends.len(), count, "{:?}", names);
        let of = |what: &str| names.iter().filter(|name| name.contains(what)).count();
        prop_assert_eq!(of("item.added"), of("item.done"));
        prop_assert_eq!(of("part.added"), of("part.done"));
    }
}

#[test]
fn more_items_and_parts_than_are_told_apart_are_not_kept() {
    let mut fold = Fold::of(b"{}", &Limits::default());
    let item = json!({"type": "message", "content": []});
    let mut events = String::new();
    for index in 0..2 * MAX_ITEMS {
        let added = json!({"type": "response.output_item.added", "output_index": index % 9000, "item": item});
        events.push_str(&format!("data: {added}\n\n"));
    }
    for index in 0..4 * MAX_ITEMS {
        let delta = json!({"type": "response.output_text.delta", "output_index": 0, "content_index": index, "delta": "x"});
        events.push_str(&format!("data: {delta}\n\n"));
    }
    fold.take(events.as_bytes());
    let shown: Json = serde_json::from_slice(&fold.response(None)).unwrap();
    let output = shown["output"].as_array().unwrap();
    assert_eq!(output.len(), MAX_ITEMS);
    let parts: usize = output
        .iter()
        .map(|item| item["content"].as_array().unwrap().len())
        .sum();
    assert!(parts <= MAX_ITEMS);
}

#[test]
fn past_its_bound_of_bytes_a_response_is_known_without_its_items() {
    let limits = Limits {
        max_document: 1000,
        ..Limits::default()
    };
    let mut fold = Fold::of(b"{\"id\":\"resp_1\"}", &limits);
    let added = json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}});
    let delta =
        json!({"type": "response.output_text.delta", "output_index": 0, "delta": "x".repeat(600)});
    fold.take(sse(&[added, delta.clone(), delta]).as_bytes());
    assert_eq!(
        fold.response(Some("in_progress")),
        b"{\"id\":\"resp_1\",\"status\":\"in_progress\"}"
    );
}
