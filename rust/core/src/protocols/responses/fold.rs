//! The events of a response folded: what it looks like so far, and what is open in it.
//!
//! The fold is total: what it does not understand changes nothing, whatever it is. What it keeps is bounded by the
//! bytes that came and by [`MAX_ITEMS`], and no index makes it allocate. Nothing is named anew: the response and its
//! items are those of the events.

mod follow;
pub(super) mod item;

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::members::{append_compact, with_members};
use super::reading::event::{Event, part_text, text_event};
use super::reading::items::Sort;
use crate::json::node::Node;
use crate::json::string;
use crate::limits::{Limits, MAX_ITEMS};
use crate::output::TextPlace;
use crate::protocol::Effect;
use crate::sse::event::Events;

use item::{FoldedItem, Key, Text, call_member};

/// What is known of a response by its events.
///
/// ```
/// use sluicegate_core::limits::Limits;
/// use sluicegate_core::protocols::responses::fold::Fold;
///
/// let mut fold = Fold::of(br#"{"id":"resp_1","status":"queued","output":[]}"#, &Limits::default());
/// fold.take(concat!(
///     "data: {\"type\":\"response.output_item.added\",\"sequence_number\":3,\"output_index\":0,",
///     "\"item\":{\"type\":\"message\",\"id\":\"msg_1\",\"content\":[]}}\n\n",
///     "data: {\"type\":\"response.output_text.delta\",\"sequence_number\":4,\"output_index\":0,",
///     "\"content_index\":0,\"delta\":\"Hi\"}\n\n",
/// ).as_bytes());
/// assert_eq!(fold.following(), 5);
/// assert_eq!(String::from_utf8(fold.response(Some("in_progress"))).unwrap(), concat!(
///     r#"{"id":"resp_1","status":"in_progress","output":[{"type":"message","id":"msg_1","#,
///     r#""content":[{"type":"output_text","text":"Hi","annotations":[],"logprobs":[]}]}]}"#,
/// ));
/// ```
#[derive(Debug)]
pub struct Fold {
    max_bytes: usize,
    max_depth: usize,
    /// As the last event showed it that did.
    pub(super) response: Vec<u8>,
    /// In the order in which they came.
    pub(super) items: Vec<FoldedItem>,
    /// The last item of each index, and of each id.
    by_index: BTreeMap<u64, usize>,
    by_id: BTreeMap<Vec<u8>, usize>,
    /// Texts and annotations of all items.
    parts: usize,
    /// Bytes of all that is kept.
    held: usize,
    /// The number that the next event has.
    following: u64,
    /// Its last event has come.
    ended: bool,
}

impl Fold {
    /// A response that no event has named yet, of which at most `max_document` bytes are kept; past that, nothing of
    /// its items is. Events with more than `max_depth` open containers are not read.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Fold {
            max_bytes: limits.max_document,
            max_depth: limits.max_depth,
            response: Vec::new(),
            items: Vec::new(),
            by_index: BTreeMap::new(),
            by_id: BTreeMap::new(),
            parts: 0,
            held: 0,
            following: 0,
            ended: false,
        }
    }

    /// The response that is `response`, a JSON object, before its first event. What is no object is taken for an empty
    /// one.
    #[must_use]
    pub fn of(response: &[u8], limits: &Limits) -> Self {
        Fold {
            response: with_members(&readable(response), &[]),
            ..Fold::new(limits)
        }
    }

    /// The sequence number that follows the last one that was [taken](Self::take).
    #[must_use]
    pub fn following(&self) -> u64 {
        self.following
    }

    /// Bytes of what it is made of, as they came.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.saturating_add(self.response.len())
    }

    /// Takes in whole events, back to back. Those that were taken before, by their sequence numbers, are passed over.
    pub fn take(&mut self, events: &[u8]) {
        let mut all = Events::new(events);
        for raw in all.by_ref() {
            let Some(data) = raw.data() else {
                continue;
            };
            let payload = readable(&data);
            let Ok(event) = Event::read(&payload, self.max_depth) else {
                continue;
            };
            let number = event.number.and_then(|number| number.as_u64(&payload));
            let number = number.unwrap_or(self.following);
            if number >= self.following {
                self.following = number.saturating_add(1);
                let _ = self.read_event(&event);
            }
        }
    }

    fn read_event(&mut self, event: &Event<'_>) -> Option<Effect> {
        if self.ended || event.misfit.is_some() {
            return None;
        }
        if let Some(sort) = said_of(event.kind) {
            return self.read_text(event, sort);
        }
        match event.kind {
            b"response.created" | b"response.queued" | b"response.in_progress" => {
                self.response = event.response?.bytes().to_vec();
            }
            b"response.completed" | b"response.incomplete" | b"response.failed" => {
                self.response = event.response?.bytes().to_vec();
                self.forget();
                self.ended = true;
            }
            b"response.output_item.added" => self.read_item(event, false)?,
            b"response.output_item.done" => self.read_item(event, true)?,
            b"response.content_part.added"
            | b"response.reasoning_part.added"
            | b"response.reasoning_summary_part.added" => {
                let part = event.part?;
                let place = self.place(event, part_text(part).map(|(sort, _)| sort))?;
                self.hold(part.bytes().len());
                self.text(place)?.announce(part);
            }
            b"response.content_part.done"
            | b"response.reasoning_part.done"
            | b"response.reasoning_summary_part.done" => {
                let part = event.part?;
                let place = self.place(event, part_text(part).map(|(sort, _)| sort))?;
                self.hold(part.bytes().len());
                let text = self.text(place)?;
                text.part = part.bytes().to_vec();
                (text.open, text.whole, text.done) = (false, true, true);
            }
            b"response.output_text.annotation.added" => {
                let annotation = event.annotation?.bytes();
                let place = self.place(event, Some(Sort::Text))?;
                if self.has_room() {
                    self.parts += 1;
                    self.hold(annotation.len());
                    append_compact(&mut self.text(place)?.annotations, annotation);
                }
            }
            _ => return None,
        }
        Some(Effect::More)
    }

    fn read_text(&mut self, event: &Event<'_>, sort: Sort) -> Option<Effect> {
        let said = event.delta.or(event.whole)?.spelled()?;
        let place = self.place(event, Some(sort))?;
        let logprobs: Vec<_> = event
            .logprobs
            .iter()
            .flat_map(Node::elements)
            .map(|one| one.bytes())
            .collect();
        let size = said.len() + logprobs.iter().map(|one| one.len()).sum::<usize>();
        let is_delta = event.delta.is_some();
        let text = self.text(place)?;
        if is_delta {
            text.said.extend_from_slice(said);
            for one in &logprobs {
                append_compact(&mut text.logprobs, one);
            }
        } else {
            text.said = said.to_vec();
        }
        text.whole = !is_delta;
        self.hold(size);
        Some(if is_delta && logprobs.is_empty() {
            Effect::Next(place)
        } else {
            Effect::More
        })
    }

    fn read_item(&mut self, event: &Event<'_>, done: bool) -> Option<()> {
        let object = event.item?;
        if !self.hold(object.bytes().len()) {
            return None;
        }
        let known = if done { self.item_of(event) } else { None };
        if let Some(item) = known.and_then(|place| self.items.get_mut(place)) {
            item.finish(object);
            return Some(());
        }
        if self.items.len() >= MAX_ITEMS {
            return None;
        }
        let place = self.items.len();
        let next = u64::try_from(place).unwrap_or(u64::MAX);
        let mut item = FoldedItem::new(event.output_index.unwrap_or(next), object, done);
        if !done {
            self.parts += item.adopt(MAX_ITEMS.saturating_sub(self.parts));
        }
        self.by_index.insert(item.index, place);
        if !item.id.is_empty() {
            self.by_id.insert(item.id.clone(), place);
        }
        self.items.push(item);
        Some(())
    }

    /// The item that an event is about: the last of its index, or of its id where it gives no index.
    fn item_of(&self, event: &Event<'_>) -> Option<usize> {
        if let Some(index) = event.output_index {
            return self.by_index.get(&index).copied();
        }
        let id = match event.item {
            Some(item) => item.filled("id").unwrap_or_default(),
            None => event.item_id,
        };
        self.by_id.get(id).copied()
    }

    /// The text of this sort that an event is about, of an item that is open.
    fn place(&mut self, event: &Event<'_>, sort: Option<Sort>) -> Option<TextPlace> {
        let place = self.item_of(event)?;
        let has_room = self.has_room();
        let item = self.items.get_mut(place).filter(|item| !item.done)?;
        let index = match sort {
            Some(Sort::Arguments) => 0,
            Some(Sort::Summary) => event.summary_index.unwrap_or(0),
            _ => event.content_index.unwrap_or(0),
        };
        let key: Key = (sort, index);
        let text = match item.find(key) {
            Some(text) => text,
            None if !has_room => return None,
            None => {
                let mut text = Text::new(key);
                if sort == Some(Sort::Arguments)
                    && let Some(name) = call_member(item.kind())
                {
                    let object = Node::document(&item.object);
                    let said = object.and_then(|object| object.filled(name));
                    text.said = said.unwrap_or_default().to_vec();
                }
                self.parts += 1;
                item.add(text)
            }
        };
        Some(TextPlace { item: place, text })
    }

    #[inline]
    fn text(&mut self, place: TextPlace) -> Option<&mut Text> {
        self.items.get_mut(place.item)?.texts.get_mut(place.text)
    }

    fn has_room(&self) -> bool {
        self.parts < MAX_ITEMS
    }

    /// Counts what is kept. False where that is too much: its items are left as they are then, and nothing more is
    /// kept.
    fn hold(&mut self, bytes: usize) -> bool {
        self.held = self.held.saturating_add(bytes);
        let fits = self.held <= self.max_bytes;
        if !fits {
            self.forget();
        }
        fits
    }

    fn forget(&mut self) {
        self.items = Vec::new();
        self.by_index = BTreeMap::new();
        self.by_id = BTreeMap::new();
    }

    /// The Response object as it stands, on one line; `status` in place of its own, unless its last event has come.
    #[must_use]
    pub fn response(&self, status: Option<&str>) -> Vec<u8> {
        if self.ended {
            return with_members(&self.response, &[]);
        }
        let mut output = vec![b'['];
        for item in self.in_order() {
            if output.len() > 1 {
                output.push(b',');
            }
            output.extend_from_slice(&item.shown(None));
        }
        output.push(b']');
        let mut spelled = Vec::new();
        let mut members: Vec<(&str, &[u8])> = Vec::with_capacity(2);
        if let Some(status) = status {
            string::encode(status, &mut spelled);
            members.push(("status", &spelled));
        }
        if !self.items.is_empty() {
            members.push(("output", &output));
        }
        with_members(&self.response, &members)
    }

    /// The items by their index.
    pub(super) fn in_order(&self) -> Vec<&FoldedItem> {
        let mut items: Vec<_> = self.items.iter().collect();
        items.sort_by_key(|item| item.index);
        items
    }

    /// Whether its last event has come.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }
}

/// The text that an event of this type says the next part of, or all of.
pub(super) fn said_of(kind: &[u8]) -> Option<Sort> {
    match kind {
        b"response.mcp_call_arguments.delta" | b"response.mcp_call_arguments.done" => {
            Some(Sort::Arguments)
        }
        _ => text_event(kind).map(|(sort, _)| sort),
    }
}

/// The text as clients read it: U+FFFD for what is not UTF-8.
pub(super) fn readable(text: &[u8]) -> Cow<'_, [u8]> {
    match simdutf8::basic::from_utf8(text) {
        Ok(_) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(String::from_utf8_lossy(text).into_owned().into_bytes()),
    }
}
