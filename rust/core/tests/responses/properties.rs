//! What holds for every reply, whatever its deltas and however it was cut.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use sluicegate_core::api::Api;
use sluicegate_core::limits::Limits;
use sluicegate_core::pipeline::Unpriced;
use sluicegate_core::protocols::UpstreamSide;
use sluicegate_core::protocols::chat::fold::fold_chat;

use super::stream::{Seen, chunk, events, finish, plan, translated, translated_by};
use super::to_chat;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-z\"\\\\\u{e9}\u{1F600}]{0,4}",
        1 => Just(String::new()),
        1 => Just("\n ".to_owned()),
    ]
}

fn call() -> impl Strategy<Value = Json> {
    let maybe = |values: Vec<&'static str>| prop::sample::select(values);
    (
        prop::option::of(0u64..3),
        maybe(vec!["", "", "a", "b"]),
        maybe(vec!["", "", "f", "shell"]),
        maybe(vec!["", "{", "}", "{\"input\":\"", "x\"", "{}", "\\"]),
    )
        .prop_map(|(index, id, name, arguments)| {
            let mut call = json!({"function": {"arguments": arguments}});
            if let Some(index) = index {
                call["index"] = index.into();
            }
            if !id.is_empty() {
                call["id"] = id.into();
            }
            if !name.is_empty() {
                call["function"]["name"] = name.into();
            }
            call
        })
}

fn delta() -> impl Strategy<Value = Json> {
    let piece = prop_oneof![
        4 => text().prop_map(|text| ("content", json!(text))),
        3 => text().prop_map(|text| ("reasoning_content", json!(text))),
        1 => text().prop_map(|text| ("refusal", json!(text))),
        3 => proptest::collection::vec(call(), 1..3).prop_map(|calls| ("tool_calls", json!(calls))),
        1 => Just(("annotations", json!([{"type": "url_citation", "url_citation": {"url": "u"}}]))),
    ];
    proptest::collection::vec(piece, 0..3).prop_map(|pieces| {
        let mut delta = json!({});
        for (name, value) in pieces {
            delta[name] = value;
        }
        delta
    })
}

/// How a stream ends.
fn ending() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        events(&[finish("stop")]) + "data: [DONE]\n\n",
        events(&[finish("length")]),
        events(&[finish("content_filter")]) + "data: [DONE]\n\n",
        events(&[finish("abort")]) + "data: [DONE]\n\n",
        "data: [DONE]\n\n".to_owned(),
        "data: {\"error\":{\"message\":\"no\"}}\n\ndata: [DONE]\n\n".to_owned(),
        String::new(),
    ])
}

fn reply() -> impl Strategy<Value = String> {
    (proptest::collection::vec(delta(), 0..12), ending()).prop_map(|(deltas, ending)| {
        let chunks: Vec<Json> = deltas.iter().map(chunk).collect();
        events(&chunks) + &ending
    })
}

/// All text of a kind in the deltas of a reply, white space aside, which may be dropped in one place.
fn said(reply: &str, name: &str) -> String {
    let payloads = reply
        .lines()
        .filter_map(|line| line.strip_prefix("data: {"));
    payloads
        .map(|rest| serde_json::from_str::<Json>(&format!("{{{rest}")).unwrap())
        .filter_map(|chunk| {
            chunk["choices"][0]["delta"][name]
                .as_str()
                .map(str::to_owned)
        })
        .collect::<String>()
        .replace(['\n', ' '], "")
}

fn shown(seen: &Seen, kind: &str) -> String {
    seen.deltas(kind).concat().replace(['\n', ' '], "")
}

proptest! {
    /// [`Seen`] checks the rest: order, numbers, ids, that everything opened is closed, and that folding gives the
    /// final response.
    #[test]
    fn no_text_is_lost(reply in reply()) {
        let seen = Seen::of(&reply);
        prop_assert_eq!(shown(&seen, "output_text"), said(&reply, "content"));
        prop_assert_eq!(shown(&seen, "reasoning_text"), said(&reply, "reasoning_content"));
        prop_assert_eq!(shown(&seen, "refusal"), said(&reply, "refusal"));
    }

    #[test]
    fn cuts_change_nothing(reply in reply(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6), crlf in any::<bool>()) {
        let reply = if crlf { reply.replace('\n', "\r\n") } else { reply };
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(reply.len() + 1)).collect();
        places.extend([0, reply.len()]);
        places.sort_unstable();
        let reads: Vec<&[u8]> = places.windows(2).map(|pair| &reply.as_bytes()[pair[0]..pair[1]]).collect();
        for streams in [true, false] {
            let cut = translated_by(plan(streams), &reads, &mut Unpriced);
            prop_assert_eq!(cut, translated(&reply, streams));
        }
        let bytes: Vec<&[u8]> = reply.as_bytes().chunks(1).collect();
        prop_assert_eq!(translated_by(plan(true), &bytes, &mut Unpriced), translated(&reply, true));
    }

    #[test]
    fn a_stream_and_a_document_say_the_same(reply in reply()) {
        let response = Seen::of(&reply).response;
        let whole = translated(&reply, false);
        let whole: Json = if whole.is_empty() { Json::Null } else { serde_json::from_slice(&whole).unwrap() };
        if response["status"] == "failed" && whole.get("object").is_none() {
            prop_assert!(whole["error"]["message"].is_string());
        } else {
            prop_assert_eq!(whole, response);
        }
    }

    #[test]
    fn there_and_back_again_it_says_the_same(reply in reply()) {
        let there = translated(&reply, true);
        let seen = Seen::read(&there);
        let back = translated_by(to_chat::plan(true), &[&there], &mut Unpriced);
        if seen.response["status"] == "failed" {
            let error = String::from_utf8(back).unwrap();
            let is_said = error.contains("data: {\"error\":{") && !error.contains("[DONE]");
            prop_assert!(is_said);
            return Ok(());
        }
        let completion: Json = serde_json::from_slice(&fold_chat(&back, Limits::default()).unwrap()).unwrap();
        let choice = &completion["choices"][0];
        let message = &choice["message"];
        let text = |name: &str| message[name].as_str().unwrap_or_default().replace(['\n', ' '], "");
        prop_assert_eq!(text("content"), said(&reply, "content"));
        prop_assert_eq!(text("reasoning_content"), said(&reply, "reasoning_content"));
        prop_assert_eq!(text("refusal"), said(&reply, "refusal"));
        let calls = seen.response["output"].as_array().unwrap().iter().filter(|item| item.get("call_id").is_some());
        let calls: Vec<_> = calls.map(|item| {
            let said = item.get("arguments").or(item.get("input")).unwrap();
            [&item["call_id"], &item["name"], said]
        }).collect();
        let back = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice).iter();
        let back: Vec<_> = back.map(|call| {
            let inner = call.get("function").or(call.get("custom")).unwrap();
            let said = inner.get("arguments").or(inner.get("input")).unwrap();
            [&call["id"], &inner["name"], said]
        }).collect();
        // A call without a name waits for one to the end. One that was closed too early is two items with one id.
        let ids: BTreeSet<_> = calls.iter().map(|[id, ..]| id.as_str()).collect();
        prop_assume!(calls.iter().all(|[_, name, _]| *name != "") && ids.len() == calls.len());
        prop_assert_eq!(&calls, &back);
        let expected = match (&seen.response["incomplete_details"]["reason"], calls.is_empty()) {
            (Json::String(reason), _) if reason == "content_filter" => "content_filter",
            (Json::String(_), _) => "length",
            (_, true) => "stop",
            (_, false) => "tool_calls",
        };
        prop_assert_eq!(&choice["finish_reason"], expected);
    }

    #[test]
    fn repair_changes_nothing_that_is_right(reply in reply()) {
        let right = translated(&reply, true);
        let mut repairs = plan(true);
        repairs.upstream = UpstreamSide { repair: true, ..UpstreamSide::new(Api::Responses) };
        let repaired = Seen::read(&translated_by(repairs, &[&right], &mut Unpriced));
        let right = Seen::read(&right);
        let calls = right.response["output"].as_array().unwrap().iter();
        let calls: Vec<_> = calls.filter_map(|item| Some((item.get("call_id")?.as_str(), &item["name"]))).collect();
        let ids: BTreeSet<_> = calls.iter().map(|(id, _)| id).collect();
        prop_assume!(calls.iter().all(|(_, name)| *name != "") && ids.len() == calls.len());
        prop_assert_eq!(repaired.items(), right.items());
        prop_assert_eq!(&repaired.response["status"], &right.response["status"]);
    }

    /// Events of a shape that came before are not read: what is said must not depend on it.
    #[test]
    fn a_shape_that_is_known_says_the_same(reply in reply()) {
        let strange = reply.replace("\"created\":3", "\"created\": 3");
        let mut count = 0;
        let each_its_own: String = strange.split("\"created\": 3").map(|part| {
            count += 1;
            format!("{part}{}", if part.ends_with(',') || part.ends_with('{') { format!("\"created\":{count}") } else { String::new() })
        }).collect();
        prop_assert_eq!(translated(&each_its_own, true), translated(&reply, true));
    }
}
