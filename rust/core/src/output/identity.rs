//! Which tool call a piece belongs to.
//!
//! In the reference form each piece carries its call's `index`, and the first one `id`, `type` and the name as well.
//! Upstreams break each part of that, so the index alone decides nothing:
//!
//! - no index at all, each call whole in one piece (Gemini: openai-python#2806, AstrBot#6661);
//! - every call at index 0, told apart by their ids (dynamo#4723, smolagents#1569) or only by their names
//!   (CLIProxyAPI#5058);
//! - the head of the second call at index 0, its arguments at 1 (agno#8879); an index that goes up inside one call
//!   (dirac#215);
//! - the name again in each piece (NVIDIA NIM, hermes-agent#12230), the id again in each piece;
//! - a whole call sent a second time;
//! - `null` for id, type, name and arguments in later pieces, or in the first (Writer).
//!
//! The rules: an id that is known names its call, unless another whole call comes with it at an index of its own (each
//! call has the function's name for its id); an id that is new begins a call, unless the call at this index has none
//! yet. Without an id, an index that is known names its call, a name at an unknown index begins one, and a piece with
//! neither goes on with the last call. At a known index a name that comes after arguments begins a call where it
//! differs, or where arguments that could be complete are followed by others.

use std::collections::BTreeMap;

use super::Call;

/// A call as it is known so far, its texts spelled as between the quotes of a JSON string.
pub(crate) trait KnownCall {
    /// It was given an id by the upstream.
    fn has_id(&self) -> bool;
    /// Empty: not known.
    fn name(&self) -> &[u8];
    /// A function's arguments or a custom tool's input.
    fn arguments(&self) -> &[u8];
}

/// The members of one piece of a call. An empty one was not given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallPiece<'a> {
    pub(crate) index: Option<u64>,
    pub(crate) id: &'a [u8],
    pub(crate) name: &'a [u8],
    pub(crate) arguments: &'a [u8],
}

impl<'a> From<&Call<'a>> for CallPiece<'a> {
    fn from(call: &Call<'a>) -> Self {
        CallPiece {
            index: call.index,
            id: call.id,
            name: call.name,
            arguments: call.arguments,
        }
    }
}

/// How the calls of one message were named, as places in a list of them.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    /// The latest call at each index, and the call of each id.
    by_index: BTreeMap<u64, usize>,
    by_id: BTreeMap<Box<[u8]>, usize>,
}

impl Identities {
    /// The call that a piece goes on with, as a place in `calls`; None if it begins one.
    pub(crate) fn place<C: KnownCall>(&self, calls: &[C], piece: &CallPiece<'_>) -> Option<usize> {
        let at_index = piece.index.and_then(|i| self.by_index.get(&i).copied());
        if !piece.id.is_empty() {
            if let Some(&place) = self.by_id.get(piece.id) {
                let call = calls.get(place)?;
                let is_at_new_index = piece.index.is_some() && at_index.is_none();
                let is_other = is_ended_by(call, piece) && !is_repeated_by(call, piece);
                return (!(is_at_new_index && is_other)).then_some(place);
            }
            let call = calls.get(at_index?)?;
            let takes_id = !call.has_id() && !is_ended_by(call, piece);
            return at_index.filter(|_| takes_id);
        }
        match at_index {
            Some(place) => {
                let call = calls.get(place)?;
                (!is_ended_by(call, piece)).then_some(place)
            }
            None if !piece.name.is_empty() => None,
            None => calls.len().checked_sub(1),
        }
    }

    /// Remembers that `piece` belongs to the call at `place`.
    pub(crate) fn note(&mut self, piece: &CallPiece<'_>, place: usize) {
        if let Some(index) = piece.index {
            self.by_index.insert(index, place);
        }
        if !piece.id.is_empty() && self.by_id.get(piece.id) != Some(&place) {
            self.by_id.insert(piece.id.into(), place);
        }
    }
}

/// Whether a piece without an id at this call's index begins another call.
fn is_ended_by(call: &impl KnownCall, piece: &CallPiece<'_>) -> bool {
    if piece.name.is_empty() || call.arguments().is_empty() {
        return false;
    }
    let other_name = !piece.name.starts_with(call.name());
    let other_arguments = call.arguments().ends_with(b"}") && piece.arguments.starts_with(b"{");
    other_name || other_arguments
}

/// Whether a piece repeats the whole call.
pub(crate) fn is_repeated_by(call: &impl KnownCall, piece: &CallPiece<'_>) -> bool {
    piece.name == call.name()
        && piece.arguments == call.arguments()
        && piece.arguments.starts_with(b"{")
        && piece.arguments.ends_with(b"}")
}
