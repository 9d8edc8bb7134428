//! What a prompt asks the mock upstream for, and the marks by which the load generator recognises each token.
//!
//! The script travels inside the prompt, so every proxy carries it unchanged and the mock needs no state.

use rustix::time::{ClockId, clock_gettime};

/// A mark's parts, each ended by `~`: prefix, the stream's tag, the token's number, when it was sent.
pub(crate) const PREFIX: &str = "bench~";
const DIGITS: usize = 8;
/// As many as any u64 has.
const TIME_DIGITS: usize = 20;
/// Bytes of a whole mark.
pub(crate) const MARK: usize = PREFIX.len() + 2 * (DIGITS + 1) + TIME_DIGITS + 1;

/// What is in a token's mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) tag: u32,
    pub(crate) number: u32,
    /// By `clock`.
    pub(crate) sent: u64,
}

/// Nanoseconds of CLOCK_MONOTONIC: the same clock for all processes of a machine (clock_gettime(2)), so that
/// what one end writes down, the other can compare.
pub(crate) fn clock() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

/// One stream as its client asks for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Script {
    pub(crate) tag: u32,
    pub(crate) tokens: u32,
    /// Bytes of content in each token, at least a mark's.
    pub(crate) content_bytes: usize,
    /// Tokens a second; 0: as fast as the socket takes them.
    pub(crate) rate: f64,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            tag: 0,
            tokens: 3,
            content_bytes: 64,
            rate: 0.0,
        }
    }
}

impl Script {
    /// The prompt that `read` understands, padded with letters to `bytes` bytes where it is shorter.
    pub(crate) fn prompt(&self, bytes: usize) -> String {
        let mut prompt = format!(
            "{PREFIX}{:08}~ tokens={} bytes={} rate={} ",
            self.tag, self.tokens, self.content_bytes, self.rate
        );
        let padding = bytes.saturating_sub(prompt.len());
        prompt.extend((b'a'..=b'z').cycle().take(padding).map(char::from));
        prompt
    }

    /// The script in a prompt; what is missing or unreadable keeps its default.
    pub(crate) fn read(prompt: &str) -> Self {
        let mut script = Self::default();
        let Some(rest) = prompt.strip_prefix(PREFIX) else {
            return script;
        };
        let mut words = rest.split(' ');
        if let Some(tag) = words
            .next()
            .and_then(|word| word.trim_end_matches('~').parse().ok())
        {
            script.tag = tag;
        }
        for (name, value) in words.take(3).filter_map(|word| word.split_once('=')) {
            match name {
                "tokens" => script.tokens = value.parse().unwrap_or(script.tokens),
                "bytes" => {
                    script.content_bytes = value.parse().unwrap_or(script.content_bytes).max(MARK)
                }
                "rate" => script.rate = value.parse().unwrap_or(script.rate),
                _ => {}
            }
        }
        script
    }
}

/// Writes the content of token `number`: its mark with the present time, then letters up to the script's size.
pub(crate) fn write_content(script: &Script, number: u32, output: &mut Vec<u8>) {
    let end = output.len() + script.content_bytes;
    output.extend_from_slice(PREFIX.as_bytes());
    write_digits(script.tag.into(), DIGITS, output);
    write_digits(number.into(), DIGITS, output);
    write_digits(clock(), TIME_DIGITS, output);
    output.resize(end.max(output.len()), b'x');
}

fn write_digits(mut value: u64, width: usize, output: &mut Vec<u8>) {
    let start = output.len();
    output.resize(start + width, b'0');
    for digit in output[start..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
    }
    output.push(b'~');
}

/// Reads the mark that begins at the prefix in `text`.
pub(crate) fn read_mark(text: &[u8]) -> Option<Mark> {
    let mut rest = text.strip_prefix(PREFIX.as_bytes())?;
    let mut next = |width| -> Option<u64> {
        let (digits, after) = rest.split_at_checked(width)?;
        rest = after.strip_prefix(b"~")?;
        read_digits(digits)
    };
    Some(Mark {
        tag: u32::try_from(next(DIGITS)?).ok()?,
        number: u32::try_from(next(DIGITS)?).ok()?,
        sent: next(TIME_DIGITS)?,
    })
}

fn read_digits(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_carries_its_script() {
        let script = Script {
            tag: 42,
            tokens: 400,
            content_bytes: 64,
            rate: 12.5,
        };
        assert_eq!(Script::read(&script.prompt(0)), script);
        let long = script.prompt(1 << 20);
        assert_eq!(long.len(), 1 << 20);
        assert_eq!(Script::read(&long), script);
        assert_eq!(Script::read("hello"), Script::default());
    }

    #[test]
    fn a_mark_is_read_back_and_nothing_else_is() {
        let script = Script {
            tag: 7,
            content_bytes: 64,
            ..Script::default()
        };
        let mut content = Vec::new();
        let before = clock();
        write_content(&script, 123, &mut content);
        assert_eq!(content.len(), 64);
        let mark = read_mark(&content).unwrap();
        assert_eq!((mark.tag, mark.number), (7, 123));
        assert!((before..=clock()).contains(&mark.sent));
        assert_eq!(read_mark(&content[..MARK]), Some(mark));
        assert_eq!(read_mark(&content[..MARK - 1]), None);
        for wrong in [
            "bench~0000000x~00000001~00000000000000000001~",
            "bench~00000001~00000001~99999999999999999999~",
        ] {
            assert_eq!(read_mark(wrong.as_bytes()), None);
        }
    }
}
