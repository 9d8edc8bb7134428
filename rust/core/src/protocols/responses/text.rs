//! Text that is sent in deltas, and once more as a whole when it is done.

use crate::output::spelled::half_pair;

use super::vocabulary::{Delta, Journal};

/// One text of a response: of a content part, the arguments of a call, the input of a custom tool.
#[derive(Debug)]
pub(super) struct Run {
    delta: Delta,
    /// The text so far, as between the quotes of a JSON string.
    text: Vec<u8>,
    /// Half of a surrogate pair that the last piece ended in: no event could be decoded that held it alone.
    half: Vec<u8>,
}

impl Run {
    pub(super) fn new(delta: Delta) -> Self {
        Run {
            delta,
            text: Vec::new(),
            half: Vec::new(),
        }
    }

    /// Says the next piece.
    #[inline]
    pub(super) fn push(
        &mut self,
        piece: &[u8],
        logprobs: Option<&[u8]>,
        journal: &mut Journal,
        out: &mut Vec<u8>,
    ) {
        let half = half_pair(piece);
        if half.is_some() || !self.half.is_empty() {
            self.push_halves(piece, half, logprobs, journal, out);
        } else {
            self.text.extend_from_slice(piece);
            journal.delta(&self.delta, piece, logprobs, out);
        }
    }

    fn push_halves(
        &mut self,
        piece: &[u8],
        half: Option<usize>,
        logprobs: Option<&[u8]>,
        journal: &mut Journal,
        out: &mut Vec<u8>,
    ) {
        let (piece, next) = piece
            .split_at_checked(half.unwrap_or(piece.len()))
            .unwrap_or((piece, &[]));
        let mut joined = std::mem::replace(&mut self.half, next.to_vec());
        joined.extend_from_slice(piece);
        if !joined.is_empty() || logprobs.is_some() {
            self.text.extend_from_slice(&joined);
            journal.delta(&self.delta, &joined, logprobs, out);
        }
    }

    /// The text so far.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// No piece follows. The whole text.
    pub(super) fn finish(&mut self, journal: &mut Journal, out: &mut Vec<u8>) -> Vec<u8> {
        if !self.half.is_empty() {
            self.text.extend_from_slice(&self.half);
            journal.delta(&self.delta, &self.half, None, out);
            self.half.clear();
        }
        std::mem::take(&mut self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_pair_waits_for_the_other() {
        let mut journal = Journal::new(true);
        let mut out = Vec::new();
        let mut run = Run::new(Delta::new("d", b""));
        for piece in [r"a\ud83d", r"\ude00", r"\ud83d", "b", r"\\ud83d", r"\uD83D"] {
            run.push(piece.as_bytes(), None, &mut journal, &mut out);
        }
        assert_eq!(run.text, br"a\ud83d\ude00\ud83db\\ud83d");
        assert_eq!(
            run.finish(&mut journal, &mut out),
            br"a\ud83d\ude00\ud83db\\ud83d\uD83D"
        );
        let deltas: Vec<_> = String::from_utf8(out)
            .unwrap()
            .lines()
            .filter_map(|line| {
                Some(
                    line.split_once("\"delta\":\"")?
                        .1
                        .trim_end_matches("\"}")
                        .to_owned(),
                )
            })
            .collect();
        assert_eq!(
            deltas,
            ["a", r"\ud83d\ude00", r"\ud83db", r"\\ud83d", r"\uD83D"]
        );
    }
}
