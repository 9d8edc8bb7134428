//! What the SDKs' accumulators make of the events of a message.

use serde_json::{Value as Json, json};
use sluicegate_core::sse::event::Events;

/// The data of all events that are JSON.
pub(crate) fn payloads(stream: &[u8]) -> Vec<Json> {
    let mut padded = stream.to_vec();
    padded.extend_from_slice(b"\n\n");
    Events::new(&padded)
        .filter_map(|event| serde_json::from_slice(&event.data()?).ok())
        .collect()
}

/// The message as far as it came, whether it is whole, and the error that it ended with.
#[derive(Debug, Default)]
pub(crate) struct Accumulated {
    pub(crate) message: Json,
    pub(crate) whole: bool,
    pub(crate) error: Json,
}

/// Panics where the events break the grammar of the protocol.
pub(crate) fn accumulated(stream: &[u8]) -> Accumulated {
    let mut seen = Accumulated::default();
    let mut open: Option<String> = None;
    let mut stopped = false;
    for event in payloads(stream) {
        let kind = event["type"].as_str().unwrap();
        if kind == "ping" {
            continue;
        }
        assert!(
            !seen.whole && seen.error.is_null(),
            "{event} behind the end"
        );
        if kind == "error" {
            seen.error = event["error"].clone();
            continue;
        }
        assert_eq!(kind == "message_start", seen.message.is_null(), "{event}");
        if kind == "message_start" {
            seen.message = event["message"].clone();
            continue;
        }
        let blocks = seen.message["content"].as_array_mut().unwrap();
        let count = blocks.len();
        match kind {
            "content_block_start" => {
                assert!(open.is_none() && !stopped, "{event}");
                assert_eq!(event["index"], count);
                blocks.push(event["content_block"].clone());
                open = Some(String::new());
            }
            "content_block_delta" => {
                assert_eq!(event["index"], count - 1);
                add(
                    blocks.last_mut().unwrap(),
                    open.as_mut().unwrap(),
                    &event["delta"],
                );
            }
            "content_block_stop" => {
                assert_eq!(event["index"], count - 1);
                let arguments = open.take().unwrap();
                let block = blocks.last_mut().unwrap();
                if block["type"] == "tool_use" && !arguments.is_empty() {
                    block["input"] = serde_json::from_str(&arguments)
                        .unwrap_or_else(|_| json!({"INVALID_JSON": arguments}));
                }
            }
            "message_delta" => {
                assert!(open.is_none() && !stopped, "{event}");
                stopped = true;
                let members = seen.message.as_object_mut().unwrap();
                members.extend(event["delta"].as_object().unwrap().clone());
                members["usage"] = event["usage"].clone();
                assert!(event["usage"]["output_tokens"].is_u64());
            }
            "message_stop" => {
                assert!(stopped);
                seen.whole = true;
            }
            other => panic!("{other}"),
        }
    }
    seen
}

fn add(block: &mut Json, arguments: &mut String, delta: &Json) {
    let member = match delta["type"].as_str().unwrap() {
        "text_delta" => "text",
        "thinking_delta" => "thinking",
        "signature_delta" => {
            assert_eq!(block["signature"], "");
            "signature"
        }
        "input_json_delta" => {
            arguments.push_str(delta["partial_json"].as_str().unwrap());
            return;
        }
        "citations_delta" => return,
        other => panic!("{other}"),
    };
    let texts = [&block[member], &delta[member]].map(|text| text.as_str().unwrap());
    block[member] = texts.concat().into();
}
