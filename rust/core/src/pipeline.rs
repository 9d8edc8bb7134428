//! The pipeline of one reply, from the upstream's bytes to the client's: recognises its form, splits it into events,
//! reads usage, adds the cost.

mod asking;
mod conversion;
mod document;
mod frames;
mod piece_templates;
mod reply;
mod shapes;
mod stream;
mod template;
mod translation;

use bytes::Bytes;

use crate::api::Api;
use crate::cost::Members;
use crate::error::Error;
use crate::limits::Limits;
use crate::mode::{Mode, ModeDetector};
use crate::output::Failure;
use crate::protocol::Follow;
use crate::protocols::{self, Broken, ClientSide, Clock, Reading, UpstreamSide};
use crate::usage::Usage;
use crate::watch::StreamError;

use conversion::{Folding, Unfolding};
use document::Replies;
use reply::Reply;
use stream::Stream;
use translation::Translation;

/// What is known about a reply before its first byte.
#[derive(Clone, Debug)]
pub struct ReplyPlan {
    /// What the client is to get.
    pub client: ClientSide,
    /// What the upstream sends. Where it is another protocol than the client's, the reply is translated.
    pub upstream: UpstreamSide,
    /// Seconds since 1970, asked when a translated response is completed. Without, it does not say when that was.
    pub clock: Option<Clock>,
    /// Bounds.
    pub limits: Limits,
}

impl ReplyPlan {
    /// A plan that changes nothing: default bounds, no dialect, the upstream's own model name, usage shown.
    #[must_use]
    pub fn new(api: Api, client_streams: bool) -> Self {
        ReplyPlan::between(ClientSide::new(api, client_streams), UpstreamSide::new(api))
    }

    /// About how many bytes of the client's request each event may repeat that carries a response: what the reply costs
    /// beside its own bytes.
    #[must_use]
    pub fn repeated(&self) -> usize {
        if self.upstream.is_translated_for(&self.client) {
            self.client.repeated()
        } else {
            0
        }
    }

    /// A plan for these two sides, with default bounds and without a clock.
    #[must_use]
    pub fn between(client: ClientSide, upstream: UpstreamSide) -> Self {
        ReplyPlan {
            client,
            upstream,
            clock: None,
            limits: Limits::default(),
        }
    }
}

pub use asking::Asking;

/// Puts a price on usage.
pub trait Pricer {
    /// Called for each usage object that will reach the client, running totals aside. Returns the members to add to the
    /// object, or None to leave it as it is.
    fn price(&mut self, usage: &Usage) -> Option<Members>;

    /// Whether [`price`](Self::price) can be called now. Where not, the end of a translated reply waits for
    /// [`Pipeline::end`].
    fn is_ready(&self) -> bool {
        true
    }
}

/// For reads in which no price is asked for, as [`Asking`] says.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotNow;

impl Pricer for NotNow {
    fn price(&mut self, _usage: &Usage) -> Option<Members> {
        debug_assert!(
            false,
            "a price is asked for in a read that names no usage object"
        );
        None
    }

    fn is_ready(&self) -> bool {
        false
    }
}

/// Leaves every usage object as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unpriced;

impl Pricer for Unpriced {
    fn price(&mut self, _usage: &Usage) -> Option<Members> {
        None
    }
}

/// What is known about a reply so far, its texts cut as a record may have them ([`cut`](crate::record::cut)).
/// Independent of how the bytes were cut into reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// What the upstream sends; known with the first bytes that are not white space.
    pub mode: Option<Mode>,
    /// Whether the client gets an event stream; known once the mode is.
    pub reply_is_stream: Option<bool>,
    /// Usage so far.
    pub usage: Option<Usage>,
    /// How a body begins that is no reply of the API, in the words of [`Foreign::quote`](crate::mode::Foreign::quote).
    pub quote: Option<Box<str>>,
    /// Events with data (in JSON mode: documents).
    pub events: u64,
    /// Comment lines.
    pub comments: u64,
    /// Data that is neither JSON nor `[DONE]`.
    pub malformed: u64,
    /// Events that bore text, reasoning, a refusal or a tool call.
    pub token_events: u64,
    /// The first such event, or a whole JSON document, was seen.
    pub output_started: bool,
    /// `[DONE]` was seen, or the event that ends a Responses or Messages stream: nothing that matters comes any more.
    pub done: bool,
    /// The first finish reason (chat), stop reason (Messages) or final status (Responses).
    pub finish_reason: Option<Box<str>>,
    /// The first error that the upstream sent inside the reply.
    pub error: Option<StreamError>,
    /// The reply came to its protocol's end: `[DONE]`, a finish reason, a terminal event, an error, or a whole JSON
    /// document.
    pub terminal: bool,
    /// Set by [`Pipeline::finish`]: the upstream ended without any of them.
    pub truncated: bool,
    /// The reply's `id`, where it was read.
    pub reply_id: Option<Box<str>>,
}

/// The machine that a reply goes through: bytes in, frames out. Does no I/O.
///
/// Where the client asked for a stream and the upstream gave a completion, or the other way round, a chat reply (and
/// one of the older completions interface) is turned into what was asked for; others go on as they came.
///
/// ```
/// use bytes::Bytes;
/// use sluicegate_core::cost::Members;
/// use sluicegate_core::api::Api;
/// use sluicegate_core::pipeline::{Pipeline, Pricer, ReplyPlan};
/// use sluicegate_core::usage::Usage;
///
/// struct Flat;
/// impl Pricer for Flat {
///     fn price(&mut self, usage: &Usage) -> Option<Members> {
///         Members::parse(format!("\"cost\":{}", usage.total_tokens()?))
///     }
/// }
///
/// let mut pipeline = Pipeline::new(ReplyPlan::new(Api::Chat, true));
/// let mut out = Vec::new();
/// let read = b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1}}\n\ndata: [DO";
/// pipeline.feed(Bytes::from_static(read), &mut Flat, &mut out)?;
/// pipeline.feed(Bytes::from_static(b"NE]\n\n"), &mut Flat, &mut out)?;
/// pipeline.finish(&mut Flat, &mut out)?;
/// assert_eq!(
///     out.concat(),
///     b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1,\"cost\":3}}\n\ndata: [DONE]\n\n",
/// );
/// assert!(pipeline.facts().done);
/// # Ok::<(), sluicegate_core::error::Error>(())
/// ```
pub struct Pipeline {
    plan: ReplyPlan,
    reply: Reply,
    body: Body,
    /// Something was handed out.
    started: bool,
}

/// What the reply's bytes go through, by its mode and what the client asked for.
enum Body {
    Undecided(ModeDetector),
    Unread,
    Stream(Box<Stream>),
    Documents(Replies),
    Folding(Box<Folding>),
    Unfolding(Box<Unfolding>),
    Translating(Box<Translation>),
    /// A stream may still have to say that it failed.
    Ended(Option<Box<Stream>>),
}

impl Pipeline {
    /// A machine for one reply.
    #[must_use]
    pub fn new(plan: ReplyPlan) -> Self {
        let mut reply = Reply::new(&plan);
        let body = if plan.upstream.reading == Reading::Nothing {
            reply.facts.mode = Some(Mode::Bytes);
            reply.facts.reply_is_stream = Some(false);
            Body::Unread
        } else {
            Body::Undecided(ModeDetector::new(plan.upstream.declared_stream))
        };
        Pipeline {
            reply,
            body,
            plan,
            started: false,
        }
    }

    /// Takes what was read. Frames for the client are appended to `out`: slices of `input` wherever nothing changed,
    /// and one slice for a read in which nothing did. The event that `input` ends in is kept back until it is whole.
    ///
    /// # Errors
    /// An event or document that is larger than the limits allow, a completion that cannot be made a stream, or a body
    /// that is neither JSON nor an event stream ([`Facts::quote`]). The caller must then call [`fail`](Self::fail).
    pub fn feed(
        &mut self,
        input: Bytes,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Error> {
        let before = out.len();
        let fed = self.pass(input, pricer, out);
        self.reply.settle();
        self.started |= out.len() > before;
        fed
    }

    fn pass(
        &mut self,
        input: Bytes,
        pricer: &mut dyn Pricer,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Error> {
        if input.is_empty() {
            return Ok(());
        }
        let (plan, reply) = (&self.plan, &mut self.reply);
        let is_free = plan.upstream.reading == Reading::Usage;
        if is_free {
            // Nobody knows which of its events bear output.
            reply.note_started();
        }
        match &mut self.body {
            Body::Undecided(detector) => {
                let told = match is_free {
                    true => Some((plan.upstream.declared_mode(), input)),
                    false => detector.feed(input).map_err(|body| reply.quote(body))?,
                };
                let Some((mode, input)) = told else {
                    return Ok(());
                };
                self.decide(mode)?;
                self.pass(input, pricer, out)
            }
            Body::Unread => {
                reply.facts.output_started = true;
                reply.progress = true;
                out.push(input);
                Ok(())
            }
            Body::Stream(stream) => stream.feed(input, reply, pricer, out),
            Body::Documents(replies) => replies.feed(input, reply, pricer, out),
            Body::Folding(folding) => folding.feed(input, reply),
            Body::Unfolding(unfolding) => unfolding.feed(input, reply, plan, pricer, out),
            Body::Translating(translation) => translation.feed(input, reply, pricer, out),
            Body::Ended(_) => Ok(()),
        }
    }

    /// Whether the end of the reply waits for its price.
    #[must_use]
    pub fn awaits_price(&self) -> bool {
        matches!(&self.body, Body::Translating(translation) if translation.awaits_price())
    }

    /// Say the end of a reply that [waits for its price](Self::awaits_price).
    pub fn end(&mut self, pricer: &mut dyn Pricer, out: &mut Vec<Bytes>) {
        if let Body::Translating(translation) = &mut self.body {
            translation.end_priced(&mut self.reply, pricer, out);
            self.started |= !out.is_empty();
        }
    }

    fn decide(&mut self, mode: Mode) -> Result<(), Error> {
        if let Some(translation) = Translation::new(&self.plan, Some(mode))? {
            self.reply = Reply::unshown(&self.plan);
            self.reply.facts.mode = Some(mode);
            self.reply.facts.reply_is_stream = Some(self.plan.client.streams);
            let translation = match mode {
                Mode::Sse => translation.of_events(),
                Mode::Json | Mode::Bytes => translation.of_documents(),
            };
            self.body = Body::Translating(Box::new(translation));
            return Ok(());
        }
        let limits = &self.plan.limits;
        let api = self.plan.client.api();
        let converts = protocols::of(api).folds();
        let streams = self.plan.client.streams;
        self.body = match mode {
            Mode::Sse if converts && !streams => {
                self.reply = Reply::unshown(&self.plan);
                Body::Folding(Box::new(Folding::new(limits)))
            }
            Mode::Json if converts && streams => {
                self.reply = Reply::unshown(&self.plan);
                Body::Unfolding(Box::new(Unfolding::new(limits)))
            }
            Mode::Sse => Body::Stream(Box::new(Stream::new(api, limits))),
            Mode::Json => Body::Documents(Replies::new(limits)),
            Mode::Bytes => Body::Unread,
        };
        self.reply.facts.mode = Some(mode);
        self.reply.facts.reply_is_stream =
            Some(matches!(self.body, Body::Stream(_) | Body::Unfolding(_)));
        Ok(())
    }

    /// The upstream ended cleanly: what was kept back is let go, an unterminated event gets its terminator, and
    /// [`Facts::truncated`] is settled.
    ///
    /// A stream that is folded for the client gives its completion here, or nothing where it broke off.
    ///
    /// # Errors
    /// As [`feed`](Self::feed).
    pub fn finish(&mut self, pricer: &mut dyn Pricer, out: &mut Vec<Bytes>) -> Result<(), Error> {
        let before = out.len();
        let (plan, reply) = (&self.plan, &mut self.reply);
        let finished = match std::mem::replace(&mut self.body, Body::Ended(None)) {
            Body::Undecided(detector) => {
                let held = detector.finish();
                match (Translation::new(plan, None), &held) {
                    (Ok(Some(translation)), _) => {
                        self.body = Body::Translating(Box::new(translation));
                    }
                    (Ok(None), Ok(held)) if !held.is_empty() => out.push(held.clone()),
                    _ => {}
                }
                held.map(drop).map_err(|body| reply.quote(body))
            }
            Body::Unread => {
                reply.facts.terminal = true;
                Ok(())
            }
            Body::Stream(mut stream) => {
                stream.finish(reply, pricer, out);
                let facts = &reply.facts;
                let is_whole = facts.finish_reason.is_some() && facts.error.is_none();
                if plan.client.completes && is_whole && !facts.done {
                    out.extend(plan.client.api().end_mark().map(Bytes::from_static));
                }
                self.body = Body::Ended(Some(stream));
                Ok(())
            }
            Body::Documents(mut replies) => {
                replies.finish(reply, pricer, out);
                Ok(())
            }
            Body::Folding(folding) => folding.finish(reply, plan, pricer, out),
            Body::Unfolding(mut unfolding) => unfolding.finish(reply, plan, pricer, out),
            Body::Translating(mut translation) => {
                let finished = translation.finish(reply, pricer, out);
                self.body = Body::Translating(translation);
                finished
            }
            Body::Ended(stream) => {
                self.body = Body::Ended(stream);
                return Ok(());
            }
        };
        reply.settle();
        reply.facts.truncated = !reply.facts.terminal && plan.upstream.reading != Reading::Usage;
        self.fail_behind_error(out);
        self.started |= out.len() > before;
        finished
    }

    /// A forwarded reply that is followed, a response, fails where its upstream ended with an `error` event (Open
    /// Responses, "Errors").
    fn fail_behind_error(&mut self, out: &mut Vec<Bytes>) {
        let facts = &self.reply.facts;
        if let Body::Ended(Some(stream)) = &self.body
            && facts.error.is_some()
            && facts.finish_reason.is_none()
            && !facts.done
            && stream.followed().is_some_and(Follow::is_named)
        {
            let broken = self.broken(Some(stream));
            out.push(self.plan.client.fail(Failure::default(), &broken).into());
            self.body = Body::Ended(None);
        }
    }

    /// The upstream died, a deadline fired, or the reply was truncated: the protocol's own error is appended to `out`.
    /// What was kept back is dropped, and nothing comes after it.
    ///
    /// Chat and completions get one `data: {"error":…}` event and no `[DONE]`; Responses `error` and then
    /// `response.failed`; Messages `event: error`; a reply that is no stream and of which nothing was sent, a JSON
    /// error object; of anything else the frames just end.
    pub fn fail(&mut self, error_type: &str, code: &str, message: &str, out: &mut Vec<Bytes>) {
        let failure = Failure {
            message,
            code: Some(code),
            kind: Some(error_type),
        };
        let mut stream = None;
        let translation = match std::mem::replace(&mut self.body, Body::Ended(None)) {
            Body::Translating(translation) => Some(translation),
            Body::Undecided(_) => Translation::new(&self.plan, None)
                .ok()
                .flatten()
                .map(Box::new),
            Body::Stream(broken) | Body::Ended(Some(broken)) => {
                stream = Some(broken);
                None
            }
            _ => None,
        };
        if let Some(mut translation) = translation {
            translation.fail(failure, out);
            self.body = Body::Translating(translation);
            self.started = true;
            return;
        }
        let facts = &self.reply.facts;
        if facts.reply_is_stream.unwrap_or(self.plan.client.streams) {
            let broken = self.broken(stream.as_deref());
            out.push(self.plan.client.fail(failure, &broken).into());
        } else if !self.started {
            let protocol = protocols::of(self.plan.client.api());
            out.push(protocol.error(&failure).into());
        }
        self.started = true;
    }

    fn broken<'a>(&'a self, stream: Option<&'a Stream>) -> Broken<'a> {
        Broken {
            followed: stream.and_then(Stream::followed),
            sequence: self.reply.sequence,
            said: self.reply.failure(),
        }
    }

    /// The reply has begun: let go of the request, which only a response that the upstream has not named would still be
    /// told with. A held stream must not hold its request's body.
    pub fn forget_request(&mut self) {
        let unnamed = match &self.body {
            Body::Stream(stream) => stream.followed().is_some_and(|known| !known.is_named()),
            Body::Undecided(_) => true,
            _ => false,
        };
        if !unnamed {
            self.plan.client.forget_request();
        }
    }

    /// What is known so far.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.reply.facts
    }

    /// Whether a token-bearing event came since this was last asked. Comments, pings, roles, empty deltas and usage are
    /// none.
    pub fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.reply.progress)
    }
}
