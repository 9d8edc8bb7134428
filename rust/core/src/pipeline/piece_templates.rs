//! The pieces of output in events of one shape, so that an event of a known shape is translated without parsing it
//! again.

use crate::output::{Call, Piece, Reasoning, Text};

use crate::watch::payload::{Hole, HoleKind, MAX_HOLES};

/// One piece of output in every event of a known shape. Only its text differs from event to event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceTemplate {
    kind: Kind,
    /// Which of the shape's holes holds the text.
    pub(super) hole: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Text,
    Refusal,
    /// The arguments of the call at this index.
    Arguments(Option<u64>),
}

impl PieceTemplate {
    /// The piece of an event whose hole holds `text`.
    #[inline]
    pub(super) fn with_text(self, text: &[u8]) -> Piece<'_> {
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

/// Collects the pieces that were read from one payload, and where in the payload their texts lie.
#[derive(Debug, Default)]
pub(super) struct PieceNotes {
    /// The kind of each piece, and the offsets of its text in the payload.
    texts: Vec<(Kind, usize, usize)>,
    /// A piece was more than a text, or there were too many: the payload has no templates.
    has_other: bool,
}

impl PieceNotes {
    pub(super) fn clear(&mut self) {
        self.texts.clear();
        self.has_other = false;
    }

    pub(super) fn note(&mut self, piece: &Piece<'_>, payload: &[u8]) {
        // Each text has a hole of its own, or there is no shape.
        if self.texts.len() >= MAX_HOLES {
            self.has_other = true;
            return;
        }
        let (kind, text) = match *piece {
            // It describes the whole reply, and only the first event yields it.
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
                fallback: b"",
                custom: false,
                extra: None,
            }) => (Kind::Arguments(index), arguments),
            _ => {
                self.has_other = true;
                return;
            }
        };
        // Only addresses are compared: a text that is not of the payload lies in no hole.
        let start = (text.as_ptr() as usize).wrapping_sub(payload.as_ptr() as usize);
        self.texts
            .push((kind, start, start.wrapping_add(text.len())));
    }

    /// The pieces of every event that differs from this one only in the content of its `holes`. None if which pieces an
    /// event has depends on that content.
    ///
    /// It does not depend on it if each text fills exactly one hole, and each hole for output is filled by one text.
    /// Where two holes hold output and only one was read as a text, the reader may have chosen between them by their
    /// content.
    pub(super) fn templates(&self, holes: &[Hole]) -> Option<Box<[PieceTemplate]>> {
        if self.has_other {
            return None;
        }
        let templates: Option<Box<[PieceTemplate]>> = self
            .texts
            .iter()
            .map(|&(kind, start, end)| {
                let is_here = |hole: &Hole| hole.start == start && hole.end == end;
                let hole = holes.iter().position(is_here)?;
                Some(PieceTemplate { kind, hole })
            })
            .collect();
        templates.filter(|templates| {
            let is_a_text = |place| {
                templates
                    .iter()
                    .filter(|template| template.hole == place)
                    .count()
                    == 1
            };
            holes
                .iter()
                .enumerate()
                .all(|(place, hole)| hole.kind != HoleKind::Output || is_a_text(place))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Reader;
    use crate::protocols::chat::reading::ChatChunks;
    use crate::protocols::chat::watch::Chunks;
    use crate::watch::Watch;
    use crate::watch::payload::Payload;

    fn templates(chunk: &str) -> Option<Vec<(Kind, usize)>> {
        let mut payload = Payload::default();
        Chunks.read(&mut payload, chunk.as_bytes(), 64).unwrap();
        let mut notes = PieceNotes::default();
        ChatChunks::default()
            .read(chunk.as_bytes(), &mut |piece| {
                notes.note(piece, chunk.as_bytes());
            })
            .unwrap();
        let templates = notes.templates(&payload.holes)?;
        Some(templates.iter().map(|s| (s.kind, s.hole)).collect())
    }

    fn of_delta(delta: &str) -> Option<Vec<(Kind, usize)>> {
        templates(&format!(
            "{{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}"
        ))
    }

    #[test]
    fn each_text_is_matched_to_the_hole_that_holds_it() {
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
    fn an_event_whose_pieces_depend_on_the_content_of_its_holes_has_no_templates() {
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
        assert_eq!(templates(two), None);
    }
}
