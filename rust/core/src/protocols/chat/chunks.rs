//! Writing the chunks that a choice is unfolded into.

use super::delta::DeltaMember;
use super::merge::write_key;
use crate::error::{Error, ErrorKind};
use crate::json::fields::{Field, compact, elements, fields, find, weight};
use crate::json::scan::{Kind, Value};

/// A choice and what is needed for each of its chunks.
pub(super) struct WholeChoice<'a> {
    index: u64,
    members: &'a [Field<'a>],
    message: Vec<Field<'a>>,
    logprobs: Option<Value>,
    has_finish: bool,
}

impl<'a> WholeChoice<'a> {
    pub(super) fn of(text: &'a [u8], index: u64, members: &'a [Field<'a>]) -> Self {
        WholeChoice {
            index,
            members,
            message: find(members, "message").map_or_else(Vec::new, |m| fields(text, m)),
            logprobs: find(members, "logprobs"),
            has_finish: find(members, "finish_reason").is_some(),
        }
    }
}

/// In which of a choice's chunks a member of its message is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChunkKind {
    /// The first chunk: the role, and what is `null` or empty.
    Role,
    Reasoning,
    Content,
    Refusal,
    Other,
    FunctionCall,
    ToolCalls,
}

impl ChunkKind {
    fn of(text: &[u8], field: &Field<'_>) -> Self {
        if *field.key == *b"role" || weight(text, field.value) < 2 {
            return ChunkKind::Role;
        }
        match DeltaMember::of(&field.key) {
            // One chunk for all of them: clients that know several take one and pass over the others in the same delta.
            Some(DeltaMember::Reasoning(_) | DeltaMember::ReasoningParts) => ChunkKind::Reasoning,
            Some(DeltaMember::Content) => ChunkKind::Content,
            Some(DeltaMember::Refusal) => ChunkKind::Refusal,
            Some(DeltaMember::FunctionCall) => ChunkKind::FunctionCall,
            Some(DeltaMember::Calls) if field.value.kind == Kind::Array => ChunkKind::ToolCalls,
            Some(DeltaMember::Calls | DeltaMember::Media) | None => ChunkKind::Other,
        }
    }
}

/// The stream in the making.
pub(super) struct Chunks<'a> {
    /// The completion.
    pub(super) text: &'a [u8],
    /// The members of each chunk before `choices`, each with a comma behind it.
    pub(super) head: Vec<u8>,
    /// Each chunk has `"usage":null`.
    pub(super) nulls_usage: bool,
    /// Bytes that the stream may grow to.
    pub(super) limit: usize,
    /// The events so far.
    pub(super) stream: Vec<u8>,
}

impl Chunks<'_> {
    /// Appends one chunk. `choice` is an object or nothing, `rest` further members, each with a comma before it.
    pub(super) fn push(&mut self, choice: &[u8], rest: &[u8]) -> Result<(), Error> {
        let stream = &mut self.stream;
        stream.extend_from_slice(b"data: {");
        stream.extend_from_slice(&self.head);
        stream.extend_from_slice(b"\"choices\":[");
        stream.extend_from_slice(choice);
        stream.push(b']');
        if self.nulls_usage {
            stream.extend_from_slice(b",\"usage\":null");
        }
        stream.extend_from_slice(rest);
        stream.extend_from_slice(b"}\n\n");
        if stream.len() > self.limit {
            return Err(Error::new(
                ErrorKind::DocumentTooLarge,
                self.text.len() as u64,
            ));
        }
        Ok(())
    }

    /// Appends the chunks of a choice of a chat completion, the last one with the members in `rest`.
    pub(super) fn chat_choice(
        &mut self,
        choice: &WholeChoice<'_>,
        rest: &[u8],
    ) -> Result<(), Error> {
        let parts: Vec<ChunkKind> = choice
            .message
            .iter()
            .map(|field| ChunkKind::of(self.text, field))
            .collect();
        self.push_delta(choice, None, &self.first_delta(choice, &parts))?;
        let mut logprobs = choice.logprobs;
        for part in [
            ChunkKind::Reasoning,
            ChunkKind::Content,
            ChunkKind::Refusal,
            ChunkKind::Other,
            ChunkKind::FunctionCall,
        ] {
            let mut delta = Vec::new();
            for (field, _) in choice
                .message
                .iter()
                .zip(&parts)
                .filter(|(_, p)| **p == part)
            {
                write_key(delta.is_empty(), &field.key, &mut delta);
                compact(field.value.bytes(self.text), &mut delta);
            }
            if !delta.is_empty() {
                let is_spoken = matches!(part, ChunkKind::Content | ChunkKind::Refusal);
                let logprobs = logprobs.take_if(|_| is_spoken);
                self.push_delta(choice, logprobs, &delta)?;
            }
        }
        let calls = choice.message.iter().zip(&parts);
        for (field, _) in calls.filter(|(_, part)| **part == ChunkKind::ToolCalls) {
            let calls = elements(self.text, field.value).filter(|call| call.kind == Kind::Object);
            for (place, call) in calls.enumerate() {
                let mut delta = b"\"tool_calls\":[".to_vec();
                write_call(self.text, place, call, &mut delta);
                delta.push(b']');
                self.push_delta(choice, None, &delta)?;
            }
        }
        let last = self.last_piece(choice, b"\"delta\":{}", logprobs);
        self.push(&last, rest)
    }

    /// The role, what is `null` or empty, and the empty string that text begins with.
    fn first_delta(&self, choice: &WholeChoice<'_>, parts: &[ChunkKind]) -> Vec<u8> {
        let mut delta = Vec::new();
        if find(&choice.message, "role").is_none() {
            delta.extend_from_slice(b"\"role\":\"assistant\"");
        }
        for (field, part) in choice.message.iter().zip(parts) {
            if *part == ChunkKind::Role {
                write_key(delta.is_empty(), &field.key, &mut delta);
                compact(field.value.bytes(self.text), &mut delta);
            } else if *part == ChunkKind::Content && field.value.kind == Kind::String {
                write_key(delta.is_empty(), b"content", &mut delta);
                delta.extend_from_slice(b"\"\"");
            }
        }
        delta
    }

    fn push_delta(
        &mut self,
        choice: &WholeChoice<'_>,
        logprobs: Option<Value>,
        delta: &[u8],
    ) -> Result<(), Error> {
        let mut content = b"\"delta\":{".to_vec();
        content.extend_from_slice(delta);
        content.push(b'}');
        let piece = self.piece(choice, &content, logprobs);
        self.push(&piece, &[])
    }

    /// Appends the chunks of a choice of a text completion, the last one with the members in `rest`.
    pub(super) fn text_choice(
        &mut self,
        choice: &WholeChoice<'_>,
        rest: &[u8],
    ) -> Result<(), Error> {
        let said = find(choice.members, "text");
        let spoken = said.filter(|text| text.kind == Kind::String && weight(self.text, *text) == 2);
        let mut logprobs = choice.logprobs;
        if let Some(text) = spoken {
            let mut content = b"\"text\":".to_vec();
            compact(text.bytes(self.text), &mut content);
            let piece = self.piece(choice, &content, logprobs.take());
            self.push(&piece, &[])?;
        }
        let mut content = b"\"text\":".to_vec();
        match said.filter(|_| spoken.is_none()) {
            Some(text) => compact(text.bytes(self.text), &mut content),
            None => content.extend_from_slice(b"\"\""),
        }
        let last = self.last_piece(choice, &content, logprobs);
        self.push(&last, rest)
    }

    /// A choice's object in a chunk before its last. `content` is the member that the chunk carries.
    fn piece(&self, choice: &WholeChoice<'_>, content: &[u8], logprobs: Option<Value>) -> Vec<u8> {
        let mut piece = self.begin_piece(choice, content, logprobs);
        if choice.has_finish {
            piece.extend_from_slice(b",\"finish_reason\":null");
        }
        piece.push(b'}');
        piece
    }

    /// A choice's object in its last chunk: with the finish reason and all that is not known.
    fn last_piece(
        &self,
        choice: &WholeChoice<'_>,
        content: &[u8],
        logprobs: Option<Value>,
    ) -> Vec<u8> {
        let mut piece = self.begin_piece(choice, content, logprobs);
        for field in choice.members {
            let is_known = matches!(
                &*field.key,
                b"index" | b"message" | b"delta" | b"logprobs" | b"text"
            );
            let is_unknown_text = *field.key == *b"text" && content.starts_with(b"\"delta\"");
            if !is_known || is_unknown_text {
                write_key(false, &field.key, &mut piece);
                compact(field.value.bytes(self.text), &mut piece);
            }
        }
        piece.push(b'}');
        piece
    }

    fn begin_piece(
        &self,
        choice: &WholeChoice<'_>,
        content: &[u8],
        logprobs: Option<Value>,
    ) -> Vec<u8> {
        let mut piece = format!("{{\"index\":{},", choice.index).into_bytes();
        piece.extend_from_slice(content);
        if choice.logprobs.is_some() {
            piece.extend_from_slice(b",\"logprobs\":");
            match logprobs {
                Some(logprobs) => compact(logprobs.bytes(self.text), &mut piece),
                None => piece.extend_from_slice(b"null"),
            }
        }
        piece
    }
}

/// A tool call as one whole piece: with its place as index, its type, and arguments that are a string.
fn write_call(text: &[u8], place: usize, call: Value, out: &mut Vec<u8>) {
    let members = fields(text, call);
    let says = |members: &[Field<'_>], key| {
        find(members, key).is_some_and(|value| value.kind != Kind::Null)
    };
    let function = find(&members, "function").filter(|function| function.kind == Kind::Object);
    let lacks_type = function.is_some() && !says(&members, "type");
    out.extend_from_slice(format!("{{\"index\":{place}").as_bytes());
    if lacks_type {
        out.extend_from_slice(b",\"type\":\"function\"");
    }
    for field in &members {
        match &*field.key {
            b"index" => {}
            b"type" if lacks_type => {}
            b"function" if function.is_some() => {
                let inner = fields(text, field.value);
                let lacks_arguments = !says(&inner, "arguments");
                out.extend_from_slice(b",\"function\":{");
                let inner = inner
                    .iter()
                    .filter(|field| !(lacks_arguments && *field.key == *b"arguments"));
                let mut first = true;
                for field in inner {
                    write_key(first, &field.key, out);
                    compact(field.value.bytes(text), out);
                    first = false;
                }
                if lacks_arguments {
                    write_key(first, b"arguments", out);
                    out.extend_from_slice(b"\"\"");
                }
                out.push(b'}');
            }
            key => {
                write_key(false, key, out);
                compact(field.value.bytes(text), out);
            }
        }
    }
    out.push(b'}');
}
