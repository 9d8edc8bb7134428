//! However harmony text is cut, the same is said, and no more than was written.

use sluicegate_core::harmony::{Decoder, Speller};
use sluicegate_core::output::{Piece, Reasoning, Spelled};

use super::Cut;

/// Pieces of one kind behind each other, put together.
#[derive(Debug, Default, PartialEq)]
struct Output {
    /// What each says, but for its text, and its text.
    pieces: Vec<(String, Vec<u8>)>,
}

impl Output {
    fn add(&mut self, piece: Piece<'_>) {
        let (kind, text): (String, Spelled<'_>) = match piece {
            Piece::Reasoning(Reasoning::Text(text)) => ("thinks".into(), text),
            Piece::Text(text) => (format!("says {:?}", text.phase), text.text),
            Piece::Call(call) if !call.name.is_empty() => {
                assert!(call.id.is_empty() && call.arguments.is_empty());
                (
                    format!("begins {:?} {}", call.index, call.custom),
                    call.name,
                )
            }
            Piece::Call(call) => (
                format!("calls {:?} {}", call.index, call.custom),
                call.arguments,
            ),
            Piece::Break => ("break".into(), b""),
            other => panic!("{other:?}"),
        };
        match self.pieces.last_mut() {
            Some((last, so_far)) if *last == kind && kind != "break" => {
                so_far.extend_from_slice(text);
            }
            _ => self.pieces.push((kind, text.to_vec())),
        }
    }
}

fn decode(reads: &[bytes::Bytes]) -> (Output, usize) {
    let mut speller = Speller::default();
    let mut decoder = Decoder::default();
    let mut said = Output::default();
    let mut spelled = Vec::new();
    let mut taken = 0;
    for read in reads {
        spelled.clear();
        speller.push(read, &mut spelled);
        taken += spelled.len();
        decoder.feed(&spelled, &mut |piece| said.add(piece));
    }
    spelled.clear();
    speller.finish(&mut spelled);
    taken += spelled.len();
    decoder.feed(&spelled, &mut |piece| said.add(piece));
    decoder.finish(&mut |piece| said.add(piece));
    (said, taken)
}

/// Checks the property on one input.
pub fn check(input: &[u8]) {
    let Some(cut) = super::read::<Cut<'_>>(input) else {
        return;
    };
    let (whole, taken) = decode(&cut.whole());
    assert_eq!(decode(&cut.reads()).0, whole);
    assert_eq!(decode(&cut.bytewise()).0, whole);
    let given: usize = whole.pieces.iter().map(|(_, text)| text.len()).sum();
    assert!(given <= taken, "{given} of {taken}");
    for (_, text) in &whole.pieces {
        assert!(std::str::from_utf8(text).is_ok());
    }
}
