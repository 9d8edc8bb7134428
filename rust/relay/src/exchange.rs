//! One request on its way: attempts, one after the other, until one is pumped to the client or none is left.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::header::HeaderMap;
use http::{Method, Request as HttpRequest, Response, StatusCode, Uri};
use http_body_util::Full;
use sluicegate_core::limits::Limits;
use sluicegate_core::pipeline::{Api, Pipeline, ReplyPlan};
use sluicegate_core::request::{Request, RequestEdit, UsageAsk};
use sluicegate_core::sse::encode;
use tokio::time::Instant;

use crate::asked::{self, Form, Forms, ResponsesAsked};
use crate::body::UpstreamBody;
use crate::deadlines::Progress;
use crate::decode::ReplyBody;
use crate::fault::{Fault, FaultKind};
use crate::headers;
use crate::keepalive::KeepAlive;
use crate::leaving::{DrainLimits, Leaving};
use crate::outcome::Outcome;
use crate::pump::{Client, Pump, PumpEnd};
use crate::runtime::{Active, Shared};
use crate::sink::{Director, HeaderList, Next, Sink};
use crate::upstream::{Route, Upstream};

/// The most that is read of an upstream's error body, in bytes: enough for any message, too little to hurt.
const ERROR_BODY_LIMIT: usize = 1024 * 1024;

/// Attempts of one exchange, whatever the director says: a director that always has another route must not loop.
const MAX_ATTEMPTS: u32 = 32;

/// The status recorded where the client left before it got one (nginx's convention).
const CLIENT_CLOSED_REQUEST: u16 = 499;

type FinishCallback = Box<dyn FnOnce(Arc<Outcome>) + Send>;

enum State {
    Running(Vec<FinishCallback>),
    Finished(Arc<Outcome>),
}

/// What the client's side holds of an exchange.
pub struct Control {
    left: AtomicBool,
    leaving: AtomicWaker,
    state: Mutex<State>,
}

impl Control {
    pub(crate) fn new() -> Self {
        Self {
            left: AtomicBool::new(false),
            leaving: AtomicWaker::new(),
            state: Mutex::new(State::Running(Vec::new())),
        }
    }

    /// The client is gone: close the upstream's connection, or read on where the route says so. Idempotent.
    pub fn client_left(&self) {
        if !self.left.swap(true, Ordering::AcqRel) {
            self.leaving.wake();
        }
    }

    /// Resolves when the client leaves.
    pub(crate) async fn left(&self) {
        std::future::poll_fn(|cx| self.poll_left(cx)).await;
    }

    /// Ready once the client has left. One task waits for that: the exchange's.
    pub(crate) fn poll_left(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_left() {
            return Poll::Ready(());
        }
        self.leaving.register(cx.waker());
        // It may have left in between.
        if self.has_left() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// The outcome, once there is one: set before the last frame is pushed.
    pub fn outcome(&self) -> Option<Arc<Outcome>> {
        match self.state.lock() {
            Ok(state) => match &*state {
                State::Finished(outcome) => Some(Arc::clone(outcome)),
                State::Running(_) => None,
            },
            Err(_) => None,
        }
    }

    /// Call `callback` with the outcome, once: on the relay's thread, or here and now where the exchange has ended.
    pub fn on_finish(&self, callback: FinishCallback) {
        let finished = match self.state.lock() {
            Ok(mut state) => match &mut *state {
                State::Running(callbacks) => {
                    callbacks.push(callback);
                    return;
                }
                State::Finished(outcome) => Arc::clone(outcome),
            },
            Err(_) => return,
        };
        callback(finished);
    }

    fn finish(&self, outcome: Outcome) {
        let outcome = Arc::new(outcome);
        let callbacks = match self.state.lock() {
            Ok(mut state) => {
                match std::mem::replace(&mut *state, State::Finished(Arc::clone(&outcome))) {
                    State::Running(callbacks) => callbacks,
                    finished @ State::Finished(_) => {
                        *state = finished;
                        return;
                    }
                }
            }
            Err(_) => return,
        };
        for callback in callbacks {
            callback(Arc::clone(&outcome));
        }
    }
}

/// What one exchange is made of.
pub struct Exchange {
    /// The client's body.
    pub request: Request,
    /// Which API it speaks.
    pub api: Api,
    /// The same request, where it is one for a response.
    pub responses: Option<ResponsesAsked>,
    /// The endpoint below the upstream's base URL, with its leading slash.
    pub path: Box<str>,
    /// The client's headers.
    pub headers: HeaderList,
    /// Passed on, and given back to the client.
    pub request_id: Box<str>,
    /// The first route to try.
    pub route: Route,
    /// Bounds of the reply.
    pub limits: Limits,
    /// A comment to a streaming client after this long a silence.
    pub keepalive: Option<Duration>,
    /// How far it is read where its client leaves and the route drains.
    pub drain: DrainLimits,
    /// Where frames go.
    pub sink: Box<dyn Sink>,
    /// Who decides.
    pub director: Box<dyn Director>,
}

/// How one attempt ended.
enum Attempt {
    /// Everything was said to the client, well or not.
    Settled,
    /// Nothing was.
    Failed(Fault),
    Left,
}

/// An exchange at work. Its drop settles the outcome where the task was ended from outside.
struct Session {
    exchange: Exchange,
    forms: Forms,
    control: Arc<Control>,
    shared: Arc<Shared>,
    started: Instant,
    keepalive: KeepAlive,
    leaving: Leaving,
    outcome: Outcome,
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.control.outcome().is_none() {
            let fault = Fault::new(FaultKind::Internal, &self.outcome.upstream);
            self.outcome.fault.get_or_insert(fault);
            self.settle();
        }
    }
}

impl Exchange {
    /// Its life. Not all of it is an `async` block: that would have room for the exchange twice, as it comes and as it is kept.
    pub(crate) fn run(
        mut self,
        control: Arc<Control>,
        shared: Arc<Shared>,
        active: Active,
    ) -> impl Future<Output = ()> + Send {
        let started = Instant::now();
        let keepalive = self.keepalive.filter(|_| self.request.stream());
        let leaving = Leaving::new(Arc::clone(&shared), self.drain);
        let mut session = Box::new(Session {
            forms: Forms::new(self.responses.take()),
            exchange: self,
            control,
            shared,
            started,
            keepalive: KeepAlive::new(keepalive, started),
            leaving,
            outcome: Outcome::default(),
        });
        async move {
            session.serve().await;
            session.flush().await;
            drop(session);
            drop(active);
        }
    }
}

impl Session {
    async fn serve(&mut self) {
        let mut route = self.exchange.route.clone();
        loop {
            self.outcome.attempts += 1;
            self.outcome.upstream = route.upstream.name.clone();
            self.outcome.upstream_model = route.model.clone();
            let fault = match self.attempt(&route).await {
                Attempt::Settled => return,
                Attempt::Left => return self.part(None),
                // Nobody is there for whom another upstream could be tried.
                Attempt::Failed(fault) if self.leaving.departed() => return self.part(Some(fault)),
                Attempt::Failed(fault) => fault,
            };
            match self.exchange.director.failed(&fault) {
                Next::Route(next) if self.outcome.attempts < MAX_ATTEMPTS => route = next,
                next => {
                    self.outcome.fault = Some(fault);
                    self.refuse(next);
                    return;
                }
            }
        }
    }

    /// The end of an exchange whose client has left.
    fn part(&mut self, fault: Option<Fault>) {
        self.outcome.client_left = true;
        if self.outcome.status == 0 {
            self.outcome.status = CLIENT_CLOSED_REQUEST;
        }
        if fault.is_some() {
            self.outcome.fault = fault;
        }
        self.settle();
        self.exchange.sink.abort();
    }

    /// Answer with an error of the gateway's own protocol.
    fn refuse(&mut self, next: Next) {
        let Next::Reply(reply) = next else {
            self.settle();
            self.exchange.sink.abort();
            return;
        };
        if self.keepalive.has_begun() {
            let mut events = self.failed_stream(&reply.body);
            self.outcome.status = StatusCode::OK.as_u16();
            self.outcome.streamed = true;
            self.outcome.bytes_out = events.iter().map(|frame| frame.len() as u64).sum();
            self.settle();
            self.exchange.sink.push(&mut events);
            self.exchange.sink.end();
            return;
        }
        self.outcome.status = reply.status;
        self.outcome.bytes_out = reply.body.len() as u64;
        self.settle();
        let mut headers = reply.headers;
        headers.push((
            Bytes::from_static(b"x-request-id"),
            Bytes::copy_from_slice(self.exchange.request_id.as_bytes()),
        ));
        self.exchange.sink.start(reply.status, headers);
        self.exchange.sink.push(&mut vec![reply.body]);
        self.exchange.sink.end();
    }

    /// A stream that holds nothing but an error, for a client that has been sent comments only. `body` is the error's object.
    fn failed_stream(&mut self, body: &[u8]) -> Vec<Bytes> {
        let fault = self.outcome.fault.as_ref();
        if let Some(fault) = fault
            && let Some(echo) = self.forms.echo(None)
        {
            let plan = ReplyPlan {
                upstream_api: Api::Chat,
                responses: Some(echo),
                ..ReplyPlan::new(self.exchange.api, true)
            };
            let mut events = Vec::new();
            let (code, message) = (fault.kind.as_str(), fault.message());
            Pipeline::new(plan).fail("upstream_error", code, &message, &mut events);
            return events;
        }
        let mut event = Vec::with_capacity(body.len() + 16);
        encode::event("", body, &mut event);
        vec![event.into()]
    }

    fn settle(&mut self) {
        self.outcome.duration = self.started.elapsed();
        self.control.finish(std::mem::take(&mut self.outcome));
    }

    /// Wait until the server has taken the last frame, unless the client leaves first. Also while the relay closes: what a
    /// client is told then is still on its way, and the relay bounds how long it waits.
    async fn flush(&mut self) {
        let sink = &mut self.exchange.sink;
        let flushed = std::future::poll_fn(|cx| sink.poll_flushed(cx));
        tokio::select! {
            () = flushed => {}
            () = self.control.left() => {}
        }
    }

    /// One upstream, up to two extra requests to it: on a fresh connection where a pooled one proved dead, and without
    /// `stream_options` where the upstream refuses them.
    async fn attempt(&mut self, route: &Route) -> Attempt {
        let upstream = Arc::clone(&route.upstream);
        let started = Instant::now();
        self.leaving.set_drain(route.drain);
        let exchange = &self.exchange;
        let (api, request) = (exchange.api, &exchange.request);
        let form = match self.forms.of(api, request, &upstream) {
            Ok(form) => form,
            Err(fault) => return Attempt::Failed(fault),
        };
        let path = match form.translated {
            Some(_) => asked::path_of(form.api),
            None => &*exchange.path,
        };
        let Ok(uri) = format!("{}{path}", upstream.base).parse::<Uri>() else {
            return Attempt::Failed(Fault::new(FaultKind::Internal, &upstream.name));
        };
        let (stream, mut usage) = form.streaming(request, &upstream);
        let progress = Progress {
            started,
            first_byte: None,
            last_token: None,
            streaming: stream.unwrap_or(self.exchange.request.stream()),
        };
        let mut fresh = false;
        let response = loop {
            let edit = RequestEdit {
                model: Some(&route.model),
                usage,
                stream,
            };
            let body = form.request(&self.exchange.request).edit(&edit);
            let mut http = HttpRequest::new(Full::new(body));
            *http.method_mut() = Method::POST;
            *http.uri_mut() = uri.clone();
            *http.headers_mut() =
                headers::up(&self.exchange.headers, &upstream, &self.exchange.request_id);
            let response = match self.send(http, fresh, &upstream, &progress).await {
                Sent::Left => return Attempt::Left,
                Sent::Failed(kind, repeatable) => {
                    if repeatable && !fresh && kind == FaultKind::Reset {
                        fresh = true;
                        continue;
                    }
                    return Attempt::Failed(Fault::new(kind, &upstream.name));
                }
                Sent::Head(response) => response,
            };
            if response.status().is_success() {
                break response;
            }
            if self.leaving.departed() {
                return Attempt::Left;
            }
            let status = response.status();
            let fault = match self.read_error(response, route, started).await {
                Ok(fault) => fault,
                Err(attempt) => return attempt,
            };
            let refused = status == StatusCode::BAD_REQUEST
                && usage == UsageAsk::Ask
                && memmem(&fault.body, b"stream_options");
            if refused {
                usage = UsageAsk::Remove;
                continue;
            }
            return Attempt::Failed(fault);
        };
        self.relay(response, route, &form, progress).await
    }

    async fn send(
        &mut self,
        request: HttpRequest<Full<Bytes>>,
        fresh: bool,
        upstream: &Upstream,
        progress: &Progress,
    ) -> Sent {
        let (limit, kind) = match upstream.deadlines.next(progress) {
            Some((at, kind)) => (Some(at), kind),
            None => (None, FaultKind::TotalTimeout),
        };
        let mut responding = pin!(upstream.send(request, fresh));
        let response = loop {
            tokio::select! {
                biased;
                response = &mut responding => break response,
                () = self.control.left(), if !self.leaving.departed() => {
                    if !self.leaving.depart() {
                        return Sent::Left;
                    }
                    self.keepalive.stop();
                }
                () = sleep_until(self.leaving.until()), if self.leaving.departed() => return Sent::Left,
                () = self.shared.closing.cancelled() => {
                    return Sent::Failed(FaultKind::Shutdown, false);
                }
                () = sleep_until(limit) => return Sent::Failed(kind, false),
                () = sleep_until(self.keepalive.next()) => {
                    let sink = &mut *self.exchange.sink;
                    self.keepalive.beat(sink, &self.exchange.request_id, false);
                }
            }
        };
        match response {
            Ok(response) => Sent::Head(response),
            Err(error) => Sent::Failed(error.kind, error.repeatable),
        }
    }

    /// The body of an error reply, bounded in size and by the deadlines that still run.
    async fn read_error(
        &mut self,
        response: Response<UpstreamBody>,
        route: &Route,
        started: Instant,
    ) -> Result<Fault, Attempt> {
        let (parts, body) = response.into_parts();
        self.outcome.upstream_request_id = request_id(&parts.headers);
        let mut fault = Fault::new(FaultKind::Status, &route.upstream.name);
        fault.status = Some(parts.status.as_u16());
        fault.headers = headers::list(&headers::down(&parts.headers, &route.upstream));
        let Ok(mut body) = ReplyBody::new(&parts.headers, body) else {
            return Ok(fault);
        };
        let deadlines = &route.upstream.deadlines;
        let limit = [deadlines.first_byte, deadlines.total]
            .into_iter()
            .flatten()
            .min();
        let mut collected = Vec::new();
        let read = async {
            while let Some(Ok(data)) = std::future::poll_fn(|cx| body.poll_read(cx)).await {
                let room = ERROR_BODY_LIMIT - collected.len();
                collected.extend_from_slice(&data[..data.len().min(room)]);
                if data.len() >= room {
                    break;
                }
            }
        };
        tokio::select! {
            () = read => {}
            () = self.control.left() => return Err(Attempt::Left),
            () = self.shared.closing.cancelled() => {}
            () = sleep_until(limit.and_then(|limit| started.checked_add(limit))) => {}
        }
        fault.body = collected.into();
        Ok(fault)
    }

    /// Pump a reply with a success status.
    async fn relay(
        &mut self,
        response: Response<UpstreamBody>,
        route: &Route,
        form: &Form,
        progress: Progress,
    ) -> Attempt {
        let started = progress.started;
        let (parts, body) = response.into_parts();
        self.outcome.upstream_request_id = request_id(&parts.headers);
        let Ok(body) = ReplyBody::new(&parts.headers, body) else {
            return Attempt::Failed(Fault::new(FaultKind::Decode, &route.upstream.name));
        };
        if let Some(translated) = &form.translated {
            self.outcome.left_out.clone_from(&translated.left_out);
        }
        let repair = form.is_repaired_by(&route.upstream);
        let made = repair || form.translated.is_some();
        let asked = self.forms.asked(Some(&route.model));
        let responses = asked.as_ref().filter(|_| made);
        let responses = responses.map(|asked| Arc::new(asked.echo()));
        let request = &self.exchange.request;
        let plan = ReplyPlan {
            upstream_api: form.api,
            responses,
            asked,
            repair,
            harmony: route.upstream.harmony && form.api == Api::Chat,
            clock: Some(asked::now),
            hide_usage_chunk: request.stream() && !request.include_usage(),
            include_usage: request.include_usage(),
            declared_stream: headers::declare_event_stream(&parts.headers),
            dialect: route.upstream.dialect,
            reply_model: route.reply_model.clone(),
            limits: self.exchange.limits,
            ..ReplyPlan::new(self.exchange.api, request.stream())
        };
        let mut pump = Pump::new(plan, body, route, progress, &self.keepalive, &self.leaving);
        let mut client = Client {
            sink: &mut *self.exchange.sink,
            director: &mut *self.exchange.director,
            status: parts.status,
            headers: headers::down(&parts.headers, &route.upstream),
            request_id: &self.exchange.request_id,
            keepalive: &mut self.keepalive,
            leaving: &mut self.leaving,
        };
        let end = pump
            .run(&mut client, &self.control, &self.shared.closing)
            .await;
        pump.report(&mut self.outcome, started - self.started);
        match end {
            PumpEnd::Complete | PumpEnd::Aborted if self.leaving.departed() => Attempt::Left,
            PumpEnd::Complete => {
                self.settle();
                self.exchange.sink.end();
                Attempt::Settled
            }
            PumpEnd::Aborted => {
                self.settle();
                self.exchange.sink.abort();
                Attempt::Settled
            }
            PumpEnd::Failed(fault) => Attempt::Failed(fault),
            PumpEnd::Left => Attempt::Left,
        }
    }
}

enum Sent {
    Head(Response<UpstreamBody>),
    /// Why, and whether the same request may be sent once more.
    Failed(FaultKind, bool),
    Left,
}

fn request_id(headers: &HeaderMap) -> Option<Box<str>> {
    headers
        .get("x-request-id")
        .and_then(|id| id.to_str().ok())
        .map(Into::into)
}

fn memmem(haystack: &[u8], needle: &[u8]) -> bool {
    haystack
        .windows(needle.len())
        .any(|window| window == needle)
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
