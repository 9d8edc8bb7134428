//! The values of a usage object, read by simd-json.
//!
//! Finding the object is the scanner's work; what is in it is read here, with escapes in its names decoded and its
//! numbers told apart by type. See "Reading a usage object" in `benches/README.md` for what this costs beside other
//! readers.

use std::cell::RefCell;

use simd_json::{Buffers, Node, StaticNode};

use super::counts::Counts;
use super::dialect::meaning;
use super::report::{Meaning, Within};

/// Larger objects are no usage that anyone has seen; their buffers are not kept.
const KEPT: usize = 16 << 10;

thread_local! {
    /// What simd-json works in. Made anew for each object it would cost as much as the reading.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

#[derive(Default)]
struct Scratch {
    copy: Vec<u8>,
    buffers: Buffers,
}

/// Sets the counts that `object` holds. Some: whether it also holds the upstream's charge, or the model's runs. None:
/// simd-json refuses the object, and nothing was set.
pub(super) fn read(object: &[u8], within: Within, counts: &mut Counts) -> Option<bool> {
    if object.len() > KEPT {
        return Scratch::default().read(object, within, counts);
    }
    SCRATCH.with(|scratch| scratch.try_borrow_mut().ok()?.read(object, within, counts))
}

impl Scratch {
    fn read(&mut self, object: &[u8], within: Within, counts: &mut Counts) -> Option<bool> {
        // simd-json decodes strings in place, so it needs a copy of its own.
        self.copy.clear();
        self.copy.extend_from_slice(object);
        let tape = simd_json::to_tape_with_buffers(&mut self.copy, &mut self.buffers).ok()?;
        let mut values = Values {
            nodes: &tape.0,
            counts,
            says_more: false,
        };
        values.object(0, within);
        Some(values.says_more)
    }
}

struct Values<'a, 'input> {
    nodes: &'a [Node<'input>],
    counts: &'a mut Counts,
    says_more: bool,
}

impl Values<'_, '_> {
    /// Reads the object whose node is at `at`. A call for each level that has a name of its own: at most four deep.
    fn object(&mut self, at: usize, within: Within) {
        let Some(&Node::Object { len, .. }) = self.nodes.get(at) else {
            return;
        };
        let mut at = at + 1;
        for _ in 0..len {
            let Some(&Node::String(name)) = self.nodes.get(at) else {
                return;
            };
            let value = at + 1;
            match (meaning(within, name.as_bytes()), self.nodes.get(value)) {
                (Some(Meaning::Count(count)), Some(&Node::Static(StaticNode::U64(number)))) => {
                    self.counts.set(count, number);
                }
                (Some(Meaning::Object(inner)), _) => self.object(value, inner),
                (Some(Meaning::Cost(_) | Meaning::Runs), _) => self.says_more = true,
                _ => {}
            }
            at = value + 1 + self.nodes.get(value).map_or(0, nested);
        }
    }
}

/// Nodes that lie inside of this one.
fn nested(node: &Node<'_>) -> usize {
    match node {
        Node::Object { count, .. } | Node::Array { count, .. } => *count,
        Node::String(_) | Node::Static(_) => 0,
    }
}
