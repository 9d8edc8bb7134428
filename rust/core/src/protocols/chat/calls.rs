//! Tool calls in pieces, put together.
//!
//! Which call a piece belongs to is settled in [`identity`](crate::output::identity).

use std::collections::BTreeSet;

use super::merge::{Input, MEMBER_COST, Object, Slot};
use super::rules::Level;
use crate::json::fields::{Field, fields, find};
use crate::json::scan::{Kind, Value};
use crate::output::identity::{CallPiece, Identities, KnownCall, is_repeated_by};

/// The calls of one message.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    identities: Identities,
}

#[derive(Debug)]
struct Call {
    first_index: Option<u64>,
    members: Object,
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
        let said = said(&members, input.text);
        let place = self.identities.place(&self.calls, &said);
        let fresh = place.is_none();
        let place = place.unwrap_or(self.calls.len());
        if fresh {
            input.held += MEMBER_COST;
            self.calls.push(Call {
                first_index: said.index,
                members: Object::default(),
            });
        }
        self.identities.note(&said, place);
        let Some(call) = self.calls.get_mut(place) else {
            return;
        };
        if !fresh && is_repeated_by(call, &said) {
            return;
        }
        for member in members {
            call.members
                .merge_member(Level::Call, &member.key, member.value, input);
        }
    }

    /// Appends the calls as a JSON array. They are sorted by index where the indices can be trusted: each call has its
    /// own.
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

fn said<'a>(members: &[Field<'_>], text: &'a [u8]) -> CallPiece<'a> {
    let said = |value: Option<Value>| value.map_or(&[][..], |value| value.content(text));
    let is_object = |value: &Value| value.kind == Kind::Object;
    let function = find(members, "function")
        .filter(is_object)
        .or_else(|| find(members, "custom"));
    let inner = function.map_or_else(Vec::new, |function| fields(text, function));
    CallPiece {
        index: find(members, "index").and_then(|index| index.as_u64(text)),
        id: said(find(members, "id")),
        name: said(find(&inner, "name")),
        arguments: said(find(&inner, "arguments").or_else(|| find(&inner, "input"))),
    }
}

impl KnownCall for Call {
    fn has_id(&self) -> bool {
        !self.members.text(b"id").is_empty()
    }

    fn name(&self) -> &[u8] {
        self.function()
            .map_or(&[], |function| function.text(b"name"))
    }

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
}

impl Call {
    fn function(&self) -> Option<&Object> {
        let members = &self.members;
        members
            .object(b"function")
            .or_else(|| members.object(b"custom"))
    }

    /// Adds what clients read without asking: a function's `type`, and its `arguments` as a string.
    fn complete(&mut self) {
        let Some(Slot::Object(function)) = self.members.get_mut(b"function") else {
            return;
        };
        let is_null = |slot: &Slot| matches!(slot, Slot::Raw(raw) if **raw == *b"null");
        if function.get(b"arguments").is_none_or(is_null) {
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
