//! Copies of replies on their way to clients, for a store: each has a bound, and all of them together have one.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};

/// What is taken of the room for all copies at once, in bytes. All engines share that room, and a token's way should
/// hardly ever touch what is shared.
const STEP: usize = 4096;

/// The room for all copies together.
#[derive(Debug)]
pub struct Copies {
    most: usize,
    taken: AtomicUsize,
}

impl Copies {
    /// Room for `most` bytes.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            taken: AtomicUsize::new(0),
        })
    }

    /// Bytes of it that are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }

    /// A part of it; `None` where it has not so much room.
    #[must_use]
    pub fn share(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        let mut share = Share {
            of: Arc::clone(self),
            bytes: 0,
        };
        share.grow(bytes).then_some(share)
    }
}

/// A part of the room, taken as long as this lives.
#[derive(Debug)]
pub struct Share {
    of: Arc<Copies>,
    bytes: usize,
}

impl Share {
    /// Takes so many bytes more. False where there are not so many.
    fn grow(&mut self, bytes: usize) -> bool {
        let most = self.of.most;
        let taken = self
            .of
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
                taken.checked_add(bytes).filter(|taken| *taken <= most)
            });
        let grown = taken.is_ok();
        if grown {
            self.bytes += bytes;
        }
        grown
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.taken.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Why there is no copy of a reply that was to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotCopied {
    /// It is larger than one may be.
    TooLarge,
    /// All copies together took as much as they may.
    NoRoom,
}

impl NotCopied {
    /// The stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            NotCopied::TooLarge => "too_large",
            NotCopied::NoRoom => "no_room",
        }
    }
}

/// All that a client was sent. It takes its room until it is dropped.
#[derive(Debug)]
pub struct ReplyCopy {
    text: Bytes,
    _share: Share,
}

impl Deref for ReplyCopy {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.text
    }
}

/// A copy of everything that was sent so far. It is copied because a frame may be a small slice of a large read.
pub(crate) struct Copying {
    text: BytesMut,
    bound: usize,
    share: Share,
}

impl Copying {
    /// At most `bound` bytes.
    pub(crate) fn new(bound: usize, copies: &Arc<Copies>) -> Self {
        Self {
            text: BytesMut::new(),
            bound,
            share: Share {
                of: Arc::clone(copies),
                bytes: 0,
            },
        }
    }

    /// Adds what is sent at once.
    pub(crate) fn add(&mut self, frames: &[Bytes]) -> Result<(), NotCopied> {
        let size = self.text.len() + frames.iter().map(Bytes::len).sum::<usize>();
        if size > self.bound {
            return Err(NotCopied::TooLarge);
        }
        let lacking = size.saturating_sub(self.share.bytes);
        if lacking > 0 && !self.share.grow(lacking.max(STEP)) && !self.share.grow(lacking) {
            return Err(NotCopied::NoRoom);
        }
        for frame in frames {
            self.text.extend_from_slice(frame);
        }
        Ok(())
    }

    pub(crate) fn whole(self) -> ReplyCopy {
        ReplyCopy {
            text: self.text.freeze(),
            _share: self.share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(copying: &mut Copying, bytes: usize) -> Result<(), NotCopied> {
        copying.add(&[vec![b'x'; bytes].into()])
    }

    #[test]
    fn all_copies_together_have_a_bound() {
        let copies = Copies::new(10 * STEP);
        let mut first = Copying::new(usize::MAX, &copies);
        let mut second = Copying::new(usize::MAX, &copies);
        assert_eq!(add(&mut first, 6 * STEP), Ok(()));
        assert_eq!(add(&mut second, 4 * STEP), Ok(()));
        assert_eq!(add(&mut first, 1), Err(NotCopied::NoRoom));
        assert_eq!(copies.taken(), 10 * STEP);
        drop(second);
        assert_eq!(add(&mut first, 1), Ok(()));
        let whole = first.whole();
        assert_eq!(whole.len(), 6 * STEP + 1);
        assert_eq!(copies.taken(), 7 * STEP, "it is still there");
        drop(whole);
        assert_eq!(copies.taken(), 0);
    }

    #[test]
    fn each_copy_has_a_bound() {
        let copies = Copies::new(10 * STEP);
        let mut copying = Copying::new(STEP, &copies);
        assert_eq!(add(&mut copying, STEP), Ok(()));
        assert_eq!(add(&mut copying, 1), Err(NotCopied::TooLarge));
        assert_eq!(add(&mut copying, 0), Ok(()));
    }

    #[test]
    fn small_frames_take_room_in_steps() {
        let copies = Copies::new(10 * STEP);
        let mut copying = Copying::new(usize::MAX, &copies);
        for _ in 0..STEP {
            assert_eq!(add(&mut copying, 1), Ok(()));
            assert_eq!(copies.taken(), STEP);
        }
        assert_eq!(add(&mut copying, 1), Ok(()));
        assert_eq!(copies.taken(), 2 * STEP);
    }

    #[test]
    fn a_share_is_given_or_not() {
        let copies = Copies::new(100);
        let share = copies.share(60).unwrap();
        assert!(copies.share(41).is_none());
        assert!(copies.share(usize::MAX).is_none());
        assert!(copies.share(40).is_some());
        assert_eq!(copies.taken(), 60, "the other one is gone");
        drop(share);
        assert_eq!(copies.taken(), 0);
    }
}
