//! The properties that the targets check, a module each, and what they share. `rust/front/tests/fuzz_seeds.rs` checks
//! them as well, on the inputs in `seeds`.

pub mod asked;
pub mod cost;
pub mod documents;
pub mod encode;
pub mod events;
pub mod fold;
pub mod form;
pub mod harmony;
pub mod head;
mod message;
pub mod message_replies;
pub mod pieces;
pub mod repair;
pub mod reply;
pub mod request;
pub mod response;
pub mod scan;
pub mod split;
mod translated;
pub mod translation;

use arbitrary::{Arbitrary, Unstructured};
use bytes::Bytes;

/// What a property asks for, made of an input. None where the input is too short for it.
fn read<'a, T: Arbitrary<'a>>(input: &'a [u8]) -> Option<T> {
    T::arbitrary_take_rest(Unstructured::new(input)).ok()
}

/// A body and where it is cut.
#[derive(Arbitrary, Debug)]
pub struct Cut<'a> {
    /// Lengths of the first reads; the rest is one.
    lengths: Vec<u8>,
    /// Last, so that it is the rest of an input: recorded streams make good seeds.
    body: &'a [u8],
}

impl Cut<'_> {
    /// The body in one read.
    pub fn whole(&self) -> Vec<Bytes> {
        vec![Bytes::copy_from_slice(self.body)]
    }

    /// The body in reads of one byte.
    pub fn bytewise(&self) -> Vec<Bytes> {
        self.body.chunks(1).map(Bytes::copy_from_slice).collect()
    }

    /// The body in the reads that the input asks for.
    pub fn reads(&self) -> Vec<Bytes> {
        let mut rest = Bytes::copy_from_slice(self.body);
        let mut reads = Vec::new();
        for &length in &self.lengths {
            reads.push(rest.split_to(rest.len().min(usize::from(length))));
        }
        reads.push(rest);
        reads
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        self.body
    }
}
