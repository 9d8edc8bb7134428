//! A file that is memory: the only place with unsafe code.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapRaw;

use crate::packed::WORD;

/// The words of a mapped file, little endian. What is stored is in the kernel's file cache at once, so that it outlives
/// a killed process.
pub(crate) struct Words {
    map: MmapRaw,
    count: usize,
}

impl Words {
    /// Map `file`, all of which must be there already: a page that the disk has no room for would end the process.
    pub(crate) fn map(file: &File) -> io::Result<Self> {
        let map = MmapRaw::map_raw(file)?;
        let count = map.len() / WORD;
        Ok(Self { map, count })
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    #[allow(unsafe_code)]
    fn word(&self, at: usize) -> Option<&AtomicU64> {
        if at >= self.count {
            return None;
        }
        // SAFETY: the map is page aligned, `at` is within it, it lives as long as `self`, and this process touches it
        // in no other way than by these atomics. Nobody else writes to the file: it is locked, and its folder is ours.
        Some(unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().cast::<u64>().add(at)) })
    }

    /// 0 where there is no such word.
    pub(crate) fn load(&self, at: usize, order: Ordering) -> u64 {
        self.word(at)
            .map_or(0, |word| u64::from_le(word.load(order)))
    }

    pub(crate) fn store(&self, at: usize, value: u64, order: Ordering) {
        if let Some(word) = self.word(at) {
            word.store(value.to_le(), order);
        }
    }

    /// Store `bytes`, which are whole words, from `at` on, in no certain order.
    pub(crate) fn store_all(&self, at: usize, bytes: &[u8]) {
        for (offset, word) in bytes.as_chunks().0.iter().enumerate() {
            self.store(at + offset, u64::from_le_bytes(*word), Ordering::Relaxed);
        }
    }

    /// Store 0 from `from` to before `to`, in no certain order.
    pub(crate) fn clear(&self, from: usize, to: usize) {
        for at in from..to {
            self.store(at, 0, Ordering::Relaxed);
        }
    }

    /// Write the pages of the words from `from` to before `to` to the disk.
    pub(crate) fn flush(&self, from: usize, to: usize) -> io::Result<()> {
        let to = to.min(self.count);
        let bytes = to.saturating_sub(from) * WORD;
        self.map.flush_range(from * WORD, bytes)
    }

    /// A copy of the bytes of `count` words from `at` on.
    pub(crate) fn copy(&self, at: usize, count: usize) -> Vec<u8> {
        let words = at..at.saturating_add(count).min(self.count);
        let mut bytes = Vec::with_capacity(words.len() * WORD);
        for at in words {
            bytes.extend(self.load(at, Ordering::Relaxed).to_le_bytes());
        }
        bytes
    }
}
