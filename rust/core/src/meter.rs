//! Reading the usage of a reply of unknown protocol, which is recognised by the first payload.

use bytes::Bytes;

use crate::api::Api;
use crate::error::Error;
use crate::json::cursor::Cursor;
use crate::json::documents::{BodyPart, Documents};
use crate::limits::Limits;
use crate::mode::{Mode, ModeDetector};
use crate::pipeline::{Pipeline, ReplyPlan, Unpriced};
use crate::sse::event::RawEvent;
use crate::sse::splitter::Splitter;
use crate::usage::{Dialect, Usage};

/// Reads usage from a reply's bytes, whatever its protocol, and changes nothing.
///
/// ```
/// use bytes::Bytes;
/// use sluicegate_core::limits::Limits;
/// use sluicegate_core::meter::UsageMeter;
///
/// let mut meter = UsageMeter::new(None, Limits::default());
/// meter.feed(Bytes::from_static(b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":"))?;
/// meter.feed(Bytes::from_static(b"{\"usage\":{\"input_tokens\":3,\"cache_read_input_tokens\":5}}}\n\n"))?;
/// meter.finish()?;
/// assert_eq!(meter.usage().and_then(|usage| usage.input_tokens), Some(8));
/// # Ok::<(), sluicegate_core::error::Error>(())
/// ```
pub struct UsageMeter {
    dialect: Option<Dialect>,
    limits: Limits,
    state: MeterState,
    /// Bytes of the reply in front of those that the pipeline was given.
    skipped: u64,
    out: Vec<Bytes>,
}

enum MeterState {
    Scouting(Box<Scout>),
    Reading(Box<Pipeline>),
    /// The body is no reply, so it has no usage.
    Foreign,
}

impl UsageMeter {
    /// A meter for one reply. `dialect`: how the upstream counts; `None`: recognised from the usage object itself.
    #[must_use]
    pub fn new(dialect: Option<Dialect>, limits: Limits) -> Self {
        UsageMeter {
            dialect,
            limits,
            state: MeterState::Scouting(Box::new(Scout::new(&limits))),
            skipped: 0,
            out: Vec::new(),
        }
    }

    /// Takes what was read.
    ///
    /// # Errors
    /// An event or document larger than the limits.
    pub fn feed(&mut self, input: Bytes) -> Result<(), Error> {
        match &mut self.state {
            MeterState::Reading(pipeline) => {
                self.out.clear();
                let fed = pipeline.feed(input, &mut Unpriced, &mut self.out);
                self.placed(fed)
            }
            MeterState::Scouting(scout) => match scout.feed(input)? {
                Scouted::Found(found) => self.read(found),
                Scouted::Foreign => {
                    self.state = MeterState::Foreign;
                    Ok(())
                }
                Scouted::Undecided => Ok(()),
            },
            MeterState::Foreign => Ok(()),
        }
    }

    /// The reply has ended.
    ///
    /// # Errors
    /// As [`feed`](Self::feed).
    pub fn finish(&mut self) -> Result<(), Error> {
        if let MeterState::Scouting(scout) = &mut self.state {
            match scout.finish() {
                Some(found) => self.read(found)?,
                None => self.state = MeterState::Foreign,
            }
        }
        let MeterState::Reading(pipeline) = &mut self.state else {
            return Ok(());
        };
        self.out.clear();
        let finished = pipeline.finish(&mut Unpriced, &mut self.out);
        self.placed(finished)
    }

    /// The pipeline's error, with its offset counted from the reply's start.
    fn placed(&self, said: Result<(), Error>) -> Result<(), Error> {
        said.map_err(|error| Error::new(error.kind, error.offset + self.skipped))
    }

    /// What was reported so far.
    #[must_use]
    pub fn usage(&self) -> Option<&Usage> {
        match &self.state {
            MeterState::Reading(pipeline) => pipeline.facts().usage.as_ref(),
            MeterState::Scouting(_) | MeterState::Foreign => None,
        }
    }

    fn read(&mut self, found: Found) -> Result<(), Error> {
        let mut plan = ReplyPlan::new(found.api, found.streams);
        plan.upstream.dialect = self.dialect;
        plan.limits = self.limits;
        let mut pipeline = Pipeline::new(plan);
        self.out.clear();
        let fed = pipeline.feed(found.held.into(), &mut Unpriced, &mut self.out);
        self.state = MeterState::Reading(Box::new(pipeline));
        self.skipped = found.skipped;
        self.placed(fed)
    }
}

/// Stands for the events that were left behind, so that the rest is still seen to be an event stream.
const STREAM_MARK: &[u8] = b":\n\n";

/// The same for documents.
const DOCUMENTS_MARK: &[u8] = b"{}\n";

/// What a reply turned out to be, and its bytes from there on.
struct Found {
    api: Api,
    streams: bool,
    held: Vec<u8>,
    skipped: u64,
}

enum Scouted {
    Undecided,
    Found(Found),
    Foreign,
}

/// Reads ahead to the first payload that shows the protocol.
struct Scout {
    body: Body,
    limits: Limits,
    /// What was read, without the whole events and documents before: they did not show the protocol, so they have no
    /// usage either.
    held: Vec<u8>,
    /// Bytes of the reply in front of `held`, a mark counted as one of them.
    skipped: u64,
}

enum Body {
    Undecided(ModeDetector),
    Stream(Splitter),
    Documents(Documents, Vec<BodyPart>),
}

impl Scout {
    fn new(limits: &Limits) -> Self {
        Scout {
            body: Body::Undecided(ModeDetector::new(false)),
            limits: *limits,
            held: Vec::new(),
            skipped: 0,
        }
    }

    fn feed(&mut self, input: Bytes) -> Result<Scouted, Error> {
        self.held.extend_from_slice(&input);
        let mut input = input;
        if let Body::Undecided(detector) = &mut self.body {
            let mode;
            (mode, input) = match detector.feed(input) {
                Ok(Some(told)) => told,
                Ok(None) => return Ok(Scouted::Undecided),
                Err(_) => return Ok(Scouted::Foreign),
            };
            self.body = match mode {
                Mode::Sse => Body::Stream(Splitter::new(&self.limits)),
                Mode::Json | Mode::Bytes => {
                    Body::Documents(Documents::new(&self.limits), Vec::new())
                }
            };
        }
        // What came before a fault in the same read counts.
        let (fed, api, unfinished, mark) = match &mut self.body {
            Body::Undecided(_) => return Ok(Scouted::Undecided),
            Body::Stream(splitter) => {
                let (batch, fed) = splitter.feed(input);
                let mut events = batch.events();
                let api = events.find_map(|event| api_of(&event.data()?, &self.limits));
                (fed, api, splitter.held(), STREAM_MARK)
            }
            Body::Documents(documents, parts) => {
                parts.clear();
                let fed = documents.feed(input, parts);
                let api = parts.iter().find_map(|part| match part {
                    BodyPart::Document(document) => api_of(document, &self.limits),
                    BodyPart::Space(_) => None,
                });
                (fed, api, documents.held(), DOCUMENTS_MARK)
            }
        };
        if api.is_none() {
            fed?;
        }
        let told = self.held.len().saturating_sub(unfinished);
        if api.is_none() && told > mark.len() {
            self.held.splice(..told, mark.iter().copied());
            self.skipped += (told - mark.len()) as u64;
        }
        Ok(match api {
            Some(api) => Scouted::Found(self.found(api)),
            None => Scouted::Undecided,
        })
    }

    /// The reply ended first: its only payload may lack its terminator. None: it is no reply.
    fn finish(&mut self) -> Option<Found> {
        let last = match &mut self.body {
            Body::Undecided(_) => return None,
            Body::Stream(splitter) => splitter.finish().and_then(|tail| {
                let event = tail.event();
                api_of(&RawEvent::parse(&event).data()?, &self.limits)
            }),
            Body::Documents(documents, _) => documents
                .finish()
                .and_then(|rest| api_of(&rest, &self.limits)),
        };
        Some(self.found(last.unwrap_or(Api::Chat)))
    }

    fn found(&mut self, api: Api) -> Found {
        Found {
            api,
            streams: matches!(self.body, Body::Stream(..)),
            held: std::mem::take(&mut self.held),
            skipped: self.skipped,
        }
    }
}

/// The protocol that a payload belongs to; `None` where it is no JSON object.
fn api_of(payload: &[u8], limits: &Limits) -> Option<Api> {
    let mut api = Api::Chat;
    let mut cursor = Cursor::new(payload, limits.max_depth);
    let read = cursor.members(|cursor, key| {
        let value = cursor.skip()?;
        match (key.content(payload), value.content(payload)) {
            (b"type", kind) if kind.starts_with(b"response.") => api = Api::Responses,
            (b"object", b"response") => api = Api::Responses,
            (b"type", b"message_start" | b"message" | b"ping") => api = Api::Messages,
            _ => {}
        }
        Ok(())
    });
    read.ok().map(|_| api)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metered(reply: &[u8], read: usize) -> Option<Usage> {
        let mut meter = UsageMeter::new(None, Limits::default());
        for part in reply.chunks(read) {
            meter.feed(Bytes::copy_from_slice(part)).unwrap();
        }
        meter.finish().unwrap();
        meter.usage().cloned()
    }

    fn tokens(reply: &[u8]) -> (Option<u64>, Option<u64>) {
        let whole = metered(reply, reply.len().max(1));
        for read in [1, 2, 7, 64] {
            assert_eq!(metered(reply, read), whole);
        }
        let usage = whole.unwrap_or_default();
        (usage.input_tokens, usage.output_tokens)
    }

    #[test]
    fn every_protocol_is_told_from_its_first_payload() {
        let chat = b": ping\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n";
        assert_eq!(tokens(chat), (Some(2), Some(1)));
        let responses = b"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"usage\":null}}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"usage\":{\"input_tokens\":4,\"output_tokens\":3}}}\n\n";
        assert_eq!(tokens(responses), (Some(4), Some(3)));
        let messages = b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3,\"cache_read_input_tokens\":5,\"output_tokens\":1}}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":15}}\n\n";
        assert_eq!(tokens(messages), (Some(8), Some(15)));
    }

    #[test]
    fn documents_are_told_too() {
        let responses = br#"{"object":"response","usage":{"input_tokens":4,"output_tokens":3}}"#;
        assert_eq!(tokens(responses), (Some(4), Some(3)));
        let message = br#"{"type":"message","usage":{"input_tokens":4,"cache_creation_input_tokens":2,"output_tokens":3}}"#;
        assert_eq!(tokens(message), (Some(6), Some(3)));
        let ollama = b"{\"message\":{\"content\":\"a\"},\"done\":false}\n{\"done\":true,\"prompt_eval_count\":7,\"eval_count\":5}\n";
        assert_eq!(tokens(ollama), (Some(7), Some(5)));
    }

    #[test]
    fn an_event_without_its_end_counts() {
        let cut = b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1}}";
        assert_eq!(tokens(cut), (Some(2), Some(1)));
    }

    #[test]
    fn what_tells_nothing_is_not_held() {
        for (nothing, usage) in [
            (
                ": keep-alive\n\ndata: no JSON\r\n\r\n:\r\r",
                "x: y\ndata: {\"usage\":{\"prompt_tokens\":2}}\n\n",
            ),
            ("{no JSON}\n", "null {\"usage\":{\"prompt_tokens\":2}}"),
        ] {
            for size in [1, 3, 64, 1000] {
                let mut meter = UsageMeter::new(None, Limits::default());
                for part in nothing.repeat(100).as_bytes().chunks(size) {
                    meter.feed(Bytes::copy_from_slice(part)).unwrap();
                    if let MeterState::Scouting(scout) = &meter.state {
                        assert!(scout.held.len() < 64, "{}", scout.held.len());
                    }
                }
                for part in usage.as_bytes().chunks(size) {
                    meter.feed(Bytes::copy_from_slice(part)).unwrap();
                }
                meter.finish().unwrap();
                assert_eq!(meter.usage().unwrap().input_tokens, Some(2), "{size}");
            }
        }
    }

    #[test]
    fn what_came_before_a_fault_counts_and_the_fault_is_where_it_is() {
        let used = "data: {\"usage\":{\"prompt_tokens\":2}}\n\n";
        let large = format!("data: \"{}\"\n\n", "x".repeat(100));
        let limits = Limits {
            max_event: 64,
            ..Limits::default()
        };
        for before in [
            String::new(),
            used.to_owned(),
            ": keep-alive\n\n".repeat(9),
            format!("\u{feff}{}{used}", ": keep-alive\n\n".repeat(9)),
        ] {
            let stream = format!("{before}{large}");
            for size in [1, 7, 64, stream.len()] {
                let mut meter = UsageMeter::new(None, limits);
                let fault = stream
                    .as_bytes()
                    .chunks(size)
                    .find_map(|read| meter.feed(Bytes::copy_from_slice(read)).err());
                let offset = before.len() + limits.max_event;
                assert_eq!(fault.unwrap().offset, offset as u64, "{before} {size}");
                let usage = meter.usage().and_then(|usage| usage.input_tokens);
                assert_eq!(
                    usage,
                    before.contains("usage").then_some(2),
                    "{before} {size}"
                );
            }
        }
    }

    #[test]
    fn nothing_and_anything_else_have_no_usage() {
        for reply in [
            &b""[..],
            b"  \n",
            b"<html>",
            b"data: not json\n\n",
            b": only a comment",
        ] {
            assert_eq!(metered(reply, 3), None);
        }
    }
}
