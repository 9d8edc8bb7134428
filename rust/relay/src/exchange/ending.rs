//! The ends of an exchange: each of them settles its outcome, once.

use bytes::Bytes;
use http::StatusCode;
use sluicegate_core::api::Api;
use sluicegate_core::pipeline::{Pipeline, ReplyPlan};
use sluicegate_core::protocols::{self, ClientProtocol, UpstreamSide};
use sluicegate_core::sse::encode;

use super::{CLIENT_CLOSED_REQUEST, Session};
use crate::attend::Attended;
use crate::director::{ErrorReply, Next, Pricing};
use crate::fault::{Fault, FaultKind};
use crate::headers;
use crate::outcome::Outcome;
use crate::pump::Pump;
use crate::reply::Sink;

/// Where the gateway's own errors say their `code`.
const ERROR_HEADER: &str = "x-sluicegate-error";

impl Drop for Session {
    fn drop(&mut self) {
        if !self.settled {
            let closing = self.engine.closing().is_given();
            let kind = if closing {
                FaultKind::Shutdown
            } else {
                FaultKind::Internal
            };
            let fault = Fault::new(kind, &self.outcome.upstream);
            if let Some(sink) = &mut self.sink {
                sink.forget_copy();
            }
            self.outcome.fault.get_or_insert(fault);
            self.settle();
        }
    }
}

impl Session {
    /// The end of an exchange for which nothing more is tried.
    pub(super) async fn give_up(&mut self, fault: Fault) {
        let decided = self.decide(&fault).await;
        self.outcome.fault = Some(fault);
        match decided {
            Attended::Done(next) => self.refuse(next),
            _ => {
                self.settle();
                self.abort();
            }
        }
    }

    /// The end of an exchange whose client has left.
    pub(super) fn part(&mut self, fault: Option<Fault>) {
        self.outcome.client_left = true;
        self.outcome.stalled |= self.sink.as_ref().is_some_and(Sink::has_stalled);
        if self.outcome.status == 0 {
            let begun = self.keepalive.has_begun();
            self.outcome.streamed = begun;
            self.outcome.status = if begun {
                StatusCode::OK.as_u16()
            } else {
                CLIENT_CLOSED_REQUEST
            };
        }
        if fault.is_some() {
            self.outcome.fault = fault;
        }
        if let Some(sink) = &mut self.sink {
            sink.forget_copy();
        }
        self.settle();
        self.abort();
    }

    pub(super) fn abort(&mut self) {
        if let Some(sink) = &mut self.sink {
            sink.abort();
        }
    }

    /// Answer with an error of the gateway's own protocol.
    pub(super) fn refuse(&mut self, next: Next) {
        let Next::Reply(reply) = next else {
            self.settle();
            return self.abort();
        };
        self.outcome.answered = error_code(&reply);
        if self.keepalive.has_begun() {
            let mut events = self.failed_stream(&reply.body);
            self.outcome.status = StatusCode::OK.as_u16();
            self.outcome.streamed = true;
            self.outcome.bytes_out = events.iter().map(|frame| frame.len() as u64).sum();
            self.settle();
            if let Some(sink) = &mut self.sink {
                sink.push(&mut events);
                sink.end();
            }
            return;
        }
        self.outcome.status = reply.status;
        self.outcome.streamed = false;
        self.outcome.bytes_out = reply.body.len() as u64;
        self.settle();
        let mut headers = reply.headers;
        headers::add_request_id(&mut headers, &self.request_id);
        if let Some(sink) = &mut self.sink {
            sink.start(reply.status, headers);
            sink.push(&mut vec![reply.body]);
            sink.end();
        }
    }

    /// A stream that holds nothing but an error, for a client that has been sent comments only. `body` is the error's
    /// object.
    fn failed_stream(&mut self, body: &[u8]) -> Vec<Bytes> {
        let client = self.client(None, None);
        if let Some(fault) = &self.outcome.fault
            && let ClientProtocol::Responses(Some(_)) = client.protocol
        {
            let plan = ReplyPlan::between(client, UpstreamSide::new(self.api));
            let mut events = Vec::new();
            let (code, message) = (fault.kind.as_str(), fault.message());
            Pipeline::new(plan).fail(fault.kind.blames(), code, &message, &mut events);
            return events;
        }
        let mut event = Vec::with_capacity(body.len() + 32);
        encode::event(protocols::of(self.api).error_event(), body, &mut event);
        vec![event.into()]
    }

    pub(super) fn settle(&mut self) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        self.outcome.duration = self.started.elapsed();
        // Speech, images and the like have no tokens, unless their upstream says so.
        let counts = self.api != Api::Other;
        let fault = self.outcome.fault.as_ref();
        let by_client = self.outcome.client_left
            || fault.is_some_and(|fault| fault.kind == FaultKind::ClientTimeout);
        self.outcome
            .bill(&self.pricing, self.estimated_input, counts, by_client);
        let took = self.outcome.duration;
        let status = Some(self.outcome.status).filter(|status| *status != 0);
        if let Some(last) = self.outcome.tries.last_mut() {
            last.settled(self.outcome.fault.as_ref(), status, took);
        }
        let copy = match self.sink.as_mut().and_then(Sink::take_copy) {
            Some(Ok(copy)) => Some(copy),
            Some(Err(why)) => {
                self.outcome.not_copied = Some(why);
                None
            }
            None => None,
        };
        let mut tally = self.tally.take();
        if let (Some(kept), Pricing::Rates(_)) = (&mut tally, &self.pricing) {
            kept.close(&self.outcome);
            tally = None;
        }
        let outcome = std::mem::take(&mut self.outcome);
        self.director.ended(outcome, copy, tally);
    }
}

/// The `code` of an error, which its headers say, too.
fn error_code(reply: &ErrorReply) -> Option<Box<str>> {
    let code = reply.headers.get(ERROR_HEADER)?;
    code.to_str().ok().map(Into::into)
}

/// A pump at work: what it has seen is in the outcome, also where its exchange is dropped.
pub(super) struct Pumping<'a> {
    pub(super) pump: Pump,
    pub(super) outcome: &'a mut Outcome,
    /// When the attempt's request was sent.
    pub(super) offset: std::time::Duration,
}

impl Drop for Pumping<'_> {
    fn drop(&mut self) {
        self.pump.report(self.outcome, self.offset);
    }
}
