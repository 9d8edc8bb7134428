//! The few shapes that a stream's events have, learned as they come.

use super::template::{Example, Match, Template};

/// Shapes remembered at once. Streams alternate between few: text and reasoning, or the choices of `n` > 1.
const MAX_TEMPLATES: usize = 4;

/// Templates in a row that were learned and never used, after which learning pauses: each event of such a stream has something in
/// it that no other has.
const MAX_UNUSED: u32 = 8;

/// Events that such a pause lasts.
const PAUSE: u32 = 64;

struct Known {
    template: Template,
    used: bool,
}

/// The templates of one stream.
#[derive(Default)]
pub(super) struct Shapes {
    known: Vec<Known>,
    /// The one that matched last, tried first.
    last: usize,
    /// Where a place for the next one is looked for.
    hand: usize,
    unused: u32,
    pause: u32,
}

impl Shapes {
    /// The event that `bytes` begin with, if it has a known shape, and that shape.
    #[inline]
    pub(super) fn find(&mut self, bytes: &[u8]) -> Option<(Match, &Template)> {
        let found = match self.known.get_mut(self.last)?.template.matches(bytes) {
            Some(found) => found,
            None => self.find_other(bytes)?,
        };
        let known = self.known.get_mut(self.last)?;
        known.used = true;
        Some((found, &known.template))
    }

    fn find_other(&mut self, bytes: &[u8]) -> Option<Match> {
        let (place, found) = self
            .known
            .iter_mut()
            .enumerate()
            .filter(|(place, _)| *place != self.last)
            .find_map(|(place, known)| Some((place, known.template.matches(bytes)?)))?;
        self.last = place;
        self.unused = 0;
        Some(found)
    }

    /// Remembers the shape of `example`.
    pub(super) fn learn(&mut self, example: &Example<'_>) {
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
        self.known.retain(|known| !known.template.counts());
        self.last = 0;
        self.hand = 0;
    }
}
