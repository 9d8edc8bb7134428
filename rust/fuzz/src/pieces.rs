//! Whatever pieces come, what each protocol's writer makes of them is a reply of that protocol: its events have the
//! grammar of one, streamed and whole it says the same, and it has all text.

use std::sync::Arc;

use arbitrary::Arbitrary;
use serde_json::Value;
use sluicegate_core::api::Api;
use sluicegate_core::json::string;
use sluicegate_core::limits::Limits;
use sluicegate_core::output::{
    Annotation, Call, Ending, Finish, Item, Piece, Reason, Reasoning, Sealed, Text, Writer,
};
use sluicegate_core::protocols::chat::fold::fold_chat;
use sluicegate_core::protocols::chat::writing::{self as chat, ChatWriter};
use sluicegate_core::protocols::messages::writing::{self as messages, MessagesWriter};
use sluicegate_core::protocols::responses::echo::Echo;
use sluicegate_core::protocols::responses::fold::Fold;
use sluicegate_core::protocols::responses::writing::ResponsesWriter;
use sluicegate_core::sse::event::Events;

use super::message::check_grammar;

#[derive(Arbitrary, Debug)]
struct Said<'a> {
    kind: u8,
    index: u8,
    text: &'a str,
}

/// Kinds of pieces that are text of the answer, and of a refusal.
const TEXT: u8 = 11;
const REFUSAL: u8 = 3;

impl Said<'_> {
    fn kind(&self) -> u8 {
        self.kind % 12
    }

    fn write(&self, writer: &mut dyn Writer, out: &mut Vec<u8>) {
        let mut text = Vec::new();
        string::spell(self.text, &mut text);
        let id = [b'a' + self.index % 4];
        let api = [Api::Messages, Api::Responses, Api::Chat][usize::from(self.index % 3)];
        let call = Call {
            index: Some(u64::from(self.index % 4)),
            arguments: &text,
            ..Call::default()
        };
        let piece = match self.kind() {
            0 => Piece::Reasoning(Reasoning::Text(&text)),
            1 => Piece::Reasoning(Reasoning::Summary(&text)),
            2 => Piece::Reasoning(Reasoning::Sealed(Sealed {
                api,
                data: &text,
                signs_text: self.index > 127,
                item: None,
            })),
            REFUSAL => Piece::Refusal(&text),
            4 => Piece::Part,
            5 => Piece::Break,
            6 => Piece::Annotation(Annotation { api, json: b"{}" }),
            7 => Piece::Item(Item {
                api,
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
        };
        writer.write(&piece, out);
    }
}

/// Checks the properties on one input.
pub fn check(input: &[u8]) {
    let Some(said) = super::read::<Vec<Said<'_>>>(input) else {
        return;
    };
    check_completion(&said);
    check_response(&said);
    check_message(&said);
}

/// What a writer makes of it, as events and whole.
fn written<W: Writer>(said: &[Said<'_>], writer: impl Fn(bool) -> W) -> (Vec<u8>, Value) {
    let [streamed, whole] = [true, false].map(|streams| {
        let mut writer = writer(streams);
        let mut out = Vec::new();
        for said in said {
            said.write(&mut writer, &mut out);
        }
        writer.end(Ending::Regular, None, None, &mut out);
        out
    });
    let whole = serde_json::from_slice(&whole).expect("a whole reply is JSON");
    (streamed, whole)
}

/// Without white space, which may be dropped where no text follows it.
fn letters(text: &str) -> String {
    text.split_whitespace().collect()
}

/// The letters of all pieces of these kinds.
fn letters_of(said: &[Said<'_>], kinds: &[u8]) -> String {
    let said = said.iter().filter(|said| kinds.contains(&said.kind()));
    letters(&said.map(|said| said.text).collect::<String>())
}

/// The letters of `member` in each of these objects whose type is `kind`.
fn letters_in<'a>(parts: impl IntoIterator<Item = &'a Value>, kind: &str, member: &str) -> String {
    let parts = parts.into_iter().filter(|part| part["type"] == kind);
    letters(
        &parts
            .filter_map(|part| part[member].as_str())
            .collect::<String>(),
    )
}

fn elements(list: &Value) -> &[Value] {
    list.as_array().expect("a list")
}

fn payloads(stream: &[u8]) -> Vec<Value> {
    let mut events = Events::new(stream);
    let payloads = events.by_ref().filter_map(|event| event.data());
    let payloads = payloads
        .filter(|data| **data != *b"[DONE]")
        .map(|data| serde_json::from_slice(&data).expect("each event is JSON"))
        .collect();
    assert!(events.rest().is_empty());
    payloads
}

fn check_completion(said: &[Said<'_>]) {
    let limits = Limits::default();
    let (streamed, whole) = written(said, |streams| {
        let asked = chat::Written {
            streams,
            ..chat::Written::default()
        };
        ChatWriter::new(asked, limits)
    });
    assert!(streamed.ends_with(b"data: [DONE]\n\n"));
    let folded = fold_chat(&streamed, limits).expect("chunks are folded");
    let folded: Value = serde_json::from_slice(&folded).expect("a completion is JSON");
    assert_eq!(folded, whole);
    let choice = &whole["choices"][0];
    assert!(choice["finish_reason"].is_string());
    for (member, kind) in [("content", TEXT), ("refusal", REFUSAL)] {
        let text = choice["message"][member].as_str().unwrap_or_default();
        assert_eq!(letters(text), letters_of(said, &[kind]));
    }
    let finished = payloads(&streamed)
        .iter()
        .filter(|chunk| chunk["choices"][0]["finish_reason"].is_string())
        .count();
    assert_eq!(finished, 1);
}

fn check_response(said: &[Said<'_>]) {
    let echo = Arc::new(Echo::new("resp_0a", 7, "m"));
    let (streamed, whole) = written(said, |streams| {
        ResponsesWriter::new(Arc::clone(&echo), None, streams)
    });
    let events = payloads(&streamed);
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    assert_eq!(events.last().expect("a last event")["response"], whole);
    let mut fold = Fold::of(b"{}", &Limits::default());
    fold.take(&streamed);
    assert!(fold.has_ended());
    let folded: Value = serde_json::from_slice(&fold.response(None)).expect("a response is JSON");
    assert_eq!(folded, whole);
    let messages = elements(&whole["output"]).iter();
    let messages = messages.filter(|item| item["type"] == "message");
    let parts: Vec<_> = messages
        .flat_map(|item| elements(&item["content"]))
        .collect();
    for (kind, member, said_as) in [
        ("output_text", "text", TEXT),
        ("refusal", "refusal", REFUSAL),
    ] {
        let text = letters_in(parts.iter().copied(), kind, member);
        assert_eq!(text, letters_of(said, &[said_as]));
    }
}

fn check_message(said: &[Said<'_>]) {
    let (streamed, whole) = written(said, |streams| {
        MessagesWriter::new(messages::Written {
            streams,
            ..messages::Written::default()
        })
    });
    let blocks = check_grammar(&streamed);
    let content = elements(&whole["content"]);
    let kinds =
        |blocks: &[Value]| -> Vec<Value> { blocks.iter().map(|it| it["type"].clone()).collect() };
    assert_eq!(kinds(&blocks), kinds(content));
    let all = letters_of(said, &[TEXT, REFUSAL]);
    assert_eq!(letters_in(content, "text", "text"), all);
    let events = payloads(&streamed);
    let deltas = events.iter().map(|event| &event["delta"]);
    assert_eq!(letters_in(deltas, "text_delta", "text"), all);
}
