//! What the pipeline has to know of a message, event by event or whole.

use crate::json::cursor::Cursor;
use crate::json::scan::{Fault, Value};
use crate::usage::Dialect;
use crate::watch::payload::{Payload, name_of, note};
use crate::watch::{Bearing, Came, Said, Source, Watch};

use super::reading::is_event;

/// Watches messages.
pub(crate) struct MessageWatch;

impl Watch for MessageWatch {
    fn read(&self, payload: &mut Payload, text: &[u8], max_depth: usize) -> Result<(), Fault> {
        payload.read(text, max_depth, |payload, cursor, key| {
            let name = name_of(key, text);
            match &*name {
                b"delta" => cursor
                    .members(|cursor, key| read_delta_member(payload, cursor, text, key))
                    .map(drop),
                b"message" => {
                    let message = cursor.members(|cursor, key| match &*name_of(key, text) {
                        b"id" => note(&mut payload.id, cursor.skip()?),
                        b"model" => payload.read_model(cursor, 1),
                        _ => payload.read_usage(cursor, text, key),
                    })?;
                    note(&mut payload.message, message)
                }
                b"stop_reason" => payload.read_finish(cursor),
                name => payload.read_member(cursor, text, key, name),
            }
        })?;
        payload.find_flat_error(text, true);
        Ok(())
    }

    /// The usage of `message_start` is a preview.
    fn said<'a>(
        &self,
        payload: &Payload,
        text: &'a [u8],
        _source: Source,
        _finished: bool,
    ) -> Said<'a> {
        let is = |value: Option<Value>, name: &[u8]| {
            value.is_some_and(|value| value.content(text) == name)
        };
        let event_type = payload.event_type;
        let tool_starts = is(event_type, b"content_block_start")
            && !is(payload.part_type, b"text")
            && !is(payload.part_type, b"thinking");
        let is_delta = is(event_type, b"content_block_delta");
        let bearing = Bearing {
            always: tool_starts || is_delta && payload.bears_output,
            with_text: is_delta,
        };
        Said {
            finish: payload.finish.and_then(|reason| reason.decode(text)),
            done: is(event_type, b"message_stop"),
            bearing: Some(bearing),
            is_final: !is(event_type, b"message_start"),
        }
    }

    fn came(&self, payload: &Payload, document: &[u8]) -> Came {
        match payload.event_type.map(|kind| kind.content(document)) {
            Some(b"message") => Came::Whole,
            Some(kind) if is_event(kind) => Came::InPart,
            _ => Came::Unreadable,
        }
    }

    /// A Messages upstream counts like Anthropic unless it is known to do otherwise.
    fn dialect(&self) -> Option<Dialect> {
        Some(Dialect::Anthropic)
    }
}

fn read_delta_member(
    payload: &mut Payload,
    cursor: &mut Cursor<'_>,
    text: &[u8],
    key: Value,
) -> Result<(), Fault> {
    match &*name_of(key, text) {
        b"usage" => payload.read_usage(cursor, text, key),
        b"stop_reason" => payload.read_finish(cursor),
        name => {
            let value = cursor.skip()?;
            if is_output(name) {
                payload.note_output(value, text);
            }
            Ok(())
        }
    }
}

/// Whether a member of an event's `delta` is output: text, thinking, a tool's input in parts, and the summary that a
/// compaction writes.
fn is_output(name: &[u8]) -> bool {
    matches!(name, b"text" | b"thinking" | b"partial_json" | b"content")
}
