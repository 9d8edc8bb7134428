#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What fails here fails the test.
#![allow(dead_code, unused_imports, unreachable_pub)] // Each test file takes what it needs.
//! A scripted upstream, a client that records what it is given, and what ties them together.

mod client;
mod server;
mod tracked;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, DirEntry};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use sluicegate_core::api::Api;
use sluicegate_core::cost::Members;
use sluicegate_core::limits::Limits;
use sluicegate_core::pipeline::Pricer;
use sluicegate_core::pricing::{self, CostStyle, Rates, Tariff};
use sluicegate_core::protocols::Serves;
use sluicegate_core::protocols::responses::request::ResponsesRequest;
use sluicegate_core::request::Request;
use sluicegate_core::usage::Usage;
use sluicegate_relay::tally::Progress;
use sluicegate_relay::{
    Asked, AskedBody, Attempt, Copies, Deadlines, Deciding, Director, DrainLimits, Engine, Engines,
    ErrorReply, Exchange, Fault, FaultKind, Next, Outcome, Pricing, Replies, ReplyCopy,
    ResponsesAsked, Route, Sink, Streaming, Tally, Upload, Upstream, UpstreamSettings,
};

pub(crate) use client::{Client, End, Orders, Way};
pub(crate) use server::{Answer, Server, chat_chunk, compressed, head, upstream, zstd};
pub(crate) use tracked::{Freed, tracked};

/// Bytes that may wait for the recording client.
pub(crate) const CLIENT_BOUND: usize = 64 * 1024;

/// A test that waits longer than this has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How long each of this process's threads has waited for a core, where Linux counts it
/// (`/proc/PID/task/TID/schedstat`, in nanoseconds): what a bound on time must allow for.
pub(crate) struct Waits(HashMap<OsString, u64>);

impl Waits {
    pub(crate) fn so_far() -> Self {
        let waited = |task: DirEntry| {
            let counts = fs::read_to_string(task.path().join("schedstat")).ok()?;
            let waited = counts.split_whitespace().nth(1)?.parse().ok()?;
            Some((task.file_name(), waited))
        };
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
        Self(tasks.flatten().filter_map(waited).collect())
    }

    /// All together since then, of the threads that live.
    pub(crate) fn since(&self) -> Duration {
        let gained = |(task, waited): (&OsString, &u64)| {
            waited.saturating_sub(self.0.get(task).copied().unwrap_or(0))
        };
        Duration::from_nanos(Self::so_far().0.iter().map(gained).sum())
    }
}

/// Generates two tests of each function that takes a [`Way`].
macro_rules! both_ways {
    ($($name:ident),+ $(,)?) => {
        mod as_a_task {
            $(#[test] fn $name() { super::$name(super::Way::Task); })+
        }
        mod inline {
            $(#[test] fn $name() { super::$name(super::Way::Inline); })+
        }
    };
}
pub(crate) use both_ways;

/// The last event of a chat stream.
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// The head of an event stream, and these events.
pub(crate) fn stream(events: &[String]) -> Vec<u8> {
    let mut bytes = head("text/event-stream").into_bytes();
    for event in events {
        bytes.extend_from_slice(event.as_bytes());
    }
    bytes
}

/// A chat stream of one token.
pub(crate) fn finished() -> Vec<String> {
    vec![
        chat_chunk("a", "null"),
        chat_chunk("", "\"stop\""),
        DONE.to_owned(),
    ]
}

/// What is reported of an exchange that is over: how it ended, and the copy of its reply.
pub(crate) type Ended = (Outcome, Option<ReplyCopy>);

/// What the director does about a failure, and who hears of it.
pub(crate) struct Script {
    /// The attempts that follow the first, in their order.
    pub(crate) next: Vec<Attempt>,
    /// No decision ever comes.
    pub(crate) silent: bool,
    /// Called with each failure.
    pub(crate) failed: Box<dyn Fn(&Fault) + Send + Sync>,
    /// How often a first output was told of.
    pub(crate) outputs: Arc<AtomicUsize>,
    rates: Arc<pricing::Pricing>,
    priced_on: Arc<Mutex<Vec<String>>>,
    pricers: Arc<AtomicUsize>,
    price_gate: Arc<Mutex<()>>,
    ended: Sender<Ended>,
}

impl Director for Script {
    fn failed(&mut self, fault: &Fault, _: u32) -> Deciding<'_> {
        (self.failed)(fault);
        if self.silent {
            return Box::pin(std::future::pending());
        }
        let next = if self.next.is_empty() {
            Next::Reply(ErrorReply {
                status: 502,
                headers: http::HeaderMap::new(),
                body: fault.message().into(),
            })
        } else {
            Next::Attempt(Box::new(self.next.remove(0)))
        };
        Box::pin(std::future::ready(next))
    }

    fn first_output(&mut self) {
        self.outputs.fetch_add(1, Ordering::AcqRel);
    }

    fn pricer(&self) -> Box<dyn Pricer + Send> {
        self.pricers.fetch_add(1, Ordering::AcqRel);
        Box::new(AskedRates {
            rates: Arc::clone(&self.rates),
            gate: Arc::clone(&self.price_gate),
            on: Arc::clone(&self.priced_on),
        })
    }

    fn ended(&mut self, outcome: Outcome, copy: Option<ReplyCopy>, tally: Option<Box<dyn Tally>>) {
        if let Some(mut tally) = tally {
            tally.charge(None);
            tally.close(&outcome);
        }
        let _ = self.ended.send((outcome, copy));
    }
}

/// What an account was told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tallied {
    Attempt(String),
    Accepted,
    /// Events that bore output, bytes, output tokens, and whether the reply had ended.
    Progress(u64, u64, Option<u64>, bool),
    Charged,
    /// The status, and the kind of the fault.
    Closed(u16, Option<FaultKind>),
    /// It is gone.
    Dropped,
}

struct Account {
    told: Arc<Mutex<Vec<Tallied>>>,
}

impl Account {
    fn note(&self, what: Tallied) {
        self.told.lock().unwrap().push(what);
    }
}

impl Tally for Account {
    fn attempt(&mut self, route: &Route) {
        self.note(Tallied::Attempt(route.model.to_string()));
    }

    fn accepted(&mut self) {
        self.note(Tallied::Accepted);
    }

    fn progress(&mut self, progress: Progress<'_>) {
        self.note(Tallied::Progress(
            progress.token_events,
            progress.bytes_in,
            progress.usage.and_then(|usage| usage.output_tokens),
            progress.whole,
        ));
    }

    fn charge(&mut self, _: Option<[u64; 6]>) {
        self.note(Tallied::Charged);
    }

    fn close(&mut self, outcome: &Outcome) {
        let fault = outcome.fault.as_ref().map(|fault| fault.kind);
        self.note(Tallied::Closed(outcome.status, fault));
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.note(Tallied::Dropped);
    }
}

/// Prices by rates where it is asked, and notes on which thread.
struct AskedRates {
    rates: Arc<pricing::Pricing>,
    gate: Arc<Mutex<()>>,
    on: Arc<Mutex<Vec<String>>>,
}

impl Pricer for AskedRates {
    fn price(&mut self, usage: &Usage) -> Option<Members> {
        let name = thread::current().name().unwrap_or_default().to_owned();
        self.on.lock().unwrap().push(name);
        drop(self.gate.lock());
        self.rates.price(usage).1
    }
}

/// One millionth of a dollar for a token of input, four for one of output.
pub(crate) fn rates() -> Arc<pricing::Pricing> {
    let mut texts = [None; 11];
    (texts[0], texts[4]) = (Some("0.000001"), Some("0.000004"));
    let tariff = Tariff::new(Rates::parse(&texts).unwrap(), Vec::new());
    Arc::new(pricing::Pricing::new(
        Some(Arc::new(tariff)),
        CostStyle::OpenRouter,
    ))
}

/// What the client was given, and what was recorded.
pub(crate) struct Seen {
    pub(crate) status: Option<u16>,
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
    pub(crate) outcome: Outcome,
    pub(crate) copy: Option<ReplyCopy>,
    pub(crate) left_at: Option<Instant>,
    headers: Vec<(String, String)>,
}

impl Seen {
    pub(crate) fn fault(&self) -> Option<FaultKind> {
        self.outcome.fault.as_ref().map(|fault| fault.kind)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let named = self.headers.iter().find(|(n, _)| n == name);
        named.map(|(_, value)| value.as_str())
    }
}

pub(crate) struct Running {
    client: Client,
    ended: Receiver<Ended>,
}

impl Running {
    pub(crate) fn wait_first_frame(&self) {
        self.client.wait_first_frame();
    }

    pub(crate) fn has_frame(&self) -> bool {
        self.client.has_frame()
    }

    pub(crate) fn leave(&self) {
        self.client.leave();
    }

    /// The end of the exchange, and of the client. Exactly one outcome is reported.
    pub(crate) fn wait(self) -> Seen {
        let (outcome, copy) = self
            .ended
            .recv_timeout(PATIENCE)
            .expect("the exchange did not end");
        let got = self.client.wait();
        // The sender goes with the director, and the director with the exchange.
        let again = self.ended.recv_timeout(PATIENCE);
        assert!(
            matches!(again, Err(std::sync::mpsc::RecvTimeoutError::Disconnected)),
            "ended twice, or never let go of"
        );
        Seen {
            status: got.status,
            body: got.body,
            end: got.end,
            outcome,
            copy,
            left_at: got.left_at,
            headers: got.headers,
        }
    }
}

pub(crate) fn engines() -> Engines {
    Engines::start(1, |why| panic!("{why}")).unwrap()
}

/// One request.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) way: Way,
    pub(crate) base_url: String,
    pub(crate) deadlines: Deadlines,
    /// The base URLs of further upstreams, tried in their order.
    pub(crate) fallback: Vec<String>,
    /// Waited for before each of them.
    pub(crate) after: Duration,
    /// When the client leaves, and how much it reads.
    pub(crate) orders: Orders,
    pub(crate) keepalive: Option<Duration>,
    pub(crate) streaming: Streaming,
    pub(crate) serves: Api,
    pub(crate) api: Api,
    pub(crate) client_streams: bool,
    /// In place of a small body.
    pub(crate) body: Option<Bytes>,
    /// In place of JSON.
    pub(crate) upload: Option<Upload>,
    pub(crate) pricing: Pricing,
    pub(crate) client_stall: Option<Duration>,
    pub(crate) patience: Option<Duration>,
    /// The bytes of the reply that are copied at most.
    pub(crate) copied: Option<usize>,
    pub(crate) copies: Arc<Copies>,
    /// Read on after the client has left.
    pub(crate) drain: Option<DrainLimits>,
    pub(crate) silent_director: bool,
    /// Each attempt is a trial.
    pub(crate) trial: bool,
    /// How often the director was told of a first output.
    pub(crate) outputs: Arc<AtomicUsize>,
    pub(crate) priced_on: Arc<Mutex<Vec<String>>>,
    /// How often the director was asked for somebody who prices.
    pub(crate) pricers: Arc<AtomicUsize>,
    /// As long as it is held, no price is said where it is asked for.
    pub(crate) price_gate: Arc<Mutex<()>>,
    /// What the exchange's account was told, where one is kept.
    pub(crate) tallied: Option<Arc<Mutex<Vec<Tallied>>>>,
    pub(crate) estimated_input: Option<u64>,
}

impl Setup {
    pub(crate) fn streaming(way: Way, server: &Server) -> Self {
        Setup {
            way,
            base_url: server.base_url(),
            deadlines: Deadlines::default(),
            fallback: Vec::new(),
            after: Duration::ZERO,
            orders: Orders::default(),
            keepalive: None,
            streaming: Streaming::Auto,
            serves: Api::Chat,
            api: Api::Chat,
            client_streams: true,
            body: None,
            upload: None,
            pricing: Pricing::Rates(Arc::new(pricing::Pricing::new(None, CostStyle::None))),
            client_stall: None,
            patience: None,
            copied: None,
            copies: Copies::new(1 << 20),
            drain: None,
            silent_director: false,
            trial: false,
            outputs: Arc::default(),
            priced_on: Arc::default(),
            pricers: Arc::default(),
            price_gate: Arc::default(),
            tallied: None,
            estimated_input: None,
        }
    }

    fn tally(&self) -> Option<Box<dyn Tally>> {
        let told = self.tallied.clone()?;
        Some(Box::new(Account { told }))
    }

    fn upstream(&self, base_url: &str) -> Arc<Upstream> {
        let settings = UpstreamSettings {
            base_url: base_url.to_owned(),
            deadlines: self.deadlines,
            streaming: self.streaming,
            serves: Serves::new([self.serves]).unwrap(),
            ..UpstreamSettings::default()
        };
        Arc::new(Upstream::new("up", settings).unwrap())
    }

    /// The first attempt.
    pub(crate) fn attempt(&self) -> Attempt {
        Attempt {
            route: Route {
                upstream: self.upstream(&self.base_url),
                model: "theirs".into(),
                reply_model: None,
                drain: self.drain.is_some(),
            },
            pricing: self.pricing.clone(),
            last: self.fallback.is_empty(),
            trial: self.trial,
            after: Duration::ZERO,
            headers: HeaderMap::new(),
        }
    }

    fn further(&self, first: &Attempt) -> Vec<Attempt> {
        let attempts = self.fallback.iter().enumerate().map(|(nth, url)| {
            let mut next = first.clone();
            next.route.upstream = self.upstream(url);
            next.last = nth + 1 == self.fallback.len();
            next.after = self.after;
            next
        });
        attempts.collect()
    }

    fn asked(&self) -> Asked {
        let stream = self.client_streams;
        let text = match self.api {
            Api::Responses => format!(r#"{{"model":"ours","stream":{stream},"input":"hello"}}"#),
            _ => format!(r#"{{"model":"ours","stream":{stream},"messages":[]}}"#),
        };
        let body = self.body.clone().unwrap_or_else(|| text.into());
        let headers =
            HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer client"))]);
        let limits = Limits::default();
        if let Some(upload) = &self.upload {
            return Asked {
                body: AskedBody::Upload(upload.clone()),
                responses: None,
                method: Method::POST,
                path: "/v1/audio/transcriptions".into(),
                headers,
                once: false,
            };
        }
        if self.api == Api::Responses {
            let request = Arc::new(ResponsesRequest::parse(body, &limits).unwrap());
            return Asked {
                body: AskedBody::Json(request.request().clone()),
                responses: Some(ResponsesAsked {
                    request,
                    response_id: "resp_1".into(),
                }),
                method: Method::POST,
                path: "/v1/responses".into(),
                headers,
                once: false,
            };
        }
        Asked {
            body: AskedBody::Json(Request::parse(body, &limits).unwrap()),
            responses: None,
            method: Method::POST,
            path: "/v1/chat/completions".into(),
            headers,
            once: false,
        }
    }

    /// The exchange, into `sink`; `failed` is called with each failure. Its outcome comes from the receiver.
    pub(crate) fn exchange(
        &self,
        engine: &Engine,
        attempt: &Attempt,
        mut sink: Sink,
        failed: impl Fn(&Fault) + Send + Sync + 'static,
    ) -> (Exchange, Receiver<Ended>) {
        if let Some(bound) = self.copied {
            sink.copy(bound, &self.copies);
        }
        let (tx, ended) = channel();
        let exchange = Exchange {
            asked: self.asked(),
            api: self.api,
            replies: Replies::Json,
            request_id: "req-1".into(),
            attempt: attempt.clone(),
            limits: Limits::default(),
            keepalive: self.keepalive,
            client_stall: self.client_stall,
            patience: self.patience,
            drain: self.drain.unwrap_or_default(),
            started: tokio::time::Instant::now(),
            active: engine.enter(),
            sink,
            director: Box::new(Script {
                next: self.further(attempt),
                silent: self.silent_director,
                failed: Box::new(failed),
                outputs: Arc::clone(&self.outputs),
                rates: rates(),
                priced_on: Arc::clone(&self.priced_on),
                pricers: Arc::clone(&self.pricers),
                price_gate: Arc::clone(&self.price_gate),
                ended: tx,
            }),
            tally: self.tally(),
            estimated_input: self.estimated_input,
        };
        (exchange, ended)
    }

    pub(crate) fn submit(&self, engines: &Engines, attempt: &Attempt) -> Running {
        self.submit_heard(engines, attempt, |_| {})
    }

    pub(crate) fn submit_heard(
        &self,
        engines: &Engines,
        attempt: &Attempt,
        failed: impl Fn(&Fault) + Send + Sync + 'static,
    ) -> Running {
        let (sink, reply) = self.way.ends();
        let engine = engines.any();
        let (exchange, ended) = self.exchange(engine, attempt, sink, failed);
        let client = Client::start(
            self.way,
            exchange,
            reply,
            engine,
            self.orders,
            self.client_stall,
        );
        Running { client, ended }
    }

    pub(crate) fn run_on(&self, engines: &Engines, attempt: &Attempt) -> Seen {
        let running = self.submit(engines, attempt);
        if self.orders.leave_after_first_frame {
            running.wait_first_frame();
            running.leave();
        }
        running.wait()
    }

    pub(crate) fn run(&self) -> Seen {
        self.run_on(&engines(), &self.attempt())
    }
}
