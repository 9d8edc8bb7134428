use serde_json::{Value as Json, json};

use crate::limits::Limits;
use crate::protocols::chat::fold::ChatFold;

/// The calls that pieces give, each piece in a chunk of its own.
fn calls(pieces: &[Json]) -> Json {
    let lists: Vec<Json> = pieces.iter().map(|piece| json!([piece])).collect();
    calls_of_lists(&lists)
}

fn calls_of_lists(lists: &[Json]) -> Json {
    let mut fold = ChatFold::new(Limits::default());
    for list in lists {
        let chunk =
            json!({"choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": list}}]});
        fold.push(chunk.to_string().as_bytes()).unwrap();
    }
    let mut whole: Json = serde_json::from_slice(&fold.finish().unwrap()).unwrap();
    whole["choices"][0]["message"]["tool_calls"].take()
}

fn call(id: &str, name: &str, arguments: &str) -> Json {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

/// A call's first piece, and a later one.
fn head(index: u64, id: &str, name: &str) -> Json {
    json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}})
}

fn tail(index: u64, arguments: &str) -> Json {
    json!({"index": index, "function": {"arguments": arguments}})
}

#[test]
fn the_reference_form() {
    let two = json!([call("a", "f", "{\"x\":1}"), call("b", "g", "{}")]);
    let one_after_the_other = [
        head(0, "a", "f"),
        tail(0, "{\"x\""),
        tail(0, ":1}"),
        head(1, "b", "g"),
        tail(1, "{}"),
    ];
    assert_eq!(calls(&one_after_the_other), two);
    let mixed = [
        head(1, "b", "g"),
        head(0, "a", "f"),
        tail(0, "{\"x\""),
        tail(1, "{"),
        tail(0, ":1}"),
        tail(1, "}"),
    ];
    assert_eq!(calls(&mixed), two);
    // sglang#37634: pieces of two calls in one chunk.
    let together = [
        json!([head(0, "a", "f"), head(1, "b", "g")]),
        json!([tail(0, "{\"x\":1}"), tail(1, "{}")]),
    ];
    assert_eq!(calls_of_lists(&together), two);
}

#[test]
fn indices_that_do_not_begin_at_zero() {
    assert_eq!(
        calls(&[head(1, "a", "f"), tail(1, "{}")]),
        json!([call("a", "f", "{}")])
    );
}

/// Gemini: openai-python#2806, AstrBot#6661.
#[test]
fn no_index() {
    let whole = [call("a", "f", "{\"x\":1}"), call("b", "f", "{\"x\":2}")];
    assert_eq!(calls(&whole), json!(whole));
    assert_eq!(calls_of_lists(&[json!(whole)]), json!(whole));
    let nameless =
        |name: &str| json!({"type": "function", "function": {"name": name, "arguments": "{}"}});
    let whole = [nameless("f"), nameless("f"), nameless("g")];
    assert_eq!(calls(&whole), json!(whole));
    let pieces = [
        json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}}),
        json!({"function": {"arguments": "}"}}),
        json!({"id": "b", "type": "function", "function": {"name": "g", "arguments": "["}}),
        json!({"id": "b", "function": {"arguments": "]"}}),
    ];
    assert_eq!(
        calls(&pieces),
        json!([call("a", "f", "{}"), call("b", "g", "[]")])
    );
}

/// dynamo#4723, smolagents#1569.
#[test]
fn always_index_zero() {
    let pieces = [
        head(0, "a", "f"),
        tail(0, "{}"),
        head(0, "b", "f"),
        tail(0, "{}"),
        head(0, "c", "g"),
        tail(0, "{}"),
    ];
    assert_eq!(
        calls(&pieces),
        json!([
            call("a", "f", "{}"),
            call("b", "f", "{}"),
            call("c", "g", "{}")
        ])
    );
    let nameless = |name: &str| json!({"index": 0, "type": "function", "function": {"name": name, "arguments": ""}});
    let pieces = [nameless("f"), tail(0, "{}"), nameless("g"), tail(0, "{}")];
    let of =
        |name: &str| json!({"type": "function", "function": {"name": name, "arguments": "{}"}});
    assert_eq!(calls(&pieces), json!([of("f"), of("g")]));
    // Without ids: CLIProxyAPI#5058, where `{}{}{}` came of it.
    let whole = |name: &str, arguments: &str| json!({"index": 0, "type": "function", "function": {"name": name, "arguments": arguments}});
    let found = calls(&[
        whole("f", "{}"),
        whole("f", "{}"),
        whole("g", "{\"x\":1}"),
        whole("f", "{}"),
    ]);
    let names: Vec<_> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|call| &call["function"])
        .collect();
    assert_eq!(
        json!(names),
        json!([{"name": "f", "arguments": "{}"}, {"name": "f", "arguments": "{}"}, {"name": "g", "arguments": "{\"x\":1}"}, {"name": "f", "arguments": "{}"}])
    );
}

/// agno#8879, and Writer.
#[test]
fn the_head_at_one_index_and_its_arguments_at_another() {
    let pieces = [
        head(0, "a", "f"),
        tail(0, "{}"),
        head(0, "b", "g"),
        tail(1, "{\"x\""),
        tail(1, ":1}"),
    ];
    assert_eq!(
        calls(&pieces),
        json!([call("a", "f", "{}"), call("b", "g", "{\"x\":1}")])
    );
    let writer = |arguments: &str| json!({"index": 6, "id": null, "type": null, "function": {"name": null, "arguments": arguments}});
    let pieces = [
        json!({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": null}}),
        writer("{"),
        writer("}"),
    ];
    assert_eq!(calls(&pieces), json!([call("a", "f", "{}")]));
}

/// dirac#215: Nebius and Cerebras.
#[test]
fn an_index_that_goes_up_inside_a_call() {
    let pieces = [
        head(0, "a", "f"),
        tail(1, "{\"x\""),
        tail(2, ":1"),
        tail(3, "}"),
    ];
    assert_eq!(calls(&pieces), json!([call("a", "f", "{\"x\":1}")]));
    let repeating_id = |index: u64, arguments: &str| json!({"index": index, "id": "a", "function": {"arguments": arguments}});
    let pieces = [
        head(0, "a", "f"),
        repeating_id(1, "{"),
        repeating_id(2, "}"),
    ];
    assert_eq!(calls(&pieces), json!([call("a", "f", "{}")]));
}

/// NVIDIA NIM (hermes-agent#12230), with and without the id.
#[test]
fn the_name_in_every_piece() {
    for id in [json!("a"), json!(""), json!(null)] {
        let piece = |arguments: &str| json!({"index": 0, "id": id, "type": "function", "function": {"name": "read_file", "arguments": arguments}});
        let mut pieces = vec![head(0, "a", "read_file")];
        pieces.extend(["{\"p\": {", "\"q\"", ":1}", "}"].map(piece));
        assert_eq!(
            calls(&pieces),
            json!([call("a", "read_file", "{\"p\": {\"q\":1}}")]),
            "{id}"
        );
    }
}

#[test]
fn a_name_in_pieces_and_one_that_grows() {
    let named = |name: &str| json!({"index": 0, "function": {"name": name}});
    let pieces = [
        head(0, "a", "read"),
        named("_fi"),
        named("le"),
        tail(0, "{}"),
    ];
    assert_eq!(calls(&pieces), json!([call("a", "read_file", "{}")]));
    let pieces = [head(0, "a", "read"), named("read_file"), tail(0, "{}")];
    assert_eq!(calls(&pieces), json!([call("a", "read_file", "{}")]));
}

#[test]
fn ids_that_come_late_or_not_at_all() {
    let pieces = [
        json!({"index": 0, "id": "", "type": "function", "function": {"name": "f", "arguments": "{"}}),
        json!({"index": 0, "id": "a", "function": {"arguments": "}"}}),
        json!({"index": 1, "type": "function", "function": {"name": "g", "arguments": "{}"}}),
    ];
    assert_eq!(
        calls(&pieces),
        json!([call("a", "f", "{}"), {"type": "function", "function": {"name": "g", "arguments": "{}"}}])
    );
}

#[test]
fn an_id_behind_a_call_that_has_none_may_begin_another() {
    let pieces = [
        json!({"index": 0, "type": "function", "function": {"name": "f", "arguments": "{}"}}),
        head(0, "b", "g"),
        tail(0, "{}"),
    ];
    let first = json!({"type": "function", "function": {"name": "f", "arguments": "{}"}});
    assert_eq!(calls(&pieces), json!([first, call("b", "g", "{}")]));
}

/// A whole call sent again, as with the second finish of OpenRouter's streams or behind the text at Cerebras.
#[test]
fn a_call_that_is_said_again() {
    let whole = json!({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}});
    assert_eq!(
        calls(&[whole.clone(), whole.clone()]),
        json!([call("a", "f", "{\"x\":1}")])
    );
    let pieces = [head(0, "a", "f"), tail(0, "{\"x\""), tail(0, ":1}"), whole];
    assert_eq!(calls(&pieces), json!([call("a", "f", "{\"x\":1}")]));
}

#[test]
fn whole_calls_of_one_id_at_indices_of_their_own() {
    let whole = |index: u64, name: &str, arguments: &str| json!({"index": index, "id": "call_f", "type": "function", "function": {"name": name, "arguments": arguments}});
    for (name, arguments) in [("f", "{\"x\":2}"), ("g", "{\"x\":1}")] {
        let pieces = [whole(0, "f", "{\"x\":1}"), whole(1, name, arguments)];
        assert_eq!(
            calls(&pieces),
            json!([
                call("call_f", "f", "{\"x\":1}"),
                call("call_f", name, arguments)
            ])
        );
    }
    let pieces = [whole(0, "f", "{\"x\":1}"), whole(1, "f", "{\"x\":1}")];
    assert_eq!(
        calls(&pieces),
        json!([call("call_f", "f", "{\"x\":1}")]),
        "said again"
    );
}

#[test]
fn arguments_that_are_no_string_are_kept() {
    for arguments in [json!({}), json!({"x": 1}), json!([]), json!(false)] {
        let function = json!({"name": "f", "arguments": arguments});
        let whole = json!({"id": "a", "type": "function", "function": function});
        assert_eq!(calls(std::slice::from_ref(&whole)), json!([whole]));
    }
}

#[test]
fn what_is_missing_is_supplied() {
    for arguments in [
        json!({}),
        json!({"arguments": null}),
        json!({"arguments": ""}),
    ] {
        let mut function = json!({"name": "f"});
        function
            .as_object_mut()
            .unwrap()
            .extend(arguments.as_object().unwrap().clone());
        for piece in [
            json!({"index": 0, "id": "a", "function": function}),
            json!({"index": 0, "id": "a", "type": null, "function": function}),
        ] {
            assert_eq!(calls(&[piece]), json!([call("a", "f", "")]));
        }
    }
}

/// TGI before #3075.
#[test]
fn a_call_that_is_no_list() {
    let piece = |arguments: &str| json!({"index": 0, "id": "", "type": "function", "function": {"name": "f", "arguments": arguments}});
    assert_eq!(
        calls_of_lists(&[piece("{\"x\""), piece(":1"), piece("}")]),
        json!([call("", "f", "{\"x\":1}")])
    );
}

/// eva#206, hermes-agent#2997: without its signature Gemini refuses the next turn.
#[test]
fn unknown_members_are_kept() {
    let mut piece = head(0, "a", "f");
    piece["extra_content"] = json!({"google": {"thought_signature": "s"}});
    piece["function"]["strict"] = json!(true);
    let mut expected = call("a", "f", "{}");
    expected["extra_content"] = piece["extra_content"].clone();
    expected["function"]["strict"] = json!(true);
    assert_eq!(calls(&[piece, tail(0, "{}")]), json!([expected]));
}

#[test]
fn custom_tools() {
    let pieces = [
        json!({"index": 0, "id": "a", "type": "custom", "custom": {"name": "sql", "input": ""}}),
        json!({"index": 0, "custom": {"input": "select "}}),
        json!({"index": 0, "custom": {"input": "1"}}),
    ];
    assert_eq!(
        calls(&pieces),
        json!([{"id": "a", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}])
    );
}

#[test]
fn lists_that_hold_no_call() {
    assert_eq!(calls_of_lists(&[json!(null)]), json!(null));
    assert_eq!(calls_of_lists(&[json!(null), json!([])]), json!([]));
    assert_eq!(calls_of_lists(&[json!([null, 7])]), json!([null, 7]));
    assert_eq!(
        calls_of_lists(&[
            json!([]),
            json!([head(0, "a", "f")]),
            json!(null),
            json!([])
        ]),
        json!([call("a", "f", "")])
    );
}
