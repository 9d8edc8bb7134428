//! The few shapes that a stream's events have, learned as they come.

use super::template::{Example, Match, Template};

/// Shapes remembered at once. Streams alternate between few: text and reasoning, or the choices of `n` > 1.
const MAX_TEMPLATES: usize = 4;

/// Templates in a row that were learned and never used, after which learning pauses: each event of such a stream has
/// something in it that no other has.
const MAX_UNUSED: u32 = 8;

/// Events that such a pause lasts.
const PAUSE: u32 = 64;

struct Known {
    template: Template,
    used: bool,
}

/// A byte by which the shapes differ, in front of their first holes.
#[derive(Clone, Copy)]
struct Telling {
    at: usize,
    /// What each of the shapes has there.
    bytes: [u8; MAX_TEMPLATES],
}

impl Telling {
    /// None where the shapes are alike as far as all of them have text of their own.
    fn find(known: &[Known]) -> Option<Self> {
        let heads = || known.iter().map(|known| known.template.head());
        let first = heads().next()?;
        let at = (0..first.len()).find(|&at| {
            // A head that is shorter may go on with anything.
            heads().any(|head| head.get(at) != first.get(at))
        })?;
        let mut bytes = [*first.get(at)?; MAX_TEMPLATES];
        for (byte, head) in bytes.iter_mut().zip(heads()) {
            *byte = *head.get(at)?;
        }
        Some(Telling { at, bytes })
    }

    /// Which shape to try. Without a branch: where shapes take turns as chance has it, a wrong guess costs as much as
    /// the comparison.
    #[inline]
    fn choose(&self, bytes: &[u8], last: usize) -> usize {
        let found = bytes.get(self.at).copied().unwrap_or_default();
        let chosen = (self.bytes.iter().enumerate().rev()).fold(last, |chosen, (place, &byte)| {
            if byte == found { place } else { chosen }
        });
        // Of those that are alike there, the last again.
        if self.bytes.get(last) == Some(&found) {
            last
        } else {
            chosen
        }
    }
}

/// The templates of one stream.
#[derive(Default)]
pub(super) struct Shapes {
    known: Vec<Known>,
    /// The one that matched last, tried first where `telling` does not tell.
    last: usize,
    telling: Option<Telling>,
    /// Where a place for the next one is looked for.
    hand: usize,
    unused: u32,
    pause: u32,
}

impl Shapes {
    /// The event that `bytes` begin with, if it has a known shape, and that shape.
    #[inline]
    pub(super) fn find(&mut self, bytes: &[u8]) -> Option<(Match, &Template)> {
        let first = match &self.telling {
            Some(telling) => telling.choose(bytes, self.last),
            None => self.last,
        };
        let (place, found) = match self.known.get_mut(first)?.template.matches(bytes) {
            Some(found) => (first, found),
            None => self.find_other(bytes, first)?,
        };
        self.last = place;
        self.unused = 0;
        let known = self.known.get_mut(place)?;
        known.used = true;
        Some((found, &known.template))
    }

    fn find_other(&mut self, bytes: &[u8], tried: usize) -> Option<(usize, Match)> {
        self.known
            .iter_mut()
            .enumerate()
            .filter(|(place, _)| *place != tried)
            .find_map(|(place, known)| Some((place, known.template.matches(bytes)?)))
    }

    /// Remembers the shape of `example`.
    pub(super) fn learn(&mut self, example: Example<'_>) {
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        let Some(template) = Template::cut(example) else {
            return;
        };
        let new = Known {
            template,
            used: false,
        };
        if self.known.len() < MAX_TEMPLATES {
            self.last = self.known.len();
            self.known.push(new);
        } else {
            self.replace(new);
        }
        self.telling = Telling::find(&self.known);
    }

    fn replace(&mut self, new: Known) {
        // The clock algorithm: what was used since the hand last passed is passed over once more.
        while let Some(old) = self.known.get_mut(self.hand) {
            let place = self.hand;
            self.hand = (self.hand + 1) % MAX_TEMPLATES;
            if old.used {
                old.used = false;
                self.unused = 0;
                continue;
            }
            *old = new;
            self.last = place;
            break;
        }
        self.unused += 1;
        if self.unused >= MAX_UNUSED {
            self.unused = 0;
            self.pause = PAUSE;
        }
    }

    /// Forgets the shapes with counts: what they mean has changed.
    pub(super) fn forget_counts(&mut self) {
        self.retain(|template| !template.counts());
    }

    /// Forgets the shapes whose events need not be read: what they mean may have changed.
    pub(super) fn forget_pieces(&mut self) {
        self.retain(|template| template.pieces().is_none() && template.continued_text().is_none());
    }

    /// Forgets the shapes whose events are all read: more can be known of them by now.
    pub(super) fn forget_unknown(&mut self) {
        self.retain(|template| template.pieces().is_some() || template.continued_text().is_some());
    }

    fn retain(&mut self, stays: impl Fn(&Template) -> bool) {
        if self.known.iter().all(|known| stays(&known.template)) {
            return;
        }
        self.known.retain(|known| stays(&known.template));
        self.telling = Telling::find(&self.known);
        self.last = 0;
        self.hand = 0;
    }
}
