//! Saying in the reply's own protocol that it will not come to its end.

use crate::json::string;

use super::Api;

/// What is to be said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure<'a> {
    pub(super) error_type: &'a str,
    pub(super) code: &'a str,
    pub(super) message: &'a str,
}

/// Where a Responses stream stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position<'a> {
    /// The last `sequence_number`.
    pub(super) sequence: Option<u64>,
    pub(super) reply_id: Option<&'a str>,
    pub(super) created: Option<&'a str>,
    pub(super) model: Option<&'a str>,
}

/// Builds JSON from its own punctuation and text of others.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn raw(&mut self, text: &str) -> &mut Self {
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    fn quoted(&mut self, text: &str) -> &mut Self {
        string::encode(text, &mut self.0);
        self
    }

    /// `{"message":…,"type":…,"code":…,"param":null}`
    fn error_object(&mut self, failure: Failure<'_>) -> &mut Self {
        self.raw("{\"message\":").quoted(failure.message);
        self.raw(",\"type\":").quoted(failure.error_type);
        self.raw(",\"code\":").quoted(failure.code);
        self.raw(",\"param\":null}")
    }
}

/// The error as a reply that is no stream.
pub(super) fn document(failure: Failure<'_>, api: Api) -> Vec<u8> {
    let mut json = Writer::default();
    if api == Api::Messages {
        messages_error(&mut json, failure);
    } else {
        json.raw("{\"error\":").error_object(failure).raw("}");
    }
    json.0
}

/// The error as the last event or events of a stream.
pub(super) fn events(failure: Failure<'_>, api: Api, position: Position<'_>) -> Vec<u8> {
    let mut json = Writer::default();
    match api {
        Api::Chat | Api::Completions | Api::Embeddings => {
            json.raw("data: {\"error\":");
            json.error_object(failure).raw("}\n\n");
        }
        Api::Messages => {
            json.raw("event: error\ndata: ");
            messages_error(&mut json, failure);
            json.raw("\n\n");
        }
        Api::Responses => responses_events(&mut json, failure, position),
    }
    json.0
}

fn messages_error(json: &mut Writer, failure: Failure<'_>) {
    json.raw("{\"type\":\"error\",\"error\":{\"type\":");
    json.quoted(failure.error_type);
    json.raw(",\"message\":").quoted(failure.message).raw("}}");
}

/// `error` and then `response.failed`: clients of the Responses interface wait for a terminal event (`bifrost#6783`), and the numbers must
/// go on without a gap.
fn responses_events(json: &mut Writer, failure: Failure<'_>, position: Position<'_>) {
    let first = position.sequence.map_or(0, |last| last.saturating_add(1));
    json.raw("event: error\ndata: {\"type\":\"error\",\"code\":");
    json.quoted(failure.code);
    json.raw(",\"message\":").quoted(failure.message);
    json.raw(&format!(
        ",\"param\":null,\"sequence_number\":{first}}}\n\n"
    ));

    let second = first.saturating_add(1);
    json.raw("event: response.failed\ndata: {\"type\":\"response.failed\",");
    json.raw(&format!(
        "\"sequence_number\":{second},\"response\":{{\"id\":"
    ));
    json.quoted(position.reply_id.unwrap_or("resp_unknown"));
    json.raw(",\"object\":\"response\",\"created_at\":");
    json.raw(position.created.unwrap_or("0"));
    // The codes of a failed response are a closed set, those of the event before it are not.
    json.raw(",\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":");
    json.quoted(failure.message);
    json.raw("},\"incomplete_details\":null,\"instructions\":null,\"metadata\":{},\"model\":");
    json.quoted(position.model.unwrap_or_default());
    json.raw(",\"output\":[],\"parallel_tool_calls\":true,\"temperature\":null,");
    json.raw("\"tool_choice\":\"auto\",\"tools\":[],\"top_p\":null,\"usage\":null}}\n\n");
}
