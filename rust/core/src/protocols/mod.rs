//! The protocols, a folder for each, and the one place that names all of them: who reads a reply, and who writes it.
//!
//! * [`chat`]: Chat Completions.
//! * [`completions`]: text completions.
//! * [`embeddings`]: vectors of texts.
//! * [`messages`]: the Messages interface.
//! * [`other`]: what is forwarded and nothing else.
//! * [`responses`]: the Responses interface.
//!
//! What protocols share is in [`input`](crate::input) and [`output`](crate::output): they do not know each other. A
//! reply goes to its client as it came where both sides speak the same; otherwise one protocol's reader makes pieces of
//! it, and another's writer makes a reply of those.

pub mod chat;
pub mod completions;
pub mod embeddings;
pub mod messages;
pub mod other;
pub mod responses;
mod target;

use std::sync::Arc;

use crate::api::Api;
use crate::harmony::HarmonyChunks;
use crate::input::Names;
use crate::limits::Limits;
use crate::mode::Mode;
use crate::output::named::Named;
use crate::output::{Ending, Failure, Reader, Writer};
use crate::protocol::{Follow, Protocol};
use crate::sse::encode;
use crate::usage::Dialect;
use crate::watch::Watch;

use chat::reading::ChatChunks;
use chat::writing::{ChatWriter, Written};
use messages::reading::MessageEvents;
use messages::writing::{KnownMessage, MessagesWriter};
use responses::echo::Asked;
use responses::reading::ResponseEvents;
use responses::writing::ResponsesWriter;
use responses::writing::renamed::Renamed;

pub use target::{Serves, Target, Targets, read_request};

/// The protocol that is called `api`.
#[must_use]
pub fn of(api: Api) -> &'static dyn Protocol {
    match api {
        Api::Chat => &chat::Chat,
        Api::Completions => &completions::Completions,
        Api::Embeddings => &embeddings::Embeddings,
        Api::Responses => &responses::Responses,
        Api::Messages => &messages::Messages,
        Api::Other => &other::Other,
    }
}

/// What watches the replies of `api`.
pub(crate) fn watch(api: Api) -> &'static dyn Watch {
    match api {
        Api::Chat | Api::Completions | Api::Embeddings => &chat::watch::Chunks,
        Api::Responses => &responses::watch::ResponseWatch,
        Api::Messages => &messages::watch::MessageWatch,
        Api::Other => &other::Events,
    }
}

/// Tells the time, in seconds since 1970.
pub type Clock = fn() -> u64;

/// What the client is to get.
#[derive(Clone, Debug)]
pub struct ClientSide {
    /// The protocol that it speaks, and what that protocol's reply repeats of the request.
    pub protocol: ClientProtocol,
    /// It asked for an event stream.
    pub streams: bool,
    /// Shown as `model` instead of the upstream's name.
    pub reply_model: Option<Box<str>>,
    /// A stream that is whole but for the last event of its protocol gets that event (transformers ends chat without
    /// `[DONE]`).
    pub completes: bool,
    /// What the upstream was told instead of the client's names of tools.
    pub names: Option<Arc<Names>>,
}

/// What is known of a stream that is forwarded and breaks off.
pub(crate) struct Broken<'a> {
    /// What has followed it.
    pub(crate) followed: Option<&'a dyn Follow>,
    /// The last `sequence_number`.
    pub(crate) sequence: Option<u64>,
    /// The error that the upstream sent in an event of its own.
    pub(crate) said: Option<Failure<'a>>,
}

/// The protocol that a client speaks.
#[derive(Clone, Debug)]
pub enum ClientProtocol {
    /// Chat Completions.
    Chat(UsageChunk),
    /// Text completions.
    Completions(UsageChunk),
    /// Embeddings.
    Embeddings,
    /// The Responses interface. What the client asked for is repeated in a response that is made or completed here;
    /// where it is not known, such a response says that it is that of a request without settings.
    Responses(Option<Asked>),
    /// The Messages interface, and what a message that is made here must not repeat.
    Messages(KnownMessage),
    /// Any other endpoint.
    Other,
}

/// What becomes of the chunk at the end of a stream that has the usage, and no choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageChunk {
    /// The client asked for it: it is in a stream that is made here.
    pub include: bool,
    /// The client did not ask for it and the gateway did: it is taken out of a stream that is forwarded.
    pub hide: bool,
}

impl ClientSide {
    /// A client that gets what an upstream of the same protocol sends, usage and the upstream's own model name
    /// included.
    #[must_use]
    pub fn new(api: Api, streams: bool) -> Self {
        let usage = UsageChunk {
            include: streams,
            hide: false,
        };
        let protocol = match api {
            Api::Chat => ClientProtocol::Chat(usage),
            Api::Completions => ClientProtocol::Completions(usage),
            Api::Embeddings => ClientProtocol::Embeddings,
            Api::Responses => ClientProtocol::Responses(None),
            Api::Messages => ClientProtocol::Messages(KnownMessage::default()),
            Api::Other => ClientProtocol::Other,
        };
        ClientSide {
            protocol,
            streams,
            reply_model: None,
            completes: false,
            names: None,
        }
    }

    /// The protocol by its name.
    #[must_use]
    pub const fn api(&self) -> Api {
        match self.protocol {
            ClientProtocol::Chat(_) => Api::Chat,
            ClientProtocol::Completions(_) => Api::Completions,
            ClientProtocol::Embeddings => Api::Embeddings,
            ClientProtocol::Responses(_) => Api::Responses,
            ClientProtocol::Messages(_) => Api::Messages,
            ClientProtocol::Other => Api::Other,
        }
    }

    /// What becomes of the usage chunk; nothing in a protocol that has none.
    pub(crate) fn usage_chunk(&self) -> UsageChunk {
        match self.protocol {
            ClientProtocol::Chat(usage) | ClientProtocol::Completions(usage) => usage,
            _ => UsageChunk::default(),
        }
    }

    /// About how many bytes of the request each event may repeat that carries the whole reply.
    pub(crate) fn repeated(&self) -> usize {
        match &self.protocol {
            ClientProtocol::Responses(Some(asked)) => asked.repeated(),
            _ => 0,
        }
    }

    /// Lets go of the request.
    pub(crate) fn forget_request(&mut self) {
        if let ClientProtocol::Responses(asked) = &mut self.protocol {
            *asked = None;
        }
    }

    /// The last events of a stream that is forwarded and cannot be completed. Clients of the Responses interface wait
    /// for a terminal event (`bifrost#6783`), and its numbers must go on without a gap.
    pub(crate) fn fail(&self, failure: Failure<'_>, broken: &Broken<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        let model = self.reply_model.as_deref();
        let said = broken.said.unwrap_or(failure);
        if let Some(followed) = broken.followed.filter(|followed| followed.is_named()) {
            followed.fail(
                said,
                broken.sequence,
                broken.said.is_some(),
                model,
                &mut out,
            );
        } else if let ClientProtocol::Responses(asked) = &self.protocol {
            let echo = Asked::echo_of(asked.as_ref());
            let mut writer = ResponsesWriter::new(echo, model, true);
            writer.end(Ending::Failed(said), None, None, &mut out);
        } else {
            let protocol = of(self.api());
            encode::event(protocol.error_event(), &protocol.error(&failure), &mut out);
        }
        out
    }

    /// What writes a reply for this client of the pieces that `upstream` says. None: replies of this protocol are not
    /// made here.
    pub(crate) fn writer(
        &self,
        upstream: &UpstreamSide,
        clock: Option<Clock>,
        limits: Limits,
    ) -> Option<Box<dyn Writer>> {
        let model = self.reply_model.as_deref();
        let writer: Box<dyn Writer> = match &self.protocol {
            ClientProtocol::Chat(usage) => {
                let asked = Written {
                    streams: self.streams,
                    include_usage: usage.include,
                    model: model.map(Into::into),
                    created: clock.map(|clock| clock()),
                };
                Box::new(ChatWriter::new(asked, limits))
            }
            ClientProtocol::Responses(asked) => {
                let echo = Asked::echo_of(asked.as_ref());
                if upstream.api == Api::Responses {
                    Box::new(Renamed::new(echo, model, self.streams))
                } else {
                    Box::new(ResponsesWriter::new(echo, model, self.streams))
                }
            }
            ClientProtocol::Messages(known) => {
                // What is made anew of a message stays that message.
                let id = known.id.clone().filter(|_| upstream.api != Api::Messages);
                Box::new(MessagesWriter::new(messages::writing::Written {
                    streams: self.streams,
                    model: model.map(Into::into),
                    known: KnownMessage {
                        id,
                        ..known.clone()
                    },
                }))
            }
            ClientProtocol::Completions(_) | ClientProtocol::Embeddings | ClientProtocol::Other => {
                return None;
            }
        };
        let names = self.names.as_ref().filter(|names| !names.is_empty());
        Some(match names {
            Some(names) => Box::new(Named::new(Arc::clone(names), writer)),
            None => writer,
        })
    }
}

/// How much of an upstream's reply is read on its way to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// All that its protocol says: that it is a reply at all, how it ends, and the errors inside it.
    #[default]
    Whole,
    /// The usage alone. Nothing is known of its protocol: it is an event stream or JSON as its `Content-Type` says, one
    /// that ended in order is whole, and an error inside it is its client's business.
    Usage,
    /// Nothing: it is neither JSON nor an event stream, and such a reply is what was asked for.
    Nothing,
}

/// What the upstream sends.
#[derive(Clone, Debug)]
pub struct UpstreamSide {
    /// The protocol that it speaks.
    pub api: Api,
    /// Its `Content-Type` is `text/event-stream`: the reply is one unless it is JSON.
    pub declared_stream: bool,
    /// How much of its reply is read on the way.
    pub reading: Reading,
    /// Its way of reporting usage; `None`: recognised from the usage object itself.
    pub dialect: Option<Dialect>,
    /// The content of its chat, or the text of its completions, is what a gpt-oss model wrote, tokens of the Harmony
    /// format included: it is decoded, for clients of chat and of the Responses interface.
    pub harmony: bool,
    /// Where client and upstream both speak Responses, or both Messages: the events are read and made anew, so that
    /// what upstreams get wrong in them comes out right. The upstream's own id is kept, and a response's `created_at`.
    pub repair: bool,
}

impl UpstreamSide {
    /// An upstream without peculiarities.
    #[must_use]
    pub const fn new(api: Api) -> Self {
        UpstreamSide {
            api,
            declared_stream: false,
            reading: Reading::Whole,
            dialect: None,
            harmony: false,
            repair: false,
        }
    }

    /// What its `Content-Type` says that its reply is, where that is an event stream or JSON.
    pub(crate) fn declared_mode(&self) -> Mode {
        match self.declared_stream {
            true => Mode::Sse,
            false => Mode::Json,
        }
    }

    /// Whether its replies are read as pieces and written anew for `client`, and not forwarded.
    #[must_use]
    pub fn is_translated_for(&self, client: &ClientSide) -> bool {
        let client = client.api();
        self.api != client
            || self.repair && matches!(client, Api::Responses | Api::Messages)
            || self.harmony && client == Api::Chat
    }

    /// What reads its replies. None: replies of this protocol are only forwarded.
    pub(crate) fn reader(&self, limits: Limits) -> Option<Box<dyn Reader>> {
        let max_depth = limits.max_depth;
        Some(match self.api {
            Api::Chat | Api::Completions if self.harmony => Box::new(HarmonyChunks::new(max_depth)),
            Api::Chat | Api::Completions => Box::new(ChatChunks::new(max_depth)),
            Api::Responses => Box::new(ResponseEvents::new(max_depth)),
            Api::Messages => Box::new(MessageEvents::new(limits)),
            Api::Embeddings | Api::Other => return None,
        })
    }
}
