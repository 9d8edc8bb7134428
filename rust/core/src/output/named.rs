//! Tools under the client's names: an upstream may have been told others.

use std::sync::Arc;

use super::{Call, Ending, Piece, Spent, Writer};
use crate::input::Names;
use crate::json::string;
use crate::usage::Usage;

/// Writes what another writer does, with each call under the name that the client knows. A name that comes in parts
/// stays as it is: no upstream that takes names apart is told other names.
pub(crate) struct Named {
    names: Arc<Names>,
    writer: Box<dyn Writer>,
}

impl Named {
    /// `writer`, for a reply to a request in which tools were called by `names`.
    pub(crate) fn new(names: Arc<Names>, writer: Box<dyn Writer>) -> Self {
        Named { names, writer }
    }
}

impl Writer for Named {
    fn foresee(&mut self, usage: &Usage) {
        self.writer.foresee(usage);
    }

    fn write(&mut self, piece: &Piece<'_>, out: &mut Vec<u8>) {
        if let Piece::Call(call) = piece
            && !call.name.is_empty()
        {
            let told = string::decode(call.name);
            let mut name = Vec::new();
            string::spell(self.names.client(&told), &mut name);
            let call = Call {
                name: &name,
                ..*call
            };
            return self.writer.write(&Piece::Call(call), out);
        }
        self.writer.write(piece, out);
    }

    fn end(
        &mut self,
        ending: Ending<'_>,
        spent: Option<Spent<'_>>,
        now: Option<u64>,
        out: &mut Vec<u8>,
    ) {
        self.writer.end(ending, spent, now, out);
    }

    fn held(&self) -> usize {
        self.writer.held()
    }
}
