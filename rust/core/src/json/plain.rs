//! What ends or spoils the plain text of a JSON string: the quote, an escape, a control character (not allowed raw).

use wide::u8x16;

/// Bytes of one vector: SSE2 and NEON, which every x86-64 and AArch64 has.
const VECTOR: usize = 16;

/// Bytes that [`specials`] looks at.
pub(super) const BLOCK: usize = 2 * VECTOR;

const WORD: usize = size_of::<u64>();
/// The highest bit of each byte of a word.
const HIGH: u64 = 0x8080_8080_8080_8080;
/// The lowest bit of each byte of a word.
const LOW: u64 = 0x0101_0101_0101_0101;

pub(super) const fn is_special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// A bit for each byte of the block that begins at `at`, set where the byte is special. None: fewer bytes are left.
///
/// The whole block without a branch: the length of a token cannot be predicted, and a wrong guess costs more than all
/// else here.
#[inline]
pub(super) fn specials(text: &[u8], at: usize) -> Option<u32> {
    let (low, rest) = text.get(at..)?.split_first_chunk::<VECTOR>()?;
    let high = rest.first_chunk::<VECTOR>()?;
    Some(vector_specials(*low) | vector_specials(*high) << VECTOR)
}

#[inline]
fn vector_specials(vector: [u8; VECTOR]) -> u32 {
    let bytes = u8x16::new(vector);
    let quotes = bytes.cmp_eq(u8x16::splat(b'"'));
    let escapes = bytes.cmp_eq(u8x16::splat(b'\\'));
    let controls = bytes.min(u8x16::splat(0x1F)).cmp_eq(bytes);
    (quotes | escapes | controls).move_mask().cast_unsigned()
}

/// The high bits of the word's special bytes, exact up to the first of them (the borrow of a subtraction can only reach
/// later ones).
const fn word_specials(word: u64) -> u64 {
    const fn zeros(word: u64) -> u64 {
        word.wrapping_sub(LOW) & !word
    }
    let quotes = zeros(word ^ (LOW * b'"' as u64));
    let escapes = zeros(word ^ (LOW * b'\\' as u64));
    let controls = word.wrapping_sub(LOW * 0x20) & !word;
    (quotes | escapes | controls) & HIGH
}

/// Offset of the first byte at or behind `at` that is special, or the text's length: for where [`specials`] ends, at
/// the end of a text or in a string that is long.
pub(super) fn plain_end(text: &[u8], mut at: usize) -> usize {
    const SHORT: usize = 64;
    let long = at.saturating_add(SHORT);
    while let Some(&bytes) = text.get(at..).and_then(<[u8]>::first_chunk::<WORD>) {
        let special = word_specials(u64::from_le_bytes(bytes));
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += WORD;
        if at >= long {
            return long_plain_end(text, at);
        }
    }
    while text.get(at).is_some_and(|&byte| !is_special(byte)) {
        at += 1;
    }
    at
}

/// [`plain_end`] for strings such as base64: 21 GB/s where the words alone make 5.
///
/// Quotes and escapes are searched for, and what lies before them is then looked over once more, while it is in the
/// cache, for control characters: a fold that becomes vector code, which a search for all of it does not.
#[inline(never)]
fn long_plain_end(text: &[u8], mut at: usize) -> usize {
    const STEP: usize = 4096;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let step = rest.get(..STEP).unwrap_or(rest);
        let found = memchr::memchr2(b'"', b'\\', step);
        let plain = step.get(..found.unwrap_or(step.len())).unwrap_or_default();
        let least = plain.iter().fold(u8::MAX, |least, &byte| least.min(byte));
        if least < 0x20 {
            let control = plain.iter().position(|&byte| is_special(byte));
            return at + control.unwrap_or_default();
        }
        at += plain.len();
        if found.is_some() || step.is_empty() {
            return at;
        }
    }
}
