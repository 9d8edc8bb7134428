//! The error that a payload is, or carries.

use crate::json::fields::{Field, find, weight};
use crate::json::scan::{Kind, Value};

/// Whether a value would be false in Python or JavaScript, where clients test for members this way.
fn is_falsy(text: &[u8], value: Value) -> bool {
    match value.kind {
        Kind::False => true,
        Kind::Number => value.as_u64(text) == Some(0),
        _ => weight(text, value) < 2,
    }
}

/// The error that a payload carries instead of a piece of the answer, if it does.
///
/// Mostly the member `error`, which clients test for truth; a string at some hosts (Fireworks, transformers). Cerebras
/// and older vLLM send the error's members without the wrapper: then the whole payload is the error.
pub(super) fn reported_error(text: &[u8], payload: Value, fields: &[Field<'_>]) -> Option<Value> {
    if let Some(error) = find(fields, "error")
        && !is_falsy(text, error)
    {
        return Some(error);
    }
    if find(fields, "choices").is_some() {
        return None;
    }
    let is_error_object =
        find(fields, "object").is_some_and(|object| object.bytes(text) == b"\"error\"");
    let has_message = find(fields, "message")
        .is_some_and(|message| message.kind == Kind::String && !message.content(text).is_empty());
    let has_class = find(fields, "code").is_some() || find(fields, "type").is_some();
    let is_bare_error = has_message && has_class && find(fields, "id").is_none();
    (is_error_object || is_bare_error).then_some(payload)
}
