//! The client's request, in the form that each upstream takes.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, Method};
use sluicegate_core::api::Api;
use sluicegate_core::input::{Names, Written};
use sluicegate_core::json::scan::MAX_DEPTH;
use sluicegate_core::limits::Limits;
use sluicegate_core::protocols::messages::taken::{TakenIds, taken_ids};
use sluicegate_core::protocols::messages::writing::KnownMessage;
use sluicegate_core::protocols::responses::echo::Asked;
use sluicegate_core::protocols::responses::request::ResponsesRequest;
use sluicegate_core::protocols::{self, Target};
use sluicegate_core::request::{Request, RequestEdit, UsageAsk};

use crate::address::Address;
use crate::exchange::AskedBody;
use crate::fault::{Fault, FaultKind};
use crate::offload::{LARGE, offload};
use crate::upstream::{Route, Streaming, Upstream};

/// A request for a response.
pub struct ResponsesAsked {
    /// The client's body; the exchange's own request is the same bytes.
    pub request: Arc<ResponsesRequest>,
    /// The id of a response that the gateway makes itself, `resp_…`. Nobody must be able to guess it.
    pub response_id: Box<str>,
}

/// The forms of one request, each made once, where an upstream needs it.
pub(crate) struct Forms {
    responses: Option<ResponsesAsked>,
    /// When a request for a response came, in seconds since 1970.
    created_at: u64,
    /// By what their upstreams want to be sent: upstreams of one kind share one.
    made: Vec<(Target, Arc<Translated>)>,
    /// The same of a request that is forwarded; None where it goes as it came.
    unsealed: Vec<(Target, Option<Arc<Translated>>)>,
}

/// The client's request, in the forms that upstreams took so far.
pub(crate) struct Given {
    pub(crate) body: AskedBody,
    pub(crate) forms: Forms,
    pub(crate) method: Method,
    /// Where clients find the endpoint.
    pub(crate) path: Box<str>,
    pub(crate) headers: HeaderMap,
    /// An upstream must not get it twice.
    pub(crate) once: bool,
}

/// One request as one upstream is to have it.
pub(crate) struct Form {
    pub(crate) api: Api,
    /// None: as it came.
    pub(crate) translated: Option<Arc<Translated>>,
    /// A request that is forwarded, where reasoning of another upstream had to be taken out of it.
    pub(crate) unsealed: Option<Arc<Translated>>,
}

/// A request in another protocol than the client's.
pub(crate) struct Translated {
    pub(crate) request: Request,
    /// The parts of the request that are not sent to the upstream, since its answer does not depend on them.
    pub(crate) left_out: Vec<Box<str>>,
    /// Of a request for a message: the ids that no call of its reply may have.
    pub(crate) taken_ids: Arc<TakenIds>,
    /// Of a request for a message: about how many tokens its input has.
    pub(crate) input_tokens: u64,
    /// What it tells the upstream instead of the client's names of tools.
    pub(crate) names: Option<Arc<Names>>,
}

impl Form {
    /// As it came.
    pub(crate) fn forwarded(api: Api) -> Self {
        Self {
            api,
            translated: None,
            unsealed: None,
        }
    }

    /// The request, where `asked` is as the client sent it.
    pub(crate) fn request<'a>(&'a self, asked: &'a Request) -> &'a Request {
        let made = self.translated.as_ref().or(self.unsealed.as_ref());
        made.map_or(asked, |made| &made.request)
    }

    /// What to change in it about streaming, and about usage in the stream.
    pub(crate) fn streaming(
        &self,
        asked: &Request,
        upstream: &Upstream,
    ) -> (Option<bool>, UsageAsk) {
        let protocol = protocols::of(self.api);
        // Whether a reply can be given in the other form than it came in.
        let converts = protocol.folds() || protocol.is_conversational();
        let request = self.request(asked);
        let stream = match upstream.streaming {
            Streaming::Always if converts && !request.stream() => Some(true),
            // Said where the client says nothing, too: transformers streams then.
            Streaming::Never if converts && (request.stream() || !request.says_stream()) => {
                Some(false)
            }
            _ => None,
        };
        let usage = match stream.unwrap_or(request.stream()) {
            _ if !protocol.asks_usage() => UsageAsk::Leave,
            // Upstreams refuse the options of a stream where there is none (9router#3081).
            false if request.stream() => UsageAsk::Remove,
            true if !upstream.ask_usage => UsageAsk::Remove,
            true if stream.is_some() || !request.include_usage() => UsageAsk::Ask,
            _ => UsageAsk::Leave,
        };
        (stream, usage)
    }

    /// What is known of the message that is made of a reply in another protocol.
    pub(crate) fn known_message(&self, request_id: &str) -> KnownMessage {
        let Some(translated) = &self.translated else {
            return KnownMessage::default();
        };
        let plain = |letter: &char| letter.is_ascii_alphanumeric();
        let random: String = request_id.chars().filter(plain).collect();
        KnownMessage {
            id: Some(format!("msg_{random}").into()),
            taken_ids: Arc::clone(&translated.taken_ids),
            input_tokens: translated.input_tokens,
        }
    }

    /// The body of one request of `route` to `address`, where `asked` is as the client sent it. None where the engine
    /// ends meanwhile.
    pub(crate) async fn body(
        &self,
        asked: &Request,
        route: &Route,
        address: &Address,
        stream: Option<bool>,
        usage: UsageAsk,
    ) -> Option<Bytes> {
        let request = self.request(asked);
        let model = (!address.names_model).then(|| Arc::clone(&route.model));
        let members = route.upstream.edits(self.api, address);
        let edit = move |request: &Request| {
            request.edit(&RequestEdit {
                model: model.as_deref(),
                usage,
                stream,
                members: Some(&members),
            })
        };
        if request.body().len() <= LARGE {
            return Some(edit(request));
        }
        let request = request.clone();
        offload(true, move || edit(&request)).await
    }

    /// Whether the reply's events are made anew.
    pub(crate) fn is_repaired_by(&self, upstream: &Upstream) -> bool {
        upstream.repair && matches!(self.api, Api::Responses | Api::Messages)
    }
}

impl Forms {
    pub(crate) fn new(responses: Option<ResponsesAsked>) -> Self {
        Self {
            created_at: responses.as_ref().map_or(0, |_| now()),
            responses,
            made: Vec::new(),
            unsealed: Vec::new(),
        }
    }

    /// The form of `request`, which came to `api`, that `upstream` takes.
    pub(crate) fn of(
        &mut self,
        api: Api,
        request: &Request,
        upstream: &Upstream,
    ) -> Result<Form, Fault> {
        let asked = api;
        let api = upstream.serves.instead_of(asked);
        if api == asked {
            return Ok(Form {
                api,
                translated: None,
                unsealed: self.unsealed(api, request, upstream)?,
            });
        }
        let target = upstream.targets.of(api);
        let target = target.ok_or_else(|| untranslatable(asked, api, upstream))?;
        let translated = match self.made.iter().find(|(made, _)| *made == target) {
            Some((_, translated)) => Arc::clone(translated),
            None => {
                let translated = self.translate(asked, request, &target, upstream)?;
                let translated = Arc::new(translated);
                self.made.push((target, Arc::clone(&translated)));
                translated
            }
        };
        Ok(Form {
            api,
            translated: Some(translated),
            unsealed: None,
        })
    }

    /// The request without what another upstream's reasoning left in it; None where there is none.
    fn unsealed(
        &mut self,
        api: Api,
        request: &Request,
        upstream: &Upstream,
    ) -> Result<Option<Arc<Translated>>, Fault> {
        let Some(target) = upstream.targets.of(api) else {
            return Ok(None);
        };
        if let Some((_, unsealed)) = self.unsealed.iter().find(|(made, _)| *made == target) {
            return Ok(unsealed.clone());
        }
        let body = match &self.responses {
            Some(asked) => asked.request.body(),
            None => request.body(),
        };
        let unsealed = match upstream.targets.without_seals(api, body) {
            Some(made) => Some(Arc::new(Translated {
                request: parsed(made.body, upstream)?,
                left_out: made.left_out,
                taken_ids: Arc::default(),
                input_tokens: 0,
                names: None,
            })),
            None => None,
        };
        self.unsealed.push((target, unsealed.clone()));
        Ok(unsealed)
    }

    fn translate(
        &self,
        asked: Api,
        request: &Request,
        target: &Target,
        upstream: &Upstream,
    ) -> Result<Translated, Fault> {
        let request = match &self.responses {
            Some(asked) => asked.request.request(),
            None => request,
        };
        let read = protocols::read_request(asked, request);
        let read = read.ok_or_else(|| untranslatable(asked, target.api(), upstream))?;
        let written = read.and_then(|conversation| target.write_request(&conversation));
        let Written {
            body,
            left_out,
            names,
        } = written.map_err(|refusal| {
            Fault::untranslatable(&upstream.name, &refusal.param, &refusal.message)
        })?;
        Ok(Translated {
            request: parsed(body, upstream)?,
            left_out,
            taken_ids: Arc::new(match asked {
                Api::Messages => taken_ids(request.body()),
                _ => TakenIds::new(),
            }),
            input_tokens: match asked {
                Api::Messages => request.estimated_input_tokens(),
                _ => 0,
            },
            names,
        })
    }

    /// The members of a response that repeat the request, for a reply that is translated. `model`: the upstream's name
    /// for it, shown where the upstream gives none.
    pub(crate) fn asked(&self, model: Option<&str>) -> Option<Asked> {
        let asked = self.responses.as_ref()?;
        let model = model.or_else(|| asked.request.model());
        Some(Asked::Request {
            request: Arc::clone(&asked.request),
            response_id: asked.response_id.clone(),
            created_at: self.created_at,
            model: model.unwrap_or_default().into(),
        })
    }
}

/// The upstream has another protocol, and no request of this one can be put into that.
fn untranslatable(asked: Api, served: Api, upstream: &Upstream) -> Fault {
    let [asked, served] = [asked, served].map(|api| protocols::of(api).path());
    let message = format!(
        "Requests to {asked} cannot be translated to {served}, which is what the model's upstream serves."
    );
    Fault::untranslatable(&upstream.name, "", &message)
}

/// A request that was made here: what bounds a client's request, or a reply, does not bound it.
fn parsed(body: Bytes, upstream: &Upstream) -> Result<Request, Fault> {
    let limits = Limits {
        max_document: usize::MAX,
        max_depth: MAX_DEPTH,
        ..Limits::default()
    };
    Request::parse(body, &limits).map_err(|_| Fault::new(FaultKind::Internal, &upstream.name))
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
