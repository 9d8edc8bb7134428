//! Knowing an event without reading it: most events of a stream differ from one before only in their text.
//!
//! A template is an event that was read in full, with holes where its text, its padding and its number stood. Bytes that are equal to it
//! outside the holes, and hold in each hole a token of the same type, are an event that would be read the same: the same members in
//! the same places, with other text. So nothing is lost by comparing, and comparing is many times as fast as reading.

use std::ops::Range;

use crate::json::string;

use super::payload::{Hole, HoleKind};
use super::reply::Bearing;

/// Shapes remembered at once. Streams alternate between few: text and reasoning, or the choices of `n` > 1.
const MAX_TEMPLATES: usize = 4;

/// Larger events are not remembered: they are few, and what is remembered lives as long as the stream.
const MAX_TEMPLATE_BYTES: usize = 4096;

/// Holes of one template. Real events have three at most: text, padding, number.
const MAX_HOLES: usize = 6;

/// Templates in a row that were learned and never used, after which learning pauses: each event of such a stream has something in
/// it that no other has.
const MAX_UNUSED: u32 = 8;

/// Events that such a pause lasts.
const PAUSE: u32 = 64;

/// An event that matched.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Match {
    /// Bytes of the event.
    pub(super) len: usize,
    /// It bears text, reasoning, a refusal or a tool call.
    pub(super) bears_output: bool,
    /// Its number, where it has one.
    pub(super) sequence: Option<u64>,
}

/// What a client sees of an event that is edited, without its holes.
struct Shown {
    /// What stands in front of the holes, and behind the last one, back to back.
    text: Box<[u8]>,
    /// For each hole: the end of what stands in front of it.
    ends: Box<[usize]>,
}

struct Template {
    /// What stands in front of the holes, and behind the last one, back to back.
    fixed: Box<[u8]>,
    /// For each hole: the end of what stands in front of it in `fixed`.
    holes: Box<[(usize, HoleKind)]>,
    /// What the client sees in the place of `fixed`, where that is something else.
    shown: Option<Shown>,
    bearing: Bearing,
    used: bool,
    /// Where the holes of the event lie that matched last.
    places: [(usize, usize); MAX_HOLES],
}

impl Template {
    #[inline]
    fn matches(&mut self, bytes: &[u8]) -> Option<Match> {
        let mut found = Match {
            bears_output: self.bearing.always,
            ..Match::default()
        };
        let mut at = 0;
        let mut from = 0;
        for (&(to, kind), place) in self.holes.iter().zip(&mut self.places) {
            let fixed = self.fixed.get(from..to)?;
            if bytes.get(at..at + fixed.len())? != fixed {
                return None;
            }
            at += fixed.len();
            from = to;
            let start = at;
            match kind {
                HoleKind::Output | HoleKind::Padding => {
                    at = string::content_end(bytes, at).ok()?;
                    found.bears_output |=
                        self.bearing.with_text && kind == HoleKind::Output && at > start;
                }
                HoleKind::Sequence => {
                    let (number, end) = unsigned(bytes, at)?;
                    found.sequence = Some(number);
                    at = end;
                }
            }
            *place = (start, at);
        }
        let fixed = self.fixed.get(from..)?;
        if bytes.get(at..at + fixed.len())? != fixed {
            return None;
        }
        found.len = at + fixed.len();
        Some(found)
    }

    /// Appends what the client sees of `event`, the one that matched last.
    fn show(&self, event: &[u8], out: &mut Vec<u8>) {
        let Some(Shown { text, ends }) = &self.shown else {
            out.extend_from_slice(event);
            return;
        };
        let mut from = 0;
        for (&to, &(start, end)) in ends.iter().zip(&self.places) {
            out.extend_from_slice(text.get(from..to).unwrap_or_default());
            out.extend_from_slice(event.get(start..end).unwrap_or_default());
            from = to;
        }
        out.extend_from_slice(text.get(from..).unwrap_or_default());
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

/// The shapes of one stream's events.
#[derive(Default)]
pub(super) struct Templates {
    known: Vec<Template>,
    /// The one that matched last, tried first.
    last: usize,
    /// Where a place for the next one is looked for.
    hand: usize,
    unused: u32,
    pause: u32,
}

impl Templates {
    /// The event that `bytes` begin with, if it has a known shape.
    #[inline]
    pub(super) fn find(&mut self, bytes: &[u8]) -> Option<Match> {
        let last = self.known.get_mut(self.last)?;
        let found = last.matches(bytes);
        if found.is_some() {
            last.used = true;
            return found;
        }
        self.find_other(bytes)
    }

    fn find_other(&mut self, bytes: &[u8]) -> Option<Match> {
        for (i, template) in self.known.iter_mut().enumerate() {
            if i == self.last {
                continue;
            }
            let found = template.matches(bytes);
            if found.is_some() {
                template.used = true;
                self.last = i;
                self.unused = 0;
                return found;
            }
        }
        None
    }

    /// Whether the event that was found last goes on as it came.
    #[inline]
    pub(super) fn is_unchanged(&self) -> bool {
        self.known
            .get(self.last)
            .is_none_or(|template| template.shown.is_none())
    }

    /// Appends what the client sees of `event`, the one that was found last.
    pub(super) fn show(&self, event: &[u8], out: &mut Vec<u8>) {
        if let Some(template) = self.known.get(self.last) {
            template.show(event, out);
        }
    }

    /// Remembers the shape of `event`, which was read in full and found to say nothing but text. `holes` are in it, in their order; so are
    /// the `edits`, each a range and what the client sees in its place.
    pub(super) fn learn<'a>(
        &mut self,
        event: &[u8],
        holes: &[Hole],
        edits: impl Iterator<Item = (Range<usize>, &'a [u8])>,
        bearing: Bearing,
    ) {
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        // A line end that a CR alone makes may turn out to be half of one.
        let is_closed = event.last() == Some(&b'\n');
        if !is_closed || event.len() > MAX_TEMPLATE_BYTES || holes.len() > MAX_HOLES {
            return;
        }
        let Some(template) = cut(event, holes, edits, bearing) else {
            return;
        };
        if self.known.len() < MAX_TEMPLATES {
            self.last = self.known.len();
            self.known.push(template);
            return;
        }
        // The clock algorithm: what was used since the hand last passed is passed over once more.
        while let Some(old) = self.known.get_mut(self.hand) {
            let place = self.hand;
            self.hand = (self.hand + 1) % MAX_TEMPLATES;
            if old.used {
                old.used = false;
                self.unused = 0;
                continue;
            }
            *old = template;
            self.last = place;
            break;
        }
        self.unused += 1;
        if self.unused >= MAX_UNUSED {
            self.unused = 0;
            self.pause = PAUSE;
        }
    }
}

fn cut<'a>(
    event: &[u8],
    holes: &[Hole],
    edits: impl Iterator<Item = (Range<usize>, &'a [u8])>,
    bearing: Bearing,
) -> Option<Template> {
    let mut fixed = Vec::with_capacity(event.len());
    let mut ends = Vec::with_capacity(holes.len());
    let mut at = 0;
    for hole in holes {
        fixed.extend_from_slice(event.get(at..hole.start)?);
        ends.push((fixed.len(), hole.kind));
        at = hole.end;
    }
    fixed.extend_from_slice(event.get(at..)?);

    let mut edits: Vec<_> = edits.collect();
    edits.sort_by_key(|(range, _)| range.start);
    let shown = if edits.is_empty() {
        None
    } else {
        Some(cut_shown(event, holes, &edits)?)
    };
    Some(Template {
        fixed: fixed.into(),
        holes: ends.into(),
        shown,
        bearing,
        used: false,
        places: [(0, 0); MAX_HOLES],
    })
}

/// What is shown between the holes. None where an edit reaches into one.
fn cut_shown(event: &[u8], holes: &[Hole], edits: &[(Range<usize>, &[u8])]) -> Option<Shown> {
    let mut shown = Vec::with_capacity(event.len());
    let mut ends = Vec::with_capacity(holes.len());
    let mut edits = edits.iter().peekable();
    let mut at = 0;
    let behind = Hole {
        start: event.len(),
        end: event.len(),
        kind: HoleKind::Padding,
    };
    for hole in holes.iter().chain([&behind]) {
        while let Some((range, with)) = edits.next_if(|(range, _)| range.end <= hole.start) {
            shown.extend_from_slice(event.get(at..range.start)?);
            shown.extend_from_slice(with);
            at = range.end;
        }
        shown.extend_from_slice(event.get(at..hole.start)?);
        ends.push(shown.len());
        at = hole.end;
    }
    ends.pop();
    edits.next().is_none().then(|| Shown {
        text: shown.into(),
        ends: ends.into(),
    })
}
