//! What becomes of an upstream's reply.

use std::pin::pin;

use http::Response;
use http::header::HeaderMap;
use sluicegate_core::api::Api;
use sluicegate_core::pipeline::ReplyPlan;
use sluicegate_core::protocols::messages::writing::KnownMessage;
use sluicegate_core::protocols::{ClientProtocol, ClientSide, UpstreamSide, UsageChunk};

use super::ending::Pumping;
use super::{Session, Tried};
use crate::asked::{self, Form};
use crate::attend::Attended;
use crate::body::UpstreamBody;
use crate::deadlines::Progress;
use crate::decode::ReplyBody;
use crate::director::Attempt;
use crate::error_body;
use crate::fault::{Fault, FaultKind};
use crate::headers;
use crate::pump::{Client, Pump, PumpEnd};
use crate::upstream::Route;

impl Session {
    /// The body of an error reply, bounded in size and by the deadlines that still run.
    pub(super) async fn read_error(
        &mut self,
        response: Response<UpstreamBody>,
        route: &Route,
        progress: &Progress,
    ) -> Result<Fault, Tried> {
        let (parts, body) = response.into_parts();
        self.outcome.upstream_request_id = headers::request_id(&parts.headers);
        let mut fault = Fault::new(FaultKind::Status, &route.upstream.name);
        fault.status = Some(parts.status.as_u16());
        fault.headers = Box::new(headers::copied(headers::down(
            &parts.headers,
            &route.upstream,
            self.api,
        )));
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
    pub(super) async fn relay(
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
            tally: self.tally.as_deref_mut(),
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

    pub(super) fn plan(&mut self, route: &Route, form: &Form, reply: &HeaderMap) -> ReplyPlan {
        if let Some(made) = form.translated.as_ref().or(form.unsealed.as_ref()) {
            self.outcome.left_out.clone_from(&made.left_out);
        }
        let upstream = UpstreamSide {
            api: form.api,
            declared_stream: headers::declare_event_stream(reply),
            reading: self.replies.reading(reply),
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
    pub(super) fn client(&self, route: Option<&Route>, form: Option<&Form>) -> ClientSide {
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
