//! Tool calls: which of them a piece belongs to, and the delta that is written for it.

use super::Chunks;
use crate::json::fields::compact;
use crate::output::Call as Piece;
use crate::output::identity::{CallPiece, Identities, KnownCall, is_repeated_by};

/// What a call costs beside its text, about.
const CALL_COST: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Calls {
    list: Vec<Call>,
    identities: Identities,
    /// Calls that the client knows of.
    announced: usize,
    /// Bytes of all calls.
    held: usize,
}

#[derive(Debug, Default)]
struct Call {
    id: Vec<u8>,
    name: Vec<u8>,
    /// As they came: what decides whether more belongs to them.
    arguments: Vec<u8>,
    /// What they are if none come.
    fallback: Vec<u8>,
    extra: Vec<u8>,
    custom: bool,
    /// Its index, once the client knows of it.
    index: Option<usize>,
}

impl KnownCall for Call {
    fn has_id(&self) -> bool {
        !self.id.is_empty()
    }

    fn name(&self) -> &[u8] {
        &self.name
    }

    fn arguments(&self) -> &[u8] {
        &self.arguments
    }
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Takes in a part of a call.
    pub(super) fn push(&mut self, piece: &Piece<'_>, chunks: &mut Chunks, out: &mut Vec<u8>) {
        let said = CallPiece::from(piece);
        let known = self.identities.place(&self.list, &said);
        let place = known.unwrap_or_else(|| {
            self.list.push(Call::default());
            self.held += CALL_COST;
            self.list.len() - 1
        });
        self.identities.note(&said, place);
        let Some(call) = self.list.get_mut(place) else {
            return;
        };
        if known.is_some() && is_repeated_by(call, &said) {
            return;
        }
        let extra = piece.extra.map_or(0, <[u8]>::len);
        self.held += piece.name.len() + piece.arguments.len() + extra + piece.fallback.len();
        if call.fallback.is_empty() {
            call.fallback.extend_from_slice(piece.fallback);
        }
        if call.id.is_empty() {
            call.id.extend_from_slice(piece.id);
        }
        // A name comes whole, again with each piece, or in parts before the arguments.
        if call.index.is_none() && call.name != piece.name {
            call.name.extend_from_slice(piece.name);
        }
        if let Some(extra) = piece.extra {
            call.extra.clear();
            compact(extra, &mut call.extra);
        }
        call.custom |= piece.custom;
        call.arguments.extend_from_slice(piece.arguments);
        match call.index {
            Some(index) if !piece.arguments.is_empty() => {
                call.more(index, piece.arguments, chunks, out);
            }
            Some(_) => {}
            // A name may come late, and an id behind it.
            None if call.name.is_empty() => {}
            None if call.id.is_empty() && call.arguments.is_empty() => {}
            None => call.announce(&mut self.announced, chunks, out),
        }
    }

    /// What waits for a name, an id or arguments waits no longer.
    pub(super) fn end(&mut self, chunks: &mut Chunks, out: &mut Vec<u8>) {
        for call in &mut self.list {
            let fallback = call.arguments.is_empty() && !call.fallback.is_empty();
            if fallback {
                call.arguments = std::mem::take(&mut call.fallback);
            }
            match call.index {
                Some(index) if fallback => call.more(index, &call.arguments, chunks, out),
                Some(_) => {}
                None => call.announce(&mut self.announced, chunks, out),
            }
        }
    }
}

impl Call {
    /// The first delta: what is known so far.
    fn announce(&mut self, announced: &mut usize, chunks: &mut Chunks, out: &mut Vec<u8>) {
        let index = *announced;
        *announced += 1;
        self.index = Some(index);
        if self.id.is_empty() {
            self.id = made_id(&chunks.id, index);
        }
        let digits = index.to_string();
        let [kind, argument]: [&[u8]; 2] = if self.custom {
            [b"custom", b"input"]
        } else {
            [b"function", b"arguments"]
        };
        let mut extra = Vec::new();
        if !self.extra.is_empty() {
            extra.extend_from_slice(b",\"extra_content\":");
            extra.extend_from_slice(&self.extra);
        }
        let parts: [&[u8]; 16] = [
            b"\"tool_calls\":[{\"index\":",
            digits.as_bytes(),
            b",\"id\":\"",
            &self.id,
            b"\",\"type\":\"",
            kind,
            b"\",\"",
            kind,
            b"\":{\"name\":\"",
            &self.name,
            b"\",\"",
            argument,
            b"\":\"",
            &self.arguments,
            b"\"}",
            &extra,
        ];
        chunks.delta(&[&parts.concat(), b"}]"], None, out);
    }

    fn more(&self, index: usize, arguments: &[u8], chunks: &mut Chunks, out: &mut Vec<u8>) {
        let digits = index.to_string();
        let [kind, argument]: [&[u8]; 2] = if self.custom {
            [b"custom", b"input"]
        } else {
            [b"function", b"arguments"]
        };
        let parts: [&[u8]; 9] = [
            b"\"tool_calls\":[{\"index\":",
            digits.as_bytes(),
            b",\"",
            kind,
            b"\":{\"",
            argument,
            b"\":\"",
            arguments,
            b"\"}}]",
        ];
        chunks.delta(&parts, None, out);
    }
}

/// An id for a call that the upstream gave none, made of the reply's: the same for the same reply, another for another.
fn made_id(reply_id: &[u8], index: usize) -> Vec<u8> {
    let random = reply_id
        .iter()
        .position(|byte| matches!(byte, b'_' | b'-'))
        .and_then(|place| reply_id.get(place + 1..))
        .unwrap_or(reply_id);
    let mut id = b"call_".to_vec();
    id.extend_from_slice(random);
    id.extend_from_slice(format!("_{index}").as_bytes());
    id
}
