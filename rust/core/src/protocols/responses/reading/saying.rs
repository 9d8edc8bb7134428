//! Giving the texts of items, part by part, whatever order they come in.

use super::items::{Class, Sort};
use super::{Give, ResponseEvents};
use crate::output::{Call, Piece, Reasoning, Text, TextPlace};

impl ResponseEvents {
    /// Gives the part of `whole` that has not been given yet.
    pub(super) fn say_rest(
        &mut self,
        place: usize,
        sort: Sort,
        index: u64,
        whole: &[u8],
        logprobs: Option<&[u8]>,
        give: &mut Give<'_>,
    ) {
        let Some(at) = self.items.part(place, sort, index) else {
            return;
        };
        let known = self.items.get(place).and_then(|item| item.parts.get(at));
        let so_far = known.map(|part| part.text).unwrap_or_default();
        if let Some(rest) = so_far.rest_of(whole) {
            // They tell of the whole text.
            let logprobs = logprobs.filter(|_| so_far.is_empty());
            self.say_next(place, sort, index, rest, logprobs, give);
        }
    }

    /// Gives the next part of a text; where that is, unless there is nothing to give.
    pub(super) fn say_next(
        &mut self,
        place: usize,
        sort: Sort,
        index: u64,
        text: &[u8],
        logprobs: Option<&[u8]>,
        give: &mut Give<'_>,
    ) -> Option<TextPlace> {
        if text.is_empty() && logprobs.is_none() {
            return None;
        }
        let at = TextPlace {
            item: place,
            text: self.items.part(place, sort, index)?,
        };
        self.say_at(at, text, logprobs, give);
        Some(at)
    }

    pub(super) fn say_at(
        &mut self,
        at: TextPlace,
        text: &[u8],
        logprobs: Option<&[u8]>,
        give: &mut Give<'_>,
    ) {
        let Some(item) = self.items.get_mut(at.item) else {
            return;
        };
        let (class, call, phase) = (item.class, item.call, item.phase);
        let Some(part) = item.parts.get_mut(at.text) else {
            return;
        };
        part.text.push(text);
        let sort = part.sort;
        self.turn_to(at.item, at.text, give);
        give(&match sort {
            Sort::Text => Piece::Text(Text {
                text,
                logprobs,
                phase,
            }),
            Sort::Refusal => Piece::Refusal(text),
            Sort::Thinking => Piece::Reasoning(Reasoning::Text(text)),
            Sort::Summary => Piece::Reasoning(Reasoning::Summary(text)),
            Sort::Arguments => Piece::Call(Call {
                index: Some(call),
                arguments: text,
                custom: class == Class::Call { custom: true },
                ..Call::default()
            }),
        });
    }

    /// What is given next is of this part of this item.
    pub(super) fn turn_to(&mut self, place: usize, at: usize, give: &mut Give<'_>) {
        self.turn_to_item(place, give);
        if let Some(item) = self.items.get_mut(place) {
            if item.open.is_some_and(|open| open != at) {
                give(&Piece::Part);
            }
            item.open = Some(at);
        }
    }

    pub(super) fn turn_to_item(&mut self, place: usize, give: &mut Give<'_>) {
        let class = |place| self.items.get(place).map(|item| item.class);
        let last = self.open.filter(|open| *open != place);
        if let Some(last) = last
            && class(last) == class(place)
            && !matches!(class(place), Some(Class::Call { .. }))
        {
            give(&Piece::Break);
        }
        if last.is_some()
            && let Some(item) = self.items.get_mut(place)
        {
            // What was open of it is closed by now.
            item.open = None;
        }
        self.open = Some(place);
    }
}
