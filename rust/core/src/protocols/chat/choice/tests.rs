use serde_json::{Value as Json, json};

use crate::limits::Limits;
use crate::protocols::chat::fold::ChatFold;

/// The choices that pieces give, each piece in a chunk of its own.
fn fold_choices(choices: &[Json]) -> Json {
    let mut fold = ChatFold::new(Limits::default());
    for choice in choices {
        let chunk = json!({"choices": [choice]});
        fold.push(chunk.to_string().as_bytes()).unwrap();
    }
    let mut whole: Json = serde_json::from_slice(&fold.finish().unwrap()).unwrap();
    whole["choices"].take()
}

/// The message that deltas give, behind one with the role.
fn fold_deltas(deltas: &[Json]) -> Json {
    let mut choices = vec![json!({"delta": {"role": "assistant"}})];
    choices.extend(deltas.iter().map(|delta| json!({"delta": delta})));
    let mut message = fold_choices(&choices)[0]["message"].take();
    assert_eq!(message["role"], "assistant");
    message.as_object_mut().unwrap().remove("role");
    message
}

// === choices ===

#[test]
fn choices_are_told_apart_by_index_and_sorted() {
    let choices = fold_choices(&[
        json!({"index": 1, "delta": {"role": "assistant", "content": "b"}, "finish_reason": null}),
        json!({"index": 0, "delta": {"role": "assistant", "content": "a"}, "finish_reason": null}),
        json!({"index": 1, "delta": {"content": "B"}, "finish_reason": "length"}),
        json!({"index": 0, "delta": {"content": "A"}, "finish_reason": "stop"}),
    ]);
    assert_eq!(
        choices,
        json!([
            {"index": 0, "message": {"role": "assistant", "content": "aA"}, "finish_reason": "stop"},
            {"index": 1, "message": {"role": "assistant", "content": "bB"}, "finish_reason": "length"},
        ])
    );
}

#[test]
fn the_first_finish_reason_that_says_something_stays() {
    let finish = |reasons: &[Json]| {
        let choices: Vec<Json> = reasons
            .iter()
            .map(|reason| json!({"delta": {"role": "assistant"}, "finish_reason": reason}))
            .collect();
        fold_choices(&choices)[0]["finish_reason"].take()
    };
    assert_eq!(
        finish(&[
            json!(null),
            json!(""),
            json!("stop"),
            json!(null),
            json!("tool_calls")
        ]),
        "stop"
    );
    assert_eq!(finish(&[json!(null), json!("")]), "");
    assert_eq!(finish(&[json!(null), json!(null)]), json!(null));
}

#[test]
fn a_stream_that_names_no_role_gets_what_a_choice_must_have() {
    let choices = fold_choices(&[json!({"index": 0, "delta": {"reasoning": "r"}})]);
    assert_eq!(
        choices,
        json!([{"index": 0, "message": {"role": "assistant", "content": null, "reasoning": "r"}, "finish_reason": null}])
    );
    let choices = fold_choices(&[json!({"index": 0, "delta": {"role": "assistant"}})]);
    assert_eq!(
        choices,
        json!([{"index": 0, "message": {"role": "assistant"}}])
    );
    let choices = fold_choices(&[json!({"index": 0, "delta": {"role": null, "content": "a"}})]);
    assert_eq!(choices[0]["message"]["role"], "assistant");
}

#[test]
fn logprobs_are_concatenated() {
    let choices = fold_choices(&[
        json!({"delta": {"role": "assistant"}, "logprobs": null}),
        json!({"delta": {}, "logprobs": {"content": [{"token": "a"}], "refusal": null}}),
        json!({"delta": {}, "logprobs": {"content": [], "refusal": null}}),
        json!({"delta": {}, "logprobs": {"content": [{"token": "b"}, {"token": "c"}], "refusal": [{"token": "r"}]}}),
        json!({"delta": {}, "logprobs": null}),
    ]);
    assert_eq!(
        choices[0]["logprobs"],
        json!({"content": [{"token": "a"}, {"token": "b"}, {"token": "c"}], "refusal": [{"token": "r"}]})
    );
    let none = fold_choices(&[json!({"delta": {}, "logprobs": null})]);
    assert_eq!(none[0]["logprobs"], json!(null));
}

/// Azure: an empty result comes with the finish.
#[test]
fn an_empty_value_replaces_none_that_says_something() {
    let choices = fold_choices(&[
        json!({"delta": {"role": "assistant"}, "content_filter_results": {}}),
        json!({"delta": {}, "content_filter_results": {"hate": {"filtered": false}}}),
        json!({"delta": {}, "content_filter_results": {}, "finish_reason": "stop"}),
        json!({"content_filter_results": {"hate": {"filtered": true}}, "content_filter_offsets": {"start": 1}}),
    ]);
    assert_eq!(
        choices[0]["content_filter_results"],
        json!({"hate": {"filtered": true}})
    );
    assert_eq!(choices[0]["content_filter_offsets"], json!({"start": 1}));
}

// === messages ===

#[test]
fn labels_are_not_appended_to_themselves() {
    let message = fold_deltas(&[
        json!({"channel": "analysis"}),
        json!({"channel": "analysis"}),
        json!({"channel": "final"}),
    ]);
    assert_eq!(message, json!({"channel": "final"}));
}

#[test]
fn text_is_appended_and_null_empty_and_absent_stay_apart() {
    for name in [
        "content",
        "reasoning_content",
        "reasoning",
        "thinking",
        "refusal",
    ] {
        let message = |values: &[Json]| {
            let deltas: Vec<Json> = values.iter().map(|value| json!({name: value})).collect();
            fold_deltas(&deltas)
        };
        let is = |value: Json| json!({name: value});
        assert_eq!(
            message(&[json!(""), json!("a"), json!(null), json!("b")]),
            is(json!("ab"))
        );
        assert_eq!(message(&[json!(null), json!("a")]), is(json!("a")));
        assert_eq!(message(&[json!(null), json!("")]), is(json!("")));
        assert_eq!(message(&[json!(""), json!(null)]), is(json!("")));
        assert_eq!(message(&[json!(null), json!(null)]), is(json!(null)));
        assert_eq!(message(&[]), json!({}));
    }
}

/// vllm RFC#27755: one stream uses one name, and two names in one stream are two members.
#[test]
fn reasoning_keeps_the_name_it_came_under() {
    let message = fold_deltas(&[
        json!({"reasoning": "a", "reasoning_content": "x"}),
        json!({"reasoning": "b", "reasoning_content": "y"}),
    ]);
    assert_eq!(
        message,
        json!({"reasoning": "ab", "reasoning_content": "xy"})
    );
}

/// Mistral's reasoning models: typed parts, then plain strings.
#[test]
fn content_may_change_from_text_to_parts_and_back() {
    let message = fold_deltas(&[
        json!({"content": ""}),
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Ok"}]}]}),
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "ay"}], "closed": true}]}),
        json!({"content": [{"type": "thinking", "thinking": []}]}),
        json!({"content": "Hel"}),
        json!({"content": "lo"}),
        json!({"content": [{"type": "text", "text": "!"}, {"type": "reference", "reference_ids": [1]}, {"type": "text", "text": "?"}]}),
    ]);
    assert_eq!(
        message["content"],
        json!([
            {"type": "thinking", "thinking": [{"type": "text", "text": "Okay"}], "closed": true},
            {"type": "text", "text": "Hello!"},
            {"type": "reference", "reference_ids": [1]},
            {"type": "text", "text": "?"},
        ])
    );
    let message = fold_deltas(&[
        json!({"content": "a"}),
        json!({"content": [{"type": "image_url", "image_url": {}}]}),
    ]);
    assert_eq!(
        message["content"],
        json!([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}])
    );
}

#[test]
fn reasoning_details_go_on_with_the_one_before() {
    let detail = |kind: &str, more: Json| {
        let mut detail = json!({"type": kind, "format": "f", "index": 0});
        detail
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"reasoning_details": [detail]})
    };
    let message = fold_deltas(&[
        detail("reasoning.text", json!({"text": "a"})),
        detail("reasoning.text", json!({"text": "b"})),
        detail("reasoning.text", json!({"signature": "s"})),
        detail("reasoning.text", json!({"text": "c"})),
        detail("reasoning.text", json!({"text": "d", "index": 1})),
        detail("reasoning.encrypted", json!({"data": "x"})),
        detail("reasoning.encrypted", json!({"data": "y"})),
    ]);
    assert_eq!(
        message["reasoning_details"],
        json!([
            {"type": "reasoning.text", "format": "f", "index": 0, "text": "ab", "signature": "s"},
            {"type": "reasoning.text", "format": "f", "index": 0, "text": "c"},
            {"type": "reasoning.text", "format": "f", "index": 1, "text": "d"},
            {"type": "reasoning.encrypted", "format": "f", "index": 0, "data": "x"},
            {"type": "reasoning.encrypted", "format": "f", "index": 0, "data": "y"},
        ])
    );
}

#[test]
fn annotations_are_concatenated_and_audio_is_pieced_together() {
    let message = fold_deltas(&[
        json!({"annotations": [1], "audio": {"id": "a"}}),
        json!({"annotations": [2, 3], "audio": {"transcript": "x", "data": "QUI="}}),
        json!({"audio": {"transcript": "y", "data": "Q0RFRg=="}}),
        json!({"audio": {"expires_at": 7}}),
    ]);
    assert_eq!(
        message,
        json!({"annotations": [1, 2, 3], "audio": {"id": "a", "transcript": "xy", "data": "QUJDREVG", "expires_at": 7}})
    );
}

#[test]
fn a_function_call_is_pieced_together() {
    let message = fold_deltas(&[
        json!({"content": null, "function_call": {"name": "f", "arguments": ""}}),
        json!({"function_call": {"arguments": "{\"a\""}}),
        json!({"function_call": {"arguments": ":1}"}}),
    ]);
    assert_eq!(
        message,
        json!({"content": null, "function_call": {"name": "f", "arguments": "{\"a\":1}"}})
    );
}

/// Perplexity sends the answer so far beside each delta, Writer the delta a second time.
#[test]
fn a_message_beside_deltas_is_not_added_to_them() {
    let choices = fold_choices(&[
        json!({"delta": {"role": "assistant", "content": "a"}, "message": {"role": "assistant", "content": "a"}}),
        json!({"delta": {"content": "b"}, "message": {"role": "assistant", "content": "ab"}}),
        json!({"message": {"role": "assistant", "content": "a b"}}),
    ]);
    assert_eq!(
        choices,
        json!([{"index": 0, "message": {"role": "assistant", "content": "ab"}}])
    );
}

#[test]
fn a_message_without_deltas_takes_the_place_of_the_one_before() {
    let message = |content: &str, call: &str| {
        let call =
            json!({"id": call, "type": "function", "function": {"name": "f", "arguments": "{}"}});
        json!({"index": 0, "message": {"role": "assistant", "content": content, "tool_calls": [call]}})
    };
    let choices = fold_choices(&[message("a", "x"), message("ab", "y")]);
    assert_eq!(choices, json!([message("ab", "y")]));
}
