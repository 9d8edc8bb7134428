//! The input as a list of items.

use bytes::Bytes;
use memchr::memmem;

use super::ResponsesRequest;
use super::refusal::{Place, Refusal};
use crate::error::Error;
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::string;
use crate::json::writer::Writer;
use crate::limits::Limits;

impl ResponsesRequest {
    /// The input as items, each one JSON object with an `id`, a `type` and, where its kind has one, a `status`: as
    /// `GET /v1/responses/{id}/input_items` shows them and a later request repeats them. A message's content is an array of parts.
    ///
    /// An item without an id gets one: its kind's prefix, `token`, an `i` and its place among the items. An id made of the same token
    /// and a number alone is therefore another one.
    ///
    /// # Errors
    /// The input is neither a string nor an array of objects.
    pub fn input_items(&self, token: &str) -> Result<Vec<Bytes>, Refusal> {
        let place = Place::Top("input");
        let Some(input) = self.get("input") else {
            return Ok(Vec::new());
        };
        match input.kind() {
            Kind::String => {
                let mut writer = Writer::default();
                writer.open(b'{');
                writer.member_spelled("type", b"message");
                writer.member_spelled("role", b"user");
                writer.key("content");
                write_text_part(&mut writer, "input_text", input.bytes());
                finish(&mut writer, Some(("msg_", token, 0)), true);
                Ok(vec![writer.into_bytes().into()])
            }
            Kind::Array => input
                .elements()
                .enumerate()
                .map(|(index, item)| normalise(item, token, index, &place.element(index)))
                .collect(),
            kind => Err(Refusal::wrong_type(&place, "a string or an array", kind)),
        }
    }

    /// The same request with earlier items in front of its input and without `previous_response_id`, which
    /// [`previous_response_id`](Self::previous_response_id) still tells. A string input becomes a message of the user. All other members
    /// keep their bytes and their order.
    ///
    /// # Errors
    /// [`ErrorKind::DocumentTooLarge`](crate::error::ErrorKind::DocumentTooLarge), and for items that are no JSON what their fault is.
    pub fn with_input_prefix(&self, items: &[Bytes], limits: &Limits) -> Result<Self, Error> {
        let added: usize = items.iter().map(|item| item.len() + 1).sum();
        let mut writer = Writer::with_capacity(self.body().len() + added + 64);
        writer.open(b'{');
        for (key, value) in self.root().members() {
            if !key.is("previous_response_id") && !key.is("input") {
                writer.copy_member(key.bytes(), value.bytes());
            }
        }
        writer.key("input");
        writer.open(b'[');
        for item in items {
            writer.raw(item);
        }
        if let Some(input) = self.get("input") {
            match input.kind() {
                Kind::Array => {
                    for item in input.elements() {
                        writer.raw(item.bytes());
                    }
                }
                Kind::String => {
                    writer.open(b'{');
                    writer.member_spelled("type", b"message");
                    writer.member_spelled("role", b"user");
                    writer.member("content", input.bytes());
                    writer.close(b'}');
                }
                _ => writer.raw(input.bytes()),
            }
        }
        writer.close(b']');
        writer.close(b'}');
        let mut request = ResponsesRequest::parse(writer.into_bytes().into(), limits)?;
        request
            .previous_response_id
            .clone_from(&self.previous_response_id);
        Ok(request)
    }

    /// See [`refers`](Self::refers).
    pub(super) fn has_references(&self) -> bool {
        // Most requests refer to nothing, which one look at their bytes tells; an escape may hide a name.
        let hints: [&[u8]; 3] = [b"\"id\"", b"item_reference", b"\\u"];
        let body = self.body();
        if hints.iter().all(|hint| memmem::find(body, hint).is_none()) {
            return false;
        }
        self.get("input")
            .filter(|input| input.kind() == Kind::Array)
            .is_some_and(|input| input.elements().any(is_reference))
    }

    /// See [`unstorable`](Self::unstorable).
    pub(super) fn find_unstorable(&self) -> Option<Box<str>> {
        // Only an escape can spell what is no text.
        memmem::find(self.body(), b"\\u")?;
        let name = "previous_response_id";
        if self.get(name).is_some_and(is_unstorable) {
            return Some(name.into());
        }
        let place = Place::Top("input");
        let input = self.get("input").filter(|it| it.kind() == Kind::Array)?;
        let index = input.elements().position(|item| {
            // All of several ids: readers differ in which of them counts.
            item.kind() == Kind::Object
                && item
                    .members()
                    .any(|(key, value)| key.is("id") && is_unstorable(value))
        })?;
        Some(place.element(index).member("id").to_string().into())
    }
}

fn is_unstorable(value: Node<'_>) -> bool {
    value
        .spelled()
        .is_some_and(|content| !string::is_storable(content))
}

fn is_reference(item: Node<'_>) -> bool {
    if item.kind() != Kind::Object {
        return false;
    }
    let [kind] = item.pick(["type"]);
    if let Some(kind) = kind {
        return kind.is("item_reference");
    }
    let mut has_id = false;
    for (key, _) in item.members() {
        if key.is("id") {
            has_id = true;
        } else if !key.is("type") {
            return false;
        }
    }
    has_id
}

/// The beginning of ids of this type of item, and whether it has a status.
fn traits(kind: &str) -> (&'static str, bool) {
    match kind {
        "message" => ("msg_", true),
        "function_call" => ("fc_", true),
        "function_call_output" => ("fco_", true),
        "custom_tool_call" => ("ctc_", true),
        "custom_tool_call_output" => ("ctco_", true),
        "reasoning" => ("rs_", false),
        _ => ("item_", false),
    }
}

fn normalise(
    item: Node<'_>,
    token: &str,
    index: usize,
    place: &Place<'_>,
) -> Result<Bytes, Refusal> {
    if item.kind() != Kind::Object {
        return Err(Refusal::wrong_type(place, "an object", item.kind()));
    }
    let [kind, role, content, id, status] = item.pick(["type", "role", "content", "id", "status"]);
    let decoded = kind.and_then(|kind| kind.decode());
    let is_message = decoded.as_deref().is_none_or(|kind| kind == "message") && role.is_some();
    let kind = if is_message {
        "message"
    } else {
        decoded.as_deref().unwrap_or_default()
    };
    let (prefix, has_status) = traits(kind);
    let text = content.filter(|content| is_message && content.kind() == Kind::String);
    let needs_status = has_status && status.is_none();
    if id.is_some() && !needs_status && text.is_none() && decoded.is_some() {
        return Ok(Bytes::copy_from_slice(item.bytes()));
    }
    let mut writer = Writer::with_capacity(item.bytes().len() + 96);
    writer.open(b'{');
    if decoded.is_none() && is_message {
        writer.member_spelled("type", b"message");
    }
    for (key, value) in item.members() {
        if value.kind() == Kind::Null
            && (key.is("id") || key.is("status") || (is_message && key.is("type")))
        {
            continue;
        }
        if key.is("content")
            && let Some(text) = text
        {
            let is_reply = role.is_some_and(|role| role.is("assistant"));
            let part = if is_reply {
                "output_text"
            } else {
                "input_text"
            };
            writer.raw_key(key.bytes());
            write_text_part(&mut writer, part, text.bytes());
        } else {
            writer.copy_member(key.bytes(), value.bytes());
        }
    }
    let id = id.is_none().then_some((prefix, token, index));
    finish(&mut writer, id, needs_status);
    Ok(writer.into_bytes().into())
}

fn write_text_part(writer: &mut Writer, kind: &str, text: &[u8]) {
    writer.open(b'[');
    writer.open(b'{');
    writer.member_spelled("type", kind.as_bytes());
    writer.member("text", text);
    if kind == "output_text" {
        writer.member("annotations", b"[]");
    }
    writer.close(b'}');
    writer.close(b']');
}

fn finish(writer: &mut Writer, id: Option<(&str, &str, usize)>, needs_status: bool) {
    if let Some((prefix, token, index)) = id {
        writer.key("id");
        writer.text(&format!("{prefix}{token}i{index}"));
    }
    if needs_status {
        writer.member_spelled("status", b"completed");
    }
    writer.close(b'}');
}
