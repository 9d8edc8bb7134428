//! Text of others that goes into a log, a label or a record.

use std::borrow::Cow;

use crate::limits::MAX_RECORDED;

/// What may be kept of `text`: all of it, or its first [`MAX_RECORDED`] bytes, cut at a character's boundary, and an
/// ellipsis.
///
/// ```
/// use sluicegate_core::record::cut;
///
/// assert_eq!(cut("stop"), "stop");
/// let long = "é".repeat(1000);
/// assert!(cut(&long).len() < 1100 && cut(&long).ends_with("é…"));
/// ```
#[must_use]
pub fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_RECORDED {
        return Cow::Borrowed(text);
    }
    let head = (0..=MAX_RECORDED).rev().find_map(|end| text.get(..end));
    let head = head.unwrap_or_default();
    Cow::Owned(format!("{head}…"))
}

/// [`cut`] of bytes, those that are not UTF-8 replaced.
#[must_use]
pub fn cut_bytes(bytes: &[u8]) -> Box<str> {
    // One byte more than is kept, so that it is seen that there is more.
    let head = bytes.get(..=MAX_RECORDED).unwrap_or(bytes);
    cut(&String::from_utf8_lossy(head)).into()
}
