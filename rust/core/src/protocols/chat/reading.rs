//! Chunks of a chat completion → pieces.
//!
//! ```
//! use sluicegate_core::protocols::chat::reading::ChatChunks;
//! use sluicegate_core::output::{Piece, Reader, Reasoning, Text};
//!
//! let chunk = br#"{"choices":[{"index":0,"delta":{"content":"4.","reasoning_content":"2 + 2"}}]}"#;
//! let mut pieces = 0;
//! ChatChunks::default().read(chunk, &mut |piece| {
//!     match pieces {
//!         0 => assert!(matches!(piece, Piece::Head(_))),
//!         1 => assert_eq!(*piece, Piece::Reasoning(Reasoning::Text(b"2 + 2"))),
//!         _ => assert_eq!(*piece, Piece::Text(Text { text: b"4.", ..Text::default() })),
//!     }
//!     pieces += 1;
//! })?;
//! assert_eq!(pieces, 3);
//! # Ok::<(), sluicegate_core::json::scan::Fault>(())
//! ```

use std::borrow::Cow;

use crate::api::Api;
use crate::json::cursor::Cursor;
use crate::json::scan::{Elements, Fault, Kind, MAX_DEPTH, Members, Value};
use crate::json::string;

use super::delta::{DeltaMember, REASONING};
use super::unfold::{Unfold, unfold_chat};
use crate::error::Error;
use crate::limits::Limits;
use crate::output::{
    Annotation, Call, Finish, Head, Piece, Reader, Reason, Reasoning, Sealed, Text,
};
use crate::sse::event::Events;

/// Reads chunks, of which a whole completion is one. Only the first choice is read: the other protocols know no second.
///
/// The members of one delta are taken in the order reasoning, content, refusal, tool calls, whatever their order was.
/// Text is given though it be empty, so that it can be told from none.
///
/// Reasoning is read from the strings of a delta, or from its typed parts. A reply that has had it in strings says the
/// same once more in parts, though not always in the same delta: some repeat all of it beside its signature.
#[derive(Clone, Copy, Debug)]
pub struct ChatChunks {
    max_depth: usize,
    /// Strings have had reasoning in them.
    reasons_in_strings: bool,
    /// What the last chunk gave depends on that.
    remembers: bool,
}

impl Default for ChatChunks {
    fn default() -> Self {
        ChatChunks::new(crate::limits::MAX_DEPTH)
    }
}

impl ChatChunks {
    /// A reader that refuses chunks with more than `max_depth` open containers.
    #[must_use]
    pub const fn new(max_depth: usize) -> Self {
        ChatChunks {
            max_depth,
            reasons_in_strings: false,
            remembers: false,
        }
    }
}

impl Reader for ChatChunks {
    fn read(&mut self, payload: &[u8], give: &mut dyn FnMut(&Piece<'_>)) -> Result<(), Fault> {
        let mut chunk = Chunk::default();
        let mut cursor = Cursor::new(payload, self.max_depth);
        cursor.members(|cursor, key| chunk.read_member(cursor, payload, key))?;
        cursor.end()?;
        chunk.give(payload, self, give);
        Ok(())
    }

    fn read_whole(
        &mut self,
        document: &[u8],
        limits: &Limits,
        give: &mut dyn FnMut(&Piece<'_>),
    ) -> Result<(), Error> {
        read_unfolded(self, document, limits, give)
    }

    fn remembers(&self) -> bool {
        self.remembers
    }

    fn end(&mut self, _give: &mut dyn FnMut(&Piece<'_>)) {}
}

/// Reads a completion as the chunks of its stream, so that the same is given of it however it comes.
///
/// # Errors
/// As [`unfold_chat`].
pub(crate) fn read_unfolded(
    reader: &mut dyn Reader,
    completion: &[u8],
    limits: &Limits,
    give: &mut dyn FnMut(&Piece<'_>),
) -> Result<(), Error> {
    let options = Unfold {
        include_usage: false,
    };
    let stream = unfold_chat(completion, options, *limits)?;
    for event in Events::new(&stream) {
        if let Some(data) = event.data() {
            // The end mark is no chunk.
            let _ = reader.read(&data, give);
        }
    }
    Ok(())
}

/// Where the members of a chunk are.
#[derive(Default)]
struct Chunk {
    id: Option<Value>,
    model: Option<Value>,
    created: Option<Value>,
    service_tier: Option<Value>,
    choice: Option<Choice>,
}

#[derive(Default)]
struct Choice {
    index: u64,
    finish: Option<Value>,
    /// The stop sequence or token that the model stopped at (vLLM).
    stopped_at: Option<Value>,
    logprobs: Option<Value>,
    delta: Delta,
}

#[derive(Default)]
struct Delta {
    reasoning: [Option<Value>; REASONING.len()],
    details: Option<Value>,
    content: Option<Value>,
    annotations: Option<Value>,
    refusal: Option<Value>,
    calls: Option<Value>,
    function_call: Option<Value>,
}

impl Chunk {
    fn read_member(
        &mut self,
        cursor: &mut Cursor<'_>,
        text: &[u8],
        key: Value,
    ) -> Result<(), Fault> {
        let slot = match &*string::plain(key.content(text)) {
            b"choices" => {
                cursor.elements(|cursor| {
                    let mut choice = Choice::default();
                    let value =
                        cursor.members(|cursor, key| choice.read_member(cursor, text, key))?;
                    if value.kind == Kind::Object && choice.index == 0 && self.choice.is_none() {
                        self.choice = Some(choice);
                    }
                    Ok(())
                })?;
                return Ok(());
            }
            b"id" => &mut self.id,
            b"model" => &mut self.model,
            b"created" => &mut self.created,
            b"service_tier" => &mut self.service_tier,
            _ => return cursor.skip().map(drop),
        };
        *slot = Some(cursor.skip()?);
        Ok(())
    }

    fn give(&self, text: &[u8], reader: &mut ChatChunks, give: &mut dyn FnMut(&Piece<'_>)) {
        reader.remembers = false;
        let created = self.created.filter(|value| value.kind == Kind::Number);
        let head = Head {
            id: filled(self.id, text),
            model: filled(self.model, text),
            created: created.map(|value| value.bytes(text)),
            service_tier: filled(self.service_tier, text),
        };
        give(&Piece::Head(head));
        if let Some(choice) = &self.choice {
            choice.give(text, reader, give);
        }
    }
}

impl Choice {
    fn read_member(
        &mut self,
        cursor: &mut Cursor<'_>,
        text: &[u8],
        key: Value,
    ) -> Result<(), Fault> {
        match &*string::plain(key.content(text)) {
            b"delta" | b"message" => {
                let delta = &mut self.delta;
                cursor.members(|cursor, key| delta.read_member(cursor, text, key))?;
            }
            // `/v1/completions`
            b"text" => self.delta.content = Some(cursor.skip()?),
            b"index" => self.index = cursor.skip()?.as_u64(text).unwrap_or(0),
            b"finish_reason" => self.finish = Some(cursor.skip()?),
            b"stop_reason" => self.stopped_at = Some(cursor.skip()?),
            b"logprobs" => {
                cursor.members(|cursor, key| {
                    let value = cursor.skip()?;
                    if string::equals(key.content(text), "content") && value.kind == Kind::Array {
                        self.logprobs = Some(value);
                    }
                    Ok(())
                })?;
            }
            _ => {
                cursor.skip()?;
            }
        }
        Ok(())
    }

    fn give(&self, text: &[u8], reader: &mut ChatChunks, give: &mut dyn FnMut(&Piece<'_>)) {
        let delta = &self.delta;
        delta.give_reasoning(text, reader, give);
        delta.give_content(self.logprobs, text, give);
        for annotation in delta.annotations.iter().flat_map(|list| items(*list, text)) {
            if annotation.kind == Kind::Object {
                give(&Piece::Annotation(Annotation {
                    api: Api::Chat,
                    json: annotation.bytes(text),
                }));
            }
        }
        if let Some(refusal) = delta.refusal.filter(|value| value.kind == Kind::String) {
            give(&Piece::Refusal(refusal.content(text)));
        }
        // An array; one object in old TGI.
        match delta.calls {
            Some(call) if call.kind == Kind::Object => give_call(call, text, give),
            Some(calls) => items(calls, text).for_each(|call| give_call(call, text, give)),
            None => {}
        }
        // What tool calls were before they had that name.
        if let Some(function) = delta.function_call
            && function.kind == Kind::Object
        {
            give_function(Some(function), Call::default(), text, give);
        }
        // `""` is how some say "not yet" (`ollama#4357`).
        if let Some(word) = filled(self.finish, text) {
            let sequence = filled(self.stopped_at, text);
            let reason = match reason(word) {
                Reason::Stop if sequence.is_some() => Reason::Sequence,
                reason => reason,
            };
            give(&Piece::Finish(Finish {
                reason,
                word,
                sequence,
                details: None,
            }));
        }
    }
}

/// What a finish reason means, be it OpenAI's word or that of another server.
fn reason(word: &[u8]) -> Reason {
    match word.to_ascii_lowercase().as_slice() {
        b"stop" => Reason::Stop,
        b"tool_calls" | b"function_call" => Reason::Calls,
        // `model_length`: Mistral.
        b"length" | b"max_tokens" | b"model_length" => Reason::Length,
        b"content_filter" | b"safety" | b"recitation" => Reason::Filter,
        // vLLM (vllm#57082), OpenRouter, DeepSeek.
        b"abort" | b"error" | b"insufficient_system_resource" => Reason::Failed,
        _ => Reason::Other,
    }
}

impl Delta {
    fn read_member(
        &mut self,
        cursor: &mut Cursor<'_>,
        text: &[u8],
        key: Value,
    ) -> Result<(), Fault> {
        let key = string::plain(key.content(text));
        let slot = match DeltaMember::of(&key) {
            Some(DeltaMember::Content) => Some(&mut self.content),
            Some(DeltaMember::Refusal) => Some(&mut self.refusal),
            Some(DeltaMember::Calls) => Some(&mut self.calls),
            Some(DeltaMember::FunctionCall) => Some(&mut self.function_call),
            Some(DeltaMember::ReasoningParts) if *key == *b"reasoning_details" => {
                Some(&mut self.details)
            }
            Some(DeltaMember::Reasoning(place)) => self.reasoning.get_mut(place),
            None if *key == *b"annotations" => Some(&mut self.annotations),
            Some(DeltaMember::ReasoningParts | DeltaMember::Media) | None => None,
        };
        let value = cursor.skip()?;
        if let Some(slot) = slot {
            *slot = Some(value);
        }
        Ok(())
    }

    fn give_reasoning(
        &self,
        text: &[u8],
        reader: &mut ChatChunks,
        give: &mut dyn FnMut(&Piece<'_>),
    ) {
        let details = || self.details.iter().flat_map(|list| items(*list, text));
        let said_in = |detail, name| filled(member(detail, text, name), text);
        // Of a whole reply the string holds all texts in one, and each signature is given behind its own.
        let signed = details().filter(|detail| said_in(*detail, "signature").is_some());
        let has_parts = signed.count() > 1;
        let strings = self.reasoning.iter().flatten().filter(|_| !has_parts);
        let mut strings = strings.filter(|value| value.kind == Kind::String);
        let said = strings.clone().find(|value| !is_empty(**value));
        reader.reasons_in_strings |= said.is_some();
        if let Some(value) = said.or_else(|| strings.next()) {
            give(&Piece::Reasoning(Reasoning::Text(value.content(text))));
        }
        // OpenRouter's typed form: the same text once more, its signature, a summary, or encrypted reasoning.
        for detail in details() {
            let kind = content(member(detail, text, "type"), text);
            let (shown, hidden) = match kind {
                b"reasoning.text" => (
                    said_in(detail, "text").map(Reasoning::Text),
                    said_in(detail, "signature"),
                ),
                b"reasoning.summary" => (said_in(detail, "summary").map(Reasoning::Summary), None),
                b"reasoning.encrypted" => (None, said_in(detail, "data")),
                _ => continue,
            };
            reader.remembers |= said.is_none() && shown.is_some();
            let hidden = hidden.map(|data| {
                Reasoning::Sealed(Sealed {
                    api: Api::Chat,
                    data,
                    signs_text: kind == b"reasoning.text",
                    item: Some(detail.bytes(text)),
                })
            });
            let shown = shown.filter(|_| !reader.reasons_in_strings);
            for reasoning in shown.into_iter().chain(hidden) {
                give(&Piece::Reasoning(reasoning));
            }
        }
    }

    fn give_content(&self, logprobs: Option<Value>, text: &[u8], give: &mut dyn FnMut(&Piece<'_>)) {
        let logprobs = logprobs.filter(|list| items(*list, text).next().is_some());
        let mut logprobs = logprobs.map(|list| list.bytes(text));
        let spoken = |words, logprobs: &mut Option<_>| {
            Piece::Text(Text {
                text: words,
                logprobs: logprobs.take(),
                phase: None,
            })
        };
        match self.content {
            Some(words) if words.kind == Kind::String => {
                give(&spoken(words.content(text), &mut logprobs));
            }
            // Typed parts: Mistral's content while it thinks, and the form of requests, which some servers use in
            // replies.
            Some(parts) if parts.kind == Kind::Array => {
                for part in items(parts, text) {
                    match content(member(part, text, "type"), text) {
                        b"text" | b"output_text" => {
                            let words = content(member(part, text, "text"), text);
                            give(&spoken(words, &mut logprobs));
                        }
                        b"refusal" => {
                            let words = content(member(part, text, "refusal"), text);
                            give(&Piece::Refusal(words));
                        }
                        b"thinking" => give_thinking(member(part, text, "thinking"), text, give),
                        _ => {}
                    }
                }
            }
            _ if logprobs.is_some() => give(&spoken(b"", &mut logprobs)),
            _ => {}
        }
    }
}

/// What a part of type `thinking` holds: words, or parts that hold them.
fn give_thinking(thinking: Option<Value>, text: &[u8], give: &mut dyn FnMut(&Piece<'_>)) {
    let Some(thinking) = thinking else {
        return;
    };
    let inner = items(thinking, text).filter_map(|part| member(part, text, "text"));
    for words in inner.chain([thinking]) {
        if words.kind == Kind::String {
            give(&Piece::Reasoning(Reasoning::Text(words.content(text))));
        }
    }
}

fn give_call(value: Value, text: &[u8], give: &mut dyn FnMut(&Piece<'_>)) {
    if value.kind != Kind::Object {
        return;
    }
    let mut call = Call::default();
    let mut function = None;
    for (key, value) in members(value, text) {
        match &*key {
            b"index" => call.index = value.as_u64(text),
            b"id" => call.id = value.content(text),
            b"function" if value.kind == Kind::Object => function = Some(value),
            b"custom" if value.kind == Kind::Object => {
                call.custom = true;
                function = Some(value);
            }
            b"extra_content" if value.kind == Kind::Object => call.extra = Some(value.bytes(text)),
            _ => {}
        }
    }
    give_function(function, call, text, give);
}

/// A call and its `function` or `custom`.
fn give_function<'a>(
    function: Option<Value>,
    mut call: Call<'a>,
    text: &'a [u8],
    give: &mut dyn FnMut(&Piece<'_>),
) {
    let mut spelled = Vec::new();
    for (key, value) in function.into_iter().flat_map(|value| members(value, text)) {
        match (&*key, value.kind) {
            (b"name", _) => call.name = value.content(text),
            (b"arguments" | b"input", Kind::String) => call.arguments = value.content(text),
            // Arguments that are not in a string, as Ollama's own interface has them.
            (b"arguments", Kind::Object) => {
                let arguments = String::from_utf8_lossy(value.bytes(text));
                string::encode(&arguments, &mut spelled);
            }
            _ => {}
        }
    }
    match spelled.get(1..spelled.len().saturating_sub(1)) {
        Some(arguments) => give(&Piece::Call(Call { arguments, ..call })),
        None => give(&Piece::Call(call)),
    }
}

/// The members of an object that was checked; none of anything else.
fn members(object: Value, text: &[u8]) -> impl Iterator<Item = (Cow<'_, [u8]>, Value)> {
    let found = (object.kind == Kind::Object)
        .then(|| Members::at(text, object.start, MAX_DEPTH).ok())
        .flatten();
    let members = found.into_iter().flatten().map_while(Result::ok);
    members.map(|member| (string::plain(member.raw_key(text)), member.value))
}

/// The values of an array that was checked; none of anything else.
fn items(array: Value, text: &[u8]) -> impl Iterator<Item = Value> {
    let found = (array.kind == Kind::Array)
        .then(|| Elements::at(text, array.start, MAX_DEPTH).ok())
        .flatten();
    found.into_iter().flatten().map_while(Result::ok)
}

fn member(object: Value, text: &[u8], name: &str) -> Option<Value> {
    members(object, text)
        .find(|(key, _)| **key == *name.as_bytes())
        .map(|(_, value)| value)
}

/// A string's content; empty of anything else.
fn content(value: Option<Value>, text: &[u8]) -> &[u8] {
    value.map_or(&[], |value| value.content(text))
}

/// The content of a string that is not empty.
fn filled(value: Option<Value>, text: &[u8]) -> Option<&[u8]> {
    Some(content(value, text)).filter(|content| !content.is_empty())
}

fn is_empty(string: Value) -> bool {
    string.end - string.start <= 2
}

#[cfg(test)]
mod tests;
