//! One exchange: attempts, one after the other, until the reply of one is pumped to the client or no attempt is left.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use http::header::HeaderMap;
use http::{Method, Request as HttpRequest, Response, StatusCode};
use sluicegate_core::api::Api;
use sluicegate_core::limits::Limits;
use sluicegate_core::protocols;
use sluicegate_core::request::{Request, UsageAsk};
use tokio::time::Instant;

use crate::asked::{Form, Forms, Given, ResponsesAsked};
use crate::attend::{Attended, Watch};
use crate::body::UpstreamBody;
use crate::deadlines::Progress;
use crate::director::{Attempt, Director, ErrorReply, Next, Pricing};
use crate::engine::{Active, Engine, LAST_WORDS};
use crate::error_body;
use crate::fault::{Fault, FaultKind};
use crate::headers;
use crate::keepalive::KeepAlive;
use crate::leaving::{DrainLimits, Leaving};
use crate::offload::{LARGE, offload};
use crate::outcome::{Outcome, Try};
use crate::replies::Replies;
use crate::reply::Sink;
use crate::tally::Tally;
use crate::unanswered::SendError;
use crate::upload::{Broken, RequestBody, Upload};
use crate::upstream::Upstream;

mod ending;
mod replying;

/// The most attempts of one exchange: a director that always gives another route must not cause an endless loop.
const MAX_ATTEMPTS: u32 = 32;

/// The status recorded where the client left before it got one (nginx's convention).
pub const CLIENT_CLOSED_REQUEST: u16 = 499;

/// What the client sent. Dropped as soon as no further attempt can need it.
pub struct Asked {
    /// The client's body.
    pub body: AskedBody,
    /// The same request, where it is one for a response.
    pub responses: Option<ResponsesAsked>,
    /// The client's method.
    pub method: Method,
    /// Where clients find the endpoint, with the query that goes on. `{model}` stands for the upstream's name of the
    /// model.
    pub path: Box<str>,
    /// The client's headers.
    pub headers: HeaderMap,
    /// An upstream must not get it twice: what it does there is not known, and its method does not say that doing it
    /// again changes nothing (RFC 9110, section 9.2.2).
    pub once: bool,
}

/// A client's body.
#[derive(Clone)]
pub enum AskedBody {
    /// One JSON object.
    Json(Request),
    /// Anything else.
    Upload(Upload),
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
    /// Who keeps its account.
    pub tally: Option<Box<dyn Tally>>,
    /// The tokens of its input that are charged where nobody tells them.
    pub estimated_input: Option<u64>,
}

/// How one attempt ended.
enum Tried {
    /// The reply to the client is complete, whether it succeeded or failed.
    Settled,
    /// Nothing was.
    Failed(Fault),
    /// The client's body broke off: it is answered with this error, of this code.
    Refused(ErrorReply, &'static str),
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
    tally: Option<Box<dyn Tally>>,
    estimated_input: Option<u64>,
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
        let (streams, include_usage) = match &self.asked.body {
            AskedBody::Json(request) => (request.stream(), request.include_usage()),
            // What comes shows whether it is a stream.
            AskedBody::Upload(_) => (false, false),
        };
        let mut session = Box::new(Session {
            api: self.api,
            replies: self.replies,
            streams,
            include_usage,
            given: Some(Box::new(Given {
                body: self.asked.body,
                forms: Forms::new(self.asked.responses),
                method: self.asked.method,
                path: self.asked.path,
                headers: self.asked.headers,
                once: self.asked.once,
            })),
            request_id: self.request_id,
            limits: self.limits,
            sink: Some(self.sink),
            director: self.director,
            tally: self.tally,
            estimated_input: self.estimated_input,
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
                let (limit, late) = limit.unzip();
                let kind = match self.attend(waiting, limit, false).await {
                    Attended::Done(()) => None,
                    Attended::Left => return self.part(None),
                    Attended::Late => late,
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
            if let Some(tally) = &mut self.tally {
                tally.attempt(&attempt.route);
            }
            let tried = self.attempt(&attempt).await;
            let fault = match tried {
                Tried::Settled => return,
                Tried::Left => return self.part(None),
                Tried::Refused(reply, code) => {
                    self.outcome.code = Some(code);
                    return self.refuse(Next::Reply(reply));
                }
                Tried::Failed(fault) => Fault {
                    spent: self.is_spent(),
                    ..fault
                },
            };
            // Any input could be had for nothing if no time were as good as no answer.
            self.outcome.accepted &= fault.kind == FaultKind::ClientTimeout;
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
                        && fault.kind != FaultKind::Shutdown
                        && !fault.spent =>
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
        let AskedBody::Json(request) = &given.body else {
            self.given = Some(given);
            return Ok(Form::forwarded(api));
        };
        let large = request.body().len() > LARGE && !upstream.serves.has(api);
        let formed = offload(large, move || {
            let form = match &given.body {
                AskedBody::Json(request) => given.forms.of(api, request, &upstream_there),
                AskedBody::Upload(_) => Ok(Form::forwarded(api)),
            };
            (given, form)
        });
        let (given, form) = formed.await.ok_or_else(gone)?;
        self.given = Some(given);
        form
    }

    fn upload(&self) -> Option<&Upload> {
        match &self.given.as_ref()?.body {
            AskedBody::Upload(upload) => Some(upload),
            AskedBody::Json(_) => None,
        }
    }

    /// Whether the request's body is gone: no other attempt can follow.
    fn is_spent(&self) -> bool {
        self.upload().is_some_and(Upload::is_spent)
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
        let (stream, mut usage) = match &given.body {
            AskedBody::Json(request) => form.streaming(request, &upstream),
            AskedBody::Upload(_) => (None, UsageAsk::Leave),
        };
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
        // A connection that was idle may prove dead once the request was written: whether the upstream has got it is
        // not known then.
        let mut fresh = given.once;
        let response = loop {
            let making = Instant::now();
            let Some(given) = &self.given else {
                return internal();
            };
            let body = match &given.body {
                AskedBody::Json(asked) => {
                    let made = form.body(asked, route, &address, stream, usage).await;
                    made.map(RequestBody::from)
                }
                AskedBody::Upload(upload) => Some(upload.body(&route.model)),
            };
            let Some(body) = body else {
                return Tried::Failed(Fault::new(FaultKind::Shutdown, &upstream.name));
            };
            // Its deadlines are for the upstream: what the gateway needs to make the request does not count.
            progress.started += making.elapsed();
            progress.first = *self.first.get_or_insert(progress.started);
            let mut http = HttpRequest::new(body);
            *http.method_mut() = given.method.clone();
            *http.uri_mut() = address.uri.clone();
            let up = headers::up(&given.headers, &upstream, form.api, &self.request_id);
            *http.headers_mut() = up;
            if let AskedBody::Json(_) = given.body {
                headers::name_json(http.headers_mut());
            }
            let sent = Arc::new(AtomicBool::new(false));
            http.body_mut().tell_sent(&sent);
            let answer = self
                .send(http, fresh, &upstream, &sent, &mut progress)
                .await;
            self.outcome.accepted = sent.load(Ordering::Acquire);
            let response = match answer {
                Sent::Left => return Tried::Left,
                Sent::Failed(error) => {
                    match self.upload().and_then(Upload::broken) {
                        Some(Broken::Left) => return Tried::Left,
                        Some(Broken::Refused(reply, code)) => return Tried::Refused(reply, code),
                        None => {}
                    }
                    if error.repeatable
                        && !self.is_spent()
                        && !fresh
                        && error.kind == FaultKind::Reset
                    {
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
            self.outcome.accepted = false;
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
        self.accept();
        let plan = self.plan(route, &form, response.headers());
        // A stream that is held must not hold the request that it came from.
        drop(form);
        if self.is_spent() && !attempt.last {
            let attempt = Attempt {
                last: true,
                ..attempt.clone()
            };
            return self.relay(response, &attempt, plan, progress).await;
        }
        self.relay(response, attempt, plan, progress).await
    }

    /// The upstream has the whole request, or has begun to reply.
    fn accept(&mut self) {
        self.outcome.accepted = true;
        if let Some(tally) = &mut self.tally {
            tally.accepted();
        }
    }

    /// `sent`: set once the request's body has been given to the upstream's connection.
    async fn send(
        &mut self,
        request: HttpRequest<RequestBody>,
        fresh: bool,
        upstream: &Arc<Upstream>,
        sent: &AtomicBool,
        progress: &mut Progress,
    ) -> Sent {
        let mut responding = pin!(upstream.send(request, fresh));
        // Without an account nobody has to know before there is an answer.
        let mut told = self.tally.is_none();
        loop {
            let waiting = std::future::poll_fn(|cx| match responding.as_mut().poll(cx) {
                Poll::Pending if !told && sent.load(Ordering::Acquire) => {
                    told = true;
                    Poll::Ready(None)
                }
                polled => polled.map(Some),
            });
            let (limit, late) = match upstream.deadlines.next(progress) {
                Some((at, kind)) => (Some(at), kind),
                None => (None, FaultKind::TotalTimeout),
            };
            let attended = self.attend(pin!(waiting), limit, true).await;
            // Its deadlines are for the upstream: while the client was sending, it could not answer.
            let came = self.upload().and_then(Upload::came);
            let waited = came.map_or(Duration::ZERO, |came| {
                came.saturating_duration_since(progress.started)
            });
            progress.started += waited;
            progress.first += waited;
            return match attended {
                Attended::Done(None) => {
                    self.accept();
                    continue;
                }
                Attended::Done(Some(Ok(response))) => Sent::Head(response),
                Attended::Done(Some(Err(error))) => Sent::Failed(error),
                Attended::Left => Sent::Left,
                Attended::Closing => Sent::Failed(SendError::of(FaultKind::Shutdown)),
                Attended::Late if !waited.is_zero() && !upstream.deadlines.is_over(progress) => {
                    continue;
                }
                Attended::Late => Sent::Failed(SendError::of(late)),
            };
        }
    }
}

enum Sent {
    Head(Response<UpstreamBody>),
    Failed(SendError),
    Left,
}
