//! Recognising an event without parsing it: most events of a stream differ from an earlier one only in their text.
//!
//! A template is an event that was read in full, with holes where its text, its padding and its numbers stood. Bytes
//! that are equal to it outside the holes, and hold in each hole a token of the same type, are an event that would be
//! read the same: the same members in the same places, with other text. So nothing is lost by comparing, and comparing
//! is many times as fast as reading.

use std::ops::Range;

use bytes::Bytes;

use crate::cost::{self, Members};
use crate::json::scan::{Kind, Value};
use crate::json::string;
use crate::output::TextPlace;
use crate::usage::Count;

use super::piece_templates::PieceTemplate;
use crate::watch::Bearing;
use crate::watch::payload::{Hole, HoleKind};

/// Larger events are not learned as templates: they are few, and a template lives as long as the stream.
const MAX_BYTES: usize = 4096;

/// Holes of one template. Text, padding and number are three; a usage object may have ten counts.
const MAX_HOLES: usize = 16;

/// An event that matched.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Match {
    /// Bytes of the event.
    pub(super) len: usize,
    /// It contains text, reasoning, a refusal or a tool call.
    pub(super) bears_output: bool,
    /// Its number, where it has one.
    pub(super) sequence: Option<u64>,
}

/// An event that was parsed in full and found to hold nothing new but text and counts.
pub(super) struct Example<'a> {
    pub(super) event: &'a [u8],
    /// In the event, in their order.
    pub(super) holes: &'a [Hole],
    /// What the client gets instead of some ranges of the event, apart from a cost that is added.
    pub(super) edits: &'a [(Range<usize>, Bytes)],
    pub(super) bearing: Bearing,
    /// The usage object, where it is to be priced, and what was added to it.
    pub(super) priced: Option<(Value, Option<Members>)>,
    pub(super) max_depth: usize,
    pub(super) meaning: Meaning,
}

/// What every event of one shape means, apart from the text in its holes.
#[derive(Default)]
pub(super) struct Meaning {
    /// Its pieces of output, for a reply that is translated. None where they have to be read of each event.
    pub(super) pieces: Option<Box<[PieceTemplate]>>,
    /// For a reply that is followed, or whose reader asks for no more: which of its texts the event continues, and the
    /// hole that holds the next part.
    pub(super) continued_text: Option<(TextPlace, usize)>,
}

struct Opening {
    /// Where in the fixed text it is.
    at: usize,
    kind: HoleKind,
    /// Where the hole of the event lies that matched last.
    place: Range<usize>,
    /// The number in it.
    number: u64,
}

/// The event as the client gets it, where it is edited, without the content of the holes.
struct ClientView {
    /// What stands in front of the holes, and behind the last one, back to back.
    text: Box<[u8]>,
    /// For each hole: where in `text` it is.
    openings: Box<[usize]>,
}

/// A place in the fixed text, and the number of holes in front of it.
#[derive(Clone, Copy)]
struct Anchor {
    at: usize,
    holes: usize,
}

struct Priced {
    start: Anchor,
    end: Anchor,
    /// Where members like these are added; None if the upstream uses one of their names itself.
    addition: Option<(Anchor, Members)>,
}

pub(super) struct Template {
    /// What stands in front of the holes, and behind the last one, back to back.
    fixed: Box<[u8]>,
    openings: Box<[Opening]>,
    /// What the client gets instead of `fixed`; None if the event is forwarded unchanged.
    client_view: Option<ClientView>,
    priced: Option<Priced>,
    bearing: Bearing,
    counts: bool,
    meaning: Meaning,
}

impl Template {
    /// The template of `example`; None if it is not worth remembering.
    pub(super) fn cut(example: Example<'_>) -> Option<Self> {
        let Example { event, holes, .. } = example;
        // An event that ends with CR may turn out to end with CRLF once the next byte has come.
        let is_closed = event.last() == Some(&b'\n');
        let is_edited = !example.edits.is_empty();
        if !is_closed
            || event.len() > MAX_BYTES
            || holes.len() > MAX_HOLES
            || is_edited && example.priced.is_some()
        {
            return None;
        }
        let mut fixed = Vec::with_capacity(event.len());
        let mut openings = Vec::with_capacity(holes.len());
        let mut at = 0;
        for hole in holes {
            fixed.extend_from_slice(event.get(at..hole.start)?);
            openings.push(Opening {
                at: fixed.len(),
                kind: hole.kind,
                place: 0..0,
                number: 0,
            });
            at = hole.end;
        }
        fixed.extend_from_slice(event.get(at..)?);
        let client_view = if is_edited {
            Some(ClientView::cut(event, holes, example.edits)?)
        } else {
            None
        };
        Some(Template {
            fixed: fixed.into(),
            openings: openings.into(),
            client_view,
            priced: Priced::cut(&example),
            bearing: example.bearing,
            counts: holes
                .iter()
                .any(|hole| matches!(hole.kind, HoleKind::Count(_))),
            meaning: example.meaning,
        })
    }

    /// Whether `bytes` begin with an event of this shape.
    #[inline]
    pub(super) fn matches(&mut self, bytes: &[u8]) -> Option<Match> {
        let mut found = Match {
            bears_output: self.bearing.always,
            ..Match::default()
        };
        let mut at = 0;
        let mut from = 0;
        for opening in &mut self.openings {
            let fixed = self.fixed.get(from..opening.at)?;
            if bytes.get(at..at + fixed.len())? != fixed {
                return None;
            }
            from = opening.at;
            let start = at + fixed.len();
            match opening.kind {
                HoleKind::Output => {
                    at = string::content_end(bytes, start).ok()?;
                    found.bears_output |= self.bearing.with_text && at > start;
                }
                HoleKind::Padding => at = string::content_end(bytes, start).ok()?,
                HoleKind::Sequence => {
                    let (number, end) = unsigned(bytes, start)?;
                    found.sequence = Some(number);
                    at = end;
                }
                HoleKind::Count(_) => (opening.number, at) = unsigned(bytes, start)?,
            }
            opening.place = start..at;
        }
        let fixed = self.fixed.get(from..)?;
        if bytes.get(at..at + fixed.len())? != fixed {
            return None;
        }
        found.len = at + fixed.len();
        Some(found)
    }

    /// What stands in front of its first hole.
    pub(super) fn head(&self) -> &[u8] {
        let end = self
            .openings
            .first()
            .map_or(self.fixed.len(), |opening| opening.at);
        self.fixed.get(..end).unwrap_or_default()
    }

    /// The pieces of output in an event of this shape. None where they have to be read.
    #[inline]
    pub(super) fn pieces(&self) -> Option<&[PieceTemplate]> {
        self.meaning.pieces.as_deref()
    }

    /// The text that an event of this shape continues, of a reply that is followed, and the hole that holds the next
    /// part.
    #[inline]
    pub(super) fn continued_text(&self) -> Option<(TextPlace, usize)> {
        self.meaning.continued_text
    }

    /// Where a hole lies in the event that matched last.
    #[inline]
    pub(super) fn place(&self, hole: usize) -> Range<usize> {
        self.openings
            .get(hole)
            .map_or(0..0, |opening| opening.place.clone())
    }

    /// Whether it holds counts.
    #[inline]
    pub(super) fn counts(&self) -> bool {
        self.counts
    }

    /// The counts of the event that matched last.
    pub(super) fn counted(&self) -> impl Iterator<Item = (Count, u64)> {
        self.openings
            .iter()
            .filter_map(|opening| match opening.kind {
                HoleKind::Count(count) => Some((count, opening.number)),
                _ => None,
            })
    }

    /// Whether an event of this shape is forwarded unchanged, apart from a cost that is added.
    #[inline]
    pub(super) fn is_unchanged(&self) -> bool {
        self.client_view.is_none()
    }

    /// Appends `event`, the one that matched last, as the client gets it, apart from a cost that is added.
    pub(super) fn write_client_view(&self, event: &[u8], out: &mut Vec<u8>) {
        let Some(ClientView { text, openings }) = &self.client_view else {
            out.extend_from_slice(event);
            return;
        };
        let mut from = 0;
        for (&to, opening) in openings.iter().zip(&self.openings) {
            out.extend_from_slice(text.get(from..to).unwrap_or_default());
            out.extend_from_slice(event.get(opening.place.clone()).unwrap_or_default());
            from = to;
        }
        out.extend_from_slice(text.get(from..).unwrap_or_default());
    }

    /// The usage object to be priced, in the event that matched last.
    pub(super) fn priced_object(&self) -> Option<Value> {
        let priced = self.priced.as_ref()?;
        Some(Value {
            kind: Kind::Object,
            start: self.locate(priced.start),
            end: self.locate(priced.end),
        })
    }

    /// Where in the event that matched last `,` and `members` are to be inserted, if nothing else has to be done for
    /// them.
    pub(super) fn addition(&self, members: &Members) -> Option<usize> {
        let (anchor, known) = self.priced.as_ref()?.addition.as_ref()?;
        members.is_like(known).then(|| self.locate(*anchor))
    }

    fn locate(&self, anchor: Anchor) -> usize {
        let before = anchor
            .holes
            .checked_sub(1)
            .and_then(|i| self.openings.get(i));
        match before {
            Some(opening) => opening.place.end + anchor.at - opening.at,
            None => anchor.at,
        }
    }
}

impl Anchor {
    /// The place `at` of an event.
    fn new(at: usize, holes: &[Hole]) -> Self {
        let before = holes.iter().take_while(|hole| hole.end <= at);
        let (holes, left_out) = before.fold((0, 0), |(holes, left_out), hole| {
            (holes + 1, left_out + hole.end - hole.start)
        });
        Anchor {
            at: at - left_out,
            holes,
        }
    }
}

impl Priced {
    fn cut(example: &Example<'_>) -> Option<Self> {
        let (object, members) = example.priced.as_ref()?;
        let anchor = |at| Anchor::new(at, example.holes);
        let addition = members.as_ref().and_then(|members| {
            let at = cost::plain_addition(example.event, *object, members, example.max_depth)?;
            Some((anchor(at), members.clone()))
        });
        Some(Priced {
            start: anchor(object.start),
            end: anchor(object.end),
            addition,
        })
    }
}

impl ClientView {
    /// None where an edit reaches into a hole.
    fn cut(event: &[u8], holes: &[Hole], edits: &[(Range<usize>, Bytes)]) -> Option<Self> {
        let mut text = Vec::with_capacity(event.len());
        let mut openings = Vec::with_capacity(holes.len());
        let mut edits = edits.iter().peekable();
        let mut at = 0;
        let behind = Hole {
            start: event.len(),
            end: event.len(),
            kind: HoleKind::Padding,
        };
        for hole in holes.iter().chain([&behind]) {
            while let Some((range, with)) = edits.next_if(|(range, _)| range.end <= hole.start) {
                text.extend_from_slice(event.get(at..range.start)?);
                text.extend_from_slice(with);
                at = range.end;
            }
            text.extend_from_slice(event.get(at..hole.start)?);
            openings.push(text.len());
            at = hole.end;
        }
        openings.pop();
        edits.next().is_none().then(|| ClientView {
            text: text.into(),
            openings: openings.into(),
        })
    }
}

/// A number without a leading zero that fits 64 bits, and the offset behind it.
fn unsigned(bytes: &[u8], start: usize) -> Option<(u64, usize)> {
    let mut number = 0u64;
    let mut at = start;
    while let Some(digit @ b'0'..=b'9') = bytes.get(at) {
        number = number
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
        at += 1;
    }
    let leading_zero = at > start + 1 && bytes.get(start) == Some(&b'0');
    (at > start && !leading_zero).then_some((number, at))
}
