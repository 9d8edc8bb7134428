//! From a slice of events to frames for the client: one slice where nothing changed, one copy where something did.

use bytes::Bytes;

/// The way of one slice of whole events to the client.
#[derive(Default)]
pub(super) struct Frames {
    /// Up to here everything has been shown or left out.
    done: usize,
    changed: Option<Vec<u8>>,
}

impl Frames {
    /// What lies before `start` of `slice` goes on as it came, what lies in `start..end` is replaced by what `show`
    /// appends.
    pub(super) fn replace(
        &mut self,
        slice: &[u8],
        start: usize,
        end: usize,
        show: impl FnOnce(&mut Vec<u8>),
    ) {
        // Room for half as much again: a cost makes a small event that much larger.
        let changed = self
            .changed
            .get_or_insert_with(|| Vec::with_capacity(slice.len() + slice.len() / 2 + 256));
        changed.extend_from_slice(slice.get(self.done..start).unwrap_or_default());
        show(changed);
        self.done = end;
    }

    /// Hands over what is to be sent of `slice`.
    pub(super) fn finish(self, slice: Bytes, out: &mut Vec<Bytes>) {
        let frame = match self.changed {
            None => slice,
            Some(mut changed) => {
                changed.extend_from_slice(slice.get(self.done..).unwrap_or_default());
                changed.into()
            }
        };
        if !frame.is_empty() {
            out.push(frame);
        }
    }
}
