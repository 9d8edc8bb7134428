//! What is forwarded and nothing else: audio, images, moderations, rankings, tokens, and an operator's own paths.
//!
//! Their replies are JSON, event streams, or bytes of a form that only their two ends know. Events name themselves
//! (OpenAI's `transcript.text.delta`, `image_generation.completed`), or are chunks (vLLM's transcriptions).

use std::borrow::Cow;

use crate::api::Api;
use crate::json::scan::Fault;
use crate::protocol::Protocol;
use crate::watch::payload::Payload;
use crate::watch::{Bearing, Came, Said, Source, Watch};

use super::chat::watch::Chunks;

/// Any other endpoint. There are many paths of it; each request has its own.
pub struct Other;

impl Protocol for Other {
    fn api(&self) -> Api {
        Api::Other
    }

    fn path(&self) -> &'static str {
        ""
    }
}

/// The ends of the names of events that are the last of their streams, and hold the usage.
const LAST: [&[u8]; 2] = [b".done", b".completed"];

/// Those of events with a part of what was asked for.
const PARTS: [&[u8]; 3] = [b".delta", b".segment", b".partial_image"];

/// Watches them.
pub(crate) struct Events;

impl Watch for Events {
    fn read(&self, payload: &mut Payload, text: &[u8], max_depth: usize) -> Result<(), Fault> {
        Chunks.read(payload, text, max_depth)
    }

    fn said<'a>(
        &self,
        payload: &Payload,
        text: &'a [u8],
        source: Source,
        finished: bool,
    ) -> Said<'a> {
        let said = Chunks.said(payload, text, source, finished);
        let name = payload.event_type.map(|name| name.content(text));
        let (Some(name), Source::Event { .. }) = (name, source) else {
            return said;
        };
        let ends = |with: &[&[u8]]| with.iter().any(|end| name.ends_with(end));
        let (is_last, is_part) = (ends(&LAST), ends(&PARTS));
        Said {
            finish: said
                .finish
                .or(is_last.then_some(Cow::Borrowed("completed"))),
            bearing: said.bearing.map(|bearing| Bearing {
                always: bearing.always || is_last || is_part,
                ..bearing
            }),
            ..said
        }
    }

    fn came(&self, payload: &Payload, document: &[u8]) -> Came {
        Chunks.came(payload, document)
    }
}
