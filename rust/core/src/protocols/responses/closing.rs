//! The end of a response that its upstream did not end: each item that is open is closed with what was said of it,
//! once.

use super::fold::Fold;
use super::fold::item::{FoldedItem, Text, call_member};
use super::members::{append, with_members};
use super::vocabulary::{Journal, PartKind, count, key, list, raw, string as member};
use super::writing::heading::error_code;
use crate::json::node::Node;
use crate::json::string;
use crate::output::Failure;

/// How a response ends here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<'a> {
    /// It failed.
    Failed {
        /// Why.
        failure: Failure<'a>,
        /// The upstream's own `error` event has said so.
        told: bool,
    },
    /// Somebody cancelled it. A stream has no event for that: it ends with `response.incomplete`, and the object says
    /// what happened.
    Cancelled,
}

/// Why the gateway has not let a response run, in words of its own: none of OpenAI's says it.
const REFUSALS: [&str; 11] = [
    "caller_disabled",
    "client_timeout",
    "endpoint_not_allowed",
    "expired_api_key",
    "invalid_api_key",
    "model_not_allowed",
    "model_not_found",
    "model_unpriced",
    "removed_api_key",
    "revoked_api_key",
    "unsupported_value",
];

/// The code of the response's `error`. What an upstream has said is given one of OpenAI's.
fn code(failure: Failure<'_>, told: bool) -> &'static str {
    let own = REFUSALS
        .into_iter()
        .find(|code| !told && failure.code == Some(code));
    own.unwrap_or_else(|| error_code(failure))
}

impl Fold {
    /// Appends the events that end the response: what is open is closed, as incomplete, and a failure has an `error`
    /// event before the last one. The Response object as it is then, and the number that an event behind these would
    /// have. `first`: their first number; `model` is shown instead of the upstream's.
    pub fn end(
        &self,
        end: End<'_>,
        first: u64,
        model: Option<&str>,
        out: &mut Vec<u8>,
    ) -> (Vec<u8>, u64) {
        let mut journal = Journal::after(first.checked_sub(1));
        let mut output = Vec::new();
        for item in self.in_order() {
            append(&mut output, &item.end(&mut journal, out));
        }
        let output = [b"[", &output[..], b"]"].concat();
        let mut error = b"null".to_vec();
        let (kind, status): (_, &[u8]) = match end {
            End::Failed { failure, told } => {
                if !told {
                    journal.error(failure, out);
                }
                error = b"{\"code\":\"".to_vec();
                error.extend_from_slice(code(failure, told).as_bytes());
                error.extend_from_slice(b"\",\"message\":");
                string::encode(failure.message, &mut error);
                error.push(b'}');
                ("response.failed", b"\"failed\"")
            }
            End::Cancelled => ("response.incomplete", b"\"cancelled\""),
        };
        let mut members: Vec<(&str, &[u8])> = vec![
            ("status", status),
            ("error", &error),
            ("output", &output),
            ("completed_at", b"null"),
        ];
        let mut shown = Vec::new();
        if let Some(model) = model {
            string::encode(model, &mut shown);
            members.push(("model", &shown));
        }
        let response = with_members(&self.response, &members);
        journal.event(kind, out, |out| raw("response", &response, out));
        (response, journal.following())
    }
}

impl FoldedItem {
    /// Appends the events that close it, where it is open. The item as it is then.
    fn end(&self, journal: &mut Journal, out: &mut Vec<u8>) -> Vec<u8> {
        let object = Node::document(&self.object);
        let status = status_of(self.kind());
        if self.done {
            let is_open = object
                .and_then(|object| object.get("status"))
                .is_some_and(|status| status.is("in_progress"));
            return self.shown(is_open.then_some(status));
        }
        let mut silent = call_member(self.kind()).is_some();
        for text in &self.texts {
            match text.kind() {
                Some(kind) => self.end_part(kind, text, journal, out),
                None if text.sort.is_some() => {
                    silent = false;
                    if !text.whole {
                        self.end_call(&text.said, journal, out);
                    }
                }
                None => self.end_frame(PartKind::Text, text, journal, out),
            }
        }
        if silent {
            let said = call_member(self.kind())
                .zip(object)
                .and_then(|(name, object)| object.filled(name));
            self.end_call(said.unwrap_or_default(), journal, out);
        }
        let whole = self.shown(Some(status));
        journal.event("response.output_item.done", out, |out| {
            count("output_index", self.index, out);
            raw("item", &whole, out);
        });
        whole
    }

    fn place(&self, out: &mut Vec<u8>) {
        member("item_id", &self.id, out);
        count("output_index", self.index, out);
    }

    fn end_call(&self, said: &[u8], journal: &mut Journal, out: &mut Vec<u8>) {
        let kind = self.kind();
        let Some(name) = call_member(kind) else {
            return;
        };
        let event = match kind {
            Some(b"custom_tool_call") => "response.custom_tool_call_input.done",
            Some(b"mcp_call") => "response.mcp_call_arguments.done",
            _ => "response.function_call_arguments.done",
        };
        let object = Node::document(&self.object);
        let called = object.and_then(|object| object.filled("name"));
        journal.event(event, out, |out| {
            self.place(out);
            member(name, said, out);
            if let Some(called) = called.filter(|_| name == "arguments") {
                member("name", called, out);
            }
        });
    }

    fn end_part(&self, kind: PartKind, text: &Text, journal: &mut Journal, out: &mut Vec<u8>) {
        if !text.whole {
            journal.event(&[kind.stem(), ".done"].concat(), out, |out| {
                self.place(out);
                count(kind.index(), text.index, out);
                member(kind.whole(), &text.said, out);
                if kind == PartKind::Text {
                    list("logprobs", &text.logprobs, out);
                }
            });
        }
        self.end_frame(kind, text, journal, out);
    }

    fn end_frame(&self, kind: PartKind, text: &Text, journal: &mut Journal, out: &mut Vec<u8>) {
        if text.open {
            journal.event(&[kind.frame(), ".done"].concat(), out, |out| {
                self.place(out);
                count(kind.index(), text.index, out);
                key("part", out);
                text.write(out);
            });
        }
    }
}

/// What an item's `status` is called that will not be completed: the types of these have no `incomplete`.
fn status_of(kind: Option<&[u8]>) -> &'static [u8] {
    match kind {
        Some(b"web_search_call" | b"image_generation_call") => b"\"failed\"",
        _ => b"\"incomplete\"",
    }
}
