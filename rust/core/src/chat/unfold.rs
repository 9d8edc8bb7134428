//! One `chat.completion` → the chunks of a stream, for a client that asked for one when the upstream did not give one.
//!
//! ```
//! use sluicegate_core::chat::unfold::{Unfold, unfold_chat};
//! use sluicegate_core::limits::Limits;
//!
//! let completion = br#"{"id":"c1","object":"chat.completion","created":7,"model":"m","choices":[{"index":0,
//!     "message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"total_tokens":3}}"#;
//! let stream = unfold_chat(completion, Unfold { include_usage: true }, Limits::default()).unwrap();
//! assert_eq!(
//!     String::from_utf8(stream).unwrap(),
//!     concat!(
//!         r#"data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}"#, "\n\n",
//!         r#"data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}],"usage":null}"#, "\n\n",
//!         r#"data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}"#, "\n\n",
//!         r#"data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"m","choices":[],"usage":{"total_tokens":3}}"#, "\n\n",
//!         "data: [DONE]\n\n",
//!     ),
//! );
//! ```

use std::collections::BTreeSet;

use super::member::{Field, compact, elements, fields, find, refusal, reported_error, weight};
use super::merge::write_key;
use crate::error::{Error, ErrorKind};
use crate::json::scan::{self, Kind, Value};
use crate::limits::Limits;

/// What the client asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfold {
    /// `stream_options.include_usage`: a last chunk with the usage and no choices, and `"usage":null` in all others. Without it the
    /// usage is not sent.
    pub include_usage: bool,
}

/// An event stream that says what `completion` says: for each choice a chunk with the role, then reasoning, content, refusal, what
/// else the message holds, a chunk for each tool call, and a chunk with the finish reason and what else the choice holds; then usage, if it
/// was asked for; then `[DONE]`. A text completion gives a chunk with the text and one with the finish reason for each choice.
///
/// Members that are unknown are sent once: those of the completion with the last choice's finish. Members that are `null` or empty are
/// sent as well, so that folding gives them back. Choices get their place as index unless each has an index of its own, a message
/// without a role is the assistant's, tool calls get their place as index.
///
/// An error instead of a completion (some upstreams send one with status 200) gives that error as the one event, and no `[DONE]`.
///
/// # Errors
/// `completion` is not one JSON object, is nested more deeply than `limits.max_depth`, or it or the stream is larger than
/// `limits.max_document`. Offsets are within `completion`.
pub fn unfold_chat(completion: &[u8], options: Unfold, limits: Limits) -> Result<Vec<u8>, Error> {
    if completion.len() > limits.max_document {
        let offset = limits.max_document as u64;
        return Err(Error::new(ErrorKind::DocumentTooLarge, offset));
    }
    let document = scan::document(completion, limits.max_depth).map_err(refusal)?;
    if document.kind != Kind::Object {
        return Err(Error::new(ErrorKind::NotAnObject, document.start as u64));
    }
    let members = fields(completion, document);
    let mut stream = Vec::with_capacity(completion.len().saturating_mul(2));
    if reported_error(completion, document, &members).is_some() {
        stream.extend_from_slice(b"data: ");
        compact(document.bytes(completion), &mut stream);
        stream.extend_from_slice(b"\n\n");
        return Ok(stream);
    }
    let choices: Vec<Vec<Field<'_>>> = find(&members, "choices")
        .into_iter()
        .flat_map(|choices| elements(completion, choices))
        .filter(|choice| choice.kind == Kind::Object)
        .map(|choice| fields(completion, choice))
        .collect();
    let is_text = is_text_completion(completion, &members, &choices);
    let usage = find(&members, "usage").filter(|_| options.include_usage);
    let mut chunks = Chunks {
        text: completion,
        head: head(completion, &members, is_text),
        nulls_usage: usage.is_some(),
        limit: limits.max_document,
        stream,
    };

    let mut rest = Vec::new();
    for field in &members {
        if !matches!(&*field.key, b"object" | b"choices" | b"usage") && !is_in_head(&field.key) {
            write_key(false, &field.key, &mut rest);
            compact(field.value.bytes(completion), &mut rest);
        }
    }
    for (place, (index, choice)) in indices(completion, &choices)
        .into_iter()
        .zip(&choices)
        .enumerate()
    {
        let is_last = place + 1 == choices.len();
        let choice = ChoiceView::of(completion, index, choice);
        let rest = if is_last { &*rest } else { &[] };
        if is_text {
            chunks.text_choice(&choice, rest)?;
        } else {
            chunks.chat_choice(&choice, rest)?;
        }
    }
    if choices.is_empty() {
        chunks.push(&[], &rest)?;
    }
    if let Some(usage) = usage.filter(|usage| usage.kind != Kind::Null) {
        chunks.nulls_usage = false;
        let mut last = b",\"usage\":".to_vec();
        compact(usage.bytes(completion), &mut last);
        chunks.push(&[], &last)?;
    }
    chunks.stream.extend_from_slice(b"data: [DONE]\n\n");
    Ok(chunks.stream)
}

fn is_text_completion(text: &[u8], members: &[Field<'_>], choices: &[Vec<Field<'_>>]) -> bool {
    let says_text =
        find(members, "object").is_some_and(|object| object.bytes(text) == b"\"text_completion\"");
    let is_text = |choice: &Vec<Field<'_>>| {
        find(choice, "text").is_some() && find(choice, "message").is_none()
    };
    says_text || !choices.is_empty() && choices.iter().all(is_text)
}

/// Members of the completion that OpenAI repeats in each chunk.
fn is_in_head(key: &[u8]) -> bool {
    matches!(
        key,
        b"id" | b"created" | b"model" | b"service_tier" | b"system_fingerprint"
    )
}

/// The members before `choices`, each with a comma behind it.
fn head(text: &[u8], members: &[Field<'_>], is_text: bool) -> Vec<u8> {
    let mut head = Vec::new();
    let object: &[u8] = if is_text {
        b"\"object\":\"text_completion\","
    } else {
        b"\"object\":\"chat.completion.chunk\","
    };
    let id = members.iter().filter(|field| *field.key == *b"id");
    let others = members
        .iter()
        .filter(|field| *field.key != *b"id" && is_in_head(&field.key));
    let write = |field: &Field<'_>, head: &mut Vec<u8>| {
        write_key(true, &field.key, head);
        compact(field.value.bytes(text), head);
        head.push(b',');
    };
    id.for_each(|field| write(field, &mut head));
    head.extend_from_slice(object);
    others.for_each(|field| write(field, &mut head));
    head
}

/// Each choice's index, or each choice's place where they have none of their own.
fn indices(text: &[u8], choices: &[Vec<Field<'_>>]) -> Vec<u64> {
    let said: Vec<Option<u64>> = choices
        .iter()
        .map(|choice| find(choice, "index").and_then(|index| index.as_u64(text)))
        .collect();
    let distinct: BTreeSet<u64> = said.iter().copied().flatten().collect();
    if distinct.len() == choices.len() {
        said.into_iter().flatten().collect()
    } else {
        (0..choices.len() as u64).collect()
    }
}

/// A choice and what is needed for each of its chunks.
struct ChoiceView<'a> {
    index: u64,
    members: &'a [Field<'a>],
    message: Vec<Field<'a>>,
    logprobs: Option<Value>,
    has_finish: bool,
}

impl<'a> ChoiceView<'a> {
    fn of(text: &'a [u8], index: u64, members: &'a [Field<'a>]) -> Self {
        ChoiceView {
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
enum Part {
    /// The first chunk: the role, and what is `null` or empty.
    Role,
    Reasoning,
    Content,
    Refusal,
    Other,
    FunctionCall,
    ToolCalls,
}

impl Part {
    fn of(text: &[u8], field: &Field<'_>) -> Self {
        match &*field.key {
            b"role" => Part::Role,
            _ if weight(text, field.value) < 2 => Part::Role,
            // One chunk for all of them: clients that know several take one and pass over the others in the same delta.
            b"reasoning_content" | b"reasoning" | b"thinking" | b"reasoning_text" => {
                Part::Reasoning
            }
            b"reasoning_details" | b"thinking_blocks" => Part::Reasoning,
            b"content" => Part::Content,
            b"refusal" => Part::Refusal,
            b"function_call" => Part::FunctionCall,
            b"tool_calls" if field.value.kind == Kind::Array => Part::ToolCalls,
            _ => Part::Other,
        }
    }
}

/// The stream in the making.
struct Chunks<'a> {
    text: &'a [u8],
    head: Vec<u8>,
    /// Each chunk says `"usage":null`.
    nulls_usage: bool,
    limit: usize,
    stream: Vec<u8>,
}

impl Chunks<'_> {
    /// Appends one chunk. `choice` is an object or nothing, `rest` further members, each with a comma before it.
    fn push(&mut self, choice: &[u8], rest: &[u8]) -> Result<(), Error> {
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

    fn chat_choice(&mut self, choice: &ChoiceView<'_>, rest: &[u8]) -> Result<(), Error> {
        let parts: Vec<Part> = choice
            .message
            .iter()
            .map(|field| Part::of(self.text, field))
            .collect();
        self.push_delta(choice, None, &self.first_delta(choice, &parts))?;
        let mut logprobs = choice.logprobs;
        for part in [
            Part::Reasoning,
            Part::Content,
            Part::Refusal,
            Part::Other,
            Part::FunctionCall,
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
                let is_spoken = matches!(part, Part::Content | Part::Refusal);
                let logprobs = logprobs.take_if(|_| is_spoken);
                self.push_delta(choice, logprobs, &delta)?;
            }
        }
        let calls = choice.message.iter().zip(&parts);
        for (field, _) in calls.filter(|(_, part)| **part == Part::ToolCalls) {
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
    fn first_delta(&self, choice: &ChoiceView<'_>, parts: &[Part]) -> Vec<u8> {
        let mut delta = Vec::new();
        if find(&choice.message, "role").is_none() {
            delta.extend_from_slice(b"\"role\":\"assistant\"");
        }
        for (field, part) in choice.message.iter().zip(parts) {
            if *part == Part::Role {
                write_key(delta.is_empty(), &field.key, &mut delta);
                compact(field.value.bytes(self.text), &mut delta);
            } else if *part == Part::Content && field.value.kind == Kind::String {
                write_key(delta.is_empty(), b"content", &mut delta);
                delta.extend_from_slice(b"\"\"");
            }
        }
        delta
    }

    fn push_delta(
        &mut self,
        choice: &ChoiceView<'_>,
        logprobs: Option<Value>,
        delta: &[u8],
    ) -> Result<(), Error> {
        let mut content = b"\"delta\":{".to_vec();
        content.extend_from_slice(delta);
        content.push(b'}');
        let piece = self.piece(choice, &content, logprobs);
        self.push(&piece, &[])
    }

    fn text_choice(&mut self, choice: &ChoiceView<'_>, rest: &[u8]) -> Result<(), Error> {
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

    /// A choice's object in a chunk before its last. `content` is the member that says something.
    fn piece(&self, choice: &ChoiceView<'_>, content: &[u8], logprobs: Option<Value>) -> Vec<u8> {
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
        choice: &ChoiceView<'_>,
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
        choice: &ChoiceView<'_>,
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

/// A tool call as the one piece that says it: with its place as index, its type, and arguments that are a string.
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

#[cfg(test)]
mod tests;
