use serde_json::{Value, json};

use super::*;
use crate::output::{Call, Item, Phase};
use crate::protocols::chat::fold::fold_chat;
use crate::sse::event::Events;
use crate::usage::Usage;
use proptest::prelude::*;

fn asked(streams: bool) -> Written {
    Written {
        streams,
        include_usage: true,
        ..Written::default()
    }
}

const HEAD: Piece<'_> = Piece::Head(Head {
    id: Some(b"resp_1"),
    model: Some(b"m"),
    created: Some(b"7.25"),
    service_tier: None,
});

fn said(text: &str) -> Piece<'_> {
    Piece::Text(Text {
        text: text.as_bytes(),
        ..Text::default()
    })
}

fn sealed(api: Api, data: &[u8], signs_text: bool) -> Piece<'_> {
    Piece::Reasoning(Reasoning::Sealed(Sealed {
        api,
        data,
        signs_text,
        item: None,
    }))
}

fn noted(json: &[u8]) -> Piece<'_> {
    Piece::Annotation(Annotation {
        api: Api::Responses,
        json,
    })
}

fn part_of_call<'a>(index: u64, id: &'a str, name: &'a str, arguments: &'a str) -> Piece<'a> {
    Piece::Call(Call {
        index: Some(index),
        id: id.as_bytes(),
        name: name.as_bytes(),
        arguments: arguments.as_bytes(),
        ..Call::default()
    })
}

fn written(asked: Written, pieces: &[Piece<'_>], ending: Ending<'_>) -> String {
    let mut writer = ChatWriter::new(asked, Limits::default());
    let mut out = Vec::new();
    for piece in pieces {
        writer.write(piece, &mut out);
    }
    let usage = Usage {
        input_tokens: Some(2),
        output_tokens: Some(3),
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
    String::from_utf8(out).unwrap()
}

/// The data of each event, `[DONE]` as a string.
fn chunks(pieces: &[Piece<'_>]) -> Vec<Value> {
    let stream = written(asked(true), pieces, Ending::Regular);
    let whole: Value =
        serde_json::from_str(&written(asked(false), pieces, Ending::Regular)).unwrap();
    let folded = fold_chat(stream.as_bytes(), Limits::default()).unwrap();
    assert_eq!(whole, serde_json::from_slice::<Value>(&folded).unwrap());
    Events::new(stream.as_bytes())
        .map(|event| {
            let data = event.data().unwrap();
            serde_json::from_slice(&data)
                .unwrap_or_else(|_| String::from_utf8(data.to_vec()).unwrap().into())
        })
        .collect()
}

fn deltas(pieces: &[Piece<'_>]) -> Vec<Value> {
    let chunks = chunks(pieces);
    let deltas = chunks.iter().filter_map(|chunk| {
        chunk["choices"]
            .get(0)
            .map(|choice| choice["delta"].clone())
    });
    deltas.collect()
}

#[test]
fn a_stream_has_the_form_that_clients_check() {
    let chunks = chunks(&[HEAD, said("Hi"), Piece::Finish(Finish::of(Reason::Stop))]);
    let chunk = |delta: Value, finish: Value| {
        json!({"id": "resp_1", "object": "chat.completion.chunk", "created": 7, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": null})
    };
    let mut last = chunk(json!(null), json!(null));
    last["choices"] = json!([]);
    last["usage"] = json!({"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5});
    let expected = [
        chunk(json!({"role": "assistant", "content": ""}), json!(null)),
        chunk(json!({"content": "Hi"}), json!(null)),
        chunk(json!({}), json!("stop")),
        last,
        json!("[DONE]"),
    ];
    assert_eq!(chunks, expected);
}

#[test]
fn usage_comes_if_it_is_asked_for() {
    let asked = Written {
        streams: true,
        model: Some("other \"m\"".into()),
        ..Written::default()
    };
    let stream = written(asked, &[HEAD, said("Hi")], Ending::Regular);
    assert!(!stream.contains("usage") && stream.ends_with("data: [DONE]\n\n"));
    assert_eq!(stream.matches(r#""model":"other \"m\"""#).count(), 3);
}

#[test]
fn what_is_known_late_is_said_late() {
    let head = Piece::Head(Head {
        id: Some(b"r"),
        ..Head::default()
    });
    let asked = |streams| Written {
        streams,
        created: Some(5),
        ..Written::default()
    };
    let pieces = [head, said("Hi"), HEAD];
    let stream = written(asked(true), &pieces, Ending::Regular);
    let count = |member: &str| stream.matches(member).count();
    assert_eq!((count(r#""id":"r""#), count(r#""created":5,"#)), (3, 2));
    assert_eq!(
        (count(r#""model":"""#), count(r#""created":7,"model":"m""#)),
        (2, 1)
    );
    let whole = written(asked(false), &pieces, Ending::Regular);
    assert!(whole.contains(r#""created":5,"model":"m""#), "{whole}");
}

#[test]
fn all_kinds_of_output_in_their_order() {
    let deltas = deltas(&[
        Piece::Reasoning(Reasoning::Summary(b"One")),
        Piece::Part,
        Piece::Reasoning(Reasoning::Summary(b"Two")),
        Piece::Reasoning(Reasoning::Sealed(Sealed {
            api: Api::Responses,
            data: b"gAAA",
            signs_text: false,
            item: Some(b"{}"),
        })),
        Piece::Reasoning(Reasoning::Text(b"hm")),
        Piece::Text(Text {
            text: b"a",
            logprobs: Some(b"[{\"token\":\n \"a\"}]"),
            phase: Some(Phase::Commentary),
        }),
        Piece::Item(Item {
            api: Api::Responses,
            json: b"{\"type\":\"web_search_call\"}",
        }),
        Piece::Refusal(b"no"),
        part_of_call(0, "c1", "f", ""),
        part_of_call(0, "", "", "{}"),
        Piece::Break,
    ]);
    let expected = json!([
        {"role": "assistant", "content": null},
        {"reasoning_content": "One"},
        {"reasoning_content": "\n\n"},
        {"reasoning_content": "Two"},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "sg1.responses.e30", "index": 0}]},
        {"reasoning_content": "hm"},
        {"content": "a"},
        {"refusal": "no"},
        {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        {},
    ]);
    assert_eq!(Value::from(deltas), expected);
}

#[test]
fn logprobs_stand_beside_their_text() {
    let logprobs = Piece::Text(Text {
        text: b"a",
        logprobs: Some(b"[{\"token\":\n \"a\"}]"),
        phase: None,
    });
    let chunks = chunks(&[logprobs]);
    assert_eq!(
        chunks[1]["choices"][0]["logprobs"],
        json!({"content": [{"token": "a"}], "refusal": null})
    );
}

#[test]
fn calls_are_announced_when_their_name_is_known() {
    let deltas = deltas(&[
        HEAD,
        part_of_call(3, "", "", "{\\\"a\\\""),
        part_of_call(5, "c2", "g", ""),
        part_of_call(3, "", "f", ":1}"),
        part_of_call(5, "", "g", "{}"),
        Piece::Call(Call {
            index: Some(6),
            name: b"sh",
            arguments: b"ls",
            custom: true,
            ..Call::default()
        }),
        part_of_call(7, "", "late", ""),
        Piece::Call(Call {
            index: Some(7),
            extra: Some(b"{\"s\": 1}"),
            ..Call::default()
        }),
    ]);
    let call = |index: u64, id: &str, name: &str, arguments: &str| json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]});
    let mut late = call(3, "call_1_3", "late", "");
    late["tool_calls"][0]["extra_content"] = json!({"s": 1});
    let expected = [
        json!({"role": "assistant", "content": null}),
        call(0, "c2", "g", ""),
        call(1, "call_1_1", "f", "{\"a\":1}"),
        json!({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}),
        json!({"tool_calls": [{"index": 2, "id": "call_1_2", "type": "custom", "custom": {"name": "sh", "input": "ls"}}]}),
        late,
        json!({}),
    ];
    assert_eq!(deltas, expected);
}

#[test]
fn annotations_come_together_with_their_places_in_the_whole_content() {
    let note = |start: u64| {
        format!(
            "{{\"type\":\"url_citation\",\"url\":\"u\",\"title\":\"t\",\"start_index\":{start},\"end_index\":{}}}",
            start + 1
        )
    };
    let (first, second) = (note(0), note(1));
    let deltas = deltas(&[
        said("\\u00e9\\ud83d\\ude00é"),
        noted(first.as_bytes()),
        Piece::Break,
        said("a link"),
        noted(second.as_bytes()),
        noted(b"{\"type\":\"file_citation\",\"file_id\":\"f\"}"),
        noted(b"{\"type\":\"url_citation\",\"url_citation\":{\"url\":\"v\",\"start_index\":9}}"),
        Piece::Finish(Finish::of(Reason::Stop)),
    ]);
    let annotation = |start: u64| json!({"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": start, "end_index": start + 1}});
    let as_it_came =
        json!({"type": "url_citation", "url_citation": {"url": "v", "start_index": 9}});
    let expected = json!({"annotations": [annotation(0), annotation(4), as_it_came]});
    assert_eq!(deltas[deltas.len() - 2], expected);
}

#[test]
fn why_it_ends() {
    let reason = |pieces: &[Piece<'_>]| {
        let chunks = chunks(pieces);
        let reasons: Vec<_> = chunks
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["finish_reason"].as_str())
            .collect();
        assert_eq!(reasons.len(), 1);
        reasons[0].to_owned()
    };
    let call = part_of_call(0, "c", "f", "{}");
    assert_eq!(reason(&[]), "stop");
    assert_eq!(reason(&[call]), "tool_calls");
    assert_eq!(
        reason(&[call, Piece::Finish(Finish::of(Reason::Stop))]),
        "tool_calls"
    );
    assert_eq!(
        reason(&[
            call,
            Piece::Finish(Finish::of(Reason::Length)),
            Piece::Finish(Finish::of(Reason::Stop))
        ]),
        "length"
    );
    assert_eq!(
        reason(&[Piece::Finish(Finish::of(Reason::Filter))]),
        "content_filter"
    );
}

#[test]
fn a_failure_is_the_last_event() {
    let failure = Ending::Failed(Failure {
        message: "it \"broke\"",
        code: Some("c"),
        kind: None,
    });
    let error = r#"{"error":{"message":"it \"broke\"","type":null,"code":"c","param":null}}"#;
    let stream = written(asked(true), &[said("Hi")], failure);
    assert!(stream.ends_with(&format!("data: {error}\n\n")));
    assert!(!stream.contains("DONE") && !stream.contains("\"stop\""));
    assert_eq!(written(asked(false), &[said("Hi")], failure), error);
}

#[test]
fn letters_are_counted_as_python_counts_them() {
    for text in ["", "abc", "é😀", "\n\"", "\u{1}"] {
        let mut spelled = Vec::new();
        string::spell(text, &mut spelled);
        assert_eq!(letters(&spelled), text.chars().count() as u64, "{text:?}");
    }
    assert_eq!(letters(br"\u00e9\ud83d\ude00\\ud83d"), 8);
}

fn any_piece() -> impl Strategy<Value = (u8, String)> {
    (0u8..9, "[a-z\"é😀\n]{0,5}")
}

proptest! {
    #[test]
    fn deltas_put_together_are_the_whole(pieces in proptest::collection::vec(any_piece(), 0..12)) {
        let spelled: Vec<_> = pieces.iter().map(|(kind, text)| {
            let mut spelled = Vec::new();
            string::spell(text, &mut spelled);
            (*kind, String::from_utf8(spelled).unwrap())
        }).collect();
        let pieces: Vec<_> = spelled.iter().map(|(kind, text)| match kind {
            0 => Piece::Reasoning(Reasoning::Text(text.as_bytes())),
            1 => Piece::Reasoning(Reasoning::Summary(text.as_bytes())),
            2 => Piece::Refusal(text.as_bytes()),
            3 => part_of_call(0, "c", "f", text),
            4 => part_of_call(1, "d", "g", text),
            5 => Piece::Break,
            6 => Piece::Part,
            _ => said(text),
        }).collect();
        // `deltas` checks the whole against the stream.
        let deltas = deltas(&pieces);
        let content: String = deltas.iter().filter_map(|delta| delta["content"].as_str()).collect();
        let said: String = spelled.iter().filter(|(kind, _)| *kind > 6).map(|(_, text)| string::decode(text.as_bytes())).collect();
        prop_assert_eq!(content, said);
    }
}

#[test]
fn thinking_that_is_signed_comes_back_whole_beside_its_text() {
    let deltas = deltas(&[
        Piece::Reasoning(Reasoning::Text(b"Hm")),
        Piece::Reasoning(Reasoning::Text(b".")),
        sealed(Api::Messages, b"EqQB", true),
        Piece::Part,
        sealed(Api::Messages, b"EmwK", false),
        sealed(Api::Messages, b"EqQC", true),
    ]);
    let detail = |detail: Value| json!({"reasoning_details": [detail]});
    let format = "anthropic-claude-v1";
    let expected = [
        json!({"reasoning_content": "Hm"}),
        json!({"reasoning_content": "."}),
        detail(
            json!({"type": "reasoning.text", "text": "Hm.", "signature": "EqQB", "format": format, "index": 0}),
        ),
        detail(
            json!({"type": "reasoning.encrypted", "data": "EmwK", "format": format, "index": 1}),
        ),
        detail(
            json!({"type": "reasoning.text", "text": "", "signature": "EqQC", "format": format, "index": 2}),
        ),
    ];
    assert_eq!(deltas[1..6], expected);
}

#[test]
fn a_call_whose_arguments_never_come_has_what_stands_for_them() {
    let call = |fallback| {
        Piece::Call(Call {
            index: Some(3),
            id: b"c1",
            name: b"f",
            fallback,
            ..Call::default()
        })
    };
    let arguments = |pieces: &[Piece<'_>]| {
        let whole = written(asked(false), pieces, Ending::Regular);
        let whole: Value = serde_json::from_str(&whole).unwrap();
        whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].clone()
    };
    assert_eq!(arguments(&[call(b"{}")]), "{}");
    assert_eq!(arguments(&[call(br#"{\"q\":1}"#)]), r#"{"q":1}"#);
    let said = [call(b"{}"), part_of_call(3, "", "", "[]")];
    assert_eq!(arguments(&said), "[]");
}

#[test]
fn what_stands_for_arguments_comes_before_the_next_call() {
    let call = |index, id| {
        Piece::Call(Call {
            index: Some(index),
            id,
            name: b"f",
            fallback: b"{}",
            ..Call::default()
        })
    };
    let deltas = deltas(&[call(0, b"c0"), Piece::Break, call(1, b"c1"), Piece::Break]);
    let indexes: Vec<_> = deltas[1..5]
        .iter()
        .map(|delta| delta["tool_calls"][0]["index"].clone())
        .collect();
    assert_eq!(indexes, [0, 0, 1, 1]);
}

#[test]
fn each_reason_has_a_word_and_a_sequence_is_named() {
    let choice = |finish: Finish<'_>| {
        let whole = written(asked(false), &[Piece::Finish(finish)], Ending::Regular);
        let whole: Value = serde_json::from_str(&whole).unwrap();
        whole["choices"][0].clone()
    };
    for (reason, word) in [
        (Reason::Pause, "stop"),
        (Reason::Context, "length"),
        (Reason::Failed, "error"),
        (Reason::Other, "eos"),
    ] {
        let finish = Finish {
            word: b"eos",
            ..Finish::of(reason)
        };
        assert_eq!(choice(finish)["finish_reason"], word);
    }
    let sequence = choice(Finish {
        sequence: Some(b"END"),
        ..Finish::of(Reason::Sequence)
    });
    assert_eq!(
        (&sequence["finish_reason"], &sequence["stop_reason"]),
        (&json!("stop"), &json!("END"))
    );
    let refused = choice(Finish {
        details: Some(br#"{"category":"x","explanation":"Not this."}"#),
        ..Finish::of(Reason::Filter)
    });
    assert_eq!(refused["message"]["refusal"], "Not this.");
    assert_eq!(refused["finish_reason"], "content_filter");
}
