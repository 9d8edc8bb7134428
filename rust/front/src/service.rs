//! Routing a client's request: to an upstream, or to the application.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HeaderMap};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use ring::rand::{SecureRandom, SystemRandom};
use sluicegate_core::error::Error;
use sluicegate_relay::{Engine, ErrorReply, Head, add_request_id};
use tokio::time::Instant;

use crate::application::{self, Passed};
use crate::arrival::{self, Arranged, Arrival, Forwarding};
use crate::asked::{self, AskedRequest};
use crate::body::ReplyBody;
use crate::callers::Presented;
use crate::carried::Carried;
use crate::clock::{Clock, Underway};
use crate::decisions::About;
use crate::endpoint::{Endpoint, Target};
use crate::facts::Facts;
use crate::head;
use crate::reading::{discard, read_body};
use crate::refusal::{Form, Refusal};
use crate::report::Report;
use crate::room::Share;
use crate::state::{FrontState, Listening};
use crate::upload::{Reader, Taking};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Of a body this small all but the head has arrived already: reading it keeps the connection.
const SMALL_BODY: u64 = 64 * 1024;

/// A reply that is no stream is sent with its length where so much of it, at most, is all of it.
const WHOLE_BYTES: usize = 256 * 1024;

/// Serves the requests of one connection.
pub(crate) struct Service(Arc<Serving>);

struct Serving {
    state: Arc<FrontState>,
    listening: Arc<Listening>,
    engine: Engine,
    clock: Arc<Clock>,
}

impl Service {
    pub(crate) fn new(
        state: Arc<FrontState>,
        listening: Arc<Listening>,
        engine: Engine,
        clock: Arc<Clock>,
    ) -> Self {
        Self(Arc::new(Serving {
            state,
            listening,
            engine,
            clock,
        }))
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<ReplyBody>, Infallible>> + Send>>;

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response<ReplyBody>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        let serving = Arc::clone(&self.0);
        // Not in the future: where the client has left by now, hyper drops it without a poll, and the request is
        // recorded all the same.
        let http1 = request.version() < Version::HTTP_2;
        let (asking, place, body) = serving.begin(request);
        // Boxed: the connection would keep room for it as long as it lives.
        Box::pin(async move {
            let mut response = serving.answer(asking, place, body).await;
            if http1 && serving.state.draining.is_given() {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            Ok(response)
        })
    }
}

/// What is known of a request from its head.
struct Asking {
    parts: Parts,
    request_id: Box<str>,
    started: Instant,
    underway: Underway,
}

impl Asking {
    /// How its errors are written.
    fn form(&self) -> Form {
        let endpoint = Endpoint::at(self.parts.uri.path());
        let headers = &self.parts.headers;
        endpoint.map_or_else(|| Form::of_client(headers), |at| at.form(headers))
    }

    fn error(&self, refusal: Refusal) -> ErrorReply {
        refusal.reply(self.form(), &self.request_id)
    }
}

/// Where a request goes, by its head.
#[allow(clippy::large_enum_variant)] // Of each request there is one, for a moment.
enum Place {
    Refused(Refusal),
    /// To an upstream.
    Forwarded {
        target: Target,
        key: Presented,
        /// There is no room for it.
        overloaded: bool,
        report: Report,
    },
    Application,
}

impl Serving {
    fn begin(&self, request: Request<Incoming>) -> (Asking, Place, Incoming) {
        let underway = self.clock.begin();
        let (parts, body) = request.into_parts();
        let asking = Asking {
            request_id: request_id(&parts.headers),
            started: Instant::now(),
            underway,
            parts,
        };
        let place = match head::check(&asking.parts, &self.listening.bounds) {
            Err(refusal) => Place::Refused(refusal),
            Ok(()) => self.place(&asking),
        };
        (asking, place, body)
    }

    fn place(&self, asking: &Asking) -> Place {
        let (state, parts) = (&self.state, &asking.parts);
        let Some(target) = state.target(&parts.method, parts.uri.path(), parts.uri.query()) else {
            return Place::Application;
        };
        let key = Presented::in_headers(&asking.parts.headers);
        let about = Arc::new(About {
            ticket: state.decisions.next_ticket(),
            tag: None,
            endpoint: Some(target.endpoint.clone()),
            form: target.endpoint.form(&parts.headers),
            request_id: asking.request_id.clone(),
            key: key.digest,
        });
        let entered = state.in_flight.enter(state.limits.max_requests);
        let overloaded = entered.is_none();
        let decisions = Arc::clone(&state.decisions);
        Place::Forwarded {
            target,
            key,
            overloaded,
            report: Report::new(about, asking.started, decisions, entered),
        }
    }

    async fn answer(&self, asking: Asking, place: Place, body: Incoming) -> Response<ReplyBody> {
        match place {
            Place::Refused(refusal) => {
                let reply = asking.error(refusal);
                self.unread(asking, reply, body)
            }
            Place::Application => {
                let body = Passed::coming(body, self.listening.bounds.body_pace);
                self.pass(asking, body).await
            }
            Place::Forwarded {
                target,
                key,
                overloaded,
                report,
            } => {
                if overloaded {
                    let reply = arrival::refuse(report, Refusal::Overloaded);
                    return self.unread(asking, reply, body);
                }
                self.forward(asking, target, key, report, body).await
            }
        }
    }

    async fn forward(
        &self,
        asking: Asking,
        target: Target,
        key: Presented,
        report: Report,
        mut body: Incoming,
    ) -> Response<ReplyBody> {
        let limits = &self.state.limits;
        let settings = self.state.settings();
        let (form, id) = (report.about.form, &asking.request_id);
        if let Some(reply) = settings.callers.refuse(key, form, id) {
            report.refused(reply.status, Some("invalid_api_key"), reply.body.len());
            return self.unread(asking, reply, body);
        }
        let pace = self.listening.bounds.body_pace;
        let share = Share::new(&self.state.body_room);
        let reader = match Reader::of(&target, &asking.parts.headers) {
            Ok(reader) => reader,
            Err(refusal) => return self.refuse(asking, report, refusal, body),
        };
        if let Some(reader) = reader {
            let taking = Taking {
                limit: limits.max_body,
                hold: limits.hold_upload,
                pace,
                share,
                form,
                request_id: id,
                engine: &self.engine,
            };
            let uploaded = match taking.read(reader, body).await {
                Ok(uploaded) => uploaded,
                Err((refusal, body)) => return self.refuse(asking, report, refusal, body),
            };
            let facts = settings.wanted.of_head(&asking.parts.headers);
            let size = uploaded.upload.size();
            let request = Ok(AskedRequest::Upload(uploaded));
            return self
                .arrange(asking, target, size, request, facts, report)
                .await;
        }
        let declared = body.size_hint().exact();
        let begun = asking.started;
        let read = read_body(&mut body, declared, limits.max_body, &pace, begun, share);
        let text = match read.await {
            Ok(text) => text,
            Err(refusal) => return self.refuse(asking, report, refusal, body),
        };
        let headers = &asking.parts.headers;
        let parsed = asked::parse(&target, headers, text.clone(), &settings.wanted).await;
        let (request, facts) = match parsed {
            Ok(parsed) => parsed,
            Err(refusal) => return whole(arrival::refuse(report, refusal), asking),
        };
        if request.as_ref().is_ok_and(|request| request.background()) {
            report.passed_on();
            return self.pass(asking, Passed::Whole(text)).await;
        }
        let size = text.len();
        drop(text);
        self.arrange(asking, target, size, request, facts, report)
            .await
    }

    /// Have it decided, and do what was decided.
    async fn arrange(
        &self,
        mut asking: Asking,
        target: Target,
        size: usize,
        request: Result<AskedRequest, Error>,
        facts: Facts,
        report: Report,
    ) -> Response<ReplyBody> {
        let arrival = Arrival {
            target,
            headers: std::mem::take(&mut asking.parts.headers),
            size,
            request,
            facts,
            report,
        };
        match arrival.arrange(&self.engine).await {
            Arranged::Refused(reply) => whole(reply, asking),
            Arranged::Forward(forwarding) => self.carry(*forwarding, asking).await,
        }
    }

    /// Answer a request whose body cannot be read.
    fn refuse(
        &self,
        asking: Asking,
        report: Report,
        refusal: Refusal,
        body: Incoming,
    ) -> Response<ReplyBody> {
        let reply = arrival::refuse(report, refusal);
        match refusal {
            // There is nothing to wait for.
            Refusal::Late | Refusal::Malformed | Refusal::Incomplete => whole(reply, asking),
            _ => self.unread(asking, reply, body),
        }
    }

    async fn carry(&self, forwarding: Forwarding, asking: Asking) -> Response<ReplyBody> {
        let alone = asking.parts.version < Version::HTTP_2;
        let limits = &self.state.limits;
        let mut carried = Carried::start(forwarding, limits, &self.engine, &self.clock, alone);
        let Ok(head) = poll_fn(|cx| carried.poll_head(cx)).await else {
            return whole(asking.error(Refusal::Internal), asking);
        };
        let mut first = VecDeque::new();
        let mut ended = false;
        if !is_event_stream(&head) {
            let mut bytes = 0;
            poll_fn(|cx| {
                while bytes < WHOLE_BYTES {
                    match carried.poll_frame(cx) {
                        Poll::Ready(Some(Ok(frame))) => {
                            bytes += frame.len();
                            first.push_back(frame);
                        }
                        Poll::Ready(None) => {
                            ended = true;
                            break;
                        }
                        // What is aborted is found to be so again.
                        Poll::Ready(Some(Err(_))) | Poll::Pending => break,
                    }
                }
                Poll::Ready(())
            })
            .await;
        }
        let body = if ended {
            ReplyBody::whole(first, asking.underway)
        } else {
            ReplyBody::carried(first, carried, asking.underway)
        };
        response(head, body, asking.parts.version)
    }

    /// Answer a request whose body has not been read. The client may still be sending it: were its connection closed
    /// meanwhile, it would see a reset in place of the answer (RFC 9112, section 9.6).
    fn unread(&self, asking: Asking, mut reply: ErrorReply, body: Incoming) -> Response<ReplyBody> {
        let sends = !body.is_end_stream();
        let waits = asking.parts.headers.contains_key(EXPECT);
        let declared = body.size_hint().exact();
        if sends && (waits || declared.is_none_or(|declared| declared > SMALL_BODY)) {
            let close = HeaderValue::from_static("close");
            reply.headers.insert(CONNECTION, close);
        }
        // A client that asked to be told to continue sends nothing until it is. Over HTTP/2 the end of the reply resets
        // what is left of the request (RFC 9113, section 8.1).
        if sends && !waits && asking.parts.version < Version::HTTP_2 {
            self.engine.spawn(discard(body));
        }
        whole(reply, asking)
    }

    /// Let the application answer.
    async fn pass(&self, asking: Asking, body: Passed) -> Response<ReplyBody> {
        let listening = &self.listening;
        let Some(entered) = listening.passed.enter(listening.bounds.connections) else {
            return whole(asking.error(Refusal::Overloaded), asking);
        };
        let form = asking.form();
        let Asking {
            mut parts,
            request_id,
            underway,
            ..
        } = asking;
        add_request_id(&mut parts.headers, &request_id);
        let version = parts.version;
        let wanted = Arc::clone(&self.state.settings().wanted);
        match application::ask(&listening.application, &wanted, parts, body).await {
            Ok(response) => {
                let (mut parts, body) = response.into_parts();
                head::drop_hop_by_hop(&mut parts.headers);
                parts.version = version;
                Response::from_parts(parts, ReplyBody::application(body, entered, underway))
            }
            Err(refusal) => {
                let reply = refusal.reply(form, &request_id);
                let head = with_request_id(reply.status, reply.headers, &request_id);
                let body = ReplyBody::whole([reply.body], underway);
                response(head, body, version)
            }
        }
    }
}

/// A reply of our own.
fn whole(reply: ErrorReply, asking: Asking) -> Response<ReplyBody> {
    let head = with_request_id(reply.status, reply.headers, &asking.request_id);
    let body = ReplyBody::whole([reply.body], asking.underway);
    response(head, body, asking.parts.version)
}

fn with_request_id(status: u16, mut headers: HeaderMap, request_id: &str) -> Head {
    add_request_id(&mut headers, request_id);
    Head { status, headers }
}

fn response(head: Head, body: ReplyBody, version: Version) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(head.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    *headers = head.headers;
    headers.remove(CONTENT_LENGTH);
    if version >= Version::HTTP_2 {
        // RFC 9113 section 8.2.2: no header of HTTP/2 is about the connection.
        headers.remove(CONNECTION);
    }
    response
}

fn is_event_stream(head: &Head) -> bool {
    let given = head.headers.get(CONTENT_TYPE);
    given.is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"))
}

/// The client's own id where it is fit for headers and logs, else a new one of 128 random bits.
fn request_id(headers: &HeaderMap) -> Box<str> {
    let given = headers.get(REQUEST_ID).map(HeaderValue::as_bytes);
    match given.and_then(head::own_request_id) {
        Some(id) => id.into(),
        None => new_id(),
    }
}

fn new_id() -> Box<str> {
    const ID: usize = 16;
    thread_local! {
        /// Random bytes, and how many of them are used: one system call serves many ids.
        static POOL: RefCell<([u8; 128 * ID], usize)> = const { RefCell::new(([0; 128 * ID], 128 * ID)) };
    }
    POOL.with_borrow_mut(|(pool, used)| {
        if *used >= pool.len() {
            // The system's generator does not fail once it has been seeded, at the machine's start.
            let _ = SystemRandom::new().fill(pool);
            *used = 0;
        }
        let mut id = [0; ID];
        id.copy_from_slice(&pool[*used..*used + ID]);
        *used += ID;
        format!("{:032x}", u128::from_ne_bytes(id)).into()
    })
}
