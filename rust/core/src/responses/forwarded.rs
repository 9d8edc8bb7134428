//! A response that is forwarded as it came, and how it is ended where its upstream does not end it: each item that is open is closed with
//! what was said of it, and the response fails.
//!
//! Nothing is named anew. The response and its items are those of the upstream's events, which the client has seen; what was streamed
//! since they were announced is put into them.

use super::reading::event::{Event, part_text, text_event};
use super::reading::items::Sort;
use super::vocabulary::{Journal, PartKind, count, key, list, raw, string as member};
use super::writing::heading::error_code;
use crate::chat::member::compact;
use crate::json::node::Node;
use crate::json::string;
use crate::limits::MAX_ITEMS;
use crate::output::Failure;

/// Where a text is that an event says the next part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    item: usize,
    text: usize,
}

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing that has to be known.
    Nothing,
    /// The next part of a text, and no more: of an event that differs in its `delta` alone, that can be [said](Forwarded::say) there.
    Next(Place),
    /// More.
    More,
}

/// What is known of a response whose events go on as they come.
///
/// ```
/// use sluicegate_core::output::Failure;
/// use sluicegate_core::responses::forwarded::Forwarded;
///
/// let mut forwarded = Forwarded::new(1 << 20, 64);
/// for event in [
///     &br#"{"type":"response.created","response":{"id":"resp_1","status":"in_progress","output":[]}}"#[..],
///     br#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"msg_1","content":[]}}"#,
///     br#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Hi"}"#,
/// ] {
///     forwarded.read(event);
/// }
/// let mut events = Vec::new();
/// forwarded.fail(Failure { message: "it broke off", ..Failure::default() }, Some(2), false, None, &mut events);
/// let events = String::from_utf8(events).unwrap();
/// let names: Vec<_> = events.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
/// assert_eq!(names, [
///     "response.output_text.done", "response.output_item.done", "error", "response.failed",
/// ]);
/// ```
#[derive(Debug)]
pub struct Forwarded {
    max_bytes: usize,
    max_depth: usize,
    /// The response as the last event showed it that did.
    response: Vec<u8>,
    items: Vec<Item>,
    /// Items and texts of items that were kept.
    parts: usize,
    /// Bytes of all that is kept.
    held: usize,
}

#[derive(Debug)]
struct Item {
    index: u64,
    /// Spelled.
    id: Vec<u8>,
    /// As it was announced; once it is done, as it was then.
    object: Vec<u8>,
    done: bool,
    texts: Vec<Text>,
}

#[derive(Debug)]
struct Text {
    sort: Sort,
    index: u64,
    said: Vec<u8>,
    /// What stands between the brackets.
    logprobs: Vec<u8>,
    annotations: Vec<u8>,
    /// An event said that its part begins.
    announced: bool,
    /// An event said all of it.
    whole: bool,
    /// Its part, as it was when it was done.
    part: Option<Vec<u8>>,
}

impl Forwarded {
    /// A response of which at most `max_bytes` and [`MAX_ITEMS`] are kept; past that, nothing of its items is. Events with more than `max_depth` open
    /// containers are not read.
    #[must_use]
    pub fn new(max_bytes: usize, max_depth: usize) -> Self {
        Forwarded {
            max_bytes,
            max_depth,
            response: Vec::new(),
            items: Vec::new(),
            parts: 0,
            held: 0,
        }
    }

    /// Whether an event has named the response.
    #[must_use]
    pub fn is_named(&self) -> bool {
        !self.response.is_empty()
    }

    /// Takes in an event's data.
    pub fn read(&mut self, payload: &[u8]) -> Told {
        let Ok(event) = Event::read(payload, self.max_depth) else {
            return Told::Nothing;
        };
        self.read_event(&event).unwrap_or(Told::Nothing)
    }

    fn read_event(&mut self, event: &Event<'_>) -> Option<Told> {
        if let Some((sort, _)) = text_event(event.kind) {
            return self.read_text(event, sort);
        }
        match event.kind {
            b"response.created" | b"response.queued" | b"response.in_progress" => {
                if let Some(response) = event.response {
                    self.response = response.bytes().to_vec();
                }
            }
            b"response.output_item.added" | b"response.output_item.done" => {
                self.read_item(event, event.kind.ends_with(b".done"));
            }
            b"response.content_part.added"
            | b"response.reasoning_part.added"
            | b"response.reasoning_summary_part.added" => {
                let (sort, _) = event.part.and_then(part_text)?;
                let place = self.place(event, sort)?;
                self.text(place)?.announced = true;
            }
            b"response.content_part.done"
            | b"response.reasoning_part.done"
            | b"response.reasoning_summary_part.done" => {
                let part = event.part?;
                let (sort, _) = part_text(part)?;
                let place = self.place(event, sort)?;
                self.hold(part.bytes().len());
                self.text(place)?.part = Some(part.bytes().to_vec());
            }
            b"response.output_text.annotation.added" => {
                let annotation = event.annotation?.bytes();
                let place = self.place(event, Sort::Text)?;
                self.hold(annotation.len());
                append(&mut self.text(place)?.annotations, annotation);
            }
            _ => return None,
        }
        Some(Told::More)
    }

    /// Takes in the next part of the text at `place`, spelled.
    #[inline]
    pub fn say(&mut self, place: Place, said: &[u8]) {
        if let Some(text) = self.text(place) {
            text.said.extend_from_slice(said);
            self.hold(said.len());
        }
    }

    fn read_text(&mut self, event: &Event<'_>, sort: Sort) -> Option<Told> {
        let place = self.place(event, sort)?;
        let logprobs: Vec<_> = event
            .logprobs
            .iter()
            .flat_map(Node::elements)
            .map(|one| one.bytes())
            .collect();
        let said = event.delta.or(event.whole)?.spelled()?;
        let size = said.len() + logprobs.iter().map(|one| one.len()).sum::<usize>();
        let is_delta = event.delta.is_some();
        let text = self.text(place)?;
        if is_delta {
            text.said.extend_from_slice(said);
            for one in &logprobs {
                append(&mut text.logprobs, one);
            }
        } else {
            text.said = said.to_vec();
            text.whole = true;
        }
        self.hold(size);
        Some(if is_delta && logprobs.is_empty() {
            Told::Next(place)
        } else {
            Told::More
        })
    }

    fn read_item(&mut self, event: &Event<'_>, done: bool) {
        let Some(object) = event.item else {
            return;
        };
        if !self.hold(object.bytes().len()) {
            return;
        }
        let known = if done { self.item_of(event) } else { None };
        let place = match known {
            Some(place) => place,
            None if !self.hold_part() => return,
            None => {
                let next = u64::try_from(self.items.len()).unwrap_or(u64::MAX);
                self.items.push(Item {
                    index: event.output_index.unwrap_or(next),
                    id: object.filled("id").unwrap_or_default().to_vec(),
                    object: Vec::new(),
                    done,
                    texts: Vec::new(),
                });
                self.items.len() - 1
            }
        };
        if let Some(item) = self.items.get_mut(place) {
            item.object = object.bytes().to_vec();
            item.done = done;
            if done {
                item.texts = Vec::new();
            }
        }
    }

    /// The item that an event is about: the last of its index, or of its id where it gives no index.
    fn item_of(&self, event: &Event<'_>) -> Option<usize> {
        let id = match event.item {
            Some(item) => item.filled("id").unwrap_or_default(),
            None => event.item_id,
        };
        self.items
            .iter()
            .rposition(|item| match event.output_index {
                Some(index) => item.index == index,
                None => item.id == id,
            })
    }

    /// The text of this sort that an event is about, of an item that is open.
    fn place(&mut self, event: &Event<'_>, sort: Sort) -> Option<Place> {
        let place = self.item_of(event)?;
        let item = self.items.get(place).filter(|item| !item.done)?;
        let index = match sort {
            Sort::Arguments => 0,
            Sort::Summary => event.summary_index.unwrap_or(0),
            _ => event.content_index.unwrap_or(0),
        };
        let is_it = |text: &Text| text.sort == sort && text.index == index;
        let known = item.texts.iter().rposition(is_it);
        let text = match known {
            Some(text) => text,
            None if !self.hold_part() => return None,
            None => {
                let texts = &mut self.items.get_mut(place)?.texts;
                texts.push(Text::new(sort, index));
                texts.len() - 1
            }
        };
        Some(Place { item: place, text })
    }

    #[inline]
    fn text(&mut self, place: Place) -> Option<&mut Text> {
        self.items.get_mut(place.item)?.texts.get_mut(place.text)
    }

    /// Counts one more item or text that is kept: each event looks for its own among all of them. False where that is too many.
    fn hold_part(&mut self) -> bool {
        self.parts += 1;
        self.parts <= MAX_ITEMS || self.hold(usize::MAX)
    }

    /// Counts what is kept. False where that is too much: its items are left as they are then, and nothing more is kept.
    fn hold(&mut self, bytes: usize) -> bool {
        self.held = self.held.saturating_add(bytes);
        let fits = self.held <= self.max_bytes;
        if !fits {
            self.items = Vec::new();
        }
        fits
    }

    /// Ends the response: closes what is open, says why in an `error` event (unless the client was `told` by the upstream's), and appends
    /// `response.failed` and the stream's end. `last`: the last event's number; `model` is shown instead of the upstream's.
    ///
    /// Nothing is appended where no event has [named](Self::is_named) the response.
    pub fn fail(
        &self,
        failure: Failure<'_>,
        last: Option<u64>,
        told: bool,
        model: Option<&str>,
        out: &mut Vec<u8>,
    ) {
        if !self.is_named() {
            return;
        }
        let mut journal = Journal::after(last);
        let mut items: Vec<_> = self.items.iter().collect();
        items.sort_by_key(|item| item.index);
        let mut output = Vec::new();
        for item in items {
            if item.done {
                append_compact(&mut output, &item.object);
            } else {
                append(&mut output, &item.close(&mut journal, out));
            }
        }
        if !told {
            journal.error(failure, out);
        }
        let mut error = b"{\"code\":\"".to_vec();
        error.extend_from_slice(error_code(failure).as_bytes());
        error.extend_from_slice(b"\",\"message\":");
        string::encode(failure.message, &mut error);
        error.push(b'}');
        let output = [b"[", &output[..], b"]"].concat();
        let mut members: Vec<(&str, &[u8])> = vec![
            ("status", b"\"failed\""),
            ("error", &error),
            ("output", &output),
        ];
        let mut shown = Vec::new();
        if let Some(model) = model {
            string::encode(model, &mut shown);
            members.push(("model", &shown));
        }
        let response = with_members(&self.response, &members);
        journal.event("response.failed", out, |out| {
            raw("response", &response, out)
        });
        out.extend_from_slice(b"data: [DONE]\n\n");
    }
}

impl Item {
    /// Appends the events that close it. The item as it is then.
    fn close(&self, journal: &mut Journal, out: &mut Vec<u8>) -> Vec<u8> {
        let object = Node::document(&self.object);
        let kind = object.and_then(|object| object.filled("type"));
        let (mut content, mut summary) = (Vec::new(), Vec::new());
        let mut call = None;
        let silent = Text::new(Sort::Arguments, 0);
        let is_silent =
            matches!(kind, Some(b"function_call" | b"custom_tool_call")) && self.texts.is_empty();
        for text in self.texts.iter().chain(is_silent.then_some(&silent)) {
            let Some(part) = text.kind() else {
                self.close_call(kind, text, journal, out);
                call = Some([b"\"", &text.said[..], b"\""].concat());
                continue;
            };
            let whole = self.close_part(part, text, journal, out);
            append(
                match part {
                    PartKind::Summary => &mut summary,
                    _ => &mut content,
                },
                &whole,
            );
        }
        let content = [b"[", &content[..], b"]"].concat();
        let summary = [b"[", &summary[..], b"]"].concat();
        let mut members: Vec<(&str, &[u8])> = vec![("status", status_of(kind))];
        if content.len() > 2 {
            members.push(("content", &content));
        }
        if summary.len() > 2 {
            members.push(("summary", &summary));
        }
        if let Some(call) = &call {
            members.push((call_member(kind), call));
        }
        let whole = with_members(&self.object, &members);
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

    fn close_call(
        &self,
        kind: Option<&[u8]>,
        text: &Text,
        journal: &mut Journal,
        out: &mut Vec<u8>,
    ) {
        if text.whole {
            return;
        }
        let event = match kind {
            Some(b"custom_tool_call") => "response.custom_tool_call_input.done",
            _ => "response.function_call_arguments.done",
        };
        journal.event(event, out, |out| {
            self.place(out);
            member(call_member(kind), &text.said, out);
        });
    }

    /// The part as it is when it is done.
    fn close_part(
        &self,
        kind: PartKind,
        text: &Text,
        journal: &mut Journal,
        out: &mut Vec<u8>,
    ) -> Vec<u8> {
        let mut whole = Vec::new();
        if let Some(part) = &text.part {
            compact(part, &mut whole);
            return whole;
        }
        kind.write(&text.said, &text.annotations, &text.logprobs, &mut whole);
        let place = |out: &mut Vec<u8>| {
            self.place(out);
            count(kind.index(), text.index, out);
        };
        if !text.whole {
            journal.event(&[kind.stem(), ".done"].concat(), out, |out| {
                place(out);
                member(kind.whole(), &text.said, out);
                if kind == PartKind::Text {
                    list("logprobs", &text.logprobs, out);
                }
            });
        }
        if text.announced {
            journal.event(&[kind.frame(), ".done"].concat(), out, |out| {
                place(out);
                key("part", out);
                out.extend_from_slice(&whole);
            });
        }
        whole
    }
}

impl Text {
    fn new(sort: Sort, index: u64) -> Self {
        Text {
            sort,
            index,
            said: Vec::new(),
            logprobs: Vec::new(),
            annotations: Vec::new(),
            announced: false,
            whole: false,
            part: None,
        }
    }

    /// None for a call's arguments.
    fn kind(&self) -> Option<PartKind> {
        match self.sort {
            Sort::Text => Some(PartKind::Text),
            Sort::Refusal => Some(PartKind::Refusal),
            Sort::Thinking => Some(PartKind::Reasoning),
            Sort::Summary => Some(PartKind::Summary),
            Sort::Arguments => None,
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

/// The member that holds what a call gives its tool.
fn call_member(kind: Option<&[u8]>) -> &'static str {
    match kind {
        Some(b"custom_tool_call") => "input",
        _ => "arguments",
    }
}

/// Appends a value to a list of them.
fn append(values: &mut Vec<u8>, value: &[u8]) {
    if !values.is_empty() {
        values.push(b',');
    }
    values.extend_from_slice(value);
}

fn append_compact(values: &mut Vec<u8>, value: &[u8]) {
    let mut one = Vec::with_capacity(value.len());
    compact(value, &mut one);
    append(values, &one);
}

/// The object on one line, with these members in the place of its own, or behind them.
fn with_members(object: &[u8], members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len());
    let mut missing = members.to_vec();
    for (name, value) in Node::document(object).iter().flat_map(Node::members) {
        let name = name.spelled().unwrap_or_default();
        out.extend_from_slice(if out.is_empty() { b"{\"" } else { b",\"" });
        out.extend_from_slice(name);
        out.extend_from_slice(b"\":");
        let is_it = |(with, _): &(&str, &[u8])| with.as_bytes() == name;
        match members.iter().find(|member| is_it(member)) {
            Some((_, with)) => out.extend_from_slice(with),
            None => compact(value.bytes(), &mut out),
        }
        missing.retain(|member| !is_it(member));
    }
    for (name, with) in missing {
        out.extend_from_slice(if out.is_empty() { b"{\"" } else { b",\"" });
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        out.extend_from_slice(with);
    }
    out.push(b'}');
    out
}
