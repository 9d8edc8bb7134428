//! The input of a request as items, and earlier items in front of it.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};
use sluicegate_core::error::ErrorKind;
use sluicegate_core::limits::{Limits, MAX_FOUND_ITEMS, MAX_REFERENCES};
use sluicegate_core::protocols::chat::request::{ChatTarget, write_request};
use sluicegate_core::protocols::responses::conversation::{Page, Turn, Whole, page, repeated};
use sluicegate_core::protocols::responses::request::ResponsesRequest;
use sluicegate_core::protocols::responses::request::read_request;
use sluicegate_core::request::affinity::of_key;

fn parse(body: &str) -> ResponsesRequest {
    ResponsesRequest::parse(Bytes::from(body.to_owned()), &Limits::default()).unwrap()
}

fn items(body: &Value) -> Vec<Value> {
    let request = body.to_string();
    let turn = Turn {
        id: "resp_7a",
        request: request.as_bytes(),
        response: b"",
    };
    let list = listed(&[turn], true, None, 100).unwrap();
    list["data"].as_array().unwrap().clone()
}

fn listed(turns: &[Turn<'_>], ascending: bool, after: Option<&str>, limit: usize) -> Option<Value> {
    let asked = Page {
        ascending,
        after,
        limit,
    };
    Some(serde_json::from_slice(&page(turns, &asked)?).unwrap())
}

#[test]
fn a_string_is_a_message_of_the_user() {
    let text = json!([{"type": "input_text", "text": "Hi"}]);
    let message = json!({"type": "message", "role": "user", "content": text, "id": "msg_7ai0", "status": "completed"});
    assert_eq!(items(&json!({"input": "Hi"})), [message]);
    assert!(items(&json!({})).is_empty());
}

#[test]
fn items_get_what_they_lack_and_keep_what_they_have() {
    let found = items(&json!({"input": [
        {"role": "user", "content": "Hi", "id": null},
        {"role": "assistant", "content": "Hello", "type": null},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "?"}], "id": "msg_own", "status": "in_progress", "x": 1},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "1", "status": null},
        {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": ""},
        {"type": "custom_tool_call_output", "call_id": "d", "output": ""},
        {"type": "reasoning", "summary": []},
        {"type": "acme:thing"},
        {"id": "msg_0"},
        7,
        {"type": 5, "id": {}},
    ]}));
    let done = "completed";
    let expected = [
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}], "id": "msg_7ai0", "status": done}),
        json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello", "annotations": []}], "id": "msg_7ai1", "status": done}),
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "?"}], "id": "msg_own", "status": "in_progress", "x": 1}),
        json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "fc_7ai3", "status": done}),
        json!({"type": "function_call_output", "call_id": "c", "output": "1", "id": "fco_7ai4", "status": done}),
        json!({"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "", "id": "ctc_7ai5", "status": done}),
        json!({"type": "custom_tool_call_output", "call_id": "d", "output": "", "id": "ctco_7ai6", "status": done}),
        json!({"type": "reasoning", "summary": [], "id": "rs_7ai7"}),
        json!({"type": "acme:thing", "id": "item_7ai8"}),
        json!({"type": 5, "id": "item_7ai11"}),
    ];
    assert_eq!(found, expected);
}

#[test]
fn an_input_that_is_no_list_has_no_items() {
    for body in [
        &b"{\"input\":5}"[..],
        b"{\"input\":[1,[]]}",
        b"[]",
        b"{",
        b"",
    ] {
        let turn = Turn {
            id: "resp_1",
            request: body,
            response: body,
        };
        let list = listed(&[turn], true, None, 5).unwrap();
        assert_eq!(list["data"], json!([]));
        assert_eq!(
            (&list["first_id"], &list["has_more"]),
            (&json!(null), &json!(false))
        );
        assert!(turn.ids().is_empty() && turn.find(&["x"]).is_empty());
    }
}

const TURNS: [Turn<'static>; 2] = [
    Turn {
        id: "resp_1",
        request: br#"{"input":"one"}"#,
        response: br#"{"output":[{"type":"message","id":"m_1","n":1.50},5,{"type":"x"}]}"#,
    },
    Turn {
        id: "two",
        request:
            br#"{"input":[ {"type":"x","id":"m_1"},{"id":"m_1"},{"role":"user","content":"?"}]}"#,
        response: b"",
    },
];

#[test]
fn a_list_is_paged_from_both_ends() {
    let ids = |list: Value| {
        let data = list["data"].as_array().unwrap().clone();
        let ids: Vec<_> = data.iter().map(|item| item["id"].clone()).collect();
        (ids, list["has_more"].clone())
    };
    let all = [
        json!("msg_1i0"),
        json!("m_1"),
        json!(null),
        json!("m_1"),
        json!("msg_twoi2"),
    ];
    let page = |ascending, after, limit| listed(&TURNS, ascending, after, limit).map(ids);
    assert_eq!(page(true, None, 9), Some((all.to_vec(), json!(false))));
    assert_eq!(page(true, None, 2), Some((all[..2].to_vec(), json!(true))));
    assert_eq!(
        page(true, Some("m_1"), 2),
        Some((all[2..4].to_vec(), json!(true)))
    );
    assert_eq!(
        page(true, Some("msg_twoi2"), 2),
        Some((vec![], json!(false)))
    );
    let mut reversed = all.to_vec();
    reversed.reverse();
    assert_eq!(page(false, None, 9), Some((reversed.clone(), json!(false))));
    assert_eq!(
        page(false, Some("m_1"), 2),
        Some((reversed[2..4].to_vec(), json!(true)))
    );
    assert_eq!(
        page(false, Some("msg_1i0"), 2),
        Some((vec![], json!(false)))
    );
    assert_eq!(page(true, Some("m_2"), 2), None);
}

#[test]
fn items_are_found_and_repeated_as_they_are_written() {
    let found = |turn: Turn<'_>, id: &str| {
        let item = turn.find(&[id]).remove(id)?;
        Some(String::from_utf8(item).unwrap())
    };
    let [one, two] = TURNS;
    assert_eq!(one.ids(), ["msg_1i0", "m_1"]);
    assert_eq!(
        found(one, "m_1").unwrap(),
        r#"{"type":"message","id":"m_1","n":1.50}"#
    );
    assert_eq!(found(two, "m_1").unwrap(), r#"{"type":"x","id":"m_1"}"#);
    assert_eq!(found(two, "m_2"), None);
    let several = one.find(&["m_1", "m_2", "msg_1i0", "m_1"]);
    assert_eq!(several.keys().collect::<Vec<_>>(), ["m_1", "msg_1i0"]);
    assert_eq!(several["m_1"], found(one, "m_1").unwrap().into_bytes());
    assert_eq!(
        String::from_utf8(repeated(&TURNS)).unwrap(),
        concat!(
            r#"{"type":"message","role":"user","content":"one"},"#,
            r#"{"type":"message","id":"m_1","n":1.50},{"type":"x"},"#,
            r#"{"type":"x","id":"m_1"},{"id":"m_1"},{"role":"user","content":"?"}"#,
        )
    );
}

#[test]
fn ids_to_be_found_by_are_bounded() {
    let item = r#"{"type":"x"},"#.repeat(MAX_FOUND_ITEMS + 9);
    let request = format!(
        r#"{{"input":[{item}{{"id":"{}","type":"x"}}]}}"#,
        "i".repeat(600)
    );
    let turn = Turn {
        id: "resp_1",
        request: request.as_bytes(),
        response: b"",
    };
    assert_eq!(turn.ids().len(), MAX_FOUND_ITEMS);
    let list = listed(&[turn], false, None, 1).unwrap();
    assert_eq!(list["data"][0]["id"].as_str().unwrap().len(), 600);
}

#[test]
fn an_id_that_no_store_has_is_cut_and_forwarded_as_it_is() {
    let id = "x".repeat(10_000);
    let body = format!(r#"{{"input":"?","previous_response_id":"{id}"}}"#);
    let request = parse(&body);
    let shown = format!("{}…", "x".repeat(1024));
    assert_eq!(request.previous_response_id(), Some(shown.as_str()));
    assert_eq!(request.body(), body.as_bytes());
}

#[test]
fn references_give_way_to_what_they_mean() {
    let body = r#"{"x":1.50,"input":[ {"id":"a"}, {"role":"user"},{"type":"item_reference","id":"b"},{"id":"\u0061"},{"id":5}]}"#;
    let request = parse(body);
    assert_eq!(request.references(), ["a", "b", "a", ""]);
    let found = BTreeMap::from([("a".to_owned(), Bytes::from_static(b"{\"n\":2.0}"))]);
    let changed = request
        .with_items(&found, &Limits::default(), |body| body)
        .unwrap();
    assert_eq!(
        changed.body(),
        r#"{"x":1.50,"input":[ {"n":2.0}, {"role":"user"},{"type":"item_reference","id":"b"},{"n":2.0},{"id":5}]}"#
    );
    let limits = Limits {
        max_document: body.len() + 15,
        ..Limits::default()
    };
    let error = request
        .with_items(&found, &limits, |body| body)
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::DocumentTooLarge);
    let many = format!(
        r#"{{"input":[{}{{}}]}}"#,
        r#"{"id":"a"},"#.repeat(MAX_REFERENCES + 9)
    );
    assert_eq!(parse(&many).references().len(), MAX_REFERENCES + 1);
}

#[test]
fn a_background_request_is_run_as_a_stream() {
    let request = parse(r#"{"background":true, "n":1.0}"#);
    assert_eq!(
        request.as_run(),
        br#"{"background":false,"n":1.0,"stream":true}"#
    );
}

#[test]
fn a_whole_response_says_what_it_is() {
    let read = |text: &str| Whole::read(text.as_bytes());
    let whole = read(r#"{"object":"response","id":"r","status":"incomplete"}"#).unwrap();
    assert_eq!((&*whole.id, whole.status), ("r", "incomplete"));
    assert_eq!(
        read(r#"{"object":"response","id":"r"}"#).unwrap().status,
        "completed"
    );
    let half = read(r#"{"object":"response","id":"\ud800"}"#).unwrap();
    assert_eq!(half.id, "");
    for other in [
        "5",
        "{",
        r#"{"object":"x","id":"r"}"#,
        r#"{"object":"response","id":""}"#,
        r#"{"object":"response","id":"r","status":"queued"}"#,
        r#"{"object":"response","id":"r","status":5}"#,
    ] {
        assert_eq!(read(other), None, "{other}");
    }
}

#[test]
fn earlier_items_come_first_and_all_else_stays() {
    let earlier = [
        Bytes::from_static(br#"{"type":"message","role":"user","content":"Hi"}"#),
        Bytes::from_static(br#"{"type":"message","role":"assistant","content":"Hello"}"#),
    ];
    let expected = r#""input":[{"type":"message","role":"user","content":"Hi"},{"type":"message","role":"assistant","content":"Hello"},"#;
    for (input, added) in [
        (
            r#""\u00e9""#,
            r#"{"type":"message","role":"user","content":"\u00e9"}"#,
        ),
        (
            r#"[ {"role":"user","content":1.50} ]"#,
            r#"{"role":"user","content":1.50}"#,
        ),
    ] {
        let body = format!(
            r#"{{"model":"m", "previous_response_id":"resp_0","input":{input} ,"temperature":0.50,"x":{{}}}}"#
        );
        let request = parse(&body)
            .with_input_prefix(&earlier, &Limits::default(), |body| body)
            .unwrap();
        let expected = format!(r#"{{"model":"m","temperature":0.50,"x":{{}},{expected}{added}]}}"#);
        assert_eq!(request.body(), &expected);
        assert_eq!(request.previous_response_id(), Some("resp_0"));
        assert_eq!(request.model(), Some("m"));
    }
    let request = parse(r#"{"input":"?","previous_response_id":"resp_0"}"#);
    let request = request
        .with_input_prefix(&earlier, &Limits::default(), |body| body)
        .unwrap();
    let read = read_request(request.request()).unwrap();
    let chat = write_request(&read, &ChatTarget::default()).unwrap();
    assert_eq!(
        chat.body,
        r#"{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"},{"role":"user","content":"?"}]}"#
    );
}

#[test]
fn a_continued_conversation_is_known_by_its_first_turn() {
    let first = parse(r#"{"model":"m","instructions":"Be brief.","input":"Hi \u00e9"}"#);
    let next = parse(
        r#"{"model":"m","instructions":"Be brief.","input":"More","previous_response_id":"resp_1"}"#,
    );
    assert!(first.affinity().is_some());
    assert_ne!(next.affinity(), first.affinity());
    let turn = Turn {
        id: "resp_1",
        request: first.body(),
        response: br#"{"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Yes?"}]}]}"#,
    };
    let items = [Bytes::from(repeated(&[turn]))];
    let continued = next
        .with_input_prefix(&items, &Limits::default(), |body| body)
        .unwrap();
    assert_eq!(continued.affinity(), first.affinity());
    let keyed = parse(r#"{"model":"m","input":"Hi","prompt_cache_key":"k"}"#);
    assert_eq!(keyed.affinity(), Some(of_key(b"k")));
    assert_eq!(parse(r#"{"model":"m"}"#).affinity(), None);
    let without_a_message = r#"{"input":[{"type":"function_call_output","output":"1"}]}"#;
    assert_eq!(parse(without_a_message).affinity(), None);
}

#[test]
fn what_routing_and_keeping_depend_on_is_read() {
    let request = parse(
        r#"{"model":"m","stream":true,"background":true,"store":false,"previous_response_id":"resp_\u0031"}"#,
    );
    assert_eq!(request.model(), Some("m"));
    assert!(request.stream() && request.background() && !request.store());
    assert_eq!(request.previous_response_id(), Some("resp_1"));
    let request =
        parse(r#"{"stream":null,"background":null,"store":null,"previous_response_id":null}"#);
    assert!(!request.stream() && !request.background() && request.store());
    assert_eq!(request.previous_response_id(), None);
    for body in [
        r#"{"store":1}"#,
        r#"{"background":"yes"}"#,
        r#"{"previous_response_id":5}"#,
        r#"{"stream":[]}"#,
    ] {
        let error = ResponsesRequest::parse(body.into(), &Limits::default()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::WrongType, "{body}");
    }
    for body in ["[]", "5", "{", "", "{\"input\":\"\\x\"}"] {
        assert!(ResponsesRequest::parse(body.into(), &Limits::default()).is_err());
    }
}

#[test]
fn size_and_depth_are_bounded() {
    let limits = Limits {
        max_document: 40,
        max_depth: 3,
        ..Limits::default()
    };
    let parse = |body: &'static str| ResponsesRequest::parse(body.into(), &limits);
    let error = parse(r#"{"input":[{"content":[]}]}"#).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooDeep);
    let request = parse(r#"{"input":"0123456789"}"#).unwrap();
    let item = Bytes::from_static(br#"{"role":"user","content":"a"}"#);
    let error = request
        .with_input_prefix(&[item], &limits, |body| body)
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::DocumentTooLarge);
}

#[test]
fn an_id_that_is_no_text_is_told_by_its_place() {
    for body in [
        r#"{"input":"\ud800"}"#,
        r#"{"input":[{"role":"user","content":"\ud800"}]}"#,
        r#"{"input":[{"id":"msg_\ud83d\ude00"},{"id":5},"\ud800"],"previous_response_id":"\u0041"}"#,
        r#"{"input":{"id":"\ud800"}}"#,
        r#"{"input":[],"previous_response_id":null,"x":"\u0000"}"#,
    ] {
        assert_eq!(parse(body).unstorable(), None, "{body}");
    }
    for (body, place) in [
        (
            r#"{"input":[{"type":"message","id":"\ud800","role":"user","content":"x"}]}"#,
            "input[0].id",
        ),
        (
            r#"{"input":[{"id":"msg_1"},{"id":"msg\u0000"}]}"#,
            "input[1].id",
        ),
        (
            r#"{"input":[{"id":"\udc00","\u0069d":"msg_1"}]}"#,
            "input[0].id",
        ),
        (
            r#"{"previous_response_id":"resp_\u0000","input":[{"id":"\ud800"}]}"#,
            "previous_response_id",
        ),
    ] {
        assert_eq!(parse(body).unstorable(), Some(place), "{body}");
    }
}
