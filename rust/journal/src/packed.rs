//! Numbers and texts in a row of bytes. Numbers are words, little endian.

use crate::texts::Texts;

pub(crate) const WORD: usize = size_of::<u64>();

const NO_TEXT: u16 = u16::MAX;

/// `text`, cut at a character's end where it is longer than `longest` bytes.
fn cut(text: &str, longest: usize) -> &str {
    let mut end = longest.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// Bytes that are being written.
pub(crate) struct Packing(pub(crate) Vec<u8>);

impl Packing {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// `text`, cut to `longest` bytes.
    pub(crate) fn text(&mut self, text: Option<&str>, longest: usize) {
        let Some(text) = text else {
            return self.0.extend(NO_TEXT.to_le_bytes());
        };
        let text = cut(text, longest);
        // It is shorter than that.
        let length = u16::try_from(text.len()).unwrap_or_default();
        self.0.extend(length.to_le_bytes());
        self.0.extend(text.as_bytes());
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    pub(crate) fn numbers(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.number(*number);
        }
    }

    /// Put `number` in place of the word that begins at the byte `at`.
    pub(crate) fn put(&mut self, at: usize, number: u64) {
        if let Some(word) = self.0.get_mut(at..at + WORD) {
            word.copy_from_slice(&number.to_le_bytes());
        }
    }

    /// Zeros up to the end of a word.
    pub(crate) fn fill(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(WORD), 0);
    }
}

/// The word number `at` of `bytes`.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    words(bytes, at, at + 1)?
        .try_into()
        .ok()
        .map(u64::from_le_bytes)
}

/// The bytes of the words from `from` to before `to`.
pub(crate) fn words(bytes: &[u8], from: usize, to: usize) -> Option<&[u8]> {
    bytes.get(from.checked_mul(WORD)?..to.checked_mul(WORD)?)
}

/// Bytes that are being read: nothing about them is sure.
pub(crate) struct Unpacking<'a>(pub(crate) &'a [u8]);

impl<'a> Unpacking<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// `None`: there is no such text; `Some(None)`: it says that it has none.
    #[allow(clippy::option_option)]
    pub(crate) fn text(&mut self) -> Option<Option<&'a str>> {
        let length = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
        if length == NO_TEXT {
            return Some(None);
        }
        std::str::from_utf8(self.take(length.into())?)
            .ok()
            .map(Some)
    }

    pub(crate) fn texts(&mut self, count: usize) -> Option<Texts> {
        let mut texts = Texts::with_capacity(count, self.0.len());
        for _ in 0..count {
            texts.push(self.text()?);
        }
        Some(texts)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(WORD)?.try_into().ok()?))
    }
}
