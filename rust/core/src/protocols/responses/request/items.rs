//! The items of a request's input: those before them, those that they refer to, and how they are listed.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use memchr::memmem;

use super::super::members::with_members;
use super::ResponsesRequest;
use crate::error::{Error, ErrorKind};
use crate::input::place::Place;
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::splice::Splice;
use crate::json::string;
use crate::json::writer::Writer;
use crate::limits::{Limits, MAX_REFERENCES};

impl ResponsesRequest {
    /// The same request with earlier items in front of its input and without `previous_response_id`, which
    /// [`previous_response_id`](Self::previous_response_id) still tells. A string input becomes a message of the user.
    /// All other members keep their bytes and their order. `hold` is given the new body, and gives what is kept in its
    /// place.
    ///
    /// # Errors
    /// [`ErrorKind::DocumentTooLarge`](crate::error::ErrorKind::DocumentTooLarge), and for items that are no JSON what
    /// their fault is.
    pub fn with_input_prefix(
        &self,
        items: &[Bytes],
        limits: &Limits,
        hold: impl FnOnce(Bytes) -> Bytes,
    ) -> Result<Self, Error> {
        let added: usize = items.iter().map(|item| item.len() + 1).sum();
        // Nothing is made that would be refused for its size alone.
        if added > limits.max_document {
            return Err(Error::new(ErrorKind::DocumentTooLarge, added as u64));
        }
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
                Kind::String => write_message(input.bytes(), None, &mut writer),
                _ => writer.raw(input.bytes()),
            }
        }
        writer.close(b']');
        writer.close(b'}');
        let mut request = ResponsesRequest::parse(hold(writer.into_bytes().into()), limits)?;
        request
            .previous_response_id
            .clone_from(&self.previous_response_id);
        Ok(request)
    }

    /// The ids that items of the input refer to, in their order: see [`refers`](Self::refers). At most one more than
    /// [`MAX_REFERENCES`] of them.
    #[must_use]
    pub fn references(&self) -> Vec<String> {
        let input = self.get("input").filter(|_| self.refers());
        let items = input.iter().flat_map(Node::elements);
        items
            .filter(|item| is_reference(*item))
            .map(|item| referred(item).unwrap_or_default())
            .take(MAX_REFERENCES + 1)
            .collect()
    }

    /// The same request with items in place of references to them. A reference to what is not in `found` stays as it
    /// is. `hold`: as [`with_input_prefix`](Self::with_input_prefix) has it.
    ///
    /// # Errors
    /// As [`with_input_prefix`](Self::with_input_prefix) gives them.
    pub fn with_items(
        &self,
        found: &BTreeMap<String, Bytes>,
        limits: &Limits,
        hold: impl FnOnce(Bytes) -> Bytes,
    ) -> Result<Self, Error> {
        let mut splice = Splice::new();
        let mut size = self.body().len();
        let input = self.get("input");
        for item in input.iter().flat_map(Node::elements) {
            if !is_reference(item) {
                continue;
            }
            if let Some(with) = referred(item).and_then(|id| found.get(&id)) {
                size = size.saturating_add(with.len());
                if size > limits.max_document {
                    return Err(Error::new(ErrorKind::DocumentTooLarge, size as u64));
                }
                splice.replace(item.range(), with.clone());
            }
        }
        let mut body = Vec::with_capacity(size);
        splice.apply(self.body(), &mut body);
        ResponsesRequest::parse(hold(body.into()), limits)
    }

    /// The body as it is run in the background: it streams, whatever the client asked for, and whoever gets it answers
    /// at once.
    #[must_use]
    pub fn as_run(&self) -> Vec<u8> {
        let members: [(&str, &[u8]); 2] = [("stream", b"true"), ("background", b"false")];
        with_members(self.root().bytes(), &members)
    }

    /// See [`refers`](Self::refers).
    pub(super) fn has_references(&self) -> bool {
        // Most requests refer to no item, and a search of their bytes shows it. An escape may hide a name, so any
        // escape counts.
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

/// What a reference refers to, decoded. None for an id that is no string.
fn referred(item: Node<'_>) -> Option<String> {
    Some(item.get("id")?.decode()?.into_owned())
}

pub(in crate::protocols::responses) fn is_reference(item: Node<'_>) -> bool {
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

/// Where an item of a request stands: what its id is made of, where it has none.
#[derive(Clone, Copy, Debug)]
pub(in crate::protocols::responses) struct Made<'a> {
    pub(in crate::protocols::responses) token: &'a str,
    pub(in crate::protocols::responses) index: usize,
}

impl Made<'_> {
    pub(in crate::protocols::responses) fn id(self, kind: &str) -> String {
        let (prefix, _) = traits(kind);
        format!("{prefix}{}i{}", self.token, self.index)
    }
}

/// The id of an item as it is listed: its own, or one that is made of its place. An id made of the same token and a
/// number alone is therefore another one.
pub(in crate::protocols::responses) fn id_of(item: Node<'_>, made: Made<'_>) -> String {
    let [kind, role, id] = item.pick(["type", "role", "id"]);
    match id.and_then(|id| id.decode()) {
        Some(id) => id.into_owned(),
        None => made.id(&kind_of(kind, role)),
    }
}

fn kind_of<'a>(kind: Option<Node<'a>>, role: Option<Node<'a>>) -> Cow<'a, str> {
    let decoded = kind.and_then(|kind| kind.decode());
    match role {
        Some(_) if decoded.as_deref().is_none_or(|kind| kind == "message") => "message".into(),
        _ => decoded.unwrap_or_default(),
    }
}

/// Appends an item of a request as it is listed: with an `id`, a `type` and, where its kind has one, a `status`; a
/// message's content is an array of parts.
pub(in crate::protocols::responses) fn write_listed(
    item: Node<'_>,
    made: Made<'_>,
    writer: &mut Writer,
) {
    let [kind, role, content, id, status] = item.pick(["type", "role", "content", "id", "status"]);
    let is_typed = kind.is_some_and(|kind| kind.kind() == Kind::String);
    let kind = kind_of(kind, role);
    let is_message = kind == "message" && role.is_some();
    let (_, has_status) = traits(&kind);
    let text = content.filter(|content| is_message && content.kind() == Kind::String);
    let needs_status = has_status && status.is_none();
    let has_id = id.is_some_and(|id| id.kind() == Kind::String);
    writer.open(b'{');
    if !is_typed && is_message {
        writer.member_spelled("type", b"message");
    }
    for (key, value) in item.members() {
        let is_null = value.kind() == Kind::Null;
        if (!has_id && key.is("id"))
            || (is_null && key.is("status"))
            || (!is_typed && is_message && key.is("type"))
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
            write_text_part(writer, part, text.bytes());
        } else {
            writer.copy_member(key.bytes(), value.bytes());
        }
    }
    if !has_id {
        writer.key("id");
        writer.text(&made.id(&kind));
    }
    if needs_status {
        writer.member_spelled("status", b"completed");
    }
    writer.close(b'}');
}

/// Appends a string input as the one message that it stands for, `listed` or as it is sent to an upstream.
pub(in crate::protocols::responses) fn write_message(
    input: &[u8],
    listed: Option<Made<'_>>,
    writer: &mut Writer,
) {
    writer.open(b'{');
    writer.member_spelled("type", b"message");
    writer.member_spelled("role", b"user");
    match listed {
        Some(made) => {
            writer.key("content");
            write_text_part(writer, "input_text", input);
            writer.key("id");
            writer.text(&made.id("message"));
            writer.member_spelled("status", b"completed");
        }
        None => writer.member("content", input),
    }
    writer.close(b'}');
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
