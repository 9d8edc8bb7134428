//! Rewriting the events of a response that breaks the protocol. It keeps its id, because the client may fetch it from
//! the upstream by that id, or continue from it.

use std::sync::Arc;

use super::{Echo, ResponsesWriter};
use crate::json::string;
use crate::limits::MAX_REPEATED;
use crate::output::{Ending, Head, Piece, Spent, Writer};

/// Writes a response under the upstream's id, which comes with its first event, or under the echo's where none does.
#[derive(Debug)]
pub(crate) struct Renamed {
    echo: Arc<Echo>,
    model: Option<Box<str>>,
    shown: bool,
    writer: Option<ResponsesWriter>,
}

impl Renamed {
    pub(crate) fn new(echo: Arc<Echo>, model: Option<&str>, shown: bool) -> Self {
        Renamed {
            echo,
            model: model.map(Into::into),
            shown,
            writer: None,
        }
    }

    fn writer(&mut self, head: &Head<'_>) -> &mut ResponsesWriter {
        self.writer.get_or_insert_with(|| {
            let mut echo = Echo::clone(&self.echo);
            if let Some(id) = head.id.filter(|id| id.len() <= MAX_REPEATED) {
                echo.response_id = string::decode(id).into();
            }
            let seconds = head.created.and_then(|number| {
                let whole = number.split(|byte| *byte == b'.').next()?;
                std::str::from_utf8(whole).ok()?.parse().ok()
            });
            echo.created_at = seconds.unwrap_or(echo.created_at);
            ResponsesWriter::new(Arc::new(echo), self.model.as_deref(), self.shown)
        })
    }
}

impl Writer for Renamed {
    fn write(&mut self, piece: &Piece<'_>, out: &mut Vec<u8>) {
        let head = match piece {
            Piece::Head(head) => *head,
            _ => Head::default(),
        };
        self.writer(&head).write(piece, out);
    }

    fn end(
        &mut self,
        ending: Ending<'_>,
        spent: Option<Spent<'_>>,
        now: Option<u64>,
        out: &mut Vec<u8>,
    ) {
        self.writer(&Head::default()).end(ending, spent, now, out);
    }

    fn held(&self) -> usize {
        self.writer.as_ref().map_or(0, Writer::held)
    }
}
