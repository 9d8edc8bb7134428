//! Calls of functions and of custom tools.

use serde_json::{Value as Json, json};

use super::stream::{Seen, stream};

fn seen(pieces: &[Json]) -> Seen {
    let deltas: Vec<Json> = pieces
        .iter()
        .map(|piece| json!({"tool_calls": [piece]}))
        .collect();
    Seen::of(&stream(&deltas, "tool_calls"))
}

fn head(index: u64, id: &str, name: &str) -> Json {
    json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}})
}

fn tail(index: u64, arguments: &str) -> Json {
    json!({"index": index, "function": {"arguments": arguments}})
}

#[test]
fn parallel_calls_may_come_mixed() {
    let seen = seen(&[
        head(0, "a", "f"),
        head(1, "b", "g"),
        tail(0, "{\"x\""),
        tail(1, "{\"y\""),
        tail(0, ":1}"),
        tail(1, ":2}"),
    ]);
    assert_eq!(seen.items(), ["f({\"x\":1})", "g({\"y\":2})"]);
    assert_eq!(
        seen.types(),
        [
            "output_item.added",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.delta",
            "function_call_arguments.delta",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "function_call_arguments.done",
            "output_item.done",
        ]
    );
    let ids: Vec<_> = seen.response["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| (call["id"].clone(), call["call_id"].clone()))
        .collect();
    assert_eq!(
        ids,
        [
            ("fc_0a0000".into(), "a".into()),
            ("fc_0a0001".into(), "b".into())
        ]
    );
}

#[test]
fn two_calls_in_one_delta_are_two_items() {
    let calls = json!({"tool_calls": [
        {"index": 0, "function": {"name": "f1", "arguments": "{\"a\":1}"}},
        {"index": 1, "function": {"name": "f2", "arguments": "{\"b\":2}"}},
    ]});
    let seen = Seen::of(&stream(&[calls], "tool_calls"));
    assert_eq!(seen.items(), ["f1({\"a\":1})", "f2({\"b\":2})"]);
    assert_eq!(seen.deltas("function_call_arguments").len(), 2);
}

#[test]
fn name_and_arguments_may_be_two_entries_of_one_delta() {
    let calls = json!({"tool_calls": [
        {"index": 0, "function": {"name": "get_weather"}},
        {"index": 0, "function": {"arguments": "{\"city\":\"SF\"}"}},
    ]});
    let seen = Seen::of(&stream(&[calls], "tool_calls"));
    assert_eq!(seen.items(), ["get_weather({\"city\":\"SF\"})"]);
    assert_eq!(
        seen.deltas("function_call_arguments"),
        ["{\"city\":\"SF\"}"]
    );
}

#[test]
fn a_call_without_arguments_has_no_delta() {
    let seen = seen(&[json!({"index": 0, "function": {"name": "noop"}})]);
    assert_eq!(
        seen.types(),
        [
            "output_item.added",
            "function_call_arguments.done",
            "output_item.done"
        ]
    );
    assert_eq!(seen.items(), ["noop()"]);
}

#[test]
fn a_new_id_on_a_used_index_is_a_new_call() {
    let seen = seen(&[
        head(0, "a", "f"),
        tail(0, "{}"),
        head(0, "b", "f"),
        tail(0, "{}"),
    ]);
    assert_eq!(seen.items(), ["f({})", "f({})"]);
    assert_eq!(seen.response["output"][1]["call_id"], "b");
}

#[test]
fn calls_may_lack_their_index_or_their_id() {
    let whole = |name: &str| json!({"function": {"name": name, "arguments": "{}"}});
    let seen = seen(&[whole("f"), whole("g")]);
    assert_eq!(seen.items(), ["f({})", "g({})"]);
    let ids: Vec<_> = seen.response["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["call_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["call_0a0000", "call_0a0001"]);
}

#[test]
fn a_late_name_is_waited_for() {
    let seen = seen(&[
        json!({"index": 0, "id": "a", "function": {"arguments": "{\"x\""}}),
        json!({"index": 0, "id": null, "function": {"name": "f", "arguments": null}}),
        tail(0, ":1}"),
    ]);
    assert_eq!(seen.items(), ["f({\"x\":1})"]);
    assert_eq!(seen.deltas("function_call_arguments"), ["{\"x\"", ":1}"]);
    assert_eq!(seen.events[2]["item"]["name"], "f");
}

#[test]
fn a_late_id_is_taken_before_arguments() {
    let seen = seen(&[
        json!({"index": 0, "function": {"name": "f"}}),
        json!({"index": 0, "id": "late", "function": {"arguments": "{}"}}),
    ]);
    assert_eq!(seen.response["output"][0]["call_id"], "late");
    assert_eq!(seen.items(), ["f({})"]);
}

#[test]
fn names_said_again_are_said_once() {
    let again = |arguments: &str| json!({"index": 0, "id": "a", "function": {"name": "read_file", "arguments": arguments}});
    assert_eq!(
        seen(&[again("{\"x\""), again(":1}")]).items(),
        ["read_file({\"x\":1})"]
    );
    assert_eq!(
        seen(&[again("{\"x\":1}"), again("{\"x\":1}")]).items(),
        ["read_file({\"x\":1})"]
    );
}

#[test]
fn a_call_without_a_name_is_not_lost() {
    let seen = seen(&[tail(0, "{}")]);
    assert_eq!(seen.items(), ["({})"]);
    assert_eq!(seen.events[2]["item"]["call_id"], "call_0a0000");
}

#[test]
fn what_comes_for_a_closed_call_is_not_lost() {
    let reply = stream(
        &[
            json!({"tool_calls": [head(0, "a", "f")]}),
            json!({"tool_calls": [tail(0, "{\"x\"")]}),
            json!({"content": "text"}),
            json!({"tool_calls": [tail(0, ":1")]}),
            json!({"tool_calls": [tail(0, "}")]}),
            json!({"content": "more"}),
            json!({"tool_calls": [tail(0, "")]}),
        ],
        "tool_calls",
    );
    assert_eq!(
        Seen::of(&reply).items(),
        [
            "f({\"x\")",
            "message output:text",
            "f(:1})",
            "message output:more"
        ]
    );
}

#[test]
fn what_has_to_be_given_back_stays_with_its_call() {
    let extra = json!({"google": {"thought_signature": "c2ln"}});
    let mut call = head(0, "a", "f");
    call["extra_content"] = extra.clone();
    let seen = seen(&[call, tail(0, "{}")]);
    assert_eq!(seen.response["output"][0]["extra_content"], extra);
}

#[test]
fn a_custom_tool_gets_its_text_as_it_comes() {
    let seen = seen(&[
        json!({"index": 0, "function": {"name": "shell", "arguments": "{\"input\": \"ls "}}),
        tail(0, "-la \\\"x\\\"\"}"),
    ]);
    assert_eq!(
        seen.types(),
        [
            "output_item.added",
            "custom_tool_call_input.delta",
            "custom_tool_call_input.delta",
            "custom_tool_call_input.done",
            "output_item.done",
        ]
    );
    assert_eq!(seen.deltas("custom_tool_call_input"), ["ls ", "-la \"x\""]);
    assert_eq!(seen.items(), ["shell<ls -la \"x\">"]);
    let item = &seen.response["output"][0];
    assert!(item["id"].as_str().unwrap().starts_with("ctc_"));
    assert!(item["call_id"].as_str().unwrap().starts_with("call_"));
}

#[test]
fn a_custom_tools_own_call_is_free_text() {
    let piece = |input: &str| json!({"index": 0, "id": "a", "type": "custom", "custom": {"name": "any", "input": input}});
    let seen = seen(&[
        piece("ls "),
        json!({"index": 0, "custom": {"input": "-la"}}),
    ]);
    assert_eq!(seen.items(), ["any<ls -la>"]);
}

#[test]
fn a_custom_tools_text_may_come_one_byte_at_a_time() {
    let text = "printf 'a\\tb\\n' \"\u{1F600}\"\n\u{e9}";
    let arguments = json!({"input": text}).to_string();
    let mut pieces = vec![head(0, "a", "shell")];
    pieces.extend(arguments.chars().map(|char| tail(0, &char.to_string())));
    let seen = seen(&pieces);
    assert_eq!(seen.items(), [format!("shell<{text}>")]);
    assert_eq!(seen.deltas("custom_tool_call_input").concat(), text);
}

#[test]
fn a_tool_in_a_namespace_is_called_by_both_its_names() {
    let seen = seen(&[
        head(0, "a", "agents__ask"),
        tail(0, "{}"),
        head(1, "b", "exec"),
        tail(1, "{\"input\":\"ls\"}"),
    ]);
    let output = &seen.response["output"];
    assert_eq!(output[0]["type"], "function_call");
    assert_eq!(
        (&output[0]["namespace"], &output[0]["name"]),
        (&json!("agents"), &json!("ask"))
    );
    assert_eq!(output[1]["type"], "custom_tool_call");
    assert_eq!(
        (&output[1]["namespace"], &output[1]["name"]),
        (&json!("functions"), &json!("exec"))
    );
}

#[test]
fn what_says_nothing_new_of_a_call_does_not_cut_a_message() {
    let whole = json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}});
    let mut deltas = vec![
        json!({"tool_calls": [whole.clone()]}),
        json!({"content": "x"}),
    ];
    for piece in [
        whole,
        head(0, "a", "f"),
        tail(0, ""),
        tail(5, ""),
        json!({}),
    ] {
        deltas.push(json!({"tool_calls": [piece], "content": ""}));
        deltas.push(json!({"content": "y"}));
    }
    assert_eq!(
        Seen::of(&stream(&deltas, "stop")).items(),
        ["f({})", "message output:xyyyyy"]
    );
}
