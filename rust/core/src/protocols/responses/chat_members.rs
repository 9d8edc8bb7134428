//! What a chat completion spells differently from a response: log probabilities and annotations.

use crate::json::fields::{compact, elements, fields, find};
use crate::json::scan::{self, Kind, Value};
use crate::json::string;

use super::vocabulary::{count, number, raw, string as member};

/// Open containers of an annotation or a list of log probabilities; real ones have four.
const MAX_DEPTH: usize = 64;

/// What OpenAI gives as the logarithm of a probability that is next to nothing.
const UNLIKELY: &[u8] = b"-9999.0";

/// Appends the elements of a list of log probabilities (`choices[].logprobs.content`), as they stand between the
/// brackets of a text's `logprobs`. There each has its `bytes` and its `top_logprobs`, which upstreams leave out or
/// null.
pub(super) fn logprobs(list: &[u8], out: &mut Vec<u8>) {
    let Ok(document) = scan::document(list, MAX_DEPTH) else {
        return;
    };
    for entry in elements(list, document) {
        let written = out.len();
        if written > 0 {
            out.push(b',');
        }
        let Some(top) = entry_head(list, entry, out) else {
            out.truncate(written);
            continue;
        };
        out.extend_from_slice(b",\"top_logprobs\":[");
        let start = out.len();
        for alternative in top.into_iter().flat_map(|top| elements(list, top)) {
            let written = out.len();
            if written > start {
                out.push(b',');
            }
            match entry_head(list, alternative, out) {
                Some(_) => out.push(b'}'),
                None => out.truncate(written),
            }
        }
        out.extend_from_slice(b"]}");
    }
}

/// Appends `{"token":…,"bytes":…,"logprob":…` and gives the entry's `top_logprobs`; None where it names no token.
#[expect(
    clippy::option_option,
    reason = "whether there is an entry, and whether it has alternatives"
)]
fn entry_head(list: &[u8], entry: Value, out: &mut Vec<u8>) -> Option<Option<Value>> {
    let entry = fields(list, entry);
    let token = find(&entry, "token").filter(|token| token.kind == Kind::String)?;
    out.extend_from_slice(b"{\"token\":");
    out.extend_from_slice(token.bytes(list));
    out.extend_from_slice(b",\"bytes\":[");
    match find(&entry, "bytes").filter(|bytes| bytes.kind == Kind::Array) {
        Some(bytes) => {
            let inner = bytes.start + 1..bytes.end - 1;
            compact(list.get(inner).unwrap_or_default(), out);
        }
        None => {
            for (i, byte) in string::decode(token.content(list)).bytes().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                number(u64::from(byte), out);
            }
        }
    }
    out.push(b']');
    let logprob = find(&entry, "logprob").filter(|value| value.kind == Kind::Number);
    raw(
        "logprob",
        logprob.map_or(UNLIKELY, |value| value.bytes(list)),
        out,
    );
    Some(find(&entry, "top_logprobs"))
}

/// An annotation as a text has it: Chat Completions puts what a citation says into a member named like its type. None
/// where it has no type, or is a citation of nothing.
pub(super) fn annotation(object: &[u8]) -> Option<Vec<u8>> {
    let document = scan::document(object, MAX_DEPTH).ok()?;
    let members = fields(object, document);
    let kind = find(&members, "type").filter(|kind| kind.kind == Kind::String)?;
    let mut out = Vec::with_capacity(object.len() + 64);
    let citation = find(&members, "url_citation").filter(|citation| citation.kind == Kind::Object);
    let Some(citation) = citation else {
        compact(object, &mut out);
        return Some(out);
    };
    let citation = fields(object, citation);
    let text = |name| find(&citation, name).filter(|value| value.kind == Kind::String);
    let url = text("url")?;
    out.extend_from_slice(b"{\"type\":");
    out.extend_from_slice(kind.bytes(object));
    for name in ["start_index", "end_index"] {
        let index = find(&citation, name).and_then(|value| value.as_u64(object));
        count(name, index.unwrap_or(0), &mut out);
    }
    let title = text("title").map_or(&b""[..], |title| title.content(object));
    member("title", title, &mut out);
    member("url", url.content(object), &mut out);
    out.push(b'}');
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(list: &str) -> serde_json::Value {
        let mut out = Vec::new();
        logprobs(list.as_bytes(), &mut out);
        serde_json::from_slice(&[b"[", &*out, b"]"].concat()).unwrap()
    }

    #[test]
    fn log_probabilities_are_completed() {
        assert_eq!(
            converted(
                r#"[{"token":"é","logprob":-0.5,"bytes":null,"top_logprobs":[{"token":"a","logprob":-1e-3,"bytes":[97]},{"logprob":0},{"token":"b"}]},{"token":"x","logprob":0}]"#
            ),
            serde_json::json!([
                {"token": "é", "bytes": [195, 169], "logprob": -0.5, "top_logprobs": [
                    {"token": "a", "bytes": [97], "logprob": -0.001},
                    {"token": "b", "bytes": [98], "logprob": -9999.0},
                ]},
                {"token": "x", "bytes": [120], "logprob": 0, "top_logprobs": []},
            ])
        );
        assert_eq!(converted(r#"[{"logprob":1},7]"#), serde_json::json!([]));
        assert_eq!(converted("{}"), serde_json::json!([]));
    }

    #[test]
    fn more_log_probabilities_come_behind_a_comma() {
        let mut out = Vec::new();
        logprobs(br#"[{"token":"a","logprob":0}]"#, &mut out);
        logprobs(br#"[{"logprob":0}]"#, &mut out);
        logprobs(br#"[{"token":"b","logprob":0}]"#, &mut out);
        let list: serde_json::Value =
            serde_json::from_slice(&[b"[", &*out, b"]"].concat()).unwrap();
        assert_eq!(list.as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn a_citation_is_flat() {
        let flat = annotation(
            br#"{"type":"url_citation","url_citation":{"url":"https://a.b","title":"T","start_index":3,"end_index":9,"content":"x"}}"#,
        );
        assert_eq!(
            flat.unwrap(),
            br#"{"type":"url_citation","start_index":3,"end_index":9,"title":"T","url":"https://a.b"}"#
        );
        let flat = annotation(br#"{"type":"url_citation","url_citation":{"url":"u"}}"#);
        assert_eq!(
            flat.unwrap(),
            br#"{"type":"url_citation","start_index":0,"end_index":0,"title":"","url":"u"}"#
        );
        let other = br#"{"type":"file_path", "file_id":"f","index":0}"#;
        assert_eq!(
            annotation(other).unwrap(),
            br#"{"type":"file_path","file_id":"f","index":0}"#
        );
        assert_eq!(
            annotation(br#"{"type":"url_citation","url_citation":{}}"#),
            None
        );
        assert_eq!(annotation(b"{}"), None);
    }
}
