//! The events of a response that was not streamed: what a stream of it would have been, with whole deltas.

use super::fold::item::call_member;
use super::fold::readable;
use super::members::{interior, with_members};
use super::reading::event::part_text;
use super::reading::items::Sort;
use super::vocabulary::{Journal, PartKind, count, key, list, raw, string as member};
use crate::error::{Error, ErrorKind};
use crate::json::fields::compact;
use crate::json::node::Node;
use crate::json::scan::{self, Kind};
use crate::limits::Limits;

/// The events of a Response object (JSON), without `[DONE]`; the last one has the object as it is, on one line.
///
/// # Errors
/// `response` is no JSON object of less than `max_depth` of `limits`.
///
/// ```
/// use sluicegate_core::limits::Limits;
/// use sluicegate_core::protocols::responses::unfolding::unfold;
///
/// let events = unfold(br#"{"id":"resp_1","status":"completed","output":[]}"#, &Limits::default())?;
/// let events = String::from_utf8(events).unwrap();
/// let names: Vec<_> = events.lines().filter_map(|line| line.strip_prefix("event: response.")).collect();
/// assert_eq!(names, ["created", "in_progress", "completed"]);
/// # Ok::<(), sluicegate_core::error::Error>(())
/// ```
pub fn unfold(response: &[u8], limits: &Limits) -> Result<Vec<u8>, Error> {
    let response = readable(response);
    let value = scan::document(&response, limits.max_depth)?;
    if value.kind != Kind::Object {
        return Err(Error::new(ErrorKind::NotAnObject, value.start as u64));
    }
    let whole = Node::new(&response, value);
    let begun = with_members(
        whole.bytes(),
        &[
            ("status", b"\"in_progress\""),
            ("output", b"[]"),
            ("usage", b"null"),
            ("completed_at", b"null"),
            ("error", b"null"),
        ],
    );
    let mut journal = Journal::new(true);
    let mut out = Vec::with_capacity(4 * response.len());
    for kind in ["response.created", "response.in_progress"] {
        journal.event(kind, &mut out, |out| raw("response", &begun, out));
    }
    let [output, status] = whole.pick(["output", "status"]);
    let items = output.iter().flat_map(Node::elements);
    for (index, item) in (0..).zip(items.filter(|item| item.kind() == Kind::Object)) {
        let mut one = Vec::with_capacity(item.bytes().len());
        compact(item.bytes(), &mut one);
        if let Some(item) = Node::document(&one) {
            Unfolded { item, index }.write(&mut journal, &mut out);
        }
    }
    let end = match status.and_then(|status| status.decode()).as_deref() {
        Some("completed") => "response.completed",
        Some("failed") => "response.failed",
        _ => "response.incomplete",
    };
    journal.event(end, &mut out, |out| {
        key("response", out);
        compact(whole.bytes(), out);
    });
    Ok(out)
}

/// An item on one line, and its place.
struct Unfolded<'a> {
    item: Node<'a>,
    index: u64,
}

impl Unfolded<'_> {
    fn place(&self, out: &mut Vec<u8>) {
        member("item_id", self.item.filled("id").unwrap_or_default(), out);
        count("output_index", self.index, out);
    }

    fn write(&self, journal: &mut Journal, out: &mut Vec<u8>) {
        let item = self.item;
        let kind = item.filled("type");
        let has_parts = matches!(kind, Some(b"message" | b"reasoning"));
        let lists = ["content", "summary"].map(|name| {
            item.get(name)
                .filter(|parts| has_parts && parts.kind() == Kind::Array)
        });
        let call = call_member(kind);
        let mut emptied: Vec<(&str, &[u8])> = vec![("status", b"\"in_progress\"")];
        for (name, parts) in ["content", "summary"].into_iter().zip(lists) {
            if parts.is_some() {
                emptied.push((name, b"[]"));
            }
        }
        if let Some(name) = call {
            emptied.push((name, b"\"\""));
        }
        let opened = with_members(item.bytes(), &emptied);
        self.about_item(journal, "response.output_item.added", &opened, out);
        if let Some(name) = call {
            self.write_call(kind, name, journal, out);
        }
        let [content, summary] = lists;
        for (list, shelf) in [(summary, PartKind::Summary), (content, PartKind::Text)] {
            for (at, part) in (0..).zip(list.iter().flat_map(Node::elements)) {
                self.write_part(shelf, at, part, journal, out);
            }
        }
        self.about_item(journal, "response.output_item.done", item.bytes(), out);
    }

    fn about_item(&self, journal: &mut Journal, kind: &str, item: &[u8], out: &mut Vec<u8>) {
        journal.event(kind, out, |out| {
            count("output_index", self.index, out);
            raw("item", item, out);
        });
    }

    fn write_call(
        &self,
        kind: Option<&[u8]>,
        name: &str,
        journal: &mut Journal,
        out: &mut Vec<u8>,
    ) {
        let stem = match kind {
            Some(b"custom_tool_call") => "response.custom_tool_call_input",
            Some(b"mcp_call") => "response.mcp_call_arguments",
            _ => "response.function_call_arguments",
        };
        let said = self.item.filled(name).unwrap_or_default();
        if !said.is_empty() {
            journal.event(&[stem, ".delta"].concat(), out, |out| {
                self.place(out);
                member("delta", said, out);
            });
        }
        let called = self.item.filled("name").filter(|_| name == "arguments");
        journal.event(&[stem, ".done"].concat(), out, |out| {
            self.place(out);
            member(name, said, out);
            if let Some(called) = called {
                member("name", called, out);
            }
        });
    }

    /// `shelf` says whether it is a part of the summary, or of the content.
    fn write_part(
        &self,
        shelf: PartKind,
        at: u64,
        part: Node<'_>,
        journal: &mut Journal,
        out: &mut Vec<u8>,
    ) {
        if part.kind() != Kind::Object {
            return;
        }
        let sort = part_text(part);
        let kind = match sort {
            Some((Sort::Summary, _)) => Some(PartKind::Summary),
            Some((Sort::Refusal, _)) => Some(PartKind::Refusal),
            Some((Sort::Thinking, _)) => Some(PartKind::Reasoning),
            Some((Sort::Text, _)) => Some(PartKind::Text),
            _ => None,
        }
        .filter(|kind| (*kind == PartKind::Summary) == (shelf == PartKind::Summary));
        let place = |out: &mut Vec<u8>| {
            self.place(out);
            count(shelf.index(), at, out);
        };
        let about_part = |journal: &mut Journal, what: &str, part: &[u8], out: &mut Vec<u8>| {
            journal.event(&[shelf.frame(), what].concat(), out, |out| {
                place(out);
                raw("part", part, out);
            });
        };
        let Some((kind, (_, name))) = kind.zip(sort) else {
            about_part(journal, ".added", part.bytes(), out);
            return about_part(journal, ".done", part.bytes(), out);
        };
        let said = part.filled(name).unwrap_or_default();
        let logprobs = interior(part, "logprobs");
        let mut emptied: Vec<(&str, &[u8])> = vec![(name, b"\"\"")];
        if kind == PartKind::Text {
            emptied.push(("logprobs", b"[]"));
        }
        about_part(
            journal,
            ".added",
            &with_members(part.bytes(), &emptied),
            out,
        );
        let with_logprobs = |out: &mut Vec<u8>| {
            if kind == PartKind::Text {
                list("logprobs", logprobs, out);
            }
        };
        if !said.is_empty() {
            journal.event(&[kind.stem(), ".delta"].concat(), out, |out| {
                place(out);
                member("delta", said, out);
                with_logprobs(out);
            });
        }
        journal.event(&[kind.stem(), ".done"].concat(), out, |out| {
            place(out);
            member(kind.whole(), said, out);
            with_logprobs(out);
        });
        about_part(journal, ".done", part.bytes(), out);
    }
}
