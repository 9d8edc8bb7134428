//! Whatever pieces come, what is written of them is a message: its events have the grammar of one, and streamed and
//! whole it has the same blocks.

use arbitrary::Arbitrary;
use serde_json::Value;
use sluicegate_core::api::Api;
use sluicegate_core::json::string;
use sluicegate_core::output::{
    Annotation, Call, Ending, Finish, Item, Piece, Reason, Reasoning, Sealed, Text, Writer,
};
use sluicegate_core::protocols::messages::writing::{MessagesWriter, Written};
use sluicegate_core::sse::event::Events;

#[derive(Arbitrary, Debug)]
struct Said<'a> {
    kind: u8,
    index: u8,
    text: &'a str,
}

/// Checks the properties on one input.
pub fn check(input: &[u8]) {
    let Some(said) = super::read::<Vec<Said<'_>>>(input) else {
        return;
    };
    let [streamed, whole] = [true, false].map(|streams| written(&said, streams));
    let blocks = check_grammar(&streamed);
    let whole: Value = serde_json::from_slice(&whole).expect("a whole message is JSON");
    let kinds = |blocks: &[Value]| -> Vec<Value> {
        blocks.iter().map(|block| block["type"].clone()).collect()
    };
    let content = whole["content"].as_array().expect("a message has content");
    assert_eq!(kinds(&blocks), kinds(content));
}

fn written(said: &[Said<'_>], streams: bool) -> Vec<u8> {
    let mut writer = MessagesWriter::new(Written {
        streams,
        ..Written::default()
    });
    let mut out = Vec::new();
    for said in said {
        let mut text = Vec::new();
        string::spell(said.text, &mut text);
        let id = [b'a' + said.index % 4];
        let index = Some(u64::from(said.index % 4));
        let own = match said.index % 3 {
            0 => Api::Messages,
            1 => Api::Responses,
            _ => Api::Chat,
        };
        let call = Call {
            index,
            arguments: &text,
            ..Call::default()
        };
        writer.write(
            &match said.kind % 12 {
                0 => Piece::Reasoning(Reasoning::Text(&text)),
                1 => Piece::Reasoning(Reasoning::Summary(&text)),
                2 => Piece::Reasoning(Reasoning::Sealed(Sealed {
                    api: own,
                    data: &text,
                    signs_text: said.index > 127,
                    item: None,
                })),
                3 => Piece::Refusal(&text),
                4 => Piece::Part,
                5 => Piece::Break,
                6 => Piece::Annotation(Annotation {
                    api: own,
                    json: b"{}",
                }),
                7 => Piece::Item(Item {
                    api: own,
                    json: b"{\"type\":\"x\"}",
                }),
                8 => Piece::Call(Call {
                    id: &id,
                    name: b"f",
                    ..call
                }),
                9 => Piece::Call(call),
                10 => Piece::Finish(Finish::of(Reason::Calls)),
                _ => Piece::Text(Text {
                    text: &text,
                    ..Text::default()
                }),
            },
            &mut out,
        );
    }
    writer.end(Ending::Regular, None, None, &mut out);
    out
}

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
