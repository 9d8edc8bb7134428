//! Events that are recognised by their shape mean what they mean when each is read.

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use sluicegate_core::api::Api;
use sluicegate_core::pipeline::{ReplyPlan, Unpriced};
use sluicegate_core::protocols::{ClientSide, UpstreamSide};

use super::stream::translated_by;

/// The id that an event gives its item, and its index, where it gives them.
fn named() -> impl Strategy<Value = (Option<&'static str>, Option<u64>)> {
    (
        prop::sample::select(vec![None, None, Some("a"), Some("b")]),
        prop::sample::select(vec![None, None, Some(0), Some(1)]),
    )
}

fn with_name(mut event: Json, (id, index): (Option<&str>, Option<u64>)) -> Json {
    if let Some(id) = id {
        match event.get_mut("item") {
            Some(item) => item["id"] = id.into(),
            None => event["item_id"] = id.into(),
        }
    }
    if let Some(index) = index {
        event["output_index"] = index.into();
    }
    event
}

fn delta() -> impl Strategy<Value = Json> {
    let kinds = vec![
        "output_text",
        "output_text",
        "output_text",
        "refusal",
        "reasoning_text",
        "reasoning_summary_text",
        "function_call_arguments",
        "custom_tool_call_input",
    ];
    let place = prop::sample::select(vec![None, Some(0), Some(0), Some(1)]);
    (
        prop::sample::select(kinds),
        named(),
        place,
        "[a-c\"\\\\é]{0,3}",
        0..6,
    )
        .prop_map(|(kind, name, place, text, odd)| {
            let mut event = json!({"type": format!("response.{kind}.delta"), "delta": text});
            if let Some(place) = place {
                let index = match kind {
                    "reasoning_summary_text" => "summary_index",
                    _ => "content_index",
                };
                event[index] = place.into();
            }
            if odd == 0 {
                event["logprobs"] = json!([{"token": "a", "logprob": -1}]);
            }
            with_name(event, name)
        })
}

fn item() -> impl Strategy<Value = Json> {
    let items = vec![
        json!({"type": "message", "content": []}),
        json!({"type": "reasoning", "summary": []}),
        json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}),
        json!({"type": "message", "content": [{"type": "output_text", "text": "abc"}]}),
    ];
    let kinds = vec!["added", "done"];
    (
        prop::sample::select(items),
        prop::sample::select(kinds),
        named(),
    )
        .prop_map(|(item, kind, name)| {
            let event = json!({"type": format!("response.output_item.{kind}"), "item": item});
            with_name(event, name)
        })
}

fn part() -> impl Strategy<Value = Json> {
    let part = json!({"type": "output_text", "text": ""});
    let event = json!({"type": "response.content_part.added", "content_index": 0, "part": part});
    named().prop_map(move |name| with_name(event.clone(), name))
}

/// Runs of two deltas with other texts each time, between other events.
fn events() -> impl Strategy<Value = Vec<Json>> {
    proptest::collection::vec(delta(), 2).prop_flat_map(|deltas| {
        let texts = proptest::collection::vec("[a-d ]{0,3}", 1..5);
        let run = (prop::sample::select(deltas), texts).prop_map(|(event, texts)| {
            let said = texts.into_iter().map(|text| {
                let mut event = event.clone();
                event["delta"] = text.into();
                event
            });
            said.collect::<Vec<_>>()
        });
        let one = |event: Json| vec![event];
        let some = prop_oneof![
            4 => run,
            2 => item().prop_map(one),
            1 => part().prop_map(one),
            1 => Just(vec![json!({"type": "response.in_progress", "response": {"id": "r"}})]),
        ];
        proptest::collection::vec(some, 0..12).prop_map(|runs| runs.concat())
    })
}

/// The stream of these events. `distinct`: none has the shape of another.
fn stream(events: &[Json], distinct: bool) -> Vec<u8> {
    let end = json!({"type": "response.completed", "response": {"id": "r", "object": "response", "status": "completed", "output": []}});
    let mut stream = Vec::new();
    for (number, event) in events.iter().chain([&end]).enumerate() {
        let mut event = event.clone();
        event["sequence_number"] = number.into();
        if distinct {
            event["padding"] = format!("p{number}").into();
        }
        stream.extend_from_slice(format!("data: {event}\n\n").as_bytes());
    }
    stream
}

proptest! {
    #[test]
    fn what_is_recognised_is_what_is_read(events in events(), messages in any::<bool>()) {
        let client = if messages { Api::Messages } else { Api::Chat };
        let translated = |distinct| {
            let client = ClientSide::new(client, true);
            let plan = ReplyPlan::between(client, UpstreamSide::new(Api::Responses));
            let written = translated_by(plan, &[&stream(&events, distinct)], &mut Unpriced);
            String::from_utf8(written).unwrap()
        };
        prop_assert_eq!(translated(false), translated(true));
    }
}
