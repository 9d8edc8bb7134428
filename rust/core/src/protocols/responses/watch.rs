//! What the pipeline has to know of a response, event by event or whole.

use crate::json::cursor::Cursor;
use crate::json::scan::{Fault, Value};
use crate::watch::payload::{Payload, name_of, note};
use crate::watch::{Bearing, Came, Said, Source, Watch};

/// Watches responses.
pub(crate) struct ResponseWatch;

impl Watch for ResponseWatch {
    fn read(&self, payload: &mut Payload, text: &[u8], max_depth: usize) -> Result<(), Fault> {
        payload.read(text, max_depth, |payload, cursor, key| {
            let name = name_of(key, text);
            match &*name {
                b"delta" => {
                    let delta = cursor.skip()?;
                    payload.note_output(delta, text);
                    Ok(())
                }
                b"response" => cursor
                    .members(|cursor, key| read_response_member(payload, cursor, text, key))
                    .map(drop),
                name => payload.read_member(cursor, text, key, name),
            }
        })?;
        payload.find_flat_error(text, false);
        Ok(())
    }

    /// Only the last event's usage is final.
    fn said<'a>(
        &self,
        payload: &Payload,
        text: &'a [u8],
        source: Source,
        _finished: bool,
    ) -> Said<'a> {
        let event_type = payload.event_type.and_then(|value| value.decode(text));
        let status = payload.status.and_then(|value| value.decode(text));
        let Some(event_type) = event_type else {
            // A response by itself. One that is queued or in progress has its final status still before it.
            let settled = ["completed", "incomplete", "failed", "cancelled"];
            let status = status.filter(|status| settled.contains(&&**status));
            return Said {
                is_final: status.is_some() || source == Source::Document,
                finish: status,
                ..Said::default()
            };
        };
        if let Some(state) = event_type.strip_prefix("response.")
            && matches!(state, "completed" | "incomplete" | "failed" | "cancelled")
        {
            return Said {
                finish: Some(status.unwrap_or_else(|| state.to_owned().into())),
                done: source != Source::Document,
                bearing: None,
                is_final: true,
            };
        }
        let is_delta = event_type.ends_with(".delta");
        // Any other item is a call of some tool, and so are the events that say how far one has come.
        let other_item = event_type.starts_with("response.output_item.")
            && payload
                .part_type
                .is_some_and(|part| !matches!(part.content(text), b"message" | b"reasoning"));
        let call = event_type.contains("_call");
        let bearing = Bearing {
            always: other_item || call || is_delta && payload.bears_output,
            with_text: is_delta,
        };
        Said {
            bearing: Some(bearing),
            ..Said::default()
        }
    }

    fn came(&self, payload: &Payload, document: &[u8]) -> Came {
        let object = payload.object.map(|object| object.content(document));
        match object {
            Some(object) if object.ends_with(b"response") => Came::Whole,
            _ => Came::Unreadable,
        }
    }

    fn ends_after_errors(&self) -> bool {
        true
    }
}

fn read_response_member(
    payload: &mut Payload,
    cursor: &mut Cursor<'_>,
    text: &[u8],
    key: Value,
) -> Result<(), Fault> {
    match &*name_of(key, text) {
        b"id" => note(&mut payload.id, cursor.skip()?),
        b"model" => payload.read_model(cursor, 1),
        b"created_at" => note(&mut payload.created, cursor.skip()?),
        b"status" => note(&mut payload.status, cursor.skip()?),
        b"error" => payload.read_error(cursor, text),
        _ => payload.read_usage(cursor, text, key),
    }
}
