//! A reply, its translation, and what each protocol's client reads of it.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value as Json, json};
use sluicegate_core::api::Api;
use sluicegate_core::limits::Limits;
use sluicegate_core::pipeline::{Facts, Pipeline, Pricer, ReplyPlan};
use sluicegate_core::protocols::chat::fold::fold_chat;
use sluicegate_core::protocols::messages::writing::KnownMessage;
use sluicegate_core::protocols::responses::echo::{Asked, Echo};
use sluicegate_core::protocols::{ClientProtocol, ClientSide, UpstreamSide};

use crate::accumulator::{accumulated, payloads};

/// A plan between the two, with the names that a client knows.
pub(crate) fn plan(upstream: Api, client: Api, streams: bool) -> ReplyPlan {
    let mut side = ClientSide::new(client, streams);
    match &mut side.protocol {
        ClientProtocol::Chat(usage) => usage.include = true,
        ClientProtocol::Responses(asked) => {
            *asked = Some(Asked::Echo(Arc::new(Echo::new("resp_0a", 7, "m"))));
        }
        ClientProtocol::Messages(known) => {
            *known = KnownMessage {
                id: Some("msg_0a".into()),
                ..KnownMessage::default()
            };
            side.reply_model = Some("claude-x".into());
        }
        _ => {}
    }
    ReplyPlan::between(side, UpstreamSide::new(upstream))
}

/// What the client gets of these reads, and what is known of the reply.
pub(crate) fn translated(
    plan: &ReplyPlan,
    reads: &[&[u8]],
    pricer: &mut dyn Pricer,
) -> (Vec<u8>, Facts) {
    let mut pipeline = Pipeline::new(plan.clone());
    let mut out = Vec::new();
    let mut failed = false;
    for read in reads {
        let fed = pipeline.feed(Bytes::copy_from_slice(read), pricer, &mut out);
        failed = fed.is_err();
        if failed {
            break;
        }
    }
    failed = failed || pipeline.finish(pricer, &mut out).is_err();
    if failed || pipeline.facts().truncated {
        pipeline.fail("upstream_error", "truncated", "it broke off", &mut out);
    }
    (out.concat(), pipeline.facts().clone())
}

/// What a client reads of a reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) thinking: String,
    /// Id, name, arguments.
    pub(crate) calls: Vec<[String; 3]>,
    pub(crate) stop: String,
    pub(crate) usage: Json,
    /// The whole reply, in the client's protocol.
    pub(crate) reply: Json,
    pub(crate) error: Json,
}

fn list(value: &Json) -> impl Iterator<Item = &Json> {
    value.as_array().into_iter().flatten()
}

fn word(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Said {
    /// Reads what a client of `api` was sent. Where it streams, a reply that is not whole has an error, or none at all.
    pub(crate) fn read(api: Api, streams: bool, sent: &[u8]) -> Said {
        let (reply, error) = match (api, streams) {
            (Api::Messages, true) => {
                let seen = accumulated(sent);
                assert!(seen.whole || !seen.error.is_null());
                (seen.message, seen.error)
            }
            (Api::Chat, true) => {
                let error = payloads(sent).last().map(|last| last["error"].clone());
                let folded = fold_chat(sent, Limits::default());
                let reply = folded.map(|folded| serde_json::from_slice(&folded).unwrap());
                (reply.unwrap_or_default(), error.unwrap_or_default())
            }
            (Api::Responses, true) => {
                let reply = payloads(sent).pop().unwrap()["response"].clone();
                (reply.clone(), reply["error"].clone())
            }
            _ => {
                let reply: Json = serde_json::from_slice(sent).unwrap();
                (reply.clone(), reply["error"].clone())
            }
        };
        let mut said = match api {
            Api::Messages => Said::message(&reply),
            Api::Responses => Said::response(&reply),
            _ => Said::completion(&reply),
        };
        said.error = error;
        said.usage = reply["usage"].clone();
        said.reply = reply;
        said
    }

    fn message(reply: &Json) -> Said {
        let mut said = Said {
            stop: word(&reply["stop_reason"]),
            ..Said::default()
        };
        for block in list(&reply["content"]) {
            said.text += &word(&block["text"]);
            said.thinking += &word(&block["thinking"]);
            if block["type"] == "tool_use" {
                let arguments = match block["input"].get("INVALID_JSON") {
                    Some(broken) => word(broken),
                    None => block["input"].to_string(),
                };
                let call = [word(&block["id"]), word(&block["name"]), arguments];
                said.calls.push(call);
            }
        }
        said
    }

    fn completion(reply: &Json) -> Said {
        let choice = &reply["choices"][0];
        let message = &choice["message"];
        Said {
            text: word(&message["content"]),
            thinking: word(&message["reasoning_content"]),
            calls: list(&message["tool_calls"])
                .map(|call| {
                    let function = &call["function"];
                    [
                        word(&call["id"]),
                        word(&function["name"]),
                        word(&function["arguments"]),
                    ]
                })
                .collect(),
            stop: word(&choice["finish_reason"]),
            ..Said::default()
        }
    }

    fn response(reply: &Json) -> Said {
        let mut said = Said {
            stop: word(&reply["status"]),
            ..Said::default()
        };
        for item in list(&reply["output"]) {
            let parts = || list(&item["content"]).chain(list(&item["summary"]));
            let texts: String = parts().map(|part| word(&part["text"])).collect();
            match item["type"].as_str() {
                Some("message") => said.text += &texts,
                Some("reasoning") => said.thinking += &texts,
                Some("function_call") => said.calls.push([
                    word(&item["call_id"]),
                    word(&item["name"]),
                    word(&item["arguments"]),
                ]),
                _ => {}
            }
        }
        said
    }

    /// The calls with their arguments as JSON, so that spelling does not matter. Empty ones are an empty object.
    pub(crate) fn parsed_calls(&self) -> Vec<(String, String, Json)> {
        let parsed = |text: &str| match text.trim() {
            "" => json!({}),
            text => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
        };
        let calls = self.calls.iter();
        calls
            .map(|[id, name, arguments]| (id.clone(), name.clone(), parsed(arguments)))
            .collect()
    }
}
