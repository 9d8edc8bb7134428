//! A reply that goes through the Messages interface and back keeps what the model said, its calls and what it used.

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use sluicegate_core::api::Api;
use sluicegate_core::pipeline::Unpriced;

use crate::said::{Said, plan, translated};

/// What one delta of a chat stream says.
#[derive(Clone, Debug)]
enum Delta {
    Text(String),
    Thinking(String),
    Call(usize, String),
}

fn delta() -> impl Strategy<Value = Delta> {
    prop_oneof![
        "[a-zé\u{1f600}\"\\\\ ]{1,5}".prop_map(Delta::Text),
        "[a-zé\"\\\\ ]{1,5}".prop_map(Delta::Thinking),
        (0..3usize, "[a-z]{1,4}").prop_map(|(call, word)| Delta::Call(call, word)),
    ]
}

/// The chat stream of these deltas; each call gets its arguments in the parts that come for it.
fn stream(deltas: &[Delta]) -> Vec<u8> {
    let parts = |wanted: usize| {
        deltas
            .iter()
            .filter(move |delta| matches!(delta, Delta::Call(call, _) if *call == wanted))
            .count()
    };
    let mut seen = [0; 3];
    let mut body = String::new();
    let mut push = |delta: Json, finish: Json| {
        let chunk = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        body.push_str(&format!("data: {chunk}\n\n"));
    };
    for delta in deltas {
        let delta = match delta {
            Delta::Text(text) => json!({"content": text}),
            Delta::Thinking(text) => json!({"reasoning_content": text}),
            Delta::Call(call, word) => {
                let first = seen[*call] == 0;
                seen[*call] += 1;
                let last = seen[*call] == parts(*call);
                let arguments = format!(
                    "{}{word}{}",
                    if first { "{\"q\":\"" } else { "" },
                    if last { "\"}" } else { "" }
                );
                let mut piece = json!({"index": call, "function": {"arguments": arguments}});
                if first {
                    piece["id"] = format!("call_{call}").into();
                    piece["type"] = "function".into();
                    piece["function"]["name"] = format!("tool_{call}").into();
                }
                json!({"tool_calls": [piece]})
            }
        };
        push(delta, Json::Null);
    }
    push(json!({}), "stop".into());
    body.push_str("data: {\"id\":\"chatcmpl-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":4,\"total_tokens\":14,\"prompt_tokens_details\":{\"cached_tokens\":6}}}\n\ndata: [DONE]\n\n");
    body.into_bytes()
}

fn through(body: &[u8], from: Api, to: Api, streams: bool) -> Vec<u8> {
    translated(&plan(from, to, streams), &[body], &mut Unpriced).0
}

/// Without white space, which opens no block; texts without what stands for a break between two.
fn letters(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Whether a call may go on behind other output: then it is two calls, to protocols that close one for the other.
fn goes_on_behind_others(deltas: &[Delta]) -> bool {
    let is_left =
        |pair: &[Delta]| matches!(pair, [Delta::Call(..), Delta::Text(_) | Delta::Thinking(_)]);
    deltas.windows(2).any(is_left)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_chat_client_reads_the_same_of_messages_as_of_chat(deltas in prop::collection::vec(delta(), 0..16), streams in any::<bool>()) {
        let chat = stream(&deltas);
        let messages = through(&chat, Api::Chat, Api::Messages, streams);
        let back = through(&messages, Api::Messages, Api::Chat, true);
        let (first, last) = (Said::read(Api::Chat, true, &chat), Said::read(Api::Chat, true, &back));
        prop_assert!(last.error.is_null());
        prop_assert_eq!(letters(&last.text), letters(&first.text));
        prop_assert_eq!(letters(&last.thinking), letters(&first.thinking));
        if !goes_on_behind_others(&deltas) {
            let sorted = |said: &Said| {
                let mut calls = said.calls.clone();
                calls.sort();
                calls
            };
            prop_assert_eq!(sorted(&last), sorted(&first));
        }
        prop_assert_eq!(&last.usage["prompt_tokens"], 10);
        prop_assert_eq!(&last.usage["prompt_tokens_details"]["cached_tokens"], 6);
        prop_assert_eq!(&last.usage["completion_tokens"], 4);
    }

    #[test]
    fn a_responses_client_reads_the_same_of_messages_as_of_responses(deltas in prop::collection::vec(delta(), 0..16), streams in any::<bool>()) {
        let responses = through(&stream(&deltas), Api::Chat, Api::Responses, streams);
        let messages = through(&responses, Api::Responses, Api::Messages, streams);
        let back = through(&messages, Api::Messages, Api::Responses, streams);
        let (first, last) = (Said::read(Api::Responses, streams, &responses), Said::read(Api::Responses, streams, &back));
        prop_assert!(last.error.is_null());
        prop_assert_eq!(letters(&last.text), letters(&first.text));
        prop_assert_eq!(letters(&last.thinking), letters(&first.thinking));
        if !goes_on_behind_others(&deltas) {
            prop_assert_eq!(last.parsed_calls(), first.parsed_calls());
        }
        prop_assert_eq!(&last.usage["input_tokens"], 10);
        prop_assert_eq!(&last.usage["input_tokens_details"]["cached_tokens"], 6);
    }

    #[test]
    fn any_cut_of_a_message_gives_the_same(deltas in prop::collection::vec(delta(), 0..10), size in 1..40usize) {
        let messages = through(&stream(&deltas), Api::Chat, Api::Messages, true);
        for client in [Api::Chat, Api::Responses] {
            let plan = plan(Api::Messages, client, true);
            let reads: Vec<_> = messages.chunks(size).collect();
            prop_assert_eq!(translated(&plan, &reads, &mut Unpriced), translated(&plan, &[&messages], &mut Unpriced));
        }
    }
}
