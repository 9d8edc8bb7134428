//! The protocol of the queue: whatever fails, leaves, comes late or is dropped, and in whatever order, each request is
//! answered once, and reported once, as its last event.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What fails here fails the test.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use proptest::prelude::*;
use sluicegate_core::pricing::{self, CostStyle};
use sluicegate_front::decisions::{Arrived, Decision, Decisions, Event, Failed, Forward};
use sluicegate_front::{Front, Limits, Submission, Submitted};
use sluicegate_relay::{
    Attempt, Copies, DrainLimits, ErrorReply, Next, Outcome, Pricing, Route, Taken, Upstream,
    UpstreamSettings,
};
use tokio::sync::oneshot;

/// How long a decision is waited for: short, since some never come.
const PATIENCE: Duration = Duration::from_millis(40);

/// A test that waits longer than this has failed.
const FOR_EVER: Duration = Duration::from_secs(30);

/// What an upstream does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goes {
    /// It answers with a document.
    Well,
    /// It streams, and breaks off.
    BreaksOff,
    /// It answers with an error status.
    Fails,
    /// Nobody listens there.
    Nowhere,
}

/// What becomes of something that is asked.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Go(Goes),
    Refuse,
    /// The answer's sender is dropped.
    Drop,
    /// It is kept, and nothing is said.
    Never,
    /// It is given from another thread, in a moment.
    Later(Goes),
}

/// What the client does.
#[derive(Debug, Clone, Copy)]
enum Client {
    Stays,
    /// It leaves after so many turns of its loop.
    Leaves(u8),
}

#[derive(Debug, Clone)]
struct Script {
    /// To the arrival first, then to each failure. Past its end everything is refused.
    answers: Vec<Answer>,
    client: Client,
    body: &'static str,
    drains: bool,
}

fn answer() -> impl Strategy<Value = Answer> {
    let goes = prop_oneof![
        3 => Just(Goes::Well),
        1 => Just(Goes::BreaksOff),
        2 => Just(Goes::Fails),
        2 => Just(Goes::Nowhere),
    ];
    prop_oneof![
        6 => goes.clone().prop_map(Answer::Go),
        1 => Just(Answer::Refuse),
        1 => Just(Answer::Drop),
        1 => Just(Answer::Never),
        2 => goes.prop_map(Answer::Later),
    ]
}

const CHAT: &str = r#"{"model":"ours","messages":[]}"#;
const STREAM: &str = r#"{"model":"ours","stream":true,"messages":[]}"#;

fn script() -> impl Strategy<Value = Script> {
    (
        prop::collection::vec(answer(), 1..5),
        prop_oneof![3 => Just(Client::Stays), 2 => (0u8..8).prop_map(Client::Leaves)],
        prop_oneof![Just(CHAT), Just(STREAM), Just("{")],
        any::<bool>(),
    )
        .prop_map(|(answers, client, body, drains)| Script {
            answers,
            client,
            body,
            drains,
        })
}

/// Serves each connection's one request by what its path says.
fn upstream() -> &'static str {
    static ADDRESS: OnceLock<String> = OnceLock::new();
    fn serve(mut stream: TcpStream) {
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        while !text.ends_with(b"}") {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(n) => text.extend_from_slice(&buffer[..n]),
            }
        }
        let reply = match text.split(|byte| *byte == b'/').nth(1) {
            Some(b"Well") => {
                let body =
                    r#"{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}"#;
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
            }
            Some(b"BreaksOff") => {
                let event = r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#;
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {event}\n\n"
                )
            }
            _ => "HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
        };
        let _ = stream.write_all(reply.as_bytes());
        let _ = stream.shutdown(Shutdown::Both);
    }

    ADDRESS.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || serve(stream));
            }
        });
        format!("http://{address}")
    })
}

fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

struct Upstreams(Vec<(Goes, Arc<Upstream>)>);

impl Upstreams {
    fn new(serving: &str) -> Self {
        let all = [Goes::Well, Goes::BreaksOff, Goes::Fails, Goes::Nowhere];
        let upstreams = all.map(|goes| {
            let base_url = match goes {
                Goes::Nowhere => nobody(),
                goes => format!("{serving}/{goes:?}"),
            };
            let settings = UpstreamSettings {
                base_url,
                ..UpstreamSettings::default()
            };
            (goes, Arc::new(Upstream::new("up", settings).unwrap()))
        });
        Self(upstreams.into())
    }

    fn attempt(&self, goes: Goes, drain: bool) -> Attempt {
        let (_, upstream) = self.0.iter().find(|(known, _)| *known == goes).unwrap();
        Attempt {
            route: Route {
                upstream: Arc::clone(upstream),
                model: "theirs".into(),
                reply_model: None,
                drain,
            },
            pricing: Pricing::Rates(Arc::new(pricing::Pricing::new(None, CostStyle::None))),
            last: false,
            trial: true,
            after: Duration::ZERO,
            headers: http::HeaderMap::new(),
        }
    }
}

const REFUSED: u16 = 418;

fn refusal() -> ErrorReply {
    ErrorReply {
        status: REFUSED,
        headers: http::HeaderMap::new(),
        body: Bytes::from_static(b"no"),
    }
}

/// Whoever decides: it plays each request's script, and holds what it hears against the protocol.
struct Decider {
    upstreams: Arc<Upstreams>,
    scripts: Vec<Script>,
    /// By ticket.
    known: HashMap<u64, Known>,
    unsaid: Vec<Unsaid>,
    later: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Known {
    script: usize,
    answered: usize,
    arrived: bool,
    attempts: u32,
    /// How many attempts had failed when the first output was told of.
    output_after: Option<u32>,
    ended: Option<Outcome>,
}

/// What nothing is said to.
#[allow(dead_code)] // Held, and nothing else.
enum Unsaid {
    Arrived(oneshot::Sender<Decision>),
    Failed(oneshot::Sender<Next>),
}

impl Decider {
    fn known(&mut self, ticket: u64) -> &mut Known {
        let known = self.known.entry(ticket).or_default();
        assert!(
            known.ended.is_none(),
            "{ticket}: there is an event after the last"
        );
        known
    }

    fn next(&mut self, ticket: u64) -> (Answer, bool) {
        let scripts = self.scripts.clone();
        let known = self.known(ticket);
        let script = &scripts[known.script];
        let answer = script.answers.get(known.answered).copied();
        known.answered += 1;
        (answer.unwrap_or(Answer::Refuse), script.drains)
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Arrived(arrived) => self.arrived(arrived),
            Event::Failed(failed) => self.failed(failed),
            Event::Ended(ended) => {
                let ticket = ended.about.ticket;
                let tag = usize::try_from(ended.about.tag.unwrap()).unwrap();
                let known = self.known(ticket);
                known.script = tag;
                let tries = ended.outcome.tries.len();
                assert_eq!(
                    tries, ended.outcome.attempts as usize,
                    "each attempt is a try"
                );
                let last = known
                    .output_after
                    .is_some_and(|failed| failed + 1 == ended.outcome.attempts);
                assert_eq!(
                    last,
                    ended.outcome.first_token.is_some(),
                    "first output is told of"
                );
                known.ended = Some(ended.outcome);
            }
            Event::FirstOutput(ticket) => {
                let known = self.known(ticket);
                assert!(known.arrived);
                let before = known.output_after.replace(known.attempts);
                assert!(before < Some(known.attempts), "once an attempt");
            }
            Event::Price(_) => panic!("prices are known"),
            Event::Unrecorded(requests) => panic!("{requests} requests were not recorded"),
            Event::Died(why) => panic!("{why}"),
        }
    }

    fn arrived(&mut self, arrived: Arrived) {
        let ticket = arrived.about.ticket;
        let known = self.known(ticket);
        assert!(
            !std::mem::replace(&mut known.arrived, true),
            "it arrives once"
        );
        known.script = usize::try_from(arrived.about.tag.unwrap()).unwrap();
        let (answer, drains) = self.next(ticket);
        let forward = move |upstreams: &Upstreams, goes| {
            Decision::Forward(Box::new(Forward {
                attempt: upstreams.attempt(goes, drains),
                request: None,
                response_id: None,
                keep: None,
                tally: None,
                estimated_input: None,
            }))
        };
        let sender = arrived.answer;
        match answer {
            Answer::Go(goes) => drop(sender.send(forward(&self.upstreams, goes))),
            Answer::Refuse => drop(sender.send(Decision::Reply(refusal()))),
            Answer::Drop => drop(sender),
            Answer::Never => self.unsaid.push(Unsaid::Arrived(sender)),
            Answer::Later(goes) => {
                let upstreams = Arc::clone(&self.upstreams);
                self.later.push(thread::spawn(move || {
                    drop(sender.send(forward(&upstreams, goes)));
                }));
            }
        }
    }

    fn failed(&mut self, failed: Failed) {
        let ticket = failed.ticket;
        let script = self.known(ticket).script;
        let folded = self.scripts[script].body != STREAM;
        let known = self.known(ticket);
        assert!(known.arrived);
        assert!(failed.attempts > known.attempts, "an attempt fails once");
        assert!(
            folded || known.output_after.is_none(),
            "its client has output, and another attempt is asked for"
        );
        known.attempts = failed.attempts;
        let (answer, drains) = self.next(ticket);
        let upstreams = Arc::clone(&self.upstreams);
        let next = move |goes| Next::Attempt(Box::new(upstreams.attempt(goes, drains)));
        let sender = failed.answer;
        match answer {
            Answer::Go(goes) => drop(sender.send(next(goes))),
            Answer::Refuse => drop(sender.send(Next::Reply(refusal()))),
            Answer::Drop => drop(sender),
            Answer::Never => self.unsaid.push(Unsaid::Failed(sender)),
            Answer::Later(goes) => {
                self.later
                    .push(thread::spawn(move || drop(sender.send(next(goes)))));
            }
        }
    }

    fn ended(&self) -> usize {
        self.known
            .values()
            .filter(|known| known.ended.is_some())
            .count()
    }
}

/// How a client saw its reply.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Left,
    Cut,
    Whole(u16, usize),
}

async fn take(submitted: Submitted, client: Client) -> (u64, Seen) {
    let Submitted { ticket, mut reply } = submitted;
    let mut turns = match client {
        Client::Stays => None,
        Client::Leaves(turns) => Some(turns),
    };
    let (mut status, mut bytes) = (None, 0);
    loop {
        if let Some(left) = &mut turns {
            if *left == 0 {
                return (ticket, Seen::Left);
            }
            *left -= 1;
        }
        if turns.is_some() {
            // Turns pass also where nothing comes.
            tokio::task::yield_now().await;
        }
        let waits = turns.is_none();
        let taken = poll_fn(|cx| {
            reply.register(cx);
            if status.is_none() {
                match reply.take_head() {
                    Some(Ok(head)) => status = Some(head.status),
                    Some(Err(_)) => return Poll::Ready(Taken::Aborted),
                    None => {}
                }
            }
            match reply.take() {
                Taken::Nothing if waits => Poll::Pending,
                taken => Poll::Ready(taken),
            }
        });
        match tokio::time::timeout(FOR_EVER, taken)
            .await
            .expect("no answer came")
        {
            Taken::Frame(frame) => bytes += frame.len(),
            Taken::Nothing => {}
            Taken::Aborted => return (ticket, Seen::Cut),
            Taken::Ended => {
                return (
                    ticket,
                    Seen::Whole(status.expect("a reply has a head"), bytes),
                );
            }
        }
    }
}

fn play(
    serving: &str,
    threads: usize,
    scripts: Vec<Script>,
    max_requests: usize,
    closes_after: Option<usize>,
) {
    let decisions = Arc::new(Decisions::new(PATIENCE));
    let limits = Limits {
        max_body: 1 << 20,
        all_bodies: 1 << 30,
        hold_upload: 64 << 10,
        max_event: 1 << 20,
        max_reply: 1 << 20,
        client_buffer: 1 << 16,
        keepalive: None,
        client_stall: None,
        drain: DrainLimits::default(),
        max_requests,
        copies: Copies::new(1 << 20),
    };
    let front = Arc::new(Front::start(threads, limits, Arc::clone(&decisions)).unwrap());
    let ended = Arc::new(AtomicUsize::new(0));
    let count = scripts.len();
    let deciding = {
        let decisions = Arc::clone(&decisions);
        let mut decider = Decider {
            upstreams: Arc::new(Upstreams::new(serving)),
            scripts: scripts.clone(),
            known: HashMap::new(),
            unsaid: Vec::new(),
            later: Vec::new(),
        };
        let ended = Arc::clone(&ended);
        thread::spawn(move || {
            let since = Instant::now();
            while decider.ended() < count {
                let events = decisions.wait(FOR_EVER);
                assert!(since.elapsed() < FOR_EVER, "a wake-up was lost");
                for event in events {
                    decider.hear(event);
                }
                ended.store(decider.ended(), Ordering::SeqCst);
            }
            decider
        })
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let closing = closes_after.map(|after| {
        let (front, ended) = (Arc::clone(&front), Arc::clone(&ended));
        thread::spawn(move || {
            let since = Instant::now();
            while ended.load(Ordering::SeqCst) < after && since.elapsed() < FOR_EVER {
                thread::yield_now();
            }
            front.close();
        })
    });
    // As it is where other servers submit: on a thread without a runtime.
    let submitted = scripts.iter().enumerate().map(|(tag, script)| {
        front.submit(Submission {
            target: front
                .target(&Method::POST, "/v1/chat/completions", None)
                .unwrap(),
            headers: http::HeaderMap::new(),
            body: Bytes::from_static(script.body.as_bytes()),
            request_id: format!("req-{tag}").into(),
            tag: Some(tag as u64),
        })
    });
    let submitted = submitted.collect::<Vec<_>>();
    let seen = runtime.block_on(async {
        let mut clients = Vec::new();
        for (submitted, script) in submitted.into_iter().zip(&scripts) {
            clients.push(tokio::spawn(take(submitted, script.client)));
        }
        let mut seen = HashMap::new();
        for client in clients {
            let (ticket, how) = client.await.unwrap();
            assert!(seen.insert(ticket, how).is_none(), "a ticket is given once");
        }
        seen
    });
    let (tell, told) = channel();
    thread::spawn(move || drop(tell.send(deciding.join())));
    let decider = told
        .recv_timeout(FOR_EVER)
        .expect("a request is forgotten")
        .unwrap();
    closing
        .into_iter()
        .chain(decider.later)
        .for_each(|thread| thread.join().unwrap());
    front.close();
    assert_eq!(front.active(), 0);
    assert!(
        decisions.take().is_empty(),
        "something came after the last of all events"
    );
    assert_eq!(decider.known.len(), count);
    for (ticket, seen) in seen {
        let known = &decider.known[&ticket];
        let outcome = known.ended.as_ref().unwrap();
        assert!(outcome.attempts >= known.attempts);
        match seen {
            Seen::Left => {}
            Seen::Cut => assert!(
                outcome.fault.is_some() || closes_after.is_some(),
                "{ticket}: it was cut for no reason: {outcome:?}"
            ),
            Seen::Whole(status, bytes) => {
                assert_eq!(
                    (status, bytes as u64),
                    (outcome.status, outcome.bytes_out),
                    "{outcome:?}"
                );
                assert!(!outcome.client_left, "{outcome:?}");
                if outcome.code == Some("overloaded") {
                    assert!(!known.arrived);
                } else {
                    assert!(known.arrived);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn each_request_is_answered_once_and_ends_once(
        scripts in prop::collection::vec(script(), 1..12),
        threads in 1usize..3,
        max_requests in prop_oneof![3 => Just(100usize), 1 => 1usize..6],
        closes_after in prop::option::weighted(0.3, 0usize..6),
    ) {
        let closes_after = closes_after.map(|after| after.min(scripts.len() - 1));
        play(upstream(), threads, scripts, max_requests, closes_after);
    }
}

#[test]
fn a_decision_that_comes_too_late_is_answered_without_it() {
    let seen = |answers: Vec<Answer>| Script {
        answers,
        client: Client::Stays,
        body: CHAT,
        drains: false,
    };
    let scripts = vec![
        seen(vec![Answer::Never]),
        seen(vec![Answer::Drop]),
        seen(vec![Answer::Go(Goes::Fails), Answer::Never]),
        seen(vec![Answer::Go(Goes::Nowhere), Answer::Drop]),
        seen(vec![
            Answer::Go(Goes::Nowhere),
            Answer::Go(Goes::Fails),
            Answer::Later(Goes::Well),
        ]),
    ];
    play(upstream(), 1, scripts, 100, None);
}
