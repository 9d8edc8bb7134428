//! Which reads of a body a price may have to be asked for.

use memchr::memmem;

/// The name of every usage object that is priced.
const KEY: &[u8] = b"usage";

/// How the letters of a name begin where they are escaped (RFC 8259, section 7): it may be that name.
const ESCAPED: &[u8] = br"\u00";

/// Bytes of a read that may be the beginning of either.
const TAIL: usize = 4;

/// Follows a body: a price is asked for only in a read that has the name of a usage object, or that ends what an
/// earlier one with such a name began.
#[derive(Debug, Default)]
pub struct Asking {
    tail: [u8; TAIL],
    /// A read since which nothing has come out had the name.
    pending: bool,
    /// The last read had.
    named: bool,
}

impl Asking {
    /// Whether a price may be asked for while `data`, which was read next, is taken in.
    pub fn read(&mut self, data: &[u8]) -> bool {
        let has = |bytes: &[u8]| {
            memmem::find(bytes, KEY).is_some() || memmem::find(bytes, ESCAPED).is_some()
        };
        let head = data.get(..TAIL).unwrap_or(data);
        self.named = has(&[&self.tail[..], head].concat()) || has(data);
        self.pending |= self.named;
        match data.last_chunk() {
            Some(tail) => self.tail = *tail,
            None => {
                self.tail.rotate_left(data.len());
                let begin = TAIL - data.len();
                self.tail[begin..].copy_from_slice(data);
            }
        }
        self.pending
    }

    /// Something came out of what was read: whatever had come before the last read is taken in.
    pub fn came_out(&mut self) {
        self.pending = self.named;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each of the reads may ask.
    fn asks(reads: &[&str]) -> Vec<bool> {
        let mut asking = Asking::default();
        reads
            .iter()
            .map(|read| asking.read(read.as_bytes()))
            .collect()
    }

    #[test]
    fn a_name_is_found_however_it_is_cut() {
        let text = r#"data: {"choices":[],"usage":{"prompt_tokens":1}}"#;
        for cut in 1..text.len() {
            let (first, second) = text.split_at(cut);
            assert!(asks(&[first, second])[1], "{first}|{second}");
            let single: Vec<_> = (0..text.len()).map(|at| &text[at..=at]).collect();
            assert!(asks(&single).last().unwrap());
        }
        assert!(asks(&[r#"{"u\u0073age":{}}"#])[0]);
        assert!(asks(&[r#"{"u\u"#, r#"0073age":{}}"#])[1]);
    }

    #[test]
    fn other_reads_ask_nothing() {
        let mut asking = Asking::default();
        assert!(!asking.read(br#"data: {"choices":[{"delta":{"content":"us"}}]}"#));
        assert!(asking.read(br#"data: {"usage":"#));
        asking.came_out();
        assert!(
            asking.read(b"{}}\n\n"),
            "what began in the read before ends in this one"
        );
        asking.came_out();
        assert!(!asking.read(b"data: [DONE]\n\n"));
    }
}
