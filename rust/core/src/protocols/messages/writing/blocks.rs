//! The blocks of a message, one behind the other: as events, or as the content of the whole message.

use crate::api::Api;
use crate::input::seal;
use crate::json::fields::compact;
use crate::json::scan::{self, Kind, MAX_DEPTH};
use crate::json::string;
use crate::output::Spelled;
use crate::output::spelled::half_pair;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Text,
    /// A refusal: text to the client, but not the same text.
    Refusal,
    Thinking,
    Call,
}

impl BlockKind {
    /// The type of its deltas, and the member that holds the next part.
    fn delta(self) -> [&'static str; 2] {
        match self {
            BlockKind::Text | BlockKind::Refusal => ["text_delta", "text"],
            BlockKind::Thinking => ["thinking_delta", "thinking"],
            BlockKind::Call => ["input_json_delta", "partial_json"],
        }
    }
}

/// All blocks of one message, of which the last may be open.
#[derive(Debug)]
pub(super) struct Blocks {
    streams: bool,
    /// Blocks that were opened.
    count: u64,
    open: Option<OpenBlock>,
    /// Of a message that is not streamed: its blocks, with commas between them.
    content: Vec<u8>,
}

#[derive(Debug)]
struct OpenBlock {
    kind: BlockKind,
    /// Its deltas up to their text.
    head: Vec<u8>,
    /// Half of a surrogate pair that the last part ended in: no event could be decoded that held it alone.
    half: Vec<u8>,
    /// Nothing was said in it.
    is_empty: bool,
    /// Of a message that is not streamed: the arguments so far, spelled, or the citations, with commas between them.
    kept: Vec<u8>,
}

impl Blocks {
    pub(super) fn new(streams: bool) -> Self {
        Blocks {
            streams,
            count: 0,
            open: None,
            content: Vec::new(),
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// What is open.
    #[inline]
    pub(super) fn kind(&self) -> Option<BlockKind> {
        self.open.as_ref().map(|open| open.kind)
    }

    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }

    /// Bytes that are kept until the end.
    pub(super) fn held(&self) -> usize {
        let kept = |open: &OpenBlock| open.kept.len() + open.half.len();
        self.content.len() + self.open.as_ref().map_or(0, kept)
    }

    /// Begins a block of text or thinking, behind the one that is open.
    pub(super) fn begin(&mut self, kind: BlockKind, out: &mut Vec<u8>) {
        let block: &[u8] = match kind {
            BlockKind::Thinking => b"{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}",
            _ => b"{\"type\":\"text\",\"text\":\"\"}",
        };
        let whole: &[u8] = match kind {
            BlockKind::Thinking => b"{\"type\":\"thinking\",\"thinking\":\"",
            _ => b"{\"type\":\"text\",\"text\":\"",
        };
        self.start(kind, &[block], whole, out);
    }

    /// Begins a call.
    pub(super) fn begin_call(&mut self, id: Spelled<'_>, name: Spelled<'_>, out: &mut Vec<u8>) {
        let head: [&[u8]; 5] = [
            b"{\"type\":\"tool_use\",\"id\":\"",
            id,
            b"\",\"name\":\"",
            name,
            b"\",\"input\":",
        ];
        let head = head.concat();
        self.start(BlockKind::Call, &[&head, b"{}}"], &head, out);
    }

    /// `block` is what an event shows of the new block, `whole` how it begins in a whole message.
    fn start(&mut self, kind: BlockKind, block: &[&[u8]], whole: &[u8], out: &mut Vec<u8>) {
        self.close(out);
        let index = self.count.to_string();
        self.announce(block, whole, out);
        let [delta, member] = kind.delta();
        let head = [
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":",
            &index,
            ",\"delta\":{\"type\":\"",
            delta,
            "\",\"",
            member,
            "\":\"",
        ];
        self.open = Some(OpenBlock {
            kind,
            head: head.concat().into_bytes(),
            half: Vec::new(),
            is_empty: true,
            kept: Vec::new(),
        });
    }

    fn announce(&mut self, block: &[&[u8]], whole: &[u8], out: &mut Vec<u8>) {
        let index = self.count.to_string();
        self.count += 1;
        if self.streams {
            out.extend_from_slice(
                b"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":",
            );
            out.extend_from_slice(index.as_bytes());
            out.extend_from_slice(b",\"content_block\":");
            block.iter().for_each(|part| out.extend_from_slice(part));
            out.extend_from_slice(b"}\n\n");
        } else {
            if !self.content.is_empty() {
                self.content.push(b',');
            }
            self.content.extend_from_slice(whole);
        }
    }

    /// A block that comes whole: a JSON object on one line.
    pub(super) fn pass(&mut self, block: &[u8], out: &mut Vec<u8>) {
        self.close(out);
        self.announce(&[block], block, out);
        self.stop(out);
    }

    /// Says the next part in the block that is open.
    #[inline]
    pub(super) fn say(&mut self, text: Spelled<'_>, out: &mut Vec<u8>) {
        let Some(open) = &mut self.open else {
            return;
        };
        let half = half_pair(text);
        if half.is_none() && open.half.is_empty() {
            if !text.is_empty() {
                open.say(text, self.streams, &mut self.content, out);
            }
            return;
        }
        let (text, next) = text
            .split_at_checked(half.unwrap_or(text.len()))
            .unwrap_or((text, &[]));
        let mut joined = std::mem::replace(&mut open.half, next.to_vec());
        joined.extend_from_slice(text);
        if !joined.is_empty() {
            open.say(&joined, self.streams, &mut self.content, out);
        }
    }

    /// Cites something in the text that is open.
    pub(super) fn cite(&mut self, citation: &[u8], out: &mut Vec<u8>) {
        let index = self.count.saturating_sub(1);
        let Some(open) = &mut self.open else {
            return;
        };
        if !self.streams {
            if !open.kept.is_empty() {
                open.kept.push(b',');
            }
            compact(citation, &mut open.kept);
            return;
        }
        out.extend_from_slice(
            b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":",
        );
        out.extend_from_slice(index.to_string().as_bytes());
        out.extend_from_slice(b",\"delta\":{\"type\":\"citations_delta\",\"citation\":");
        compact(citation, out);
        out.extend_from_slice(b"}}\n\n");
    }

    /// Ends the thinking that is open with its signature.
    pub(super) fn sign(&mut self, signature: Spelled<'_>, out: &mut Vec<u8>) {
        self.settle_half(out);
        let Some(open) = self.open.take() else {
            return;
        };
        if self.streams {
            let index = self.count.saturating_sub(1).to_string();
            let parts: [&[u8]; 5] = [
                b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":",
                index.as_bytes(),
                b",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"",
                signature,
                b"\"}}\n\n",
            ];
            parts.iter().for_each(|part| out.extend_from_slice(part));
        } else {
            debug_assert_eq!(open.kind, BlockKind::Thinking);
            self.content.extend_from_slice(b"\",\"signature\":\"");
            self.content.extend_from_slice(signature);
            self.content.extend_from_slice(b"\"}");
        }
        self.stop(out);
    }

    /// Ends the block that is open, if one is.
    pub(super) fn close(&mut self, out: &mut Vec<u8>) {
        self.settle_half(out);
        match self.kind() {
            None => return,
            // Nobody signed it: the mark says so where it comes back.
            Some(BlockKind::Thinking) => {
                let mut unsigned = Vec::new();
                seal::write(Api::Chat, b"", &mut unsigned);
                self.sign(&unsigned, out);
                return;
            }
            Some(_) => {}
        }
        let Some(open) = self.open.take() else {
            return;
        };
        match (self.streams, open.kind) {
            // Anthropic sends one such part for a call without arguments.
            (true, BlockKind::Call) if open.is_empty => {
                out.extend_from_slice(&open.head);
                out.extend_from_slice(TAIL);
            }
            (true, _) => {}
            (false, BlockKind::Call) => {
                input(&open.kept, &mut self.content);
                self.content.push(b'}');
            }
            (false, _) => {
                self.content.push(b'"');
                if !open.kept.is_empty() {
                    self.content.extend_from_slice(b",\"citations\":[");
                    self.content.extend_from_slice(&open.kept);
                    self.content.push(b']');
                }
                self.content.push(b'}');
            }
        }
        self.stop(out);
    }

    fn settle_half(&mut self, out: &mut Vec<u8>) {
        if let Some(open) = &mut self.open
            && !open.half.is_empty()
        {
            let half = std::mem::take(&mut open.half);
            open.say(&half, self.streams, &mut self.content, out);
        }
    }

    fn stop(&self, out: &mut Vec<u8>) {
        if self.streams {
            out.extend_from_slice(
                b"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":",
            );
            out.extend_from_slice(self.count.saturating_sub(1).to_string().as_bytes());
            out.extend_from_slice(b"}\n\n");
        }
    }
}

/// The end of a delta, behind its text.
const TAIL: &[u8] = b"\"}}\n\n";

impl OpenBlock {
    #[inline]
    fn say(&mut self, text: &[u8], streams: bool, content: &mut Vec<u8>, out: &mut Vec<u8>) {
        self.is_empty = false;
        if streams {
            out.reserve(self.head.len() + text.len() + TAIL.len());
            out.extend_from_slice(&self.head);
            out.extend_from_slice(text);
            out.extend_from_slice(TAIL);
        } else if self.kind == BlockKind::Call {
            self.kept.extend_from_slice(text);
        } else {
            content.extend_from_slice(text);
        }
    }
}

/// Appends the input of a call with these arguments, spelled: an object. Arguments that are none stand in one, under
/// the name that Anthropic proposes for them
/// (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/fine-grained-tool-streaming>).
fn input(arguments: &[u8], out: &mut Vec<u8>) {
    let decoded = string::decode(arguments);
    if decoded.trim_ascii().is_empty() {
        out.extend_from_slice(b"{}");
        return;
    }
    match scan::document(decoded.as_bytes(), MAX_DEPTH) {
        Ok(value) if value.kind == Kind::Object => compact(value.bytes(decoded.as_bytes()), out),
        _ => {
            out.extend_from_slice(b"{\"INVALID_JSON\":\"");
            out.extend_from_slice(arguments);
            out.extend_from_slice(b"\"}");
        }
    }
}
