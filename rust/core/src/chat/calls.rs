//! Tool calls in pieces: which call a piece belongs to.
//!
//! In the reference form each piece carries its call's `index`, and the first one `id`, `type` and the name as well. Upstreams break each part
//! of that, so the index alone decides nothing:
//!
//! - no index at all, each call whole in one piece (Gemini: openai-python#2806, AstrBot#6661);
//! - every call at index 0, told apart by their ids (dynamo#4723, smolagents#1569) or only by their names (CLIProxyAPI#5058);
//! - the head of the second call at index 0, its arguments at 1 (agno#8879); an index that goes up inside one call (dirac#215);
//! - the name again in each piece (NVIDIA NIM, hermes-agent#12230), the id again in each piece;
//! - a whole call sent a second time;
//! - `null` for id, type, name and arguments in later pieces, or in the first (Writer).
//!
//! The rules: an id that is known names its call; an id that is new begins a call, unless the call at this index has none yet. Without an
//! id, an index that is known names its call, a name at an unknown index begins one, and a piece with neither goes on with the last
//! call. At a known index a name that comes after arguments begins a call where it differs, or where arguments that could be
//! complete are followed by others.

use std::collections::{BTreeMap, BTreeSet};

use super::member::{Field, fields, find};
use super::merge::{Input, MEMBER_COST, Object, Slot};
use super::rules::Level;
use crate::json::scan::{Kind, Value};

/// The calls of one message.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// The latest call at each index, and the call of each id (spelled as between its quotes), as places in `calls`.
    by_index: BTreeMap<u64, usize>,
    by_id: BTreeMap<Box<[u8]>, usize>,
}

#[derive(Debug)]
struct Call {
    first_index: Option<u64>,
    members: Object,
}

/// What a piece says about the call that it belongs to.
struct Piece<'a> {
    index: Option<u64>,
    id: &'a [u8],
    name: &'a [u8],
    arguments: &'a [u8],
}

impl Calls {
    /// Whether no call has begun.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Joins one piece, an object.
    pub(super) fn merge(&mut self, piece: Value, input: &mut Input<'_>) {
        if input.is_over() {
            return;
        }
        let members = fields(input.text, piece);
        let said = Piece::of(&members, input.text);
        let place = self.place(&said);
        let fresh = place.is_none();
        let place = place.unwrap_or(self.calls.len());
        if fresh {
            input.held += MEMBER_COST;
            self.calls.push(Call {
                first_index: said.index,
                members: Object::default(),
            });
        }
        if let Some(index) = said.index {
            self.by_index.insert(index, place);
        }
        if !said.id.is_empty() {
            self.by_id.insert(said.id.into(), place);
        }
        let Some(call) = self.calls.get_mut(place) else {
            return;
        };
        if !fresh && call.is_repeated_by(&said) {
            return;
        }
        for member in members {
            call.members
                .merge_member(Level::Call, &member.key, member.value, input);
        }
    }

    /// The call that a piece goes on with, as a place in `calls`; None if it begins one.
    fn place(&self, piece: &Piece<'_>) -> Option<usize> {
        let at_index = piece.index.and_then(|i| self.by_index.get(&i).copied());
        if !piece.id.is_empty() {
            if let Some(&place) = self.by_id.get(piece.id) {
                return Some(place);
            }
            let call = self.calls.get(at_index?)?;
            let takes_id = call.members.text(b"id").is_empty() && !call.is_ended_by(piece);
            return at_index.filter(|_| takes_id);
        }
        match at_index {
            Some(place) => {
                let call = self.calls.get(place)?;
                (!call.is_ended_by(piece)).then_some(place)
            }
            None if !piece.name.is_empty() => None,
            None => self.calls.len().checked_sub(1),
        }
    }

    /// Appends the calls as a JSON array. They are sorted by index where the indices can be trusted: each call has its own.
    pub(super) fn write(mut self, out: &mut Vec<u8>) {
        let indices: BTreeSet<Option<u64>> = self.calls.iter().map(|c| c.first_index).collect();
        if indices.len() == self.calls.len() && !indices.contains(&None) {
            self.calls.sort_by_key(|call| call.first_index);
        }
        out.push(b'[');
        for (i, mut call) in self.calls.into_iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            call.complete();
            call.members.write(out);
        }
        out.push(b']');
    }
}

impl<'a> Piece<'a> {
    fn of(members: &[Field<'_>], text: &'a [u8]) -> Self {
        let said = |value: Option<Value>| value.map_or(&[][..], |value| value.content(text));
        let is_object = |value: &Value| value.kind == Kind::Object;
        let function = find(members, "function")
            .filter(is_object)
            .or_else(|| find(members, "custom"));
        let inner = function.map_or_else(Vec::new, |function| fields(text, function));
        Piece {
            index: find(members, "index").and_then(|index| index.as_u64(text)),
            id: said(find(members, "id")),
            name: said(find(&inner, "name")),
            arguments: said(find(&inner, "arguments").or_else(|| find(&inner, "input"))),
        }
    }
}

impl Call {
    fn function(&self) -> Option<&Object> {
        let members = &self.members;
        members
            .object(b"function")
            .or_else(|| members.object(b"custom"))
    }

    fn name(&self) -> &[u8] {
        self.function()
            .map_or(&[], |function| function.text(b"name"))
    }

    /// A function's arguments or a custom tool's input.
    fn arguments(&self) -> &[u8] {
        self.function().map_or(&[], |function| {
            let arguments = function.text(b"arguments");
            if arguments.is_empty() {
                function.text(b"input")
            } else {
                arguments
            }
        })
    }

    /// Whether a piece without an id at this call's index begins another call.
    fn is_ended_by(&self, piece: &Piece<'_>) -> bool {
        if piece.name.is_empty() || self.arguments().is_empty() {
            return false;
        }
        let other_name = !piece.name.starts_with(self.name());
        let other_arguments = self.arguments().ends_with(b"}") && piece.arguments.starts_with(b"{");
        other_name || other_arguments
    }

    /// Whether a piece of this call says the whole call again.
    fn is_repeated_by(&self, piece: &Piece<'_>) -> bool {
        piece.name == self.name()
            && piece.arguments == self.arguments()
            && piece.arguments.starts_with(b"{")
            && piece.arguments.ends_with(b"}")
    }

    /// Adds what clients read without asking: a function's `type`, and its `arguments` as a string.
    fn complete(&mut self) {
        let Some(Slot::Object(function)) = self.members.get_mut(b"function") else {
            return;
        };
        if matches!(function.get(b"arguments"), None | Some(Slot::Raw(_)))
            && !function.says(b"arguments")
        {
            function.set(b"arguments", Slot::Text(Vec::new()));
        }
        if !self.members.says(b"type") {
            let function = Slot::Raw(b"\"function\"".to_vec());
            self.members.set(b"type", function);
        }
    }
}

#[cfg(test)]
mod tests;
