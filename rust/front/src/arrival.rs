//! A request that goes to an upstream: its body is read, a decision is awaited, and an exchange is begun.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use sluicegate_core::error::Error;
use sluicegate_core::limits;
use sluicegate_relay::{
    Active, Asked, AskedBody, Engine, ErrorReply, Exchange, ResponsesAsked, Sink,
};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::asked::AskedRequest;
use crate::bounds::Limits;
use crate::decisions::{Arrived, Decision, Forward};
use crate::endpoint::{Endpoint, Target};
use crate::facts::Facts;
use crate::head;
use crate::refusal::Refusal;
use crate::report::Report;

/// So long a decision is waited for before the gateway's closing is, too. It hardly ever takes longer, and all engines
/// share the lock that whoever waits for the closing takes.
const SOON: Duration = Duration::from_millis(50);

/// A request, all that is needed to forward it.
pub(crate) struct Arrival {
    pub(crate) target: Target,
    pub(crate) headers: HeaderMap,
    pub(crate) size: usize,
    pub(crate) request: Result<AskedRequest, Error>,
    pub(crate) facts: Facts,
    pub(crate) report: Report,
}

/// What has been decided.
pub(crate) enum Arranged {
    /// Answer with this; it is reported.
    Refused(ErrorReply),
    /// Run this, into a sink.
    Forward(Box<Forwarding>),
}

/// An exchange that lacks its sink.
pub(crate) struct Forwarding {
    endpoint: Endpoint,
    asked: Asked,
    forward: Box<Forward>,
    /// The client's request, where the reply is kept.
    kept: Option<AskedRequest>,
    report: Report,
    active: Active,
    patience: Option<Duration>,
}

impl Arrival {
    /// Have it decided, on `engine`'s thread.
    pub(crate) async fn arrange(mut self, engine: &Engine) -> Arranged {
        // Closing waits for it from here on.
        let active = engine.enter();
        let patience = match head::patience(&self.headers) {
            Ok(patience) => patience,
            Err(refusal) => return Arranged::Refused(refuse(self.report, refusal)),
        };
        let (answer, answered) = oneshot::channel();
        let request = self.request.as_ref().ok();
        self.report.model = request.and_then(|request| request.model().map(Into::into));
        let decisions = Arc::clone(self.report.decisions());
        self.report.arrive(Arrived {
            about: Arc::clone(&self.report.about),
            size: self.size,
            request: self.request.clone(),
            facts: std::mem::take(&mut self.facts),
            answer,
        });
        let decision = decided(answered, decisions.patience(), engine).await;
        if decision.is_ok() {
            self.report.decided();
        }
        match decision {
            Ok(Decision::Forward(forward)) => self.forward(forward, active, patience),
            Ok(Decision::Reply(reply)) => {
                self.report.refused(reply.status, None, reply.body.len());
                Arranged::Refused(reply)
            }
            Err(refusal) => Arranged::Refused(refuse(self.report, refusal)),
        }
    }

    fn forward(
        self,
        forward: Box<Forward>,
        active: Active,
        patience: Option<Duration>,
    ) -> Arranged {
        let Self {
            target,
            headers,
            request,
            report,
            ..
        } = self;
        let Target {
            endpoint,
            method,
            path,
            ..
        } = target;
        let once = !endpoint.may_repeat(&method);
        let Ok(request) = request else {
            return Arranged::Refused(refuse(report, Refusal::Internal));
        };
        let kept = forward.keep.is_some().then(|| request.clone());
        let request = match &forward.request {
            Some(replaced) => AskedRequest::Responses(Arc::clone(replaced)),
            None => request,
        };
        let (body, responses) = match request {
            AskedRequest::Plain(request) => (AskedBody::Json(Arc::unwrap_or_clone(request)), None),
            AskedRequest::Upload(uploaded) => (AskedBody::Upload(uploaded.upload), None),
            AskedRequest::Responses(request) => {
                let body = AskedBody::Json(request.request().clone());
                let response_id = forward.response_id.clone().unwrap_or_default();
                let responses = ResponsesAsked {
                    request,
                    response_id,
                };
                (body, Some(responses))
            }
        };
        let asked = Asked {
            body,
            responses,
            method,
            path,
            headers,
            once,
        };
        Arranged::Forward(Box::new(Forwarding {
            endpoint,
            asked,
            forward,
            kept,
            report,
            active,
            patience,
        }))
    }
}

async fn decided(
    mut answered: oneshot::Receiver<Decision>,
    patience: Duration,
    engine: &Engine,
) -> Result<Decision, Refusal> {
    let soon = SOON.min(patience);
    let answer = match timeout(soon, &mut answered).await {
        Ok(answer) => answer,
        Err(_) => tokio::select! {
            biased;
            answer = timeout(patience - soon, answered) => answer.map_err(|_| Refusal::Undecided)?,
            () = engine.closing().given() => return Err(Refusal::Stopping),
        },
    };
    answer.map_err(|_| Refusal::Internal)
}

impl Forwarding {
    /// The exchange, with `sink` as the place of its frames.
    pub(crate) fn into_exchange(mut self, mut sink: Sink, limits: &Limits) -> Exchange {
        if let (Some(bound), Some(request)) = (self.forward.keep, self.kept)
            && self.report.copy(request, &limits.copies)
        {
            sink.copy(bound, &limits.copies);
        }
        Exchange {
            asked: self.asked,
            api: self.endpoint.api(),
            replies: self.endpoint.replies(),
            request_id: self.report.about.request_id.clone(),
            attempt: self.forward.attempt,
            limits: limits::Limits {
                max_event: limits.max_event,
                max_document: limits.max_reply,
                ..limits::Limits::default()
            },
            keepalive: limits.keepalive,
            client_stall: limits.client_stall,
            patience: self.patience,
            drain: limits.drain,
            started: self.report.started,
            active: self.active,
            sink,
            director: Box::new(self.report),
            tally: self.forward.tally,
            estimated_input: self.forward.estimated_input,
        }
    }
}

/// Report a refusal of our own, and say it.
pub(crate) fn refuse(report: Report, refusal: Refusal) -> ErrorReply {
    let reply = report.about.error(refusal);
    if refusal == Refusal::Incomplete {
        // Whoever ended its sending in the middle has left, as a rule, and is recorded so.
        return reply;
    }
    report.refused(reply.status, Some(refusal.code()), reply.body.len());
    reply
}
