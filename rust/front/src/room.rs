//! The memory that the bodies of all requests take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// A body of no more than this is not counted: the number of requests bounds what such bodies take together.
const SMALL: usize = 16 * 1024;

/// Room for so many bytes of bodies.
#[derive(Debug)]
pub(crate) struct BodyRoom {
    left: AtomicUsize,
}

impl BodyRoom {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(bytes),
        })
    }

    fn take(&self, bytes: usize) -> bool {
        let taken = self
            .left
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
                left.checked_sub(bytes)
            });
        taken.is_ok()
    }
}

/// What one body takes of the room; given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    room: Arc<BodyRoom>,
    bytes: usize,
}

impl Share {
    /// Of a body of which nothing has come.
    pub(crate) fn new(room: &Arc<BodyRoom>) -> Self {
        Self {
            room: Arc::clone(room),
            bytes: 0,
        }
    }

    /// Whether there is room for so much of the body, all in all.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        if bytes <= SMALL {
            return true;
        }
        let grown = self.room.take(bytes.saturating_sub(self.bytes));
        if grown {
            self.bytes = self.bytes.max(bytes);
        }
        grown
    }

    /// The body, which takes its share for as long as any part of it is there.
    pub(crate) fn held_by(self, body: Bytes) -> Bytes {
        if self.bytes == 0 {
            return body;
        }
        Bytes::from_owner(Held { body, _share: self })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.room.left.fetch_add(self.bytes, Ordering::AcqRel);
        }
    }
}

struct Held {
    body: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_the_room_and_give_it_back_with_their_last_part() {
        let room = BodyRoom::new(3 * SMALL);
        let (mut one, mut another) = (Share::new(&room), Share::new(&room));
        assert!(one.grow_to(SMALL + 1));
        assert!(one.grow_to(2 * SMALL));
        assert!(!another.grow_to(SMALL + 1), "the other has it");
        assert!(one.grow_to(3 * SMALL));
        let body = one.held_by(Bytes::from(vec![0; 3 * SMALL]));
        let part = body.slice(5..6);
        drop(body);
        assert!(!another.grow_to(SMALL + 1), "a part of it is there");
        drop(part);
        assert!(another.grow_to(3 * SMALL));
        drop(another);
        assert_eq!(room.left.load(Ordering::Acquire), 3 * SMALL);
    }

    #[test]
    fn small_bodies_always_have_room() {
        let room = BodyRoom::new(0);
        let mut share = Share::new(&room);
        assert!(share.grow_to(SMALL));
        assert_eq!(share.held_by(Bytes::from_static(b"x")), "x");
        assert!(!Share::new(&room).grow_to(SMALL + 1));
    }

    #[test]
    fn a_share_that_finds_no_room_keeps_what_it_had() {
        let room = BodyRoom::new(2 * SMALL);
        let mut share = Share::new(&room);
        assert!(share.grow_to(2 * SMALL));
        assert!(!share.grow_to(usize::MAX));
        drop(share);
        assert_eq!(room.left.load(Ordering::Acquire), 2 * SMALL);
    }
}
