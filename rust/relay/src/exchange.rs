//! One exchange: attempts, one after the other, until the reply of one is pumped to the client or no attempt is left.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderMap;
use http::{Method, Request as HttpRequest, Response, StatusCode};
use http_body_util::Full;
use sluicegate_core::api::Api;
use sluicegate_core::limits::Limits;
use sluicegate_core::pipeline::ReplyPlan;
use sluicegate_core::protocols::messages::writing::KnownMessage;
use sluicegate_core::protocols::{self, ClientProtocol, ClientSide, UpstreamSide, UsageChunk};
use sluicegate_core::request::{Request, UsageAsk};
use tokio::time::Instant;

use crate::asked::{self, Form, Forms, Given, ResponsesAsked};
use crate::attend::{Attended, Watch};
use crate::body::UpstreamBody;
use crate::deadlines::Progress;
use crate::decode::ReplyBody;
use crate::director::{Attempt, Director, Next, Pricing};
use crate::engine::{Active, Engine, LAST_WORDS};
use crate::error_body;
use crate::fault::{Fault, FaultKind};
use crate::headers;
use crate::keepalive::KeepAlive;
use crate::leaving::{DrainLimits, Leaving};
use crate::offload::{LARGE, offload};
use crate::outcome::{Outcome, Try};
use crate::pump::{Client, Pump, PumpEnd};
use crate::replies::Replies;
use crate::reply::Sink;
use crate::unanswered::SendError;
use crate::upstream::{Route, Upstream};

mod ending;

use ending::Pumping;

/// The most attempts of one exchange: a director that always gives another route must not cause an endless loop.
const MAX_ATTEMPTS: u32 = 32;

/// The status recorded where the client left before it got one (nginx's convention).
pub const CLIENT_CLOSED_REQUEST: u16 = 499;

/// What the client sent. Dropped as soon as no further attempt can need it.
pub struct Asked {
    /// The client's body.
    pub request: Request,
    /// The same request, where it is one for a response.
    pub responses: Option<ResponsesAsked>,
    /// Where clients find the endpoint, with the query that goes on.
    pub path: Box<str>,
    /// The client's headers.
    pub headers: HeaderMap,
}

/// What one exchange is made of.
pub struct Exchange {
    /// The client's request.
    pub asked: Asked,
    /// Which API it speaks.
    pub api: Api,
    /// What the reply may be.
    pub replies: Replies,
    /// Passed on, and given back to the client.
    pub request_id: Box<str>,
    /// The first attempt.
    pub attempt: Attempt,
    /// Bounds of the reply.
    pub limits: Limits,
    /// A comment, or a ping, to a streaming client after this long a silence.
    pub keepalive: Option<Duration>,
    /// A client that takes nothing for so long is cut.
    pub client_stall: Option<Duration>,
    /// How long the client wants to wait for the end of its reply: lowers the `total` deadline.
    pub patience: Option<Duration>,
    /// How far it is read where its client leaves and the route drains.
    pub drain: DrainLimits,
    /// When the request came: times count from here.
    pub started: Instant,
    /// Closing waits for it.
    pub active: Active,
    /// Where frames go.
    pub sink: Sink,
    /// Who decides.
    pub director: Box<dyn Director>,
}

/// How one attempt ended.
enum Tried {
    /// The reply to the client is complete, whether it succeeded or failed.
    Settled,
    /// Nothing was.
    Failed(Fault),
    Left,
}

/// An exchange at work. Its drop settles the outcome where the task was ended from outside.
struct Session {
    /// `None` once the reply has begun: no other attempt follows then, and a held stream must not hold its request's
    /// body.
    given: Option<Box<Given>>,
    api: Api,
    replies: Replies,
    streams: bool,
    include_usage: bool,
    request_id: Box<str>,
    limits: Limits,
    sink: Option<Sink>,
    director: Box<dyn Director>,
    pricing: Pricing,
    engine: Engine,
    started: Instant,
    /// When the request was first ready to be sent, later by what it took to make it.
    first: Option<Instant>,
    /// When the client's patience ends.
    until: Option<Instant>,
    keepalive: KeepAlive,
    leaving: Leaving,
    client_stall: Option<Duration>,
    outcome: Outcome,
    settled: bool,
    active: Option<Active>,
}

impl Exchange {
    /// Its life, on `engine`'s thread. Gives its sink back once the last frame is in it: the client may still have to
    /// take it.
    ///
    /// Not all of it is an `async` block: that would have room for the exchange twice, as it comes and as it is kept.
    pub fn run(self, engine: &Engine) -> impl Future<Output = Option<Sink>> + Send + 'static {
        let streams = self.asked.request.stream();
        let mut session = Box::new(Session {
            api: self.api,
            replies: self.replies,
            streams,
            include_usage: self.asked.request.include_usage(),
            given: Some(Box::new(Given {
                request: self.asked.request,
                forms: Forms::new(self.asked.responses),
                path: self.asked.path,
                headers: self.asked.headers,
            })),
            request_id: self.request_id,
            limits: self.limits,
            sink: Some(self.sink),
            director: self.director,
            pricing: self.attempt.pricing.clone(),
            engine: engine.clone(),
            started: self.started,
            first: None,
            until: self
                .patience
                .and_then(|patience| self.started.checked_add(patience)),
            keepalive: KeepAlive::new(self.api, self.keepalive.filter(|_| streams), self.started),
            leaving: Leaving::new(engine.shared.clone(), self.drain),
            client_stall: self.client_stall,
            outcome: Outcome::default(),
            settled: false,
            active: Some(self.active),
        });
        let first = self.attempt;
        async move {
            session.serve(first).await;
            let mut sink = session.sink.take()?;
            sink.hold(session.active.take());
            Some(sink)
        }
    }
}

impl Session {
    async fn serve(&mut self, first: Attempt) {
        let mut attempt = first;
        loop {
            if !attempt.after.is_zero() {
                let waiting = pin!(tokio::time::sleep(attempt.after));
                let upstream = &attempt.route.upstream;
                let first = self.first.unwrap_or(self.started);
                let limit = upstream.deadlines.end(first, self.until);
                let kind = match self.attend(waiting, limit, false).await {
                    Attended::Done(()) => None,
                    Attended::Left => return self.part(None),
                    Attended::Late => Some(FaultKind::TotalTimeout),
                    Attended::Closing => Some(FaultKind::Shutdown),
                };
                if let Some(kind) = kind {
                    return self.give_up(Fault::new(kind, &upstream.name)).await;
                }
            }
            // Nothing of what an earlier attempt brought is this one's.
            self.outcome = Outcome {
                upstream: attempt.route.upstream.name.clone(),
                upstream_model: attempt.route.model.clone(),
                attempts: self.outcome.attempts + 1,
                tries: std::mem::take(&mut self.outcome.tries),
                ..Outcome::default()
            };
            self.pricing = attempt.pricing.clone();
            let began = self.started.elapsed();
            self.outcome.tries.push(Try::begun(&attempt.route, began));
            let tried = self.attempt(&attempt).await;
            let fault = match tried {
                Tried::Settled => return,
                Tried::Left => return self.part(None),
                Tried::Failed(fault) => fault,
            };
            let took = self.started.elapsed().saturating_sub(began);
            if let Some(last) = self.outcome.tries.last_mut() {
                last.failed(&fault, took);
            }
            // Nobody is there for whom another upstream could be tried.
            if self.leaving.departed() {
                return self.part(Some(fault));
            }
            match self.decide(&fault).await {
                Attended::Done(Next::Attempt(next))
                    if self.outcome.attempts < MAX_ATTEMPTS
                        && fault.kind != FaultKind::Shutdown =>
                {
                    attempt = *next;
                }
                Attended::Done(next) => {
                    self.outcome.fault = Some(fault);
                    return self.refuse(next);
                }
                Attended::Left => return self.part(Some(fault)),
                Attended::Late | Attended::Closing => {
                    self.outcome.fault = Some(fault);
                    self.settle();
                    return self.abort();
                }
            }
        }
    }

    /// Ask what follows a failed attempt. A gateway that stops still asks what to say, for a moment.
    async fn decide(&mut self, fault: &Fault) -> Attended<Next> {
        let Some(sink) = &mut self.sink else {
            return Attended::Closing;
        };
        let closing = self.engine.closing().given_owned();
        let watch = Watch {
            sink,
            keepalive: &mut self.keepalive,
            leaving: &mut self.leaving,
            closing: None,
            request_id: &self.request_id,
            drains: false,
        };
        let deciding = pin!(self.director.failed(fault, self.outcome.attempts));
        tokio::select! {
            decided = watch.attend(deciding, None) => decided,
            () = async {
                closing.await;
                tokio::time::sleep(LAST_WORDS).await;
            } => Attended::Closing,
        }
    }

    async fn attend<T>(
        &mut self,
        what: Pin<&mut impl Future<Output = T>>,
        limit: Option<Instant>,
        drains: bool,
    ) -> Attended<T> {
        let Some(sink) = &mut self.sink else {
            return Attended::Closing;
        };
        let watch = Watch {
            sink,
            keepalive: &mut self.keepalive,
            leaving: &mut self.leaving,
            closing: Some(self.engine.closing()),
            request_id: &self.request_id,
            drains,
        };
        watch.attend(what, limit).await
    }

    /// The request in the form that `upstream` takes.
    async fn form(&mut self, upstream: &Arc<Upstream>) -> Result<Form, Fault> {
        let gone = || Fault::new(FaultKind::Shutdown, &upstream.name);
        let mut given = self.given.take().ok_or_else(gone)?;
        let (api, upstream_there) = (self.api, Arc::clone(upstream));
        let large = given.request.body().len() > LARGE && !upstream.serves.has(api);
        let formed = offload(large, move || {
            let form = given.forms.of(api, &given.request, &upstream_there);
            (given, form)
        });
        let (given, form) = formed.await.ok_or_else(gone)?;
        self.given = Some(given);
        form
    }

    /// One upstream, up to two extra requests to it: on a fresh connection where a pooled one proved dead, and without
    /// `stream_options` where the upstream refuses them.
    async fn attempt(&mut self, attempt: &Attempt) -> Tried {
        let route = &attempt.route;
        let upstream = Arc::clone(&route.upstream);
        self.leaving.set_drain(route.drain);
        let form = match self.form(&upstream).await {
            Ok(form) => form,
            Err(fault) => return Tried::Failed(fault),
        };
        let internal = || Tried::Failed(Fault::new(FaultKind::Internal, &upstream.name));
        let Some(given) = &self.given else {
            return internal();
        };
        let path = match form.translated {
            Some(_) => protocols::of(form.api).path(),
            None => &*given.path,
        };
        let (stream, mut usage) = form.streaming(&given.request, &upstream);
        let streams = stream.unwrap_or(self.streams);
        let Some(address) = upstream.address(path, &route.model, streams) else {
            return internal();
        };
        let now = Instant::now();
        let mut progress = Progress {
            started: now,
            first: self.first.unwrap_or(now),
            until: self.until,
            first_byte: None,
            last_token: None,
            streaming: streams,
        };
        let mut fresh = false;
        let response = loop {
            let making = Instant::now();
            let Some(given) = &self.given else {
                return internal();
            };
            let asked = &given.request;
            let body = form.body(asked, route, &address, stream, usage).await;
            let Some(body) = body else {
                return Tried::Failed(Fault::new(FaultKind::Shutdown, &upstream.name));
            };
            // Its deadlines are for the upstream: what the gateway needs to make the request does not count.
            progress.started += making.elapsed();
            progress.first = *self.first.get_or_insert(progress.started);
            let mut http = HttpRequest::new(Full::new(body));
            *http.method_mut() = Method::POST;
            *http.uri_mut() = address.uri.clone();
            *http.headers_mut() =
                headers::up(&given.headers, &upstream, form.api, &self.request_id);
            let response = match self.send(http, fresh, &upstream, &progress).await {
                Sent::Left => return Tried::Left,
                Sent::Failed(error) => {
                    if error.repeatable && !fresh && error.kind == FaultKind::Reset {
                        fresh = true;
                        continue;
                    }
                    return Tried::Failed(Fault {
                        reason: error.reason,
                        ..Fault::new(error.kind, &upstream.name)
                    });
                }
                Sent::Head(response) => response,
            };
            if response.status().is_success() {
                break response;
            }
            if self.leaving.departed() {
                return Tried::Left;
            }
            let status = response.status();
            let mut fault = match self.read_error(response, route, &progress).await {
                Ok(fault) => fault,
                Err(tried) => return tried,
            };
            let refused = status == StatusCode::BAD_REQUEST
                && usage == UsageAsk::Ask
                && memchr::memmem::find(&fault.body, b"stream_options").is_some();
            if refused {
                usage = UsageAsk::Remove;
                continue;
            }
            fault.body = error_body::kept(fault.body);
            return Tried::Failed(fault);
        };
        let plan = self.plan(route, &form, response.headers());
        // A stream that is held must not hold the request that it came from.
        drop(form);
        self.relay(response, attempt, plan, progress).await
    }

    async fn send(
        &mut self,
        request: HttpRequest<Full<Bytes>>,
        fresh: bool,
        upstream: &Arc<Upstream>,
        progress: &Progress,
    ) -> Sent {
        let (limit, late) = match upstream.deadlines.next(progress) {
            Some((at, kind)) => (Some(at), kind),
            None => (None, FaultKind::TotalTimeout),
        };
        let responding = pin!(upstream.send(request, fresh));
        match self.attend(responding, limit, true).await {
            Attended::Done(Ok(response)) => Sent::Head(response),
            Attended::Done(Err(error)) => Sent::Failed(error),
            Attended::Left => Sent::Left,
            Attended::Closing => Sent::Failed(SendError::of(FaultKind::Shutdown)),
            Attended::Late => Sent::Failed(SendError::of(late)),
        }
    }

    /// The body of an error reply, bounded in size and by the deadlines that still run.
    async fn read_error(
        &mut self,
        response: Response<UpstreamBody>,
        route: &Route,
        progress: &Progress,
    ) -> Result<Fault, Tried> {
        let (parts, body) = response.into_parts();
        self.outcome.upstream_request_id = headers::request_id(&parts.headers);
        let mut fault = Fault::new(FaultKind::Status, &route.upstream.name);
        fault.status = Some(parts.status.as_u16());
        fault.headers = headers::list(&headers::down(&parts.headers, &route.upstream, self.api));
        let Ok(mut body) = ReplyBody::new(&parts.headers, body) else {
            return Ok(fault);
        };
        let limit = route.upstream.deadlines.next(progress).map(|(at, _)| at);
        let mut collected = Vec::new();
        let read = async {
            while let Some(Ok(data)) = std::future::poll_fn(|cx| body.poll_read(cx)).await {
                let room = error_body::MOST_READ - collected.len();
                collected.extend_from_slice(&data[..data.len().min(room)]);
                if data.len() >= room {
                    break;
                }
            }
        };
        if let Attended::Left = self.attend(pin!(read), limit, false).await {
            return Err(Tried::Left);
        }
        fault.body = collected.into();
        Ok(fault)
    }

    /// Pump a reply with a success status.
    async fn relay(
        &mut self,
        response: Response<UpstreamBody>,
        attempt: &Attempt,
        plan: ReplyPlan,
        progress: Progress,
    ) -> Tried {
        let (started, route) = (progress.started, &attempt.route);
        let (parts, body) = response.into_parts();
        self.outcome.upstream_request_id = headers::request_id(&parts.headers);
        let Ok(body) = ReplyBody::new(&parts.headers, body) else {
            return Tried::Failed(Fault::new(FaultKind::Decode, &route.upstream.name));
        };
        let Some(sink) = &mut self.sink else {
            return Tried::Left;
        };
        let mut pump = Pump::new(
            plan,
            body,
            attempt,
            progress,
            &self.keepalive,
            &self.leaving,
            self.client_stall,
        );
        pump.may_be_empty = self.replies.may_be_empty();
        let mut pumping = Pumping {
            pump,
            outcome: &mut self.outcome,
            offset: started - self.started,
        };
        let mut client = Client {
            sink,
            director: &mut *self.director,
            status: parts.status,
            headers: headers::of_attempt(attempt, &parts.headers, self.api),
            request_id: &self.request_id,
            keepalive: &mut self.keepalive,
            leaving: &mut self.leaving,
            given: &mut self.given,
        };
        let end = pumping.pump.run(&mut client, &self.engine).await;
        drop(pumping);
        match end {
            PumpEnd::Complete | PumpEnd::Aborted if self.leaving.departed() => Tried::Left,
            PumpEnd::Complete => {
                self.settle();
                if let Some(sink) = &mut self.sink {
                    sink.end();
                }
                Tried::Settled
            }
            PumpEnd::Aborted => {
                if let Some(sink) = &mut self.sink {
                    sink.forget_copy();
                }
                self.settle();
                self.abort();
                Tried::Settled
            }
            PumpEnd::Failed(fault) => Tried::Failed(fault),
            PumpEnd::Left => Tried::Left,
            PumpEnd::Stalled => {
                self.outcome.stalled = true;
                Tried::Left
            }
        }
    }

    fn plan(&mut self, route: &Route, form: &Form, reply: &HeaderMap) -> ReplyPlan {
        if let Some(made) = form.translated.as_ref().or(form.unsealed.as_ref()) {
            self.outcome.left_out.clone_from(&made.left_out);
        }
        let upstream = UpstreamSide {
            api: form.api,
            declared_stream: headers::declare_event_stream(reply),
            bytes: self.replies.are_bytes(reply),
            dialect: route.upstream.dialect,
            harmony: route.upstream.harmony && form.api == Api::Chat,
            repair: form.is_repaired_by(&route.upstream),
        };
        ReplyPlan {
            clock: Some(asked::now),
            limits: self.limits,
            ..ReplyPlan::between(self.client(Some(route), Some(form)), upstream)
        }
    }

    /// What the client is to get: of `route` for the request in `form`, or without any.
    fn client(&self, route: Option<&Route>, form: Option<&Form>) -> ClientSide {
        let usage = UsageChunk {
            include: self.include_usage,
            hide: self.streams && !self.include_usage,
        };
        let model = route.map(|route| &*route.model);
        let asked = || self.given.as_ref()?.forms.asked(model);
        let protocol = match self.api {
            Api::Chat => ClientProtocol::Chat(usage),
            Api::Completions => ClientProtocol::Completions(usage),
            Api::Embeddings => ClientProtocol::Embeddings,
            Api::Other => ClientProtocol::Other,
            Api::Responses => ClientProtocol::Responses(asked()),
            Api::Messages => {
                ClientProtocol::Messages(form.map_or_else(KnownMessage::default, |form| {
                    form.known_message(&self.request_id)
                }))
            }
        };
        let reply_model = route.and_then(|route| route.reply_model.as_deref());
        ClientSide {
            protocol,
            streams: self.streams,
            reply_model: reply_model.map(Into::into),
            completes: true,
            names: form.and_then(|form| form.translated.as_ref()?.names.clone()),
        }
    }
}

enum Sent {
    Head(Response<UpstreamBody>),
    Failed(SendError),
    Left,
}
