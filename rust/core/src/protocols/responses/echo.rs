//! The members of a response that repeat the request.
//!
//! A Response object repeats most of its request (`instructions`, `tools`, `temperature`, …), in each event that
//! carries one. All of it is spelled once, when the request is read, and copied from there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::request::ResponsesRequest;
use super::request::read_tools;
use super::request::write_choice;
use crate::input::offer::Offer;
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::writer::Writer;

/// The part of a Response object that is known before the upstream answers, and what else of the request its reply
/// depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The response's `id`, with its prefix `resp_`. The ids of its items are made of what follows the prefix.
    pub response_id: Box<str>,
    /// `created_at`: seconds since 1970.
    pub created_at: u64,
    /// `model`, where the upstream names none.
    pub model: Box<str>,
    /// `service_tier`, where the upstream names none that a client would know.
    pub service_tier: Box<str>,
    /// The other members that repeat the request, as JSON on one line without the braces around them:
    /// `"background":false,…,"user":null`. None of `id`, `object`, `created_at`, `completed_at`, `status`, `error`,
    /// `incomplete_details`, `model`, `output`, `service_tier` and `usage` is among them.
    pub members: Bytes,
    /// Names of the custom tools that were sent to the upstream as functions with one string argument `input`: the
    /// functions' names.
    pub custom_tools: BTreeSet<Box<str>>,
    /// Of functions whose tools have other names than they, these names. A call of such a function is a call of the
    /// tool.
    pub namespaced: BTreeMap<Box<str>, Namespaced>,
}

/// What is known of the request to which a response belongs.
#[derive(Clone, Debug)]
pub enum Asked {
    /// The request itself: its echo is made where one is needed.
    Request {
        /// The request.
        request: Arc<ResponsesRequest>,
        /// See [`Echo::response_id`].
        response_id: Box<str>,
        /// See [`Echo::created_at`].
        created_at: u64,
        /// The upstream's name for the model.
        model: Box<str>,
    },
    /// Its echo.
    Echo(Arc<Echo>),
}

/// The id of a response that neither the upstream nor the caller names.
const NO_ID: &str = "resp_unknown";

impl Asked {
    /// The echo.
    #[must_use]
    pub fn echo(&self) -> Arc<Echo> {
        match self {
            Asked::Echo(echo) => Arc::clone(echo),
            Asked::Request {
                request,
                response_id,
                created_at,
                model,
            } => Arc::new(Echo {
                model: model.clone(),
                ..Echo::of(request, response_id, *created_at)
            }),
        }
    }

    /// About how many bytes of the request the events repeat that carry a response: all but its input.
    pub(crate) fn repeated(&self) -> usize {
        match self {
            Asked::Request { request, .. } => {
                let input = request.get("input").map_or(0, |input| input.bytes().len());
                request.body().len().saturating_sub(input)
            }
            Asked::Echo(echo) => echo.members.len(),
        }
    }

    /// The echo of what is known; of nothing that of a request without settings.
    pub(crate) fn echo_of(asked: Option<&Self>) -> Arc<Echo> {
        asked.map_or_else(|| Arc::new(Echo::new(NO_ID, 0, "")), Asked::echo)
    }
}

/// A tool in a namespace, as a call names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespaced {
    /// `namespace`.
    pub namespace: Box<str>,
    /// `name`.
    pub name: Box<str>,
}

/// A member that is repeated: its name, the types that it may have, and its value where the request does not have it.
type Repeated = (&'static str, &'static [Kind], &'static [u8]);

const BOOLEAN: &[Kind] = &[Kind::True, Kind::False];
const NUMBER: &[Kind] = &[Kind::Number];
const STRING: &[Kind] = &[Kind::String];
const OBJECT: &[Kind] = &[Kind::Object];

/// In the order of the names, every member that Open Responses requires among them.
const REPEATED: [Repeated; 22] = [
    ("background", BOOLEAN, b"false"),
    ("frequency_penalty", NUMBER, b"0"),
    ("instructions", STRING, b"null"),
    ("max_output_tokens", NUMBER, b"null"),
    ("max_tool_calls", NUMBER, b"null"),
    ("metadata", OBJECT, b"{}"),
    ("parallel_tool_calls", BOOLEAN, b"true"),
    ("presence_penalty", NUMBER, b"0"),
    ("previous_response_id", STRING, b"null"),
    ("prompt_cache_key", STRING, b"null"),
    ("prompt_cache_retention", STRING, b"null"),
    ("reasoning", OBJECT, b"{\"effort\":null,\"summary\":null}"),
    ("safety_identifier", STRING, b"null"),
    ("store", BOOLEAN, b"true"),
    ("temperature", NUMBER, b"1"),
    ("text", OBJECT, b"{\"format\":{\"type\":\"text\"}}"),
    ("tool_choice", &[Kind::String, Kind::Object], b"\"auto\""),
    ("tools", &[Kind::Array], b"[]"),
    ("top_logprobs", NUMBER, b"0"),
    ("top_p", NUMBER, b"1"),
    ("truncation", STRING, b"\"disabled\""),
    ("user", STRING, b"null"),
];

impl Echo {
    /// The echo of a request that has only `model`.
    #[must_use]
    pub fn new(response_id: &str, created_at: u64, model: &str) -> Self {
        Echo::build(response_id, created_at, model, |_| None)
    }

    /// Of `request`. A member of a wrong type is repeated as if it were absent: such a request gets no answer.
    #[must_use]
    pub fn of(request: &ResponsesRequest, response_id: &str, created_at: u64) -> Self {
        let model = request.model().unwrap_or_default();
        let mut echo = Echo::build(response_id, created_at, model, |name| match name {
            "previous_response_id" => request.previous_response_id().map(|id| {
                let mut writer = Writer::default();
                writer.text(id);
                writer.into_bytes()
            }),
            _ => request.get(name).map(|value| repeat(name, value)),
        });
        if let Some(tier) = request.get("service_tier").and_then(|tier| tier.decode()) {
            echo.service_tier = tier.into();
        }
        let (tools, input) = (request.get("tools"), request.get("input"));
        let tools = read_tools(tools, input).unwrap_or_default();
        for function in Offer::of(&tools).functions {
            if function.custom {
                echo.custom_tools.insert(function.function.clone());
            }
            if let Some(namespace) = &function.tool.namespace {
                let namespaced = Namespaced {
                    namespace: namespace.as_ref().into(),
                    name: function.name,
                };
                echo.namespaced.insert(function.function, namespaced);
            }
        }
        echo
    }

    fn build(
        response_id: &str,
        created_at: u64,
        model: &str,
        value: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Self {
        let mut writer = Writer::default();
        for (name, kinds, default) in REPEATED {
            let value = value(name).filter(|value| is_of(value, kinds));
            writer.member(name, value.as_deref().unwrap_or(default));
        }
        let mut members = writer.into_bytes();
        // An event of a stream has its data on one line, and line ends never stand inside of JSON's strings.
        members.retain(|byte| !matches!(byte, b'\n' | b'\r'));
        Echo {
            response_id: response_id.into(),
            created_at,
            model: model.into(),
            service_tier: "auto".into(),
            members: members.into(),
            custom_tools: BTreeSet::new(),
            namespaced: BTreeMap::new(),
        }
    }
}

fn is_of(json: &[u8], kinds: &[Kind]) -> bool {
    Node::document(json).is_some_and(|node| kinds.contains(&node.kind()))
}

/// A member as a response repeats it: what may be left away in a request is there.
fn repeat(name: &str, value: Node<'_>) -> Vec<u8> {
    let mut writer = Writer::with_capacity(value.bytes().len());
    match name {
        "reasoning" => complete(
            &mut writer,
            value,
            &[("effort", b"null"), ("summary", b"null")],
        ),
        "text" => complete(&mut writer, value, &[("format", b"{\"type\":\"text\"}")]),
        "tools" => {
            writer.open(b'[');
            for tool in value.elements() {
                repeat_tool(&mut writer, tool);
            }
            writer.close(b']');
        }
        "tool_choice" => {
            let mut flat = Writer::default();
            match write_choice(value, &mut flat) {
                Ok(()) => writer = flat,
                Err(_) => writer.raw(value.bytes()),
            }
        }
        _ => writer.raw(value.bytes()),
    }
    writer.into_bytes()
}

fn repeat_tool(writer: &mut Writer, tool: Node<'_>) {
    let [kind, nested] = tool.pick(["type", "function"]);
    if !kind.is_some_and(|kind| kind.is("function")) {
        return writer.raw(tool.bytes());
    }
    let required: [(&str, &[u8]); 3] = [
        ("description", b"null"),
        ("parameters", b"null"),
        ("strict", b"null"),
    ];
    let Some(nested) = nested else {
        return complete(writer, tool, &required);
    };
    let mut flat = Writer::with_capacity(nested.bytes().len() + 24);
    flat.open(b'{');
    flat.member_spelled("type", b"function");
    for (key, value) in nested.members() {
        flat.copy_member(key.bytes(), value.bytes());
    }
    flat.close(b'}');
    let flat = flat.into_bytes();
    if let Some(flat) = Node::document(&flat) {
        complete(writer, flat, &required);
    }
}

/// Writes an object with these members where it lacks them, or where `null` would stand for a value that is none.
fn complete(writer: &mut Writer, object: Node<'_>, required: &[(&str, &[u8])]) {
    if object.kind() != Kind::Object {
        return writer.raw(object.bytes());
    }
    let mut present = Vec::with_capacity(required.len());
    writer.open(b'{');
    for (key, value) in object.members() {
        match required.iter().find(|(name, _)| key.is(name)) {
            Some(_) if value.kind() == Kind::Null => continue,
            Some((name, _)) => present.push(*name),
            None => {}
        }
        writer.copy_member(key.bytes(), value.bytes());
    }
    for (name, default) in required {
        if !present.contains(name) {
            writer.member(name, default);
        }
    }
    writer.close(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    fn members(echo: &Echo) -> serde_json::Value {
        let members = format!("{{{}}}", String::from_utf8(echo.members.to_vec()).unwrap());
        assert!(!members.contains(['\n', '\r']));
        serde_json::from_str(&members).unwrap()
    }

    fn of(body: &'static str) -> Echo {
        let request = ResponsesRequest::parse(body.into(), &Limits::default()).unwrap();
        Echo::of(&request, "resp_1", 7)
    }

    #[test]
    fn what_is_not_said_has_the_interfaces_defaults() {
        let said_nothing = members(&Echo::new("resp_1", 7, "m"));
        assert_eq!(said_nothing["tools"], serde_json::json!([]));
        assert_eq!(said_nothing["temperature"], serde_json::json!(1));
        assert_eq!(said_nothing["instructions"], serde_json::Value::Null);
        assert_eq!(
            of(r#"{"model":"m","input":""}"#),
            Echo::new("resp_1", 7, "m")
        );
        let nulls =
            of(r#"{"model":"m","tools":null,"reasoning":null,"temperature":null,"store":null}"#);
        assert_eq!(nulls, Echo::new("resp_1", 7, "m"));
    }

    #[test]
    fn what_is_said_is_repeated_as_it_is_spelled_on_one_line() {
        let echo = of(
            "{\"model\":\"m\",\n\"temperature\":0.50,\"service_tier\":\"flex\",\"reasoning\":{\"effort\":\"low\"},\r\n\"text\": {\n\"verbosity\":\"low\"},\"metadata\":{\"a\":\"b\\nc\"},\"previous_response_id\":\"resp_0\",\"store\":false,\"user\":5}",
        );
        assert!(
            echo.members
                .windows(18)
                .any(|it| it == b"\"temperature\":0.50")
        );
        assert_eq!(&*echo.service_tier, "flex");
        let said = members(&echo);
        assert_eq!(
            said["reasoning"],
            serde_json::json!({"effort": "low", "summary": null})
        );
        assert_eq!(
            said["text"],
            serde_json::json!({"verbosity": "low", "format": {"type": "text"}})
        );
        assert_eq!(said["metadata"]["a"], "b\nc");
        assert_eq!(said["previous_response_id"], "resp_0");
        assert_eq!(
            (&said["store"], &said["user"]),
            (&false.into(), &serde_json::Value::Null)
        );
    }

    #[test]
    fn tools_are_complete_and_those_with_other_names_upstream_are_known() {
        let echo = of(r#"{"model":"m","tools":[
            {"type":"function","name":"f"},
            {"type":"function","function":{"name":"g","strict":true}},
            {"type":"custom","name":"c"},
            {"type":"namespace","name":"ns","description":"d","tools":[{"type":"custom","name":"c"}]}]}"#);
        let tools = &members(&echo)["tools"];
        let function = serde_json::json!({"type": "function", "name": "f", "description": null, "parameters": null, "strict": null});
        assert_eq!(tools[0], function);
        assert_eq!(tools[1]["name"], "g");
        assert_eq!(tools[1]["strict"], true);
        assert_eq!(tools[3]["tools"][0]["name"], "c");
        let nested =
            of(r#"{"model":"m","tool_choice":{"type":"function","function":{"name":"f"}}}"#);
        let flat = serde_json::json!({"type": "function", "name": "f"});
        assert_eq!(members(&nested)["tool_choice"], flat);
        let custom: Vec<_> = echo.custom_tools.iter().map(|it| &**it).collect();
        assert_eq!(custom, ["c", "ns__c"]);
        let namespaced = Namespaced {
            namespace: "ns".into(),
            name: "c".into(),
        };
        assert_eq!(echo.namespaced.get("ns__c"), Some(&namespaced));
    }
}
