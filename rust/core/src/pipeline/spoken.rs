//! What events of one shape say, so that they need not be read to be translated.

use crate::output::{Call, Piece, Reasoning, Text};

use super::payload::{Hole, HoleKind, MAX_HOLES};

/// One piece of output in an event of a known shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spoken {
    kind: Kind,
    /// Which hole holds its text.
    pub(super) hole: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Text,
    Refusal,
    /// Of the call at this index.
    Arguments(Option<u64>),
}

impl Spoken {
    /// The piece, with `text` in the hole.
    #[inline]
    pub(super) fn piece(self, text: &[u8]) -> Piece<'_> {
        match self.kind {
            Kind::Reasoning => Piece::Reasoning(Reasoning::Text(text)),
            Kind::Text => Piece::Text(Text {
                text,
                ..Text::default()
            }),
            Kind::Refusal => Piece::Refusal(text),
            Kind::Arguments(index) => Piece::Call(Call {
                index,
                arguments: text,
                ..Call::default()
            }),
        }
    }
}

/// Notes the pieces of one payload, and where their texts lie.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// With offsets in the payload.
    texts: Vec<(Kind, usize, usize)>,
    /// There was a piece that is more than a text.
    more: bool,
}

impl Heard {
    pub(super) fn clear(&mut self) {
        self.texts.clear();
        self.more = false;
    }

    pub(super) fn note(&mut self, piece: &Piece<'_>, payload: &[u8]) {
        // Each text has a hole of its own, or there is no shape.
        if self.texts.len() >= MAX_HOLES {
            self.more = true;
            return;
        }
        let (kind, text) = match *piece {
            // Said of the whole reply, by its first event.
            Piece::Head(_) => return,
            Piece::Reasoning(Reasoning::Text(text)) => (Kind::Reasoning, text),
            Piece::Text(Text {
                text,
                logprobs: None,
                phase: None,
            }) => (Kind::Text, text),
            Piece::Refusal(text) => (Kind::Refusal, text),
            Piece::Call(Call {
                index,
                id: b"",
                name: b"",
                arguments,
                custom: false,
                extra: None,
            }) => (Kind::Arguments(index), arguments),
            _ => {
                self.more = true;
                return;
            }
        };
        // Only addresses are compared: a text that is not of the payload lies in no hole.
        let start = (text.as_ptr() as usize).wrapping_sub(payload.as_ptr() as usize);
        self.texts
            .push((kind, start, start.wrapping_add(text.len())));
    }

    /// What every event says that differs from this one in its holes only. None where that depends on what the holes hold.
    ///
    /// So that it does not, each text must be a hole's, and no other hole may hold output: a reader that takes one of two texts looks at
    /// both.
    pub(super) fn spoken(&self, holes: &[Hole]) -> Option<Box<[Spoken]>> {
        if self.more {
            return None;
        }
        let spoken: Option<Box<[Spoken]>> = self
            .texts
            .iter()
            .map(|&(kind, start, end)| {
                let is_here = |hole: &Hole| hole.start == start && hole.end == end;
                let hole = holes.iter().position(is_here)?;
                Some(Spoken { kind, hole })
            })
            .collect();
        spoken.filter(|spoken| {
            let is_heard = |place| spoken.iter().filter(|spoken| spoken.hole == place).count() == 1;
            holes
                .iter()
                .enumerate()
                .all(|(place, hole)| hole.kind != HoleKind::Output || is_heard(place))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Api;
    use super::super::payload::Payload;
    use super::*;
    use crate::output::Reader;
    use crate::output::chat_chunks::ChatChunks;

    fn spoken(chunk: &str) -> Option<Vec<(Kind, usize)>> {
        let mut payload = Payload::default();
        payload.read(chunk.as_bytes(), Api::Chat, 64).unwrap();
        let mut heard = Heard::default();
        ChatChunks::default()
            .read(chunk.as_bytes(), &mut |piece| {
                heard.note(piece, chunk.as_bytes());
            })
            .unwrap();
        let spoken = heard.spoken(&payload.holes)?;
        Some(spoken.iter().map(|s| (s.kind, s.hole)).collect())
    }

    fn of_delta(delta: &str) -> Option<Vec<(Kind, usize)>> {
        spoken(&format!(
            "{{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}"
        ))
    }

    #[test]
    fn texts_are_found_in_their_holes() {
        assert_eq!(
            of_delta(r#"{"content":"","reasoning":"r"}"#),
            Some(vec![(Kind::Reasoning, 1), (Kind::Text, 0)])
        );
        assert_eq!(
            of_delta(r#"{"tool_calls":[{"index":2,"function":{"arguments":"{"}}]}"#),
            Some(vec![(Kind::Arguments(Some(2)), 0)])
        );
        assert_eq!(of_delta("{}"), Some(vec![]));
    }

    #[test]
    fn what_depends_on_more_than_its_holes_is_read() {
        for delta in [
            r#"{"reasoning":"r","reasoning_content":"r"}"#,
            r#"{"reasoning":"r","reasoning_content":""}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}"#,
            r#"{"content":[{"type":"text","text":"a"}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{}}]}"#,
        ] {
            assert_eq!(of_delta(delta), None, "{delta}");
        }
        let two = r#"{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}"#;
        assert_eq!(spoken(two), None);
    }
}
