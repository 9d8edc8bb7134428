//! What tests read and write with: replies of a chat upstream, and a client that believes nothing it is not told.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value as Json, json};
use sluicegate_core::api::Api;
use sluicegate_core::pipeline::{Pipeline, Pricer, ReplyPlan, Unpriced};
use sluicegate_core::protocols::responses::echo::{Asked, Echo, Namespaced};
use sluicegate_core::protocols::{ClientProtocol, ClientSide, UpstreamSide};
use sluicegate_core::sse::event::Events;

/// The plan of a reply that is translated.
pub(crate) fn plan(client_streams: bool) -> ReplyPlan {
    let mut echo = Echo::new("resp_0a", 7, "asked-for");
    echo.custom_tools.insert("shell".into());
    for (function, namespace, name) in [
        ("agents__ask", "agents", "ask"),
        ("exec", "functions", "exec"),
    ] {
        let (namespace, name) = (namespace.into(), name.into());
        let tool = Namespaced { namespace, name };
        echo.namespaced.insert(function.into(), tool);
    }
    echo.custom_tools.insert("exec".into());
    let client = responses_client(echo, client_streams);
    ReplyPlan::between(client, UpstreamSide::new(Api::Chat))
}

/// A client of the Responses interface whose request has this echo.
pub(crate) fn responses_client(echo: Echo, streams: bool) -> ClientSide {
    ClientSide {
        protocol: ClientProtocol::Responses(Some(Asked::Echo(Arc::new(echo)))),
        ..ClientSide::new(Api::Responses, streams)
    }
}

/// A chunk with one delta.
pub(crate) fn chunk(delta: &Json) -> Json {
    json!({"id": "c1", "object": "chat.completion.chunk", "created": 3, "model": "upstream-model",
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

/// A chunk that says why the model stopped.
pub(crate) fn finish(reason: &str) -> Json {
    let mut chunk = chunk(&json!({}));
    chunk["choices"][0]["finish_reason"] = reason.into();
    chunk
}

/// Events with these payloads.
pub(crate) fn events(payloads: &[Json]) -> String {
    payloads
        .iter()
        .map(|payload| format!("data: {payload}\n\n"))
        .collect()
}

/// A stream of deltas that ends as it should.
pub(crate) fn stream(deltas: &[Json], reason: &str) -> String {
    let mut payloads: Vec<Json> = deltas.iter().map(chunk).collect();
    payloads.push(finish(reason));
    events(&payloads) + "data: [DONE]\n\n"
}

/// What the client gets of a reply that comes in `reads`, to its end; a reply that breaks off is failed as the relay
/// does it.
pub(crate) fn translated_by(plan: ReplyPlan, reads: &[&[u8]], pricer: &mut dyn Pricer) -> Vec<u8> {
    let mut pipeline = Pipeline::new(plan);
    let mut out = Vec::new();
    for read in reads {
        pipeline
            .feed(Bytes::copy_from_slice(read), pricer, &mut out)
            .unwrap();
    }
    pipeline.finish(pricer, &mut out).unwrap();
    if pipeline.facts().truncated {
        pipeline.fail("upstream_error", "truncated", "it broke off", &mut out);
    }
    out.concat()
}

pub(crate) fn translated(reply: &str, client_streams: bool) -> Vec<u8> {
    translated_by(plan(client_streams), &[reply.as_bytes()], &mut Unpriced)
}

/// The types of all events and the final response, all of it checked.
pub(crate) struct Seen {
    pub(crate) events: Vec<Json>,
    pub(crate) response: Json,
}

impl Seen {
    pub(crate) fn of(reply: &str) -> Self {
        Seen::read(&translated(reply, true))
    }

    /// What a client makes of the events alone, each checked against those before it.
    pub(crate) fn read(stream: &[u8]) -> Self {
        let mut events = Vec::new();
        let mut payloads = Events::new(stream);
        let mut is_done = false;
        for event in &mut payloads {
            let Some(data) = event.data() else {
                assert!(event.is_comment_only());
                continue;
            };
            assert!(!is_done, "something comes behind the end");
            if &*data == b"[DONE]" {
                is_done = true;
                continue;
            }
            let payload: Json = serde_json::from_slice(&data).unwrap();
            assert_eq!(payload["type"].as_str().unwrap().as_bytes(), event.name());
            assert_eq!(payload["sequence_number"], events.len());
            events.push(payload);
        }
        assert!(
            payloads.rest().is_empty() && is_done,
            "the stream is not ended"
        );
        let response = Client::default().read(&events);
        Seen { events, response }
    }

    /// Without `response.`, the two that every stream begins with, and the one that ends it.
    pub(crate) fn types(&self) -> Vec<&str> {
        let types = self
            .events
            .iter()
            .map(|event| event["type"].as_str().unwrap());
        let types: Vec<_> = types
            .map(|name| name.trim_start_matches("response."))
            .collect();
        types[2..types.len() - 1].to_vec()
    }

    /// The deltas of all events of this type.
    pub(crate) fn deltas(&self, kind: &str) -> Vec<&str> {
        let kind = format!("response.{kind}.delta");
        let events = self.events.iter().filter(|event| event["type"] == *kind);
        events
            .map(|event| event["delta"].as_str().unwrap())
            .collect()
    }

    /// Each item in short: its type, and its text, arguments or input.
    pub(crate) fn items(&self) -> Vec<String> {
        self.response["output"]
            .as_array()
            .unwrap()
            .iter()
            .map(shown)
            .collect()
    }
}

pub(crate) fn shown(item: &Json) -> String {
    let parts = |name: &str| -> String {
        let parts = item[name].as_array().into_iter().flatten();
        parts
            .map(|part| {
                let text = part.get("text").or(part.get("refusal")).unwrap();
                let kind = part["type"].as_str().unwrap().trim_end_matches("_text");
                format!(" {kind}:{}", text.as_str().unwrap())
            })
            .collect()
    };
    let word = |name: &str| item[name].as_str().unwrap();
    match word("type") {
        "function_call" => format!("{}({})", word("name"), word("arguments")),
        "custom_tool_call" => format!("{}<{}>", word("name"), word("input")),
        kind => format!("{kind}{}{}", parts("summary"), parts("content")),
    }
}

/// Folds events into a response.
#[derive(Default)]
struct Client {
    /// By their place in the output: the item so far, and whether it is closed.
    items: Vec<(Json, bool)>,
}

impl Client {
    fn read(&mut self, events: &[Json]) -> Json {
        let last = events.len() - 1;
        for (place, event) in events.iter().enumerate() {
            let kind = event["type"].as_str().unwrap();
            let state = kind.trim_start_matches("response.");
            match state {
                "created" | "in_progress" => {
                    assert_eq!(place, usize::from(state == "in_progress"));
                    assert_eq!(event["response"]["status"], "in_progress");
                    assert_eq!(event["response"]["output"], json!([]));
                }
                "completed" | "incomplete" | "failed" => {
                    assert_eq!(place, last);
                    assert_eq!(event["response"]["status"], state);
                    self.check_end(&events[0]["response"], &event["response"]);
                }
                "error" => assert_eq!(place, last - 1),
                _ => self.read_item_event(state, event),
            }
        }
        assert!(events.len() > 2);
        let response = events[last]["response"].clone();
        assert!(
            response.is_object(),
            "the last event is none that ends a response"
        );
        assert_eq!(
            response["status"] == "failed",
            events[last - 1]["type"] == "error"
        );
        response
    }

    fn check_end(&self, first: &Json, response: &Json) {
        for (item, is_closed) in &self.items {
            assert!(is_closed, "{item} was never closed");
        }
        let items: Vec<&Json> = self.items.iter().map(|(item, _)| item).collect();
        assert_eq!(response["output"], json!(items));
        for name in ["id", "object", "created_at", "model", "tools", "text"] {
            assert_eq!(response[name], first[name], "{name}");
        }
        let members = |value: &Json| {
            value
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(members(response), members(first));
    }

    fn read_item_event(&mut self, kind: &str, event: &Json) {
        let index = usize::try_from(event["output_index"].as_u64().unwrap()).unwrap();
        if kind == "output_item.added" {
            assert_eq!(index, self.items.len(), "items are opened in their order");
            let item = &event["item"];
            let made = ["message", "function_call", "custom_tool_call"];
            match item.get("status") {
                Some(status) => assert_eq!(status, "in_progress"),
                // Items that come whole may have none.
                None => assert!(!made.contains(&item["type"].as_str().unwrap())),
            }
            let is_known = |(known, _): &(Json, bool)| known["id"] == item["id"];
            assert!(!self.items.iter().any(is_known), "an id is used twice");
            self.items.push((item.clone(), false));
            return;
        }
        let (item, is_closed) = &mut self.items[index];
        assert!(!*is_closed, "{kind} of an item that is closed");
        if kind == "output_item.done" {
            assert_ne!(event["item"]["status"], "in_progress");
            if let Some(status) = event["item"].get("status") {
                item["status"] = status.clone();
            }
            if let Some(data) = event["item"].get("encrypted_content") {
                item["encrypted_content"] = data.clone();
            }
            if let Some(extra) = event["item"].get("extra_content") {
                item["extra_content"] = extra.clone();
            }
            assert_eq!(*item, event["item"], "what is done is what was said");
            *is_closed = true;
            return;
        }
        assert_eq!(event["item_id"], item["id"]);
        let (stem, what) = kind.rsplit_once('.').unwrap();
        let list = if stem.starts_with("reasoning_summary") {
            "summary"
        } else {
            "content"
        };
        let place = event.get(format!("{list}_index")).and_then(Json::as_u64);
        let place = place.map(|place| usize::try_from(place).unwrap());
        match (stem, what) {
            ("content_part" | "reasoning_summary_part", "added") => {
                let parts = item[list].as_array_mut().unwrap();
                assert_eq!(Some(parts.len()), place);
                parts.push(event["part"].clone());
            }
            ("content_part" | "reasoning_summary_part", "done") => {
                assert_eq!(item[list][place.unwrap()], event["part"]);
            }
            ("output_text.annotation", "added") => {
                let annotations = &mut item[list][place.unwrap()]["annotations"];
                let annotations = annotations.as_array_mut().unwrap();
                assert_eq!(event["annotation_index"], annotations.len());
                annotations.push(event["annotation"].clone());
            }
            (stem, what) => {
                let member = match stem {
                    "function_call_arguments" => "arguments",
                    "custom_tool_call_input" => "input",
                    "refusal" => "refusal",
                    _ => "text",
                };
                let holder = match place {
                    Some(place) => &mut item[list][place],
                    None => item,
                };
                if what == "delta" {
                    append(holder.as_object_mut().unwrap(), member, event);
                } else {
                    assert_eq!(what, "done");
                    assert_eq!(
                        holder[member], event[member],
                        "what is done is what was said"
                    );
                    assert_eq!(holder.get("logprobs"), event.get("logprobs"));
                }
            }
        }
    }
}

fn append(holder: &mut Map<String, Json>, member: &str, event: &Json) {
    let text = holder[member].as_str().unwrap().to_owned() + event["delta"].as_str().unwrap();
    holder[member] = text.into();
    if let Some(logprobs) = event.get("logprobs") {
        let known = holder["logprobs"].as_array_mut().unwrap();
        known.extend(logprobs.as_array().unwrap().iter().cloned());
    }
}
