//! One `chat.completion` → the chunks of a stream, for a client that asked for one when the upstream did not give one.
//!
//! ```
//! use sluicegate_core::protocols::chat::unfold::{Unfold, unfold_chat};
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

use super::chunks::{Chunks, WholeChoice};
use super::error::reported_error;
use super::merge::write_key;
use crate::api::DONE;
use crate::error::{Error, ErrorKind};
use crate::json::fields::{Field, compact, elements, fields, find};
use crate::json::scan::{self, Kind};
use crate::limits::{Limits, MAX_CHOICES};

/// What the client asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfold {
    /// `stream_options.include_usage`: a last chunk with the usage and no choices, and `"usage":null` in all others.
    /// Without it the usage is not sent.
    pub include_usage: bool,
}

/// An event stream with the content of `completion`: for each choice a chunk with the role, then reasoning, content,
/// refusal, what else the message holds, a chunk for each tool call, and a chunk with the finish reason and what else
/// the choice holds; then usage, if it was asked for; then `[DONE]`. A text completion gives a chunk with the text and
/// one with the finish reason for each choice.
///
/// Members that are unknown are sent once: those of the completion with the last choice's finish. Members that are
/// `null` or empty are sent as well, so that folding gives them back. Choices get their place as index unless each has
/// an index of its own, a message without a role is the assistant's, tool calls get their place as index.
///
/// An error instead of a completion (some upstreams send one with status 200) gives that error as the one event, and no
/// `[DONE]`.
///
/// # Errors
/// `completion` is not one JSON object, is nested more deeply than `limits.max_depth`, has more than [`MAX_CHOICES`],
/// or it or the stream is larger than `limits.max_document`. Offsets are within `completion`.
pub fn unfold_chat(completion: &[u8], options: Unfold, limits: Limits) -> Result<Vec<u8>, Error> {
    if completion.len() > limits.max_document {
        let offset = limits.max_document as u64;
        return Err(Error::new(ErrorKind::DocumentTooLarge, offset));
    }
    let document = scan::document(completion, limits.max_depth).map_err(Error::from)?;
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
        .take(MAX_CHOICES + 1)
        .map(|choice| fields(completion, choice))
        .collect();
    if choices.len() > MAX_CHOICES {
        return Err(Error::new(ErrorKind::TooManyItems, 0));
    }
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
        let choice = WholeChoice::of(completion, index, choice);
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
    chunks.stream.extend_from_slice(DONE);
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

#[cfg(test)]
mod tests;
