//! The engine of folding: joins members that come in pieces by the table in [`rules`](super::rules).
//!
//! Nothing is decoded. The text of a string is appended as it is spelled between its quotes, which is the spelling of
//! the whole: escapes stand for themselves, and the halves of a surrogate pair that two chunks share find each other.
//! Numbers and unknown values are copied as they are spelled. Every byte is copied once, when it comes.

use std::collections::BTreeMap;

use super::base64;
use super::rules::{Join, Level};
use crate::json::fields::{FEW, elements, fields, find, interior, weight};
use crate::json::scan::{Kind, Value};

/// What one member or part costs beside its text, in bytes, so that the account follows memory where a text of many
/// small values would take several times its length.
pub(super) const MEMBER_COST: usize = 128;

/// A checked JSON text that values are read from, and the account of what is kept of it.
pub(super) struct Input<'a> {
    /// The text.
    pub(super) text: &'a [u8],
    /// Bytes kept by the fold, [`MEMBER_COST`] for each member and part included.
    pub(super) held: usize,
    /// What `held` may grow to. Behind it nothing more is kept, and the fold fails.
    pub(super) limit: usize,
}

impl Input<'_> {
    /// Whether more is held than may be.
    pub(super) fn is_over(&self) -> bool {
        self.held > self.limit
    }
}

/// One object in the making: its members in the order in which they first came.
#[derive(Debug, Default)]
pub(super) struct Object {
    members: Vec<(Box<[u8]>, Slot)>,
    /// Where each member is, kept only for objects with many of them.
    places: Option<BTreeMap<Box<[u8]>, usize>>,
}

/// A member's value in the making.
#[derive(Debug)]
pub(super) enum Slot {
    /// JSON text.
    Raw(Vec<u8>),
    /// A string, spelled as between its quotes.
    Text(Vec<u8>),
    /// An array's values, spelled with the commas between them.
    List(Vec<u8>),
    /// An array of typed parts.
    Parts(Vec<TypedPart>),
    /// An object.
    Object(Object),
}

/// One element of an array of typed parts.
#[derive(Debug)]
pub(super) enum TypedPart {
    /// What is no object.
    Raw(Vec<u8>),
    /// An object that the parts of later chunks may go on with.
    Object(Object),
}

impl Object {
    /// Joins all members of `object`.
    pub(super) fn merge(&mut self, level: Level, object: Value, input: &mut Input<'_>) {
        for field in fields(input.text, object) {
            self.merge_member(level, &field.key, field.value, input);
        }
    }

    /// Joins one member.
    pub(super) fn merge_member(
        &mut self,
        level: Level,
        key: &[u8],
        value: Value,
        input: &mut Input<'_>,
    ) {
        let join = level.join(key);
        if join == Join::Drop || input.is_over() {
            return;
        }
        if let Some(slot) = self.get_mut(key) {
            slot.merge(join, level, value, input);
        } else {
            let slot = Slot::new(join, level, value, input);
            input.held += key.len() + MEMBER_COST;
            self.set(key, slot);
        }
    }

    /// Sets the member `key`, behind all others if it is new.
    pub(super) fn set(&mut self, key: &[u8], slot: Slot) {
        if let Some(old) = self.get_mut(key) {
            *old = slot;
            return;
        }
        if self.places.is_none() && self.members.len() >= FEW {
            let places = self.members.iter().enumerate();
            let places = places
                .map(|(place, (key, _))| (key.clone(), place))
                .collect();
            self.places = Some(places);
        }
        if let Some(places) = &mut self.places {
            places.insert(key.into(), self.members.len());
        }
        self.members.push((key.into(), slot));
    }

    /// Sets the member `key` if it is not there.
    pub(super) fn set_default(&mut self, key: &[u8], slot: impl FnOnce() -> Slot) {
        if self.place(key).is_none() {
            self.set(key, slot());
        }
    }

    /// Whether there is no member.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn place(&self, key: &[u8]) -> Option<usize> {
        match &self.places {
            Some(places) => places.get(key).copied(),
            None => self.members.iter().position(|(held, _)| **held == *key),
        }
    }

    /// The member `key`.
    pub(super) fn get(&self, key: &[u8]) -> Option<&Slot> {
        self.members.get(self.place(key)?).map(|(_, slot)| slot)
    }

    /// The member `key`.
    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Slot> {
        let place = self.place(key)?;
        self.members.get_mut(place).map(|(_, slot)| slot)
    }

    /// The member `key` if it is an object in the making.
    pub(super) fn object(&self, key: &[u8]) -> Option<&Object> {
        match self.get(key) {
            Some(Slot::Object(object)) => Some(object),
            _ => None,
        }
    }

    /// The string that the member `key` holds, spelled as between its quotes; empty if it is none.
    pub(super) fn text(&self, key: &[u8]) -> &[u8] {
        match self.get(key) {
            Some(Slot::Text(text)) => text,
            Some(Slot::Raw(raw)) => raw
                .strip_prefix(b"\"")
                .and_then(|raw| raw.strip_suffix(b"\""))
                .unwrap_or_default(),
            _ => &[],
        }
    }

    /// Whether the member `key` is there, and neither `null` nor empty.
    pub(super) fn says(&self, key: &[u8]) -> bool {
        self.get(key).is_some_and(|slot| slot.weight() == 2)
    }

    /// The members in the order in which they first came.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &Slot)> {
        self.members.iter().map(|(key, slot)| (&**key, slot))
    }

    /// Appends the object as JSON text.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (i, (key, slot)) in self.iter().enumerate() {
            write_key(i == 0, key, out);
            slot.write(out);
        }
        out.push(b'}');
    }
}

/// Appends a key and its colon, with a comma before it unless it is the first. `key` is spelled as between its quotes.
pub(super) fn write_key(first: bool, key: &[u8], out: &mut Vec<u8>) {
    if !first {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(key);
    out.extend_from_slice(b"\":");
}

impl Slot {
    fn new(join: Join, level: Level, value: Value, input: &mut Input<'_>) -> Self {
        let text = input.text;
        match (join, value.kind) {
            (Join::Text | Join::Base64 | Join::Name | Join::Content, Kind::String) => {
                Slot::Text(keep(value.content(text), input))
            }
            (Join::List, Kind::Array) => Slot::List(keep(interior(text, value), input)),
            (Join::Parts | Join::Content, Kind::Array) => {
                let mut parts = Vec::new();
                extend_parts(&mut parts, level.parts(), value, input);
                Slot::Parts(parts)
            }
            (Join::Object(inner), Kind::Object) => {
                let mut object = Object::default();
                object.merge(inner, value, input);
                Slot::Object(object)
            }
            // Without the space inside, which would be looked through at each later value.
            (_, Kind::Array) if weight(text, value) < 2 => Slot::Raw(keep(b"[]", input)),
            (_, Kind::Object) if weight(text, value) < 2 => Slot::Raw(keep(b"{}", input)),
            _ => Slot::Raw(keep(value.bytes(text), input)),
        }
    }

    fn merge(&mut self, join: Join, level: Level, value: Value, input: &mut Input<'_>) {
        let text = input.text;
        match (&mut *self, join, value.kind) {
            (Slot::Text(held), Join::Text | Join::Content, Kind::String) => {
                append(held, value.content(text), input);
            }
            (Slot::Text(held), Join::Base64, Kind::String) => {
                let before = held.len();
                base64::append(held, value.content(text));
                input.held += held.len().saturating_sub(before);
            }
            (Slot::Text(held), Join::Name, Kind::String) => {
                join_name(held, value.content(text), input);
            }
            (Slot::Text(held), Join::Content, Kind::Array) => {
                let mut parts = Vec::new();
                if !held.is_empty() {
                    parts.push(text_part(std::mem::take(held)));
                }
                extend_parts(&mut parts, level.parts(), value, input);
                *self = Slot::Parts(parts);
            }
            (Slot::Parts(parts), Join::Content, Kind::String) => {
                append_text_part(parts, value.content(text), input);
            }
            (Slot::Parts(parts), Join::Content | Join::Parts, Kind::Array) => {
                extend_parts(parts, level.parts(), value, input);
            }
            (Slot::List(held), Join::List, Kind::Array) => {
                let more = interior(text, value);
                if !held.is_empty() && !more.is_empty() {
                    held.push(b',');
                }
                append(held, more, input);
            }
            (Slot::Object(object), Join::Object(inner), Kind::Object) => {
                object.merge(inner, value, input);
            }
            (held, join, _) => {
                let (old, new) = (held.weight(), weight(text, value));
                let replaces = match (&*held, join) {
                    (Slot::Raw(raw), Join::First) => {
                        let is_zero = |number: &[u8]| number == b"0";
                        new > old || (is_zero(raw) && new == 2 && !is_zero(value.bytes(text)))
                    }
                    (Slot::Raw(_), _) => new >= old,
                    // What has been pieced together is not given up for a value of another kind.
                    _ => new > old,
                };
                if replaces {
                    input.held = input.held.saturating_sub(held.len());
                    *held = Slot::new(join, level, value, input);
                }
            }
        }
    }

    /// As [`weight`] of the value that [`write`](Self::write) would give.
    fn weight(&self) -> u8 {
        match self {
            Slot::Raw(raw) => match &**raw {
                b"null" => 0,
                b"\"\"" | b"[]" | b"{}" => 1,
                _ => 2,
            },
            Slot::Text(held) | Slot::List(held) => 1 + u8::from(!held.is_empty()),
            Slot::Parts(parts) => 1 + u8::from(!parts.is_empty()),
            Slot::Object(object) => 1 + u8::from(!object.is_empty()),
        }
    }

    /// Bytes that are freed when a value is replaced. Only values that are replaced whole have any.
    fn len(&self) -> usize {
        match self {
            Slot::Raw(held) | Slot::Text(held) | Slot::List(held) => held.len(),
            Slot::Parts(_) | Slot::Object(_) => 0,
        }
    }

    /// Appends the value as JSON text.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Slot::Raw(raw) => out.extend_from_slice(raw),
            Slot::Text(text) => {
                out.push(b'"');
                out.extend_from_slice(text);
                out.push(b'"');
            }
            Slot::List(values) => {
                out.push(b'[');
                out.extend_from_slice(values);
                out.push(b']');
            }
            Slot::Parts(parts) => {
                out.push(b'[');
                for (i, part) in parts.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    match part {
                        TypedPart::Raw(raw) => out.extend_from_slice(raw),
                        TypedPart::Object(object) => object.write(out),
                    }
                }
                out.push(b']');
            }
            Slot::Object(object) => object.write(out),
        }
    }
}

fn keep(bytes: &[u8], input: &mut Input<'_>) -> Vec<u8> {
    input.held += bytes.len();
    bytes.to_vec()
}

fn append(held: &mut Vec<u8>, more: &[u8], input: &mut Input<'_>) {
    input.held += more.len();
    held.extend_from_slice(more);
}

/// A name comes whole, in pieces, or whole again with every chunk (NVIDIA NIM, hermes-agent#12230).
fn join_name(held: &mut Vec<u8>, more: &[u8], input: &mut Input<'_>) {
    match more.strip_prefix(held.as_slice()) {
        Some(rest) => append(held, rest, input),
        None => append(held, more, input),
    }
}

/// `{"type":"text","text":…}`; `text` is already in the account.
fn text_part(text: Vec<u8>) -> TypedPart {
    let mut object = Object::default();
    object.set(b"type", Slot::Raw(b"\"text\"".to_vec()));
    object.set(b"text", Slot::Text(text));
    TypedPart::Object(object)
}

fn append_text_part(parts: &mut Vec<TypedPart>, text: &[u8], input: &mut Input<'_>) {
    if text.is_empty() {
        return;
    }
    if let Some(TypedPart::Object(last)) = parts.last_mut()
        && last.text(b"type") == b"text"
        && let Some(Slot::Text(held)) = last.get_mut(b"text")
    {
        append(held, text, input);
        return;
    }
    parts.push(text_part(keep(text, input)));
}

/// Appends the parts of `array`. Its first part may go on with the last one that is there; parts of one array are never
/// merged.
fn extend_parts(parts: &mut Vec<TypedPart>, level: Level, array: Value, input: &mut Input<'_>) {
    for (i, value) in elements(input.text, array).enumerate() {
        if input.is_over() {
            return;
        }
        if i == 0
            && let Some(TypedPart::Object(last)) = parts.last_mut()
            && goes_on(last, value, input.text)
        {
            last.merge(level, value, input);
            continue;
        }
        input.held += MEMBER_COST;
        parts.push(if value.kind == Kind::Object {
            let mut object = Object::default();
            object.merge(level, value, input);
            TypedPart::Object(object)
        } else {
            TypedPart::Raw(keep(value.bytes(input.text), input))
        });
    }
}

/// Whether `part` is a further piece of `last`: of a type that comes in pieces, the same type and place, and not behind
/// a signature, which closes a block of thinking.
fn goes_on(last: &Object, part: Value, text: &[u8]) -> bool {
    let fields = fields(text, part);
    let said = |key: &str| find(&fields, key).map(|value| value.bytes(text));
    let same = |key: &str| match last.get(key.as_bytes()) {
        Some(Slot::Raw(held)) => said(key) == Some(held),
        _ => said(key).is_none(),
    };
    let comes_in_pieces = matches!(
        last.text(b"type"),
        b"text" | b"thinking" | b"reasoning.text" | b"reasoning.summary"
    );
    let adds_text = ["text", "thinking", "summary"]
        .into_iter()
        .filter_map(|key| find(&fields, key))
        .any(|value| weight(text, value) == 2);
    let is_closed = last.says(b"signature");
    comes_in_pieces && same("type") && same("index") && !(is_closed && adds_text)
}
