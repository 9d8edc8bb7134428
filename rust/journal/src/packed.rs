//! Texts and numbers in a row of bytes, and bytes in words.

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
#[derive(Default)]
pub(crate) struct Packing(pub(crate) Vec<u8>);

impl Packing {
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

    pub(crate) fn words(&self) -> Vec<u64> {
        let chunks = self.0.chunks(size_of::<u64>());
        chunks
            .map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_le_bytes(word)
            })
            .collect()
    }
}

pub(crate) fn bytes_of(words: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(words));
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

pub(crate) fn crc_of(words: &[u64]) -> u32 {
    // Of eight bytes at a time it would take ten times as long.
    crc32fast::hash(&bytes_of(words))
}

/// Bytes that are being read: nothing about them is sure.
pub(crate) struct Unpacking<'a>(pub(crate) &'a [u8]);

impl Unpacking<'_> {
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// `None`: there is no such text; `Some(None)`: it says that it has none.
    #[allow(clippy::option_option)]
    pub(crate) fn text(&mut self) -> Option<Option<Box<str>>> {
        let length = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
        if length == NO_TEXT {
            return Some(None);
        }
        let text = std::str::from_utf8(self.take(length.into())?).ok()?;
        Some(Some(text.into()))
    }

    pub(crate) fn texts(&mut self, count: usize) -> Option<Vec<Option<Box<str>>>> {
        let mut texts = Vec::with_capacity(count);
        for _ in 0..count {
            texts.push(self.text()?);
        }
        Some(texts)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}
