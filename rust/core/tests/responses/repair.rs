//! Broken streams of the Responses interface, made anew.

use serde_json::{Value as Json, json};
use sluicegate_core::api::Api;
use sluicegate_core::pipeline::{Pricer, ReplyPlan, Unpriced};
use sluicegate_core::protocols::responses::echo::Echo;
use sluicegate_core::usage::Usage;

use super::stream::{Seen, responses_client, shown, translated_by};
use super::to_chat::{cases, last_response};

pub(crate) fn plan(client_streams: bool, response_id: &str) -> ReplyPlan {
    let mut plan = ReplyPlan::new(Api::Responses, client_streams);
    plan.client = responses_client(Echo::new(response_id, 7, "asked-for"), client_streams);
    plan.upstream.repair = true;
    plan
}

/// Items in short, of a response in any state.
fn items(response: &Json) -> Vec<String> {
    let items = response["output"].as_array().unwrap();
    items.iter().map(short).collect()
}

fn short(item: &Json) -> String {
    match item["type"].as_str().unwrap() {
        "message" | "reasoning" | "function_call" | "custom_tool_call" => shown(item),
        _ => item.to_string(),
    }
}

#[test]
fn a_broken_stream_comes_out_right_and_whole() {
    for (name, stream, _) in cases() {
        let repaired = translated_by(plan(true, "resp_ours"), &[&stream], &mut Unpriced);
        let seen = Seen::read(&repaired);
        let upstream = last_response(&stream);
        let output = |response: &Json| match &response["status"] {
            Json::String(status) if status == "failed" => Vec::new(),
            _ => items(response),
        };
        let theirs = output(&upstream);
        assert_eq!(output(&seen.response), theirs, "{name}");
        for size in [1, 50] {
            let reads: Vec<_> = stream.chunks(size).collect();
            let cut = translated_by(plan(true, "resp_ours"), &reads, &mut Unpriced);
            assert_eq!(cut, repaired, "{name}");
        }
        let whole = translated_by(plan(false, "resp_ours"), &[&stream], &mut Unpriced);
        let whole: Json = serde_json::from_slice(&whole).unwrap();
        if whole.get("error").is_some_and(Json::is_object) {
            assert_eq!(name, "failed");
        } else {
            assert_eq!(whole, seen.response, "{name}");
        }
    }
}

fn case(name: &str) -> Vec<u8> {
    let mut cases = cases().into_iter();
    cases.find(|(other, ..)| other == name).unwrap().1
}

fn repaired(name: &str) -> Seen {
    Seen::read(&translated_by(
        plan(true, ""),
        &[&case(name)],
        &mut Unpriced,
    ))
}

#[test]
fn a_response_keeps_its_id_and_has_ours_where_it_has_none() {
    let seen = repaired("transformers");
    assert_eq!(seen.response["id"], "resp_t1");
    assert_eq!(seen.response["created_at"], 1_790_000_003);
    let nameless =
        b"data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\ndata: [DONE]\n\n";
    let named = plan(true, "resp_ours");
    let seen = Seen::read(&translated_by(named, &[nameless], &mut Unpriced));
    assert_eq!(seen.response["id"], "resp_ours");
}

#[test]
fn a_reply_that_was_cut_off_says_so() {
    let seen = repaired("vllm-cut-off");
    assert_eq!(seen.response["status"], "incomplete");
    assert_eq!(
        seen.response["incomplete_details"],
        json!({"reason": "max_output_tokens"})
    );
    assert_eq!(seen.events.last().unwrap()["type"], "response.incomplete");
}

#[test]
fn what_only_this_interface_has_is_kept() {
    let seen = repaired("ids-that-change");
    let reasoning = &seen.response["output"][0];
    assert_eq!(reasoning["encrypted_content"], "gAAAq");
    assert_eq!(reasoning["summary"][1]["text"], "Go on.");
    assert_eq!(seen.response["output"][2]["phase"], "final_answer");
    let seen = repaired("hosted-tool");
    assert_eq!(seen.response["output"][0]["id"], "ws_1");
    assert_eq!(seen.response["output"][0]["action"]["query"], "q");
    let added = &seen.events[2]["item"];
    assert_eq!(
        (&added["id"], &added["status"]),
        (&json!("ws_1"), &json!("in_progress"))
    );
    let parts = seen.response["output"][1]["content"].as_array().unwrap();
    assert_eq!(
        (parts.len(), &parts[1]["annotations"][0]["start_index"]),
        (2, &json!(1))
    );
}

#[test]
fn usage_and_cost_are_those_of_forwarding() {
    struct Flat;
    impl Pricer for Flat {
        fn price(&mut self, usage: &Usage) -> Option<sluicegate_core::cost::Members> {
            sluicegate_core::cost::Members::parse(format!("\"cost\":{}", usage.total_tokens()?))
        }
    }
    let stream = translated_by(plan(true, ""), &[&case("llama-cpp")], &mut Flat);
    let usage = Seen::read(&stream).response["usage"].clone();
    assert_eq!(usage["cost"], 20);
    assert_eq!(usage["input_tokens_details"]["cached_tokens"], 10);
}

#[test]
fn a_stream_that_breaks_off_fails_with_what_was_said() {
    let stream = case("llama-cpp");
    let last = memchr::memmem::find(&stream, b"event: response.output_text.done").unwrap();
    let broken = translated_by(plan(true, ""), &[&stream[..last]], &mut Unpriced);
    let seen = Seen::read(&broken);
    assert_eq!(seen.response["status"], "failed");
    assert_eq!(items(&seen.response).len(), 3);
}
