//! The grammar of the Messages interface.

use serde_json::Value;
use sluicegate_core::sse::event::Events;

/// Checks that events are those of a message, or of one that an error breaks off, and gives its blocks as they were
/// opened.
pub(super) fn check_grammar(stream: &[u8]) -> Vec<Value> {
    let mut blocks = Vec::new();
    let (mut begun, mut open, mut stopped, mut ended) = (false, false, false, false);
    for event in Events::new(stream) {
        let Some(data) = event.data() else {
            continue;
        };
        let data: Value = serde_json::from_slice(&data).expect("each event is JSON");
        let kind = data["type"].as_str().unwrap_or_default();
        assert_eq!(kind.as_bytes(), event.name());
        if kind == "ping" {
            continue;
        }
        assert!(!ended, "{data} behind the end");
        let is_last = data["index"] == blocks.len().wrapping_sub(1);
        match kind {
            "message_start" => assert!(!std::mem::replace(&mut begun, true)),
            "content_block_start" => {
                assert!(begun && !open && !stopped && data["index"] == blocks.len());
                blocks.push(data["content_block"].clone());
                open = true;
            }
            "content_block_delta" => assert!(open && is_last),
            "content_block_stop" => assert!(std::mem::replace(&mut open, false) && is_last),
            "message_delta" => {
                assert!(begun && !open && !std::mem::replace(&mut stopped, true));
                assert!(data["usage"]["output_tokens"].is_u64());
            }
            "message_stop" => {
                assert!(stopped);
                ended = true;
            }
            "error" => ended = true,
            _ => panic!("{data}"),
        }
    }
    blocks
}
