//! One choice of a completion in the making.

use super::calls::Calls;
use super::merge::{Input, Object, Slot, write_key};
use super::rules::Level;
use crate::json::fields::{Field, elements, fields, find, weight};
use crate::json::scan::{Kind, Value};

/// One choice.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// Members other than the index and the message.
    members: Object,
    /// Members of the message; `tool_calls` stands for the calls once there are any.
    message: Object,
    calls: Calls,
    has_delta: bool,
    /// What the message costs if it came whole.
    whole_message: usize,
}

impl Choice {
    /// Joins one piece of the choice, an object given by its members.
    pub(super) fn merge(&mut self, members: &[Field<'_>], input: &mut Input<'_>) {
        let is_object = |value: &Value| value.kind == Kind::Object;
        // A `message` beside deltas repeats the delta (Writer) or the whole answer so far (Perplexity).
        if let Some(delta) = find(members, "delta").filter(is_object) {
            self.has_delta = true;
            self.merge_message(delta, input);
        } else if let Some(message) = find(members, "message").filter(is_object)
            && !self.has_delta
        {
            input.held = input.held.saturating_sub(self.whole_message);
            self.message = Object::default();
            self.calls = Calls::default();
            let before = input.held;
            self.merge_message(message, input);
            self.whole_message = input.held.saturating_sub(before);
        }
        for field in members {
            if !matches!(&*field.key, b"index" | b"delta" | b"message") {
                self.members
                    .merge_member(Level::Choice, &field.key, field.value, input);
            }
        }
    }

    fn merge_message(&mut self, message: Value, input: &mut Input<'_>) {
        let text = input.text;
        for field in fields(text, message) {
            if *field.key == *b"tool_calls" {
                match field.value.kind {
                    Kind::Array => {
                        for call in elements(text, field.value).filter(|c| c.kind == Kind::Object) {
                            self.calls.merge(call, input);
                        }
                    }
                    // TGI before #3075 sent the one call as it is.
                    Kind::Object if weight(text, field.value) == 2 => {
                        self.calls.merge(field.value, input);
                    }
                    _ => {}
                }
                if !self.calls.is_empty() {
                    self.message.set(b"tool_calls", Slot::Raw(Vec::new()));
                    continue;
                }
            }
            self.message
                .merge_member(Level::Message, &field.key, field.value, input);
        }
    }

    /// Whether this is a choice of `/v1/completions`: it has a text and never had a message.
    pub(super) fn is_text(&self) -> bool {
        !self.has_delta && self.message.is_empty() && self.members.get(b"text").is_some()
    }

    /// Appends the choice as JSON text, without a message if it is one of a text completion.
    ///
    /// A stream that never names the role (llama.cpp asked to go on with a message, guidellm's mock) takes the rest for
    /// granted as well: then the members that OpenAI's schema requires of a choice and its message are supplied.
    pub(super) fn write(mut self, index: u64, is_text: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"index\":");
        out.extend_from_slice(index.to_string().as_bytes());
        if !is_text {
            let null = || Slot::Raw(b"null".to_vec());
            if !self.message.says(b"role") {
                self.message
                    .set(b"role", Slot::Raw(b"\"assistant\"".to_vec()));
                self.message.set_default(b"content", null);
                self.members.set_default(b"finish_reason", null);
            }
            out.extend_from_slice(b",\"message\":{");
            let mut calls = Some(self.calls).filter(|calls| !calls.is_empty());
            for (i, (key, slot)) in self.message.iter().enumerate() {
                write_key(i == 0, key, out);
                match calls.take_if(|_| key == b"tool_calls") {
                    Some(calls) => calls.write(out),
                    None => slot.write(out),
                }
            }
            out.push(b'}');
        }
        for (key, slot) in self.members.iter() {
            write_key(false, key, out);
            slot.write(out);
        }
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests;
