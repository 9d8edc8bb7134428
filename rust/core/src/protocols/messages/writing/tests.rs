use serde_json::{Value, json};

use super::*;
use crate::input::seal;
use crate::output::{Annotation, Call, Item, Phase};
use crate::sse::event::Events;
use crate::usage::Usage;
use proptest::prelude::*;

fn asked(streams: bool) -> Written {
    Written {
        streams,
        model: Some("claude-x".into()),
        known: KnownMessage {
            id: Some("msg_7".into()),
            ..KnownMessage::default()
        },
    }
}

fn said(text: &str) -> Piece<'_> {
    Piece::Text(Text {
        text: text.as_bytes(),
        ..Text::default()
    })
}

fn thought(text: &str) -> Piece<'_> {
    Piece::Reasoning(Reasoning::Text(text.as_bytes()))
}

fn sealed<'a>(api: Api, data: &'a str, item: Option<&'a str>) -> Piece<'a> {
    Piece::Reasoning(Reasoning::Sealed(Sealed {
        api,
        data: data.as_bytes(),
        signs_text: api == Api::Messages,
        item: item.map(str::as_bytes),
    }))
}

fn called<'a>(index: u64, id: &'a str, name: &'a str, arguments: &'a str) -> Piece<'a> {
    Piece::Call(Call {
        index: Some(index),
        id: id.as_bytes(),
        name: name.as_bytes(),
        arguments: arguments.as_bytes(),
        ..Call::default()
    })
}

fn stopped(reason: Reason) -> Piece<'static> {
    Piece::Finish(Finish::of(reason))
}

fn written(asked: Written, pieces: &[Piece<'_>], ending: Ending<'_>) -> Vec<u8> {
    let mut writer = MessagesWriter::new(asked);
    let mut out = Vec::new();
    for piece in pieces {
        writer.write(piece, &mut out);
    }
    let usage = Usage {
        input_tokens: Some(10),
        output_tokens: Some(4),
        ..Usage::default()
    };
    let spent = Spent {
        usage: &usage,
        members: None,
    };
    writer.end(ending, Some(spent), None, &mut out);
    let ended = out.len();
    writer.write(&said("late"), &mut out);
    writer.end(Ending::Regular, None, None, &mut out);
    assert_eq!(out.len(), ended);
    out
}

fn events(stream: &[u8]) -> Vec<Value> {
    Events::new(stream)
        .map(|event| {
            let data: Value = serde_json::from_slice(&event.data().unwrap()).unwrap();
            assert_eq!(data["type"].as_str().unwrap().as_bytes(), event.name());
            data
        })
        .collect()
}

/// What the SDKs' accumulators make of the events: the message, and whether it is whole. Panics where the events break
/// the protocol's grammar.
fn accumulated(stream: &[u8]) -> (Value, bool) {
    let mut message = Value::Null;
    let mut open: Option<String> = None;
    let mut stopped = false;
    let mut whole = false;
    for event in events(stream) {
        assert!(!whole, "{event} behind the end");
        let kind = event["type"].as_str().unwrap();
        assert_eq!(kind == "message_start", message.is_null(), "{event}");
        if kind == "message_start" {
            message = event["message"].clone();
            assert_eq!(message["content"], json!([]));
            assert!(message["usage"]["input_tokens"].is_u64());
            assert!(message["usage"]["output_tokens"].is_u64());
            continue;
        }
        let blocks = message["content"].as_array_mut().unwrap();
        let count = blocks.len();
        match kind {
            "content_block_start" => {
                assert!(open.is_none() && !stopped, "{event}");
                assert_eq!(event["index"], count);
                blocks.push(event["content_block"].clone());
                open = Some(String::new());
            }
            "content_block_delta" | "content_block_stop" => {
                assert_eq!(event["index"], count - 1);
                let block = blocks.last_mut().unwrap();
                let arguments = open.as_mut().unwrap();
                if kind == "content_block_stop" {
                    assert!(block["type"] != "thinking" || block["signature"] != "");
                    if block["type"] == "tool_use" {
                        block["input"] = input(arguments);
                    }
                    open = None;
                } else {
                    accumulate(block, arguments, &event["delta"]);
                }
            }
            "message_delta" => {
                assert!(open.is_none() && !stopped, "{event}");
                stopped = true;
                let delta = event["delta"].as_object().unwrap().clone();
                let members = message.as_object_mut().unwrap();
                members.extend(delta);
                members["usage"] = event["usage"].clone();
            }
            "message_stop" => {
                assert!(stopped);
                whole = true;
            }
            other => panic!("{other}"),
        }
    }
    (message, whole)
}

fn accumulate(block: &mut Value, arguments: &mut String, delta: &Value) {
    let add = |block: &mut Value, member: &str| {
        assert_ne!(delta[member], "");
        let text = [&block[member], &delta[member]].map(|text| text.as_str().unwrap());
        block[member] = text.concat().into();
    };
    match (
        delta["type"].as_str().unwrap(),
        block["type"].as_str().unwrap(),
    ) {
        ("text_delta", "text") => add(block, "text"),
        ("thinking_delta", "thinking") => add(block, "thinking"),
        ("signature_delta", "thinking") => {
            assert_eq!(block["signature"], "");
            block["signature"] = delta["signature"].clone();
        }
        ("input_json_delta", "tool_use") => {
            assert_eq!(block["input"], json!({}));
            arguments.push_str(delta["partial_json"].as_str().unwrap());
        }
        ("citations_delta", "text") => {
            if block.get("citations").is_none() {
                block["citations"] = json!([]);
            }
            let citations = block["citations"].as_array_mut().unwrap();
            citations.push(delta["citation"].clone());
        }
        other => panic!("{other:?}"),
    }
}

fn input(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(input)) => Value::Object(input),
        _ if arguments.trim().is_empty() => json!({}),
        _ => json!({"INVALID_JSON": arguments}),
    }
}

/// The message of these pieces, the same streamed and whole.
fn message(pieces: &[Piece<'_>]) -> Value {
    let stream = written(asked(true), pieces, Ending::Regular);
    let (streamed, is_whole) = accumulated(&stream);
    assert!(is_whole);
    let whole = written(asked(false), pieces, Ending::Regular);
    let whole: Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(streamed, whole);
    whole
}

/// The types and indices of all events.
fn order(pieces: &[Piece<'_>]) -> Vec<String> {
    events(&written(asked(true), pieces, Ending::Regular))
        .iter()
        .map(|event| {
            let kind = [&event["content_block"]["type"], &event["delta"]["type"]];
            let words = [&event["type"], &event["index"]].into_iter().chain(kind);
            let words: Vec<_> = words
                .filter(|word| !word.is_null())
                .map(|word| word.to_string().replace('"', ""))
                .collect();
            words.join(" ")
        })
        .collect()
}

#[test]
fn one_block_of_each_kind_in_its_order() {
    let pieces = [
        thought("Hm."),
        said("A look."),
        called(0, "call_1", "look", ""),
        called(0, "", "", r#"{\"q\":1}"#),
        stopped(Reason::Calls),
    ];
    assert_eq!(
        order(&pieces),
        [
            "message_start",
            "content_block_start 0 thinking",
            "content_block_delta 0 thinking_delta",
            "content_block_delta 0 signature_delta",
            "content_block_stop 0",
            "content_block_start 1 text",
            "content_block_delta 1 text_delta",
            "content_block_stop 1",
            "content_block_start 2 tool_use",
            "content_block_delta 2 input_json_delta",
            "content_block_stop 2",
            "message_delta",
            "message_stop",
        ]
    );
    let expected = json!({
        "id": "msg_7", "type": "message", "role": "assistant", "model": "claude-x",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "sg1.chat."},
            {"type": "text", "text": "A look."},
            {"type": "tool_use", "id": "call_1", "name": "look", "input": {"q": 1}},
        ],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {"input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 4},
    });
    assert_eq!(message(&pieces), expected);
}

#[test]
fn calls_that_come_mixed_are_written_one_behind_the_other() {
    let pieces = [
        called(0, "a", "f", r#"{\"q\":"#),
        called(1, "b", "g", r#"{\"q\":"#),
        called(0, "", "", r"1}"),
        called(2, "c", "h", ""),
        called(1, "", "", r"2}"),
        stopped(Reason::Calls),
    ];
    let calls = json!([
        {"type": "tool_use", "id": "a", "name": "f", "input": {"q": 1}},
        {"type": "tool_use", "id": "b", "name": "g", "input": {"q": 2}},
        {"type": "tool_use", "id": "c", "name": "h", "input": {}},
    ]);
    assert_eq!(message(&pieces)["content"], calls);
}

#[test]
fn the_next_call_opens_as_soon_as_the_first_is_whole() {
    let mut writer = MessagesWriter::new(asked(true));
    let mut out = Vec::new();
    for piece in [
        called(0, "a", "f", r#"{\"q\":1}"#),
        called(1, "b", "g", r"{\"),
    ] {
        writer.write(&piece, &mut out);
    }
    let out = String::from_utf8(out).unwrap();
    assert!(
        out.contains(r#""index":1,"content_block":{"type":"tool_use","id":"b""#),
        "{out}"
    );
}

#[test]
fn a_call_without_arguments_has_one_empty_part() {
    let call = |fallback| {
        Piece::Call(Call {
            id: b"a",
            name: b"f",
            fallback,
            ..Call::default()
        })
    };
    for fallback in [&b""[..], b"{}"] {
        let pieces = [call(fallback), stopped(Reason::Calls)];
        assert_eq!(order(&pieces).len(), 6);
        assert_eq!(message(&pieces)["content"][0]["input"], json!({}));
    }
    let whole = message(&[call(br#"{\"q\":1}"#)]);
    assert_eq!(whole["content"][0]["input"], json!({"q": 1}));
    let other = message(&[call(br#"{\"q\":1}"#), called(0, "a", "", r"{}")]);
    assert_eq!(other["content"][0]["input"], json!({}));
}

#[test]
fn ids_of_calls_are_new_to_the_conversation() {
    let taken = ["call_0", "call_0_1", "toolu_7_2"];
    let ids = |streams| {
        let asked = Written {
            known: KnownMessage {
                taken_ids: Arc::new(taken.map(Into::into).into()),
                ..asked(streams).known
            },
            ..asked(streams)
        };
        let pieces = [
            called(0, "call_0", "f", "{}"),
            called(1, "call_0", "g", "{}"),
            called(2, "", "h", "{}"),
            called(3, "mine", "i", "{}"),
        ];
        written(asked, &pieces, Ending::Regular)
    };
    let whole: Value = serde_json::from_slice(&ids(false)).unwrap();
    let found: Vec<_> = whole["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["id"].as_str().unwrap())
        .collect();
    assert_eq!(found, ["call_0_2", "call_0_3", "toolu_7_2_4", "mine"]);
    assert_eq!(accumulated(&ids(true)).0, whole);
}

#[test]
fn the_calls_decide_why_a_reply_ends() {
    let reason = |pieces: &[Piece<'_>]| message(pieces)["stop_reason"].clone();
    let call = called(0, "a", "f", "{}");
    assert_eq!(reason(&[call, stopped(Reason::Stop)]), "tool_use");
    assert_eq!(reason(&[said("a"), stopped(Reason::Calls)]), "end_turn");
    assert_eq!(reason(&[call, stopped(Reason::Length)]), "max_tokens");
    assert_eq!(reason(&[said("a"), stopped(Reason::Filter)]), "refusal");
    assert_eq!(reason(&[]), "end_turn");
    let refused = message(&[Piece::Refusal(b"No."), stopped(Reason::Stop)]);
    assert_eq!(refused["stop_reason"], "refusal");
    assert_eq!(refused["content"], json!([{"type": "text", "text": "No."}]));
    let sequence = message(&[Piece::Finish(Finish {
        sequence: Some(b"END"),
        details: Some(b"{\"a\": 1}"),
        ..Finish::of(Reason::Sequence)
    })]);
    assert_eq!(sequence["stop_reason"], "stop_sequence");
    assert_eq!(sequence["stop_sequence"], "END");
    assert_eq!(sequence["stop_details"], json!({"a": 1}));
}

#[test]
fn seals_of_other_upstreams_are_signatures_and_redacted_blocks() {
    let item = r#"{"type":"reasoning", "id":"rs_1"}"#;
    let whole = message(&[
        Piece::Reasoning(Reasoning::Summary(b"One")),
        Piece::Part,
        Piece::Reasoning(Reasoning::Summary(b"two")),
        sealed(Api::Responses, "gAAA", Some(item)),
        sealed(Api::Responses, "gAAB", Some(item)),
        thought("a"),
        sealed(Api::Messages, "EqQB", None),
        sealed(Api::Messages, "EqQC", None),
        thought("b"),
        Piece::Break,
        sealed(Api::Chat, "x", None),
    ]);
    let seal = |api, content: &str| {
        let mut text = Vec::new();
        seal::write(api, content.as_bytes(), &mut text);
        String::from_utf8(text).unwrap()
    };
    let of_item = seal(Api::Responses, r#"{"type":"reasoning","id":"rs_1"}"#);
    let of_chat = seal(Api::Chat, r#"{"type":"reasoning.encrypted","data":"x"}"#);
    let expected = json!([
        {"type": "thinking", "thinking": "One\n\ntwo", "signature": of_item},
        {"type": "redacted_thinking", "data": of_item},
        {"type": "thinking", "thinking": "a", "signature": "EqQB"},
        {"type": "thinking", "thinking": "", "signature": "EqQC"},
        {"type": "thinking", "thinking": "b", "signature": "sg1.chat."},
        {"type": "redacted_thinking", "data": of_chat},
    ]);
    assert_eq!(whole["content"], expected);
}

#[test]
fn white_space_opens_no_block_unless_text_follows() {
    let call = called(0, "a", "f", "{}");
    let kinds = |pieces: &[Piece<'_>]| {
        let content = message(pieces)["content"].clone();
        let kind = |block: &Value| match &block["text"] {
            Value::String(text) => text.clone(),
            _ => block["type"].as_str().unwrap().to_owned(),
        };
        let content = content.as_array().unwrap().iter().map(kind);
        content.collect::<Vec<_>>()
    };
    assert_eq!(kinds(&[said(r"\n\n"), call]), ["tool_use"]);
    assert_eq!(
        kinds(&[thought("t"), said(" "), call, said(r"\n")]),
        ["thinking", "tool_use"]
    );
    assert_eq!(
        kinds(&[thought("t"), said(r"\n"), said(" a")]),
        ["thinking", "\n a"]
    );
    assert_eq!(
        kinds(&[call, said(r"\n"), said("a"), said(" ")]),
        ["tool_use", "\na "]
    );
    assert_eq!(kinds(&[said(" "), said("")]), [" "]);
    assert_eq!(kinds(&[said(""), thought("")]), [""; 0]);
}

#[test]
fn blocks_of_the_protocols_own_and_citations_pass_and_others_do_not() {
    let noted = |api, json| Piece::Annotation(Annotation { api, json });
    let item = |api, json| Piece::Item(Item { api, json });
    let whole = message(&[
        said("a"),
        noted(Api::Messages, b"{\"type\": \"page_location\"}"),
        noted(Api::Chat, b"{\"type\":\"url_citation\"}"),
        Piece::Part,
        Piece::Text(Text {
            text: b"b",
            logprobs: Some(b"[]"),
            phase: Some(Phase::FinalAnswer),
        }),
        item(
            Api::Messages,
            b"{\"type\":\"server_tool_use\", \"id\":\"s\"}",
        ),
        item(Api::Responses, b"{\"type\":\"web_search_call\"}"),
        said("c"),
    ]);
    let expected = json!([
        {"type": "text", "text": "a", "citations": [{"type": "page_location"}]},
        {"type": "text", "text": "b"},
        {"type": "server_tool_use", "id": "s"},
        {"type": "text", "text": "c"},
    ]);
    assert_eq!(whole["content"], expected);
}

#[test]
fn a_reply_that_fails_ends_with_an_error_and_nothing_else() {
    let failure = Ending::Failed(Failure {
        message: "boom",
        code: Some("500"),
        kind: Some("server_error"),
    });
    let error = json!({"type": "error", "error": {"type": "api_error", "message": "boom"}});
    let stream = written(asked(true), &[said("Hel")], failure);
    let mut events = events(&stream);
    assert_eq!(events.pop(), Some(error.clone()));
    let text = String::from_utf8(stream).unwrap();
    assert!(!text.contains("content_block_stop") && !text.contains("message_delta"));
    let whole = written(asked(false), &[said("Hel")], failure);
    assert_eq!(serde_json::from_slice::<Value>(&whole).unwrap(), error);
    let gave_up = written(asked(true), &[stopped(Reason::Failed)], Ending::Regular);
    assert!(String::from_utf8(gave_up).unwrap().contains("event: error"));
}

#[test]
fn halves_of_a_letter_are_never_apart() {
    let pieces = [
        said(r"a\ud83d"),
        said(r"\ude00"),
        called(0, "a", "f", r#"{\"q\":\"\ud83d"#),
        called(0, "", "", r#"\ude00\"}"#),
    ];
    let whole = message(&pieces);
    assert_eq!(whole["content"][0]["text"], "a\u{1f600}");
    assert_eq!(whole["content"][1]["input"], json!({"q": "\u{1f600}"}));
}

#[test]
fn what_a_message_keeps_is_counted() {
    let mut writer = MessagesWriter::new(asked(true));
    let mut out = Vec::new();
    writer.write(&said(&"a".repeat(1000)), &mut out);
    assert_eq!(writer.held(), 0);
    let arguments = "1".repeat(1000);
    writer.write(&called(0, "a", "f", &arguments), &mut out);
    assert!(writer.held() >= 1000);
    let mut whole = MessagesWriter::new(asked(false));
    whole.write(&said(&"a".repeat(1000)), &mut Vec::new());
    assert!(whole.held() >= 1000);
}

#[test]
fn what_the_upstream_is_called_is_shown_where_nothing_else_is_asked_for() {
    let asked = Written {
        model: None,
        known: KnownMessage::default(),
        ..asked(false)
    };
    let head = Piece::Head(Head {
        id: Some(b"msg_up"),
        model: Some(b"up"),
        ..Head::default()
    });
    let call = called(0, "", "f", "{}");
    let whole = written(asked, &[head, call], Ending::Regular);
    let whole: Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(
        (&whole["id"], &whole["model"]),
        (&json!("msg_up"), &json!("up"))
    );
    assert_eq!(whole["content"][0]["id"], "toolu_up_0");
}

fn any_piece() -> impl Strategy<Value = (u8, u64, String, String)> {
    (0..14u8, 0..3u64, "[a-z \\n]{0,4}", r#"[{}\[\]":,a1]{0,4}"#)
}

proptest! {
    #[test]
    fn any_pieces_are_a_reply_and_no_text_is_lost(pieces in prop::collection::vec(any_piece(), 0..24)) {
        let spelled: Vec<(u8, u64, Vec<u8>, Vec<u8>)> = pieces
            .iter()
            .map(|(kind, index, text, arguments)| {
                let spell = |text: &str| {
                    let mut spelled = Vec::new();
                    string::spell(text, &mut spelled);
                    spelled
                };
                (*kind, *index, spell(text), spell(arguments))
            })
            .collect();
        let ids = ["i0", "i1", "i2"];
        let pieces: Vec<Piece<'_>> = spelled
            .iter()
            .map(|(kind, index, text, arguments)| {
                let id = ids[*index as usize].as_bytes();
                let seal = |api, item| Piece::Reasoning(Reasoning::Sealed(Sealed { api, data: b"xyz", signs_text: *index == 0, item }));
                match kind {
                    0 => Piece::Reasoning(Reasoning::Text(text)),
                    1 => Piece::Reasoning(Reasoning::Summary(text)),
                    2 => seal(Api::Messages, None),
                    3 => seal(Api::Responses, Some(&b"{}"[..])),
                    4 => Piece::Refusal(text),
                    5 => Piece::Part,
                    6 => Piece::Break,
                    7 => Piece::Annotation(Annotation { api: Api::Messages, json: b"{}" }),
                    8 => Piece::Item(Item { api: Api::Messages, json: b"{\"type\":\"x\"}" }),
                    9 => Piece::Call(Call { index: Some(*index), id, name: b"f", arguments, ..Call::default() }),
                    10 => Piece::Call(Call { index: Some(*index), arguments, fallback: b"{}", ..Call::default() }),
                    _ => Piece::Text(Text { text, ..Text::default() }),
                }
            })
            .collect();
        let whole = message(&pieces);
        let blocks = whole["content"].as_array().unwrap();
        let letters = |text: &str| text.chars().filter(char::is_ascii_lowercase).collect::<String>();
        let of = |member: &str| {
            let texts = blocks.iter().filter_map(|block| block[member].as_str());
            letters(&texts.collect::<String>())
        };
        let given = |wanted: fn(u8) -> bool| {
            let texts = spelled.iter().filter(|piece| wanted(piece.0));
            letters(&texts.map(|piece| string::decode(&piece.2).into_owned()).collect::<String>().replace("\\n", ""))
        };
        prop_assert_eq!(of("text"), given(|kind| kind == 4 || kind > 10));
        prop_assert_eq!(of("thinking"), given(|kind| kind < 2));
    }
}
