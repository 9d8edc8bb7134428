//! The pump: upstream bytes through the core's pipeline into the sink, as fast as the client takes them.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use sluicegate_core::mode::Mode;
use sluicegate_core::pipeline::{Asking, Facts, Pipeline, ReplyPlan};
use sluicegate_core::sse::encode;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::asked::Given;
use crate::deadlines::{Deadlines, Progress};
use crate::decode::{BodyError, ReplyBody};
use crate::director::{Attempt, Director, Pricing};
use crate::engine::Engine;
use crate::fault::{Fault, FaultKind};
use crate::gaps::Gaps;
use crate::headers::{self, Content};
use crate::keepalive::KeepAlive;
use crate::leaving::Leaving;
use crate::reply::Sink;
use crate::tally::Tally;

mod noting;
mod passing;

use passing::Step;

/// How much of a reply is held back at most while another upstream could still take over: known preambles are one or
/// two events that come at once (Azure's filter chunk, `response.created` with the request's tools repeated). Past
/// these bounds an upstream is at work.
const HOLD_BYTES: usize = 256 * 1024;
const HOLD_EVENTS: u64 = 64;
const HOLD_TIME: Duration = Duration::from_secs(10);

/// Reads in a row before the other streams get their turn.
const READS_PER_TURN: u32 = 32;

pub(crate) enum PumpEnd {
    /// The client has all it will get, ended in a regular way.
    Complete,
    /// It has a part, and its protocol has no words for what happened: cut the connection.
    Aborted,
    /// It has nothing.
    Failed(Fault),
    Left,
    /// It took nothing for too long.
    Stalled,
}

/// What the pump woke for.
enum Turn {
    Left,
    Stalled,
    Closing,
    Release,
    KeepAlive,
    Deadline(FaultKind),
    Read(Bytes),
    End,
    Broken(FaultKind),
}

/// The client's side of one reply.
pub(crate) struct Client<'a> {
    pub(crate) sink: &'a mut Sink,
    pub(crate) director: &'a mut dyn Director,
    pub(crate) tally: Option<&'a mut (dyn Tally + 'static)>,
    /// The upstream's.
    pub(crate) status: StatusCode,
    /// Those of the upstream's that the client gets; none once the reply has begun: they hold on to the whole read that
    /// they came in.
    pub(crate) headers: HeaderMap,
    pub(crate) request_id: &'a str,
    pub(crate) keepalive: &'a mut KeepAlive,
    pub(crate) leaving: &'a mut Leaving,
    /// What another attempt would need; none once the reply has begun.
    pub(crate) given: &'a mut Option<Box<Given>>,
}

pub(crate) struct Pump {
    pipeline: Pipeline,
    body: ReplyBody,
    upstream: Arc<str>,
    deadlines: Deadlines,
    progress: Progress,
    timer: Option<Pin<Box<Sleep>>>,
    /// Until when frames are held back; `None` once they flow.
    hold: Option<Instant>,
    /// A reply without a body is one.
    pub(crate) may_be_empty: bool,
    /// The reply to the client has begun.
    begun: bool,
    /// Since when the client takes nothing: the upstream's silence is ours.
    blocked: Option<Instant>,
    client_stall: Option<Duration>,
    pricing: Pricing,
    /// Which reads may have to ask for a price.
    asking: Asking,
    /// What was known of the reply when a price was asked for that did not come in time.
    unpriced: Option<Box<Facts>>,
    /// The director is still to be told of the first output.
    trial: bool,
    /// Bytes that were read since something last came out: what a document, or an event, holds back.
    held: usize,
    /// Bytes of the request that events may repeat.
    repeated: usize,
    frames: Vec<Bytes>,
    fault: Option<Fault>,
    status: u16,
    last_read: Instant,
    gaps: Gaps,
    bytes_in: u64,
    bytes_out: u64,
}

impl Pump {
    pub(crate) fn new(
        plan: ReplyPlan,
        body: ReplyBody,
        attempt: &Attempt,
        progress: Progress,
        keepalive: &KeepAlive,
        leaving: &Leaving,
        client_stall: Option<Duration>,
    ) -> Self {
        let upstream = &attempt.route.upstream;
        let deadlines = upstream.deadlines;
        let now = Instant::now();
        let hold = (!attempt.last).then(|| now + HOLD_TIME);
        let first = deadlines.wake(&progress, now);
        let stall = client_stall.and_then(|stall| now.checked_add(stall));
        let first = [first, hold, keepalive.next(), leaving.until(), stall]
            .into_iter()
            .flatten()
            .min();
        Self {
            repeated: plan.repeated(),
            pipeline: Pipeline::new(plan),
            body,
            upstream: upstream.name.clone(),
            deadlines,
            progress,
            timer: first.map(|at| Box::pin(sleep_until(at))),
            hold,
            may_be_empty: false,
            begun: false,
            blocked: None,
            client_stall,
            pricing: attempt.pricing.clone(),
            asking: Asking::default(),
            unpriced: None,
            trial: attempt.trial,
            held: 0,
            frames: Vec::new(),
            fault: None,
            status: 0,
            last_read: progress.started,
            gaps: Gaps::default(),
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// Pump to the end.
    pub(crate) async fn run(&mut self, client: &mut Client<'_>, engine: &Engine) -> PumpEnd {
        let mut closing = pin!(engine.closing().given());
        let mut told = false;
        let mut reads = 0;
        loop {
            let turn = std::future::poll_fn(|cx| {
                let here = !client.leaving.departed();
                if here && client.sink.has_left() {
                    return Poll::Ready(Turn::Left);
                }
                // A turn that reads needs nobody to wake it, so that a short reply never arms its timer. But what is
                // always ready to be read must not hide the relay's closing or a deadline.
                if (reads + 1) % READS_PER_TURN == 0 {
                    if closing.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(Turn::Closing);
                    }
                    if let Poll::Ready(turn) = self.poll_timer(cx, client) {
                        return Poll::Ready(turn);
                    }
                }
                if let Poll::Ready(turn) = self.poll_body(cx, client) {
                    return Poll::Ready(turn);
                }
                if here && client.sink.poll_left(cx).is_ready() {
                    return Poll::Ready(Turn::Left);
                }
                // Once it has the waker it need not be asked: that takes a lock, and the flag does not.
                if !told || engine.closing().is_given() {
                    told = true;
                    if closing.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(Turn::Closing);
                    }
                }
                self.poll_timer(cx, client)
            })
            .await;
            let ended = match turn {
                Turn::Left => {
                    self.unblock(client);
                    self.gaps.stalled(client.sink.take_stalls());
                    if client.leaving.departed() || !client.leaving.depart() {
                        return PumpEnd::Left;
                    }
                    self.read_on(client);
                    None
                }
                Turn::Stalled => {
                    self.unblock(client);
                    return PumpEnd::Stalled;
                }
                // The client has the whole reply: how the upstream ends its connection after that is no fault.
                Turn::Closing | Turn::Deadline(_) | Turn::Broken(_)
                    if self.pipeline.facts().done =>
                {
                    Some(self.finish(client, engine).await)
                }
                Turn::Closing => Some(self.break_off(FaultKind::Shutdown, client)),
                Turn::Deadline(kind) => Some(self.break_off(kind, client)),
                Turn::Broken(kind) => Some(self.break_off(kind, client)),
                Turn::Release => {
                    self.hold = None;
                    self.hand_over(client);
                    None
                }
                Turn::KeepAlive => {
                    client
                        .keepalive
                        .beat(client.sink, client.request_id, self.begun);
                    None
                }
                Turn::Read(data) => self.feed(data, client, engine).await,
                Turn::End => Some(self.finish(client, engine).await),
            };
            if let Some(end) = ended {
                return end;
            }
            reads += 1;
            if reads % READS_PER_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The client has left: the rest is read for its usage alone.
    fn read_on(&mut self, client: &mut Client<'_>) {
        client.keepalive.stop();
        self.hold = None;
        client.sink.push(&mut self.frames);
        self.timer = Some(Box::pin(sleep_until(Instant::now())));
    }

    fn poll_body(&mut self, cx: &mut Context<'_>, client: &mut Client<'_>) -> Poll<Turn> {
        let room = client.leaving.departed() || client.sink.poll_room(cx).is_ready();
        if room {
            self.unblock(client);
            match self.body.poll_read(cx) {
                Poll::Ready(Some(Ok(data))) => return Poll::Ready(Turn::Read(data)),
                Poll::Ready(Some(Err(BodyError::Broken))) => {
                    return Poll::Ready(Turn::Broken(FaultKind::Truncated));
                }
                Poll::Ready(Some(Err(BodyError::Encoding))) => {
                    return Poll::Ready(Turn::Broken(FaultKind::Decode));
                }
                Poll::Ready(None) => return Poll::Ready(Turn::End),
                Poll::Pending => {}
            }
        } else if self.blocked.is_none() {
            let now = Instant::now();
            self.blocked = Some(now);
            if !client.sink.is_inline() {
                self.gaps.pause(now);
            }
        }
        Poll::Pending
    }

    /// The client takes again, or has left: from here the upstream's silence is its own.
    fn unblock(&mut self, client: &Client<'_>) {
        if let Some(since) = self.blocked.take() {
            let now = Instant::now();
            self.progress.last_token = self.progress.last_token.map(|_| now);
            // Where one task polls both ends, the time that the client kept it from polling is noted in the reply.
            if !client.sink.is_inline() {
                self.gaps.go_on(since, now);
            }
        }
    }

    /// The timer is armed for the earliest that could be due, and looked after only when it fires: tokens move their
    /// deadline forward without touching it.
    fn poll_timer(&mut self, cx: &mut Context<'_>, client: &mut Client<'_>) -> Poll<Turn> {
        let Client {
            keepalive, leaving, ..
        } = client;
        let Some(timer) = &mut self.timer else {
            return Poll::Pending;
        };
        while timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if self.hold.is_some_and(|at| at <= now) {
                return Poll::Ready(Turn::Release);
            }
            if leaving.until().is_some_and(|at| at <= now) {
                return Poll::Ready(Turn::Left);
            }
            let stalled = self
                .blocked
                .zip(self.client_stall)
                .and_then(|(since, stall)| since.checked_add(stall));
            if stalled.is_some_and(|at| at <= now) {
                return Poll::Ready(Turn::Stalled);
            }
            if self.blocked.is_some() {
                self.progress.last_token = self.progress.last_token.map(|_| now);
            }
            if let Some((at, kind)) = self.deadlines.next(&self.progress)
                && at <= now
            {
                return Poll::Ready(Turn::Deadline(kind));
            }
            if keepalive.next().is_some_and(|at| at <= now) {
                if self.blocked.is_none() {
                    return Poll::Ready(Turn::KeepAlive);
                }
                keepalive.sent(now);
            }
            let deadline = self.deadlines.wake(&self.progress, now);
            // A client that stops taking is looked after in time, whenever that begins.
            let stall = stalled.or(self.client_stall.and_then(|stall| now.checked_add(stall)));
            match [
                deadline,
                self.hold,
                keepalive.next(),
                leaving.until(),
                stall,
            ]
            .into_iter()
            .flatten()
            .min()
            {
                Some(at) => timer.as_mut().reset(at),
                None => {
                    self.timer = None;
                    break;
                }
            }
        }
        Poll::Pending
    }

    async fn feed(
        &mut self,
        data: Bytes,
        client: &mut Client<'_>,
        engine: &Engine,
    ) -> Option<PumpEnd> {
        self.bytes_in += data.len() as u64;
        if !client.leaving.read(data.len()) {
            return Some(PumpEnd::Left);
        }
        let fed = self.pass(Step::Feed(data), client, engine).await;
        self.note_progress(client);
        if let Err(kind) = fed {
            return Some(self.break_off(kind, client));
        }
        self.hand_over_unless_held(client)
    }

    async fn finish(&mut self, client: &mut Client<'_>, engine: &Engine) -> PumpEnd {
        if self.bytes_in == 0 {
            if !self.may_be_empty {
                return self.break_off(FaultKind::Empty, client);
            }
            self.frames.push(Bytes::new());
            self.hold = None;
            self.hand_over(client);
            return PumpEnd::Complete;
        }
        let finished = self.pass(Step::Finish, client, engine).await;
        self.note_progress(client);
        if let Err(kind) = finished {
            return self.break_off(kind, client);
        }
        if self.pipeline.facts().truncated {
            return self.break_off(FaultKind::Truncated, client);
        }
        if self.content() == Content::Folded && self.pipeline.facts().error.is_some() {
            // Nothing has been sent to the client so far, so the error can still be the reply's status.
            self.note_fault_in_band();
            if let Some(fault) = self.fault.take() {
                return PumpEnd::Failed(fault);
            }
        }
        if let Some(end) = self.hand_over_unless_held(client) {
            return end;
        }
        self.hold = None;
        self.hand_over(client);
        self.note_fault_in_band();
        if self.begun {
            PumpEnd::Complete
        } else {
            self.break_off(FaultKind::Empty, client)
        }
    }

    /// Give frames to the sink, unless another upstream could still take over.
    fn hand_over_unless_held(&mut self, client: &mut Client<'_>) -> Option<PumpEnd> {
        if self.hold.is_some() {
            let facts = self.pipeline.facts();
            if !facts.output_started {
                if facts.error.is_some() {
                    self.note_fault_in_band();
                    return self.fault.take().map(PumpEnd::Failed);
                }
                let held = self.frames.iter().map(Bytes::len).sum::<usize>();
                if held <= HOLD_BYTES && facts.events <= HOLD_EVENTS {
                    return None;
                }
            }
            self.hold = None;
        }
        self.hand_over(client);
        None
    }

    fn hand_over(&mut self, client: &mut Client<'_>) {
        if self.frames.is_empty() {
            return;
        }
        if client.leaving.departed() {
            self.begun = true;
            client.sink.push(&mut self.frames);
            return;
        }
        let content = self.content();
        if !self.begun {
            self.begun = true;
            if content != Content::EventStream {
                client.keepalive.stop();
            }
            let theirs = std::mem::take(&mut client.headers);
            if client.keepalive.has_begun() {
                self.status = StatusCode::OK.as_u16();
            } else {
                self.status = client.status.as_u16();
                let headers = headers::reply(theirs, client.request_id, content);
                client.sink.start(self.status, headers);
            }
            *client.given = None;
        }
        self.pipeline.forget_request();
        if client.keepalive.has_begun() && content != Content::EventStream {
            let mut event = Vec::new();
            encode::event("", &self.frames.concat(), &mut event);
            self.frames.clear();
            self.frames.push(event.into());
        }
        client.keepalive.sent(self.last_read);
        self.bytes_out += self
            .frames
            .iter()
            .map(|frame| frame.len() as u64)
            .sum::<u64>();
        client.sink.push(&mut self.frames);
    }

    fn content(&self) -> Content {
        let facts = self.pipeline.facts();
        match (facts.reply_is_stream, facts.mode) {
            (Some(true), _) => Content::EventStream,
            (_, Some(Mode::Sse)) => Content::Folded,
            (_, Some(Mode::Bytes)) => Content::Bytes,
            _ => Content::Document,
        }
    }

    /// The reply cannot be completed.
    fn break_off(&mut self, kind: FaultKind, client: &mut Client<'_>) -> PumpEnd {
        let mut fault = Fault::new(kind, &self.upstream);
        if kind == FaultKind::Protocol {
            fault.detail.clone_from(&self.pipeline.facts().quote);
        }
        let speaks = self.content() == Content::EventStream;
        if !self.begun && (self.hold.is_some() || self.frames.is_empty() || !speaks) {
            self.frames.clear();
            return PumpEnd::Failed(fault);
        }
        self.hold = None;
        if speaks {
            self.pipeline.fail(
                kind.blames(),
                kind.as_str(),
                &fault.message(),
                &mut self.frames,
            );
        }
        self.hand_over(client);
        self.fault = Some(fault);
        if speaks {
            PumpEnd::Complete
        } else {
            PumpEnd::Aborted
        }
    }
}
