//! One item of a response whose events are folded, and its texts.

use std::collections::BTreeMap;

use super::super::members::{append_compact, interior, with_members};
use super::super::reading::event::part_text;
use super::super::reading::items::Sort;
use super::super::vocabulary::PartKind;
use crate::json::fields::compact;
use crate::json::node::Node;

/// Where a text is in its item: of which kind, None for a part of a kind that has no text, and its index among those of
/// the item.
pub(in crate::protocols::responses) type Key = (Option<Sort>, u64);

#[derive(Debug)]
pub(in crate::protocols::responses) struct FoldedItem {
    pub(in crate::protocols::responses) index: u64,
    /// Spelled.
    pub(in crate::protocols::responses) id: Vec<u8>,
    /// As it was announced; once it is done, as it was then.
    pub(in crate::protocols::responses) object: Vec<u8>,
    pub(in crate::protocols::responses) done: bool,
    /// In the order in which they came.
    pub(in crate::protocols::responses) texts: Vec<Text>,
    places: BTreeMap<Key, usize>,
}

/// A part of an item's content or summary, or what a call gives its tool.
#[derive(Debug)]
pub(in crate::protocols::responses) struct Text {
    pub(in crate::protocols::responses) sort: Option<Sort>,
    pub(in crate::protocols::responses) index: u64,
    /// The part as it was announced; once it is done, as it was then. Empty where no event said.
    pub(in crate::protocols::responses) part: Vec<u8>,
    /// Spelled.
    pub(in crate::protocols::responses) said: Vec<u8>,
    /// What stands between the brackets.
    pub(in crate::protocols::responses) logprobs: Vec<u8>,
    pub(in crate::protocols::responses) annotations: Vec<u8>,
    /// An event said that its part begins, and none that it ends.
    pub(in crate::protocols::responses) open: bool,
    /// An event said all of it.
    pub(in crate::protocols::responses) whole: bool,
    /// Its part is done.
    pub(in crate::protocols::responses) done: bool,
}

impl FoldedItem {
    pub(in crate::protocols::responses) fn new(index: u64, object: Node<'_>, done: bool) -> Self {
        FoldedItem {
            index,
            id: object.filled("id").unwrap_or_default().to_vec(),
            object: object.bytes().to_vec(),
            done,
            texts: Vec::new(),
            places: BTreeMap::new(),
        }
    }

    /// Takes the parts that it was announced with, at most `room` of them; how many they are.
    pub(in crate::protocols::responses) fn adopt(&mut self, room: usize) -> usize {
        let object = std::mem::take(&mut self.object);
        let node = Node::document(&object);
        for (member, shelf) in [("content", None), ("summary", Some(Sort::Summary))] {
            let parts = node.and_then(|node| node.get(member));
            for (index, part) in (0..).zip(parts.iter().flat_map(Node::elements)) {
                let sort = part_text(part).map(|(sort, _)| sort);
                let fits = (sort == Some(Sort::Summary)) == shelf.is_some();
                if fits && self.texts.len() < room {
                    let mut text = Text::new((sort, index));
                    text.announce(part);
                    text.open = false;
                    text.whole = true;
                    self.add(text);
                }
            }
        }
        self.object = object;
        self.texts.len()
    }

    pub(in crate::protocols::responses) fn finish(&mut self, object: Node<'_>) {
        self.object = object.bytes().to_vec();
        self.done = true;
        self.texts = Vec::new();
        self.places = BTreeMap::new();
    }

    /// The place of a text; None where nothing was said of it yet.
    pub(in crate::protocols::responses) fn find(&self, key: Key) -> Option<usize> {
        self.places.get(&key).copied()
    }

    pub(in crate::protocols::responses) fn add(&mut self, text: Text) -> usize {
        let place = self.texts.len();
        self.places.insert((text.sort, text.index), place);
        self.texts.push(text);
        place
    }

    /// Its `type`.
    pub(in crate::protocols::responses) fn kind(&self) -> Option<&[u8]> {
        Node::document(&self.object)?.filled("type")
    }

    /// It as an object on one line, with all that was said of it; with this `status`, a JSON string, in place of its
    /// own.
    pub(in crate::protocols::responses) fn shown(&self, status: Option<&[u8]>) -> Vec<u8> {
        let (mut content, mut summary) = (vec![b'['], vec![b'[']);
        let mut call = None;
        let mut texts: Vec<_> = self.texts.iter().collect();
        texts.sort_by_key(|text| text.index);
        for text in texts {
            let list = match text.sort {
                Some(Sort::Arguments) => {
                    call = Some([b"\"", &text.said[..], b"\""].concat());
                    continue;
                }
                Some(Sort::Summary) => &mut summary,
                _ => &mut content,
            };
            if list.len() > 1 {
                list.push(b',');
            }
            text.write(list);
        }
        content.push(b']');
        summary.push(b']');
        let mut members: Vec<(&str, &[u8])> = Vec::with_capacity(4);
        if let Some(status) = status {
            members.push(("status", status));
        }
        if content.len() > 2 {
            members.push(("content", &content));
        }
        if summary.len() > 2 {
            members.push(("summary", &summary));
        }
        if let Some((call, member)) = call.as_ref().zip(call_member(self.kind())) {
            members.push((member, call));
        }
        with_members(&self.object, &members)
    }
}

impl Text {
    pub(in crate::protocols::responses) fn new((sort, index): Key) -> Self {
        Text {
            sort,
            index,
            part: Vec::new(),
            said: Vec::new(),
            logprobs: Vec::new(),
            annotations: Vec::new(),
            open: false,
            whole: false,
            done: false,
        }
    }

    /// Takes its part as an event announces it: what is in it has been said.
    pub(in crate::protocols::responses) fn announce(&mut self, part: Node<'_>) {
        let said = part_text(part).and_then(|(_, member)| part.filled(member));
        *self = Text {
            part: part.bytes().to_vec(),
            said: said.unwrap_or_default().to_vec(),
            open: true,
            ..Text::new((self.sort, self.index))
        };
        append_compact(&mut self.logprobs, interior(part, "logprobs"));
        append_compact(&mut self.annotations, interior(part, "annotations"));
    }

    /// What kind of part it is; None for a call's arguments and for a part that has no text.
    pub(in crate::protocols::responses) fn kind(&self) -> Option<PartKind> {
        Some(match self.sort? {
            Sort::Text => PartKind::Text,
            Sort::Refusal => PartKind::Refusal,
            Sort::Thinking => PartKind::Reasoning,
            Sort::Summary => PartKind::Summary,
            Sort::Arguments => return None,
        })
    }

    /// Appends the part on one line, with all that was said of it.
    pub(in crate::protocols::responses) fn write(&self, out: &mut Vec<u8>) {
        let Some(kind) = self.kind().filter(|_| !self.done) else {
            return compact(&self.part, out);
        };
        if self.part.is_empty() {
            return kind.write(&self.said, &self.annotations, &self.logprobs, out);
        }
        let said = [b"\"", &self.said[..], b"\""].concat();
        let member = Node::document(&self.part)
            .and_then(part_text)
            .map_or(kind.whole(), |(_, member)| member);
        let mut members: Vec<(&str, &[u8])> = vec![(member, &said)];
        let annotations = [b"[", &self.annotations[..], b"]"].concat();
        let logprobs = [b"[", &self.logprobs[..], b"]"].concat();
        if kind == PartKind::Text {
            members.push(("annotations", &annotations));
            members.push(("logprobs", &logprobs));
        }
        out.extend_from_slice(&with_members(&self.part, &members));
    }
}

/// The member that holds what a call gives its tool; None for what is no call.
pub(in crate::protocols::responses) fn call_member(kind: Option<&[u8]>) -> Option<&'static str> {
    Some(match kind? {
        b"custom_tool_call" => "input",
        b"function_call" | b"mcp_call" => "arguments",
        _ => return None,
    })
}
