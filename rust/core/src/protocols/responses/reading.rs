//! A response → pieces of output: its events, or the whole object.
//!
//! Servers break the protocol in many ways, and everything that a model said comes out all the same, once and in its
//! order:
//!
//! - no `output_index`, no `content_index`, no `sequence_number` (llama.cpp);
//! - another `item_id` in each event (GitHub Copilot), the same `output_index` for several items (litellm#36375), empty
//!   ids (vllm#23927);
//! - items that are never announced, or never done; deltas that are missing, the last ones (vllm#37071) or all of them,
//!   so that the text stands only in a `done` event or in the last one's `output`;
//! - a `done` event of one item after the first deltas of the next (llama.cpp);
//! - `response.completed` for a response that is incomplete (vLLM): its status counts, and `incomplete_details`.
//!
//! The item that an event belongs to is found by its id, its `call_id`, its `output_index`, or its position, in this
//! order. When a text is repeated as a whole, only the part that has not been given yet is given, and only if the
//! beginning equals what was given.
//!
//! Items with a meaning of their own (`web_search_call`, `mcp_call`, `compaction`, …) are given whole when they are
//! done. The events that tell how far they have come are not given. Reasoning of which nothing can be read is such an
//! item too.
//!
//! An event's item is looked for among all that are known, so there is a bound on their number:
//! [`MAX_ITEMS`](crate::limits::MAX_ITEMS).

pub(super) mod event;
pub(super) mod items;
mod saying;
mod text_so_far;

use crate::api::Api;
use crate::error::ErrorKind;
use crate::json::node::Node;
use crate::json::scan::{Fault, Kind};
use crate::output::{
    Annotation, Call, Finish, Head, Item, Phase, Piece, Reader, Reason, Reasoning, Sealed, Spelled,
    Text, TextPlace,
};

use event::{Event, part_text, text_event};
use items::{Class, Items, Name, Sort};

/// Reads the events of one response, or the response as one object.
///
/// ```
/// use sluicegate_core::output::{Piece, Reader, Text};
/// use sluicegate_core::protocols::responses::reading::ResponseEvents;
///
/// let mut reader = ResponseEvents::default();
/// let mut texts = Vec::new();
/// for event in [
///     &br#"{"type":"response.output_text.delta","item_id":"m","delta":"Hel"}"#[..],
///     br#"{"type":"response.output_text.done","item_id":"m","text":"Hello"}"#,
/// ] {
///     reader.read(event, &mut |piece| {
///         if let Piece::Text(Text { text, .. }) = piece {
///             texts.push(text.to_vec());
///         }
///     })?;
/// }
/// assert_eq!(texts, [&b"Hel"[..], b"lo"]);
/// # Ok::<(), sluicegate_core::json::scan::Fault>(())
/// ```
#[derive(Debug)]
pub struct ResponseEvents {
    max_depth: usize,
    items: Items,
    /// The item of which something was given last.
    open: Option<usize>,
    /// The text that the event which was read last has continued, if it did nothing else.
    continued: Option<TextPlace>,
    finished: bool,
}

impl Default for ResponseEvents {
    fn default() -> Self {
        ResponseEvents::new(crate::limits::MAX_DEPTH)
    }
}

impl ResponseEvents {
    /// A reader that refuses events with more than `max_depth` open containers.
    #[must_use]
    pub fn new(max_depth: usize) -> Self {
        ResponseEvents {
            max_depth,
            items: Items::default(),
            open: None,
            continued: None,
            finished: false,
        }
    }
}

type Give<'g> = dyn FnMut(&Piece<'_>) + 'g;

impl Reader for ResponseEvents {
    fn read(&mut self, payload: &[u8], give: &mut dyn FnMut(&Piece<'_>)) -> Result<(), Fault> {
        self.continued = None;
        let event = Event::read(payload, self.max_depth)?;
        if self.items.is_full() {
            return Ok(());
        }
        if let Some((sort, custom)) = text_event(event.kind) {
            self.read_text(&event, sort, custom, give);
            return Ok(());
        }
        match event.kind {
            b"response.created" | b"response.queued" | b"response.in_progress" => {
                if let Some(response) = event.response {
                    give_head(response, give);
                }
            }
            b"response.output_item.added" => self.begin_item(&event, give),
            b"response.output_item.done" => self.end_item(&event, give),
            b"response.content_part.added"
            | b"response.reasoning_part.added"
            | b"response.reasoning_summary_part.added" => self.begin_part(&event),
            b"response.content_part.done"
            | b"response.reasoning_part.done"
            | b"response.reasoning_summary_part.done" => self.end_part(&event, give),
            b"response.output_text.annotation.added" => self.annotate(&event, give),
            b"response.completed"
            | b"response.incomplete"
            | b"response.failed"
            | b"response.cancelled" => {
                if let Some(response) = event.response {
                    self.finish(event.kind, response, give);
                }
            }
            // A response by itself.
            b"" => {
                let document = crate::json::scan::document(payload, self.max_depth)?;
                let response = Node::new(payload, document);
                if response
                    .get("object")
                    .is_some_and(|value| value.is("response"))
                    || response.get("output").is_some()
                {
                    self.finish(b"", response, give);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn remembers(&self) -> bool {
        self.continued.is_none() || self.items.has_changed()
    }

    fn continued(&self) -> Option<TextPlace> {
        self.continued
    }

    fn say(&mut self, place: TextPlace, text: Spelled<'_>, give: &mut dyn FnMut(&Piece<'_>)) {
        if !text.is_empty() && !self.items.is_full() {
            self.say_at(place, text, None, give);
        }
    }

    fn fault(&self) -> Option<ErrorKind> {
        self.items.is_full().then_some(ErrorKind::TooManyItems)
    }

    fn end(&mut self, _give: &mut dyn FnMut(&Piece<'_>)) {}
}

fn give_head(response: Node<'_>, give: &mut Give<'_>) {
    let created = response.get("created_at");
    let created = created.filter(|value| value.kind() == Kind::Number);
    give(&Piece::Head(Head {
        id: response.filled("id"),
        model: response.filled("model"),
        created: created.map(|value| value.bytes()),
        service_tier: response.filled("service_tier"),
    }));
}

impl ResponseEvents {
    fn read_text(&mut self, event: &Event<'_>, sort: Sort, custom: bool, give: &mut Give<'_>) {
        self.items.unchanged();
        let place = self.items.told_of(event.name(), sort.class(custom));
        let index = self.index_of(place, sort, event);
        let logprobs = event
            .logprobs
            .filter(|logprobs| logprobs.elements().next().is_some())
            .map(|logprobs| logprobs.bytes());
        if let Some(delta) = event.delta {
            let said = self.say_next(
                place,
                sort,
                index,
                delta.spelled().unwrap_or_default(),
                logprobs,
                give,
            );
            self.continued = said.filter(|_| logprobs.is_none());
        } else if let Some(whole) = event.whole {
            self.say_rest(
                place,
                sort,
                index,
                whole.spelled().unwrap_or_default(),
                logprobs,
                give,
            );
        }
    }

    /// The index of a text among those of its sort, as far as the event gives it.
    fn index_of(&self, place: usize, sort: Sort, event: &Event<'_>) -> u64 {
        let said = match sort {
            Sort::Summary => event.summary_index,
            _ => event.content_index,
        };
        let counted = || {
            let item = self.items.get(place)?;
            Some(item.announced_parts(sort).saturating_sub(1))
        };
        match sort {
            Sort::Arguments => 0,
            _ => said.or_else(counted).unwrap_or(0),
        }
    }

    fn begin_item(&mut self, event: &Event<'_>, give: &mut Give<'_>) {
        let Some(item) = event.item else {
            return;
        };
        let class = Class::of(item);
        let name = Name::of(item, event.output_index);
        let place = self.items.announced(name, class);
        self.describe(place, item, give);
    }

    /// The members of an item that come before its texts.
    fn describe(&mut self, place: usize, item: Node<'_>, give: &mut Give<'_>) {
        let Some(known) = self.items.get_mut(place) else {
            return;
        };
        match known.class {
            Class::Message => {
                known.phase = match item.filled("phase") {
                    Some(b"commentary") => Some(Phase::Commentary),
                    Some(b"final_answer") => Some(Phase::FinalAnswer),
                    _ => known.phase,
                };
            }
            Class::Call { custom } if !known.named => {
                let name = item.filled("name").unwrap_or_default();
                let id = item.filled("call_id").or_else(|| item.filled("id"));
                let id = id.filter(|_| !known.identified).unwrap_or_default();
                if name.is_empty() && id.is_empty() {
                    return;
                }
                known.named = !name.is_empty();
                known.identified |= !id.is_empty();
                give(&Piece::Call(Call {
                    index: Some(known.call),
                    id,
                    name,
                    custom,
                    ..Call::default()
                }));
                self.open = Some(place);
            }
            _ => {}
        }
    }

    fn begin_part(&mut self, event: &Event<'_>) {
        let Some((sort, _)) = event.part.and_then(part_text) else {
            return;
        };
        let place = self.items.told_of(event.name(), sort.class(false));
        if let Some(item) = self.items.get_mut(place) {
            item.announce_part(sort);
        }
    }

    fn end_part(&mut self, event: &Event<'_>, give: &mut Give<'_>) {
        let Some((part, (sort, name))) = event.part.and_then(|part| Some((part, part_text(part)?)))
        else {
            return;
        };
        let place = self.items.told_of(event.name(), sort.class(false));
        let index = self.index_of(place, sort, event);
        self.take_part(place, sort, index, part, name, give);
    }

    /// Reads a whole part; some of its text may have been given already.
    fn take_part(
        &mut self,
        place: usize,
        sort: Sort,
        index: u64,
        part: Node<'_>,
        name: &str,
        give: &mut Give<'_>,
    ) {
        let text = part.filled(name).unwrap_or_default();
        let logprobs = part
            .get("logprobs")
            .filter(|logprobs| logprobs.elements().next().is_some())
            .map(|logprobs| logprobs.bytes());
        self.say_rest(place, sort, index, text, logprobs, give);
        if sort != Sort::Text {
            return;
        }
        let annotations = part.get("annotations");
        for (count, annotation) in annotations.iter().flat_map(Node::elements).enumerate() {
            self.give_annotation(place, index, count, annotation, give);
        }
    }

    fn annotate(&mut self, event: &Event<'_>, give: &mut Give<'_>) {
        let Some(annotation) = event.annotation else {
            return;
        };
        let place = self.items.told_of(event.name(), Class::Message);
        let index = self.index_of(place, Sort::Text, event);
        self.give_annotation(place, index, usize::MAX, annotation, give);
    }

    /// Gives an annotation that is the `count`th of its part, unless so many were given.
    fn give_annotation(
        &mut self,
        place: usize,
        index: u64,
        count: usize,
        annotation: Node<'_>,
        give: &mut Give<'_>,
    ) {
        let Some(at) = self.items.part(place, Sort::Text, index) else {
            return;
        };
        let known = self.items.get(place).and_then(|item| item.parts.get(at));
        let is_new = known.is_some_and(|part| count >= part.annotations);
        if !is_new || annotation.kind() != Kind::Object {
            return;
        }
        self.turn_to(place, at, give);
        give(&Piece::Annotation(Annotation {
            api: Api::Responses,
            json: annotation.bytes(),
        }));
        if let Some(part) = self
            .items
            .get_mut(place)
            .and_then(|item| item.parts.get_mut(at))
        {
            part.annotations += 1;
        }
    }

    fn end_item(&mut self, event: &Event<'_>, give: &mut Give<'_>) {
        if let Some(item) = event.item {
            let name = Name::of(item, event.output_index);
            let place = self.items.told_of(name, Class::of(item));
            self.take_item(place, item, give);
        }
    }

    /// Reads a whole item; some of it may have been given already.
    fn take_item(&mut self, place: usize, item: Node<'_>, give: &mut Give<'_>) {
        self.describe(place, item, give);
        let Some(class) = self.items.get(place).map(|known| known.class) else {
            return;
        };
        match class {
            Class::Message => {
                self.take_parts(place, item, "content", give);
                let is_given = self.items.get(place).is_some_and(|known| known.is_given());
                if !is_given {
                    give(&Piece::Text(Text::default()));
                }
            }
            Class::Reasoning => {
                self.take_parts(place, item, "summary", give);
                self.take_parts(place, item, "content", give);
                self.take_sealed(place, item, give);
            }
            Class::Call { .. } => {
                let whole = item.get("arguments").or_else(|| item.get("input"));
                let whole = whole.map(|arguments| arguments.spelled().unwrap_or_default());
                self.say_rest(
                    place,
                    Sort::Arguments,
                    0,
                    whole.unwrap_or_default(),
                    None,
                    give,
                );
            }
            Class::Other => self.give_item(place, item, give),
        }
        if let Some(known) = self.items.get_mut(place) {
            known.done = true;
        }
    }

    fn take_parts(&mut self, place: usize, item: Node<'_>, name: &str, give: &mut Give<'_>) {
        let parts = item.get(name);
        // A text without the part around it.
        let text = parts
            .map(|text| text.spelled().unwrap_or_default())
            .unwrap_or_default();
        if !text.is_empty()
            && self
                .items
                .get(place)
                .is_some_and(|known| known.class == Class::Message)
        {
            self.say_rest(place, Sort::Text, 0, text, None, give);
        }
        for (index, part) in (0..).zip(parts.iter().flat_map(Node::elements)) {
            if self.items.is_full() {
                return;
            }
            if let Some((sort, name)) = part_text(part)
                && self
                    .items
                    .get(place)
                    .is_some_and(|known| known.class == sort.class(false))
            {
                self.take_part(place, sort, index, part, name, give);
            }
        }
    }

    /// Gives the encrypted content of reasoning; the item itself if it has no readable text.
    fn take_sealed(&mut self, place: usize, item: Node<'_>, give: &mut Give<'_>) {
        let Some(known) = self.items.get(place) else {
            return;
        };
        if known.sealed {
            return;
        }
        if let Some(sealed) = item.filled("encrypted_content") {
            self.turn_to_item(place, give);
            give(&Piece::Reasoning(Reasoning::Sealed(Sealed {
                api: Api::Responses,
                data: sealed,
                signs_text: false,
                item: Some(item.bytes()),
            })));
            if let Some(known) = self.items.get_mut(place) {
                known.sealed = true;
            }
        } else if !known.is_given() {
            self.give_item(place, item, give);
        }
    }

    /// Gives an item whole, once.
    fn give_item(&mut self, place: usize, item: Node<'_>, give: &mut Give<'_>) {
        if let Some(known) = self.items.get_mut(place).filter(|known| !known.done) {
            known.done = true;
            give(&Piece::Item(Item {
                api: Api::Responses,
                json: item.bytes(),
            }));
            self.open = Some(place);
        }
    }

    /// The last event, or a response by itself.
    fn finish(&mut self, kind: &[u8], response: Node<'_>, give: &mut Give<'_>) {
        give_head(response, give);
        let output = response.get("output");
        let mut before = [0; Class::COUNT];
        for (position, item) in output.iter().flat_map(Node::elements).enumerate() {
            if self.items.is_full() {
                break;
            }
            let class = Class::of(item);
            let Some(count) = before.get_mut(class.number()) else {
                continue;
            };
            let earlier = std::mem::replace(count, *count + 1);
            let index = u64::try_from(position).ok();
            let place = self
                .items
                .at(position, Name::of(item, index), class, earlier);
            self.take_item(place, item, give);
        }
        if self.items.is_full() {
            // What was given is not all of it: this is no end.
            return;
        }
        let reason = self.reason(kind, response);
        if let Some((reason, word)) = reason.filter(|_| !self.finished) {
            self.finished = true;
            give(&Piece::Finish(Finish {
                word,
                ..Finish::of(reason)
            }));
        }
    }

    /// Why the model stopped, if the response says so, and its word for that.
    fn reason<'a>(&self, kind: &'a [u8], response: Node<'a>) -> Option<(Reason, &'a [u8])> {
        let status = response
            .filled("status")
            .or_else(|| kind.strip_prefix(b"response."));
        let details = response
            .get("incomplete_details")
            .and_then(|details| details.filled("reason"));
        let reason = match status {
            Some(b"failed") => return None,
            Some(b"cancelled") => Reason::Failed,
            _ if details == Some(b"content_filter") => Reason::Filter,
            _ if details.is_some() => Reason::Length,
            Some(b"incomplete") => Reason::Length,
            Some(b"queued" | b"in_progress") if kind.is_empty() => return None,
            _ if self.items.calls() > 0 => Reason::Calls,
            _ => Reason::Stop,
        };
        Some((reason, details.or(status).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests;
