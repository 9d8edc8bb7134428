//! What the pipeline has to know of chunks, whole completions, and the other replies that are of their form.

use crate::json::cursor::Cursor;
use crate::json::scan::{Fault, Kind, Value};
use crate::watch::payload::{Choices, HoleKind, Payload, is_filled, name_of};
use crate::watch::{Bearing, Came, Said, Source, Watch};

use super::delta::DeltaMember;

/// Watches chat completions, text completions and embeddings.
pub(crate) struct Chunks;

impl Watch for Chunks {
    fn read(&self, payload: &mut Payload, text: &[u8], max_depth: usize) -> Result<(), Fault> {
        payload.read(text, max_depth, |payload, cursor, key| {
            let name = name_of(key, text);
            match &*name {
                b"choices" => read_choices(payload, cursor, text),
                b"delta" => cursor
                    .members(|cursor, key| match &*name_of(key, text) {
                        // Cohere's last event.
                        b"usage" => payload.read_usage(cursor, text, key),
                        _ => read_delta_member(payload, cursor, text, key),
                    })
                    .map(drop),
                name => payload.read_member(cursor, text, key, name),
            }
        })?;
        payload.find_flat_error(text, true);
        Ok(())
    }

    /// A running total of usage comes with a choice while none has finished; servers that send it send it in every
    /// chunk (`vllm#5708`).
    fn said<'a>(
        &self,
        payload: &Payload,
        text: &'a [u8],
        source: Source,
        finished: bool,
    ) -> Said<'a> {
        let finish = payload.finish.and_then(|reason| reason.decode(text));
        let is_event = source != Source::Document;
        let bearing = Bearing {
            always: payload.bears_output,
            with_text: true,
        };
        Said {
            is_final: !is_event || payload.choices != Choices::Some || finished || finish.is_some(),
            finish,
            done: false,
            bearing: is_event.then_some(bearing),
        }
    }

    fn came(&self, payload: &Payload, document: &[u8]) -> Came {
        let object = payload.object.map(|object| object.content(document));
        if object.is_some_and(|object| object.ends_with(b".chunk")) {
            Came::InPart
        } else if payload.choices == Choices::Some {
            Came::Whole
        } else {
            Came::Unreadable
        }
    }
}

fn read_choices(payload: &mut Payload, cursor: &mut Cursor<'_>, text: &[u8]) -> Result<(), Fault> {
    let choices = cursor.elements(|cursor| {
        payload.choices = Choices::Some;
        cursor
            .members(|cursor, key| read_choice_member(payload, cursor, text, key))
            .map(drop)
    })?;
    if choices.kind != Kind::Null && payload.choices == Choices::Absent {
        payload.choices = Choices::Empty;
    }
    Ok(())
}

fn read_choice_member(
    payload: &mut Payload,
    cursor: &mut Cursor<'_>,
    text: &[u8],
    key: Value,
) -> Result<(), Fault> {
    match &*name_of(key, text) {
        b"finish_reason" => payload.read_finish(cursor),
        b"delta" | b"message" => cursor
            .members(|cursor, key| read_delta_member(payload, cursor, text, key))
            .map(drop),
        b"text" => {
            let completion = cursor.skip()?;
            payload.note_output(completion, text);
            Ok(())
        }
        _ => cursor.skip().map(drop),
    }
}

fn read_delta_member(
    payload: &mut Payload,
    cursor: &mut Cursor<'_>,
    text: &[u8],
    key: Value,
) -> Result<(), Fault> {
    match DeltaMember::of(&name_of(key, text)) {
        Some(DeltaMember::Calls) => {
            let calls = cursor.elements(|cursor| {
                cursor
                    .members(|cursor, key| read_call_member(payload, cursor, text, key))
                    .map(drop)
            })?;
            payload.bears_output |= is_filled(calls, text);
        }
        Some(DeltaMember::FunctionCall) => {
            let call =
                cursor.members(|cursor, key| read_function_member(payload, cursor, text, key))?;
            payload.bears_output |= is_filled(call, text);
        }
        Some(_) => {
            let output = cursor.skip()?;
            payload.note_output(output, text);
        }
        None => {
            cursor.skip()?;
        }
    }
    Ok(())
}

fn read_call_member(
    payload: &mut Payload,
    cursor: &mut Cursor<'_>,
    text: &[u8],
    key: Value,
) -> Result<(), Fault> {
    match &*name_of(key, text) {
        b"function" => cursor
            .members(|cursor, key| read_function_member(payload, cursor, text, key))
            .map(drop),
        _ => cursor.skip().map(drop),
    }
}

fn read_function_member(
    payload: &mut Payload,
    cursor: &mut Cursor<'_>,
    text: &[u8],
    key: Value,
) -> Result<(), Fault> {
    let value = cursor.skip()?;
    if &*name_of(key, text) == b"arguments" {
        // The call itself is output, so its arguments may be empty.
        payload.push_string_hole(value, HoleKind::Padding);
    }
    Ok(())
}
