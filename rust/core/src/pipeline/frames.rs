//! From a slice of events to frames for the client: one slice where nothing changed, one copy where something did.

use bytes::Bytes;

/// The way of one slice of whole events to the client.
pub(super) struct Frames<'a> {
    slice: &'a Bytes,
    /// Up to here everything has been shown or left out.
    done: usize,
    changed: Option<Vec<u8>>,
}

impl<'a> Frames<'a> {
    pub(super) fn new(slice: &'a Bytes) -> Self {
        Frames {
            slice,
            done: 0,
            changed: None,
        }
    }

    /// What lies before `start` goes on as it came, what lies in `start..end` is replaced by what `show` appends.
    pub(super) fn replace(&mut self, start: usize, end: usize, show: impl FnOnce(&mut Vec<u8>)) {
        // Room for as much again as the slice is short of: a cost doubles a small event.
        let changed = self.changed.get_or_insert_with(|| {
            Vec::with_capacity(self.slice.len() + self.slice.len() / 2 + 256)
        });
        changed.extend_from_slice(self.slice.get(self.done..start).unwrap_or_default());
        show(changed);
        self.done = end;
    }

    /// Hands over what is to be sent.
    pub(super) fn finish(self, out: &mut Vec<Bytes>) {
        let frame = match self.changed {
            None => self.slice.clone(),
            Some(mut changed) => {
                changed.extend_from_slice(self.slice.get(self.done..).unwrap_or_default());
                changed.into()
            }
        };
        if !frame.is_empty() {
            out.push(frame);
        }
    }
}
