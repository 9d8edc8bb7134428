//! Calls of tools. Upstreams may mix the parts of several, and clients read the last block only: so one call is written
//! at a time, and what comes for later ones waits until the arguments before them are whole.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::taken::TakenIds;
use super::blocks::Blocks;
use crate::json::string;
use crate::output::Call as Piece;
use crate::output::identity::{CallPiece, Identities, KnownCall, is_repeated_by};

/// What a call costs beside its text, about.
const CALL_COST: usize = 256;

/// The calls of one message.
#[derive(Debug)]
pub(super) struct Calls {
    /// Of ids that are made.
    suffix: Box<str>,
    taken: Arc<TakenIds>,
    /// Ids of this message's own calls.
    given: BTreeSet<Box<str>>,
    /// The last number that told an id from one that is taken.
    number: u64,
    list: Vec<Call>,
    identities: Identities,
    /// Those before it are written; it is being written, or is to be the next.
    current: usize,
    /// Bytes of all calls.
    held: usize,
}

#[derive(Debug, Default)]
struct Call {
    id: Vec<u8>,
    name: Vec<u8>,
    /// As they came.
    arguments: Vec<u8>,
    /// What they are if none come.
    fallback: Vec<u8>,
    /// The client knows of it.
    announced: bool,
    /// Bytes of the arguments that the client was sent.
    sent: usize,
    whole: Wholeness,
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
    pub(super) fn new(taken: Arc<TakenIds>) -> Self {
        Calls {
            suffix: "".into(),
            taken,
            given: BTreeSet::new(),
            number: 0,
            list: Vec::new(),
            identities: Identities::default(),
            current: 0,
            held: 0,
        }
    }

    /// The message's id, of which those are made that an upstream does not give.
    pub(super) fn name_after(&mut self, message_id: &str) {
        let suffix = message_id.strip_prefix("msg_").unwrap_or(message_id);
        let plain = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
        self.suffix = suffix.chars().filter(plain).collect();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Whether a piece adds nothing: it repeats a call, or it is empty.
    pub(super) fn know(&self, piece: &Piece<'_>) -> bool {
        let said = CallPiece::from(piece);
        let place = self.identities.place(&self.list, &said);
        match place.and_then(|place| Some((place, self.list.get(place)?))) {
            Some((place, call)) => {
                let is_written = place < self.current;
                is_written && said.arguments.is_empty() || is_repeated_by(call, &said)
            }
            None => said.id.is_empty() && said.name.is_empty() && said.arguments.is_empty(),
        }
    }

    /// Takes in a part of a call, and writes what can be written by now.
    pub(super) fn push(&mut self, piece: &Piece<'_>, blocks: &mut Blocks, out: &mut Vec<u8>) {
        let said = CallPiece::from(piece);
        let place = match self.identities.place(&self.list, &said) {
            Some(place) if place >= self.current => place,
            // More of a call that is written: what is written stays as it is, and nothing may be lost.
            Some(place) => {
                let name = self.list.get(place).map(|call| call.name.clone());
                self.add(name.unwrap_or_default())
            }
            None => self.add(Vec::new()),
        };
        self.identities.note(&said, place);
        let Some(call) = self.list.get_mut(place) else {
            return;
        };
        self.held += piece.id.len() + piece.name.len() + piece.arguments.len();
        if call.id.is_empty() && !call.announced {
            call.id.extend_from_slice(piece.id);
        }
        // A name comes whole, again with each piece, or in parts before the arguments.
        if !call.announced && call.name != piece.name {
            call.name.extend_from_slice(piece.name);
        }
        if call.fallback.is_empty() {
            self.held += piece.fallback.len();
            call.fallback.extend_from_slice(piece.fallback);
        }
        call.arguments.extend_from_slice(piece.arguments);
        self.advance(blocks, out);
    }

    /// The place of a new call.
    fn add(&mut self, name: Vec<u8>) -> usize {
        self.held += CALL_COST + name.len();
        self.list.push(Call {
            name,
            ..Call::default()
        });
        self.list.len() - 1
    }

    /// Writes the call whose turn it is, and goes on to the next once it is whole.
    fn advance(&mut self, blocks: &mut Blocks, out: &mut Vec<u8>) {
        loop {
            let is_last = self.current + 1 >= self.list.len();
            let Some(call) = self.list.get_mut(self.current) else {
                return;
            };
            // An id may come behind the name, but not behind arguments.
            let is_known = !call.name.is_empty()
                && (!call.id.is_empty() || !call.arguments.is_empty() || !is_last);
            if !call.announced && !is_known {
                return;
            }
            self.write_current(blocks, out);
            let Some(call) = self.list.get_mut(self.current) else {
                return;
            };
            if is_last || !call.whole.is_reached(&call.arguments) {
                return;
            }
            blocks.close(out);
            self.current += 1;
        }
    }

    /// Nothing more comes for the calls so far: all of them are written.
    pub(super) fn end(&mut self, blocks: &mut Blocks, out: &mut Vec<u8>) {
        while let Some(call) = self.list.get_mut(self.current) {
            let says_nothing = call.id.is_empty() && call.name.is_empty();
            if !(says_nothing && call.arguments.is_empty()) {
                // An empty object is what a client takes no arguments for.
                if call.arguments.is_empty() && call.fallback != b"{}" {
                    call.arguments = std::mem::take(&mut call.fallback);
                }
                self.write_current(blocks, out);
                blocks.close(out);
            }
            self.current += 1;
        }
    }

    fn write_current(&mut self, blocks: &mut Blocks, out: &mut Vec<u8>) {
        let place = self.current;
        let Some(announced) = self.list.get(place).map(|call| call.announced) else {
            return;
        };
        if !announced {
            let id = self.free_id(place);
            if let Some(call) = self.list.get_mut(place) {
                call.announced = true;
                blocks.begin_call(&id, &call.name, out);
            }
        }
        if let Some(call) = self.list.get_mut(place) {
            let more = call.arguments.get(call.sent..).unwrap_or_default();
            blocks.say(more, out);
            call.sent = call.arguments.len();
        }
    }

    /// The id under which the client gets to know the call, spelled: its own, unless that is missing, or stands for
    /// another call already. Clients find results by ids alone, and upstreams that count `call_0` anew in each reply
    /// would send them round in circles.
    fn free_id(&mut self, place: usize) -> Vec<u8> {
        let own = self.list.get(place).map_or(&b""[..], |call| &call.id);
        let own = string::decode(own);
        let first = if own.is_empty() {
            format!("toolu_{}_{place}", self.suffix)
        } else {
            own.into_owned()
        };
        let mut id = first.clone();
        while self.taken.contains(&*id) || self.given.contains(&*id) {
            // A number is used once, so that all calls together look no more often than there are ids.
            self.number += 1;
            id = format!("{first}_{}", self.number);
        }
        let mut spelled = Vec::with_capacity(id.len());
        string::spell(&id, &mut spelled);
        self.given.insert(id.into());
        spelled
    }
}

/// How far a call's arguments have been followed, to find out whether they are one whole JSON object.
#[derive(Debug, Default)]
struct Wholeness {
    /// Bytes of the arguments, as they are spelled, that were looked at.
    seen: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    reached: bool,
}

impl Wholeness {
    /// Whether `arguments`, spelled, hold a whole object. Each byte is looked at once, however often it is asked.
    fn is_reached(&mut self, arguments: &[u8]) -> bool {
        while !self.reached
            && let Some((letter, length)) = letter(arguments.get(self.seen..).unwrap_or_default())
        {
            self.seen += length;
            match letter {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = self.in_string,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.reached = self.depth == 0;
                }
                _ => {}
            }
        }
        self.reached
    }
}

/// The first letter of spelled text, as far as it is one of JSON's own, and the bytes that it takes. None where it is
/// not there as a whole.
fn letter(text: &[u8]) -> Option<(u8, usize)> {
    match text {
        [b'\\', b'u', rest @ ..] => {
            let digits = rest.get(..4)?;
            let ascii = match digits {
                [b'0', b'0', high, low] => {
                    let value = |digit: u8| char::from(digit).to_digit(16);
                    let code = value(*high)? << 4 | value(*low)?;
                    u8::try_from(code).ok()?
                }
                _ => 0,
            };
            Some((ascii, 6))
        }
        [b'\\', letter, ..] => Some((*letter, 2)),
        [b'\\'] | [] => None,
        [letter, ..] => Some((*letter, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_whole(arguments: &str) -> bool {
        let mut whole = Wholeness::default();
        let mut spelled = Vec::new();
        string::spell(arguments, &mut spelled);
        // Byte by byte, as if each came by itself.
        (0..=spelled.len()).any(|end| whole.is_reached(&spelled[..end]))
    }

    #[test]
    fn an_object_is_whole_at_its_last_brace() {
        for whole in [
            "{}",
            " {\"a\":[1,{\"b\":2}]}",
            r#"{"a":"}\"\\"}"#,
            "[]",
            "{\"é\":\"\n\"}",
        ] {
            assert!(is_whole(whole), "{whole}");
            assert!(!is_whole(&whole[..whole.len() - 1]), "{whole}");
        }
        for part in ["", "{", r#"{"a":"}"#, r#"{"a":"\"}"#, "1", "\"{}\""] {
            assert!(!is_whole(part), "{part}");
        }
    }

    #[test]
    fn letters_may_be_spelled_by_their_numbers() {
        let mut whole = Wholeness::default();
        assert!(!whole.is_reached(br"\u007b\u0022\u00e9\u002"));
        assert!(whole.is_reached(br"\u007b\u0022\u00e9\u0022\u007D"));
    }
}
