//! Messages as the items of an input.
//!
//! A message of the assistant becomes its reasoning, its text and its calls, an item each, in this order.

use std::collections::BTreeSet;

use super::{ResponsesTarget, beyond};
use crate::input::left_out::LeftOut;
use crate::input::place::{Place, Refusal, of_kind, spelled};
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::writer::Writer;
use crate::protocols::chat::delta::REASONING;

/// Items as they are written.
pub(super) struct Items<'t, 'w> {
    out: &'w mut Writer,
    target: &'t ResponsesTarget,
    /// Ids of calls of custom tools, spelled: their outputs are items of another type.
    custom_calls: BTreeSet<Vec<u8>>,
    /// Items that had to get an id.
    ids: usize,
    left_out: LeftOut,
}

impl<'t, 'w> Items<'t, 'w> {
    /// Items that will be the next value of `out`.
    pub(super) fn new(target: &'t ResponsesTarget, out: &'w mut Writer) -> Self {
        out.open(b'[');
        Items {
            out,
            target,
            custom_calls: BTreeSet::new(),
            ids: 0,
            left_out: LeftOut::default(),
        }
    }

    /// Ends the items. Gives where what was left out stands.
    pub(super) fn finish(self) -> LeftOut {
        self.out.close(b']');
        self.left_out
    }

    pub(super) fn message(&mut self, message: Node<'_>, place: &Place<'_>) -> Result<(), Refusal> {
        of_kind(message, Kind::Object, "an object", place)?;
        let [role, content, name] = message.pick(["role", "content", "name"]);
        let role_place = place.member("role");
        spelled(role, &role_place)?;
        let role = role.and_then(|role| role.decode()).unwrap_or_default();
        let content_place = place.member("content");
        if name.is_some() && role != "tool" {
            self.left_out.add(place.member("name"));
        }
        match role.as_ref() {
            "user" | "system" | "developer" => {
                let content = content.ok_or_else(|| Refusal::missing(&content_place))?;
                self.out.open(b'{');
                self.out.member_spelled("role", role.as_bytes());
                self.out.key("content");
                self.content(content, &content_place)?;
                self.out.close(b'}');
                Ok(())
            }
            "assistant" => self.reply(message, content, place),
            "tool" => self.output(message, content, place),
            "function" => Err(beyond(place)),
            _ => Err(Refusal::new(
                &role_place,
                "The role must be 'user', 'assistant', 'tool', 'system' or 'developer'.",
            )),
        }
    }

    /// A content that goes to the model.
    fn content(&mut self, content: Node<'_>, place: &Place<'_>) -> Result<(), Refusal> {
        match content.kind() {
            Kind::String => self.out.raw(content.bytes()),
            Kind::Array => {
                self.out.open(b'[');
                for (index, part) in content.elements().enumerate() {
                    self.part(part, &place.element(index))?;
                }
                self.out.close(b']');
            }
            kind => return Err(Refusal::wrong_type(place, "a string or an array", kind)),
        }
        Ok(())
    }

    fn part(&mut self, part: Node<'_>, place: &Place<'_>) -> Result<(), Refusal> {
        of_kind(part, Kind::Object, "an object", place)?;
        let [kind, text, image, file] = part.pick(["type", "text", "image_url", "file"]);
        spelled(kind, &place.member("type"))?;
        let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
        match kind.as_ref() {
            "text" => {
                let text = spelled(text, &place.member("text"))?;
                self.text("input_text", "text", text);
            }
            "image_url" => {
                let place = place.member("image_url");
                let image = image.ok_or_else(|| Refusal::missing(&place))?;
                let [url, detail] = image.pick(["url", "detail"]);
                let url = spelled(url.or(Some(image)), &place.member("url"))?;
                self.out.open(b'{');
                self.out.member_spelled("type", b"input_image");
                self.out.member_spelled("image_url", url);
                let detail = detail.map_or(&b"\"auto\""[..], |detail| detail.bytes());
                self.out.member("detail", detail);
                self.out.close(b'}');
            }
            "file" => {
                let place = place.member("file");
                let file = file.ok_or_else(|| Refusal::missing(&place))?;
                of_kind(file, Kind::Object, "an object", &place)?;
                self.out.open(b'{');
                self.out.member_spelled("type", b"input_file");
                for (key, value) in file.members() {
                    if !key.is("type") {
                        self.out.copy_member(key.bytes(), value.bytes());
                    }
                }
                self.out.close(b'}');
            }
            // The same in both protocols, or a vendor's own.
            _ => self.out.raw(part.bytes()),
        }
        Ok(())
    }

    fn text(&mut self, kind: &str, name: &str, text: &[u8]) {
        self.out.open(b'{');
        self.out.member_spelled("type", kind.as_bytes());
        self.out.member_spelled(name, text);
        self.out.close(b'}');
    }

    fn reply(
        &mut self,
        message: Node<'_>,
        content: Option<Node<'_>>,
        place: &Place<'_>,
    ) -> Result<(), Refusal> {
        let [refusal, calls, audio, function_call] =
            message.pick(["refusal", "tool_calls", "audio", "function_call"]);
        for (name, value) in [("audio", audio), ("function_call", function_call)] {
            if value.is_some() {
                return Err(beyond(&place.member(name)));
            }
        }
        self.reasoning(message, place);
        let refusal = match refusal {
            Some(refusal) => Some(spelled(Some(refusal), &place.member("refusal"))?),
            None => None,
        };
        let content = content.filter(|content| !content.is("") || calls.is_none());
        if content.is_some() || refusal.is_some() {
            self.reply_text(content, refusal, &place.member("content"))?;
        }
        if let Some(calls) = calls {
            let place = place.member("tool_calls");
            of_kind(calls, Kind::Array, "an array", &place)?;
            for (index, call) in calls.elements().enumerate() {
                self.call(call, &place.element(index))?;
            }
        }
        Ok(())
    }

    fn reasoning(&mut self, message: Node<'_>, place: &Place<'_>) {
        for (name, reasoning) in REASONING.into_iter().zip(message.pick(REASONING)) {
            let Some(text) = reasoning
                .and_then(|it| it.spelled())
                .filter(|it| !it.is_empty())
            else {
                continue;
            };
            if !self.target.takes_reasoning {
                self.left_out.add(place.member(name));
                continue;
            }
            self.out.open(b'{');
            self.out.member_spelled("type", b"reasoning");
            self.id("rs_");
            self.out.member("summary", b"[]");
            self.out.key("content");
            self.out.open(b'[');
            self.text("reasoning_text", "text", text);
            self.out.close(b']');
            self.out.close(b'}');
            return;
        }
    }

    /// A made-up id for an item that must have one; the upstream has never seen it.
    fn id(&mut self, prefix: &str) {
        self.out.key("id");
        self.out.text(&format!("{prefix}{}", self.ids));
        self.ids += 1;
    }

    /// A string where there is no refusal: a message with parts of the assistant's own must have an id.
    fn reply_text(
        &mut self,
        content: Option<Node<'_>>,
        refusal: Option<&[u8]>,
        place: &Place<'_>,
    ) -> Result<(), Refusal> {
        let mut texts: Vec<&[u8]> = Vec::new();
        let mut refusals: Vec<&[u8]> = refusal.into_iter().collect();
        match content {
            Some(content) if content.kind() == Kind::Array => {
                for (index, part) in content.elements().enumerate() {
                    let place = place.element(index);
                    of_kind(part, Kind::Object, "an object", &place)?;
                    let [kind, text, refusal] = part.pick(["type", "text", "refusal"]);
                    if kind.is_some_and(|kind| kind.is("text")) {
                        texts.push(spelled(text, &place.member("text"))?);
                    } else if kind.is_some_and(|kind| kind.is("refusal")) {
                        refusals.push(spelled(refusal, &place.member("refusal"))?);
                    } else {
                        return Err(Refusal::new(
                            &place.member("type"),
                            "The assistant's content must be of type 'text' or 'refusal'.",
                        ));
                    }
                }
            }
            Some(content) => texts.push(spelled(Some(content), place)?),
            None => {}
        }
        self.out.open(b'{');
        if refusals.is_empty() {
            self.out.member_spelled("role", b"assistant");
            self.out.key("content");
            self.out.spelled_parts(&texts);
        } else {
            self.out.member_spelled("type", b"message");
            self.id("msg_");
            self.out.member_spelled("status", b"completed");
            self.out.member_spelled("role", b"assistant");
            self.out.key("content");
            self.out.open(b'[');
            for text in texts {
                self.out.open(b'{');
                self.out.member_spelled("type", b"output_text");
                self.out.member_spelled("text", text);
                self.out.member("annotations", b"[]");
                self.out.close(b'}');
            }
            for refusal in refusals {
                self.text("refusal", "refusal", refusal);
            }
            self.out.close(b']');
        }
        self.out.close(b'}');
        Ok(())
    }

    fn call(&mut self, call: Node<'_>, place: &Place<'_>) -> Result<(), Refusal> {
        of_kind(call, Kind::Object, "an object", place)?;
        let [id, function, custom, extra] =
            call.pick(["id", "function", "custom", "extra_content"]);
        let id = spelled(id, &place.member("id"))?;
        let (name, payload, kind, inner) = match custom {
            Some(custom) => ("custom", "input", "custom_tool_call", custom),
            None => {
                let place = place.member("function");
                let function = function.ok_or_else(|| Refusal::missing(&place))?;
                ("function", "arguments", "function_call", function)
            }
        };
        let place = place.member(name);
        of_kind(inner, Kind::Object, "an object", &place)?;
        let [name, text] = inner.pick(["name", payload]);
        let name = spelled(name, &place.member("name"))?;
        let text = match text {
            Some(text) => spelled(Some(text), &place.member(payload))?,
            None => b"",
        };
        if custom.is_some() {
            self.custom_calls.insert(id.to_vec());
        }
        self.out.open(b'{');
        self.out.member_spelled("type", kind.as_bytes());
        self.out.member_spelled("call_id", id);
        self.out.member_spelled("name", name);
        self.out.member_spelled(payload, text);
        if let Some(extra) = extra {
            self.out.member("extra_content", extra.bytes());
        }
        self.out.close(b'}');
        Ok(())
    }

    fn output(
        &mut self,
        message: Node<'_>,
        content: Option<Node<'_>>,
        place: &Place<'_>,
    ) -> Result<(), Refusal> {
        let id = spelled(message.get("tool_call_id"), &place.member("tool_call_id"))?;
        let place = place.member("content");
        let content = content.ok_or_else(|| Refusal::missing(&place))?;
        let kind = if self.custom_calls.contains(id) {
            "custom_tool_call_output"
        } else {
            "function_call_output"
        };
        self.out.open(b'{');
        self.out.member_spelled("type", kind.as_bytes());
        self.out.member_spelled("call_id", id);
        self.out.key("output");
        self.content(content, &place)?;
        self.out.close(b'}');
        Ok(())
    }
}
