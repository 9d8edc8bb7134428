//! Requests to `/v1/responses`, and requests for a response made of what clients of other protocols ask for.
//!
//! Texts, schemas and numbers are copied as they are spelled: nothing is read into a tree and written anew.
//!
//! * [`forwarded`]: a request on its way to an upstream that speaks Responses as well.
//! * [`items`]: the input as a list of items, for the store of conversations.
//! * [`read_request`]: what a request asks for, whatever protocol its upstream speaks.
//! * [`write_request`]: a request for an upstream that speaks Responses only.

mod choice;
pub mod forwarded;
pub mod items;
mod read;
mod write;

use bytes::Bytes;

pub(super) use self::choice::write_choice;
pub use self::read::read_request;
pub(super) use self::read::read_tools;
pub use self::write::{ResponsesTarget, write_request};

use crate::error::{Error, ErrorKind};
use crate::input::Setting;
use crate::json::node::Node;
use crate::json::scan::{Kind, Value};
use crate::limits::Limits;
use crate::record;
use crate::request::Request;
use crate::request::affinity::Beginning;

/// The members of a request that have a meaning here. All others are the upstream's.
const NAMES: [(&str, Setting); 35] = [
    ("background", Setting::Silent),
    ("background_options", Setting::Silent),
    ("client_metadata", Setting::Silent),
    ("context_management", Setting::Needed),
    ("conversation", Setting::Needed),
    ("frequency_penalty", Setting::FrequencyPenalty),
    ("include", Setting::Include),
    ("input", Setting::Read),
    ("instructions", Setting::Read),
    ("max_output_tokens", Setting::MaxTokens),
    ("max_tool_calls", Setting::MaxToolCalls),
    ("messages", Setting::Needed),
    ("metadata", Setting::Metadata),
    ("model", Setting::Model),
    ("parallel_tool_calls", Setting::ParallelCalls),
    ("presence_penalty", Setting::PresencePenalty),
    ("previous_response_id", Setting::Read),
    ("prompt", Setting::Needed),
    ("prompt_cache_key", Setting::CacheKey),
    ("prompt_cache_retention", Setting::CacheRetention),
    ("reasoning", Setting::Read),
    ("safety_identifier", Setting::SafetyIdentifier),
    ("service_tier", Setting::ServiceTier),
    ("store", Setting::Store),
    ("stream", Setting::Stream),
    ("stream_options", Setting::StreamOptions),
    ("temperature", Setting::Temperature),
    ("text", Setting::Read),
    ("tool_choice", Setting::Read),
    ("tools", Setting::Read),
    ("top_logprobs", Setting::TopLogprobs),
    ("top_p", Setting::TopP),
    ("truncation", Setting::Truncation),
    ("user", Setting::User),
    ("verbosity", Setting::Verbosity),
];

/// The place of a member's name in [`NAMES`].
fn number(name: &str) -> Option<usize> {
    NAMES.binary_search_by(|(known, _)| (*known).cmp(name)).ok()
}

/// What a member of this name is.
fn setting(name: &str) -> Option<Setting> {
    let (_, setting) = NAMES.get(number(name)?)?;
    Some(*setting)
}

/// A client's request for a response, one JSON object, read once.
///
/// ```
/// use bytes::Bytes;
/// use sluicegate_core::limits::Limits;
/// use sluicegate_core::protocols::chat::request::{ChatTarget, write_request};
/// use sluicegate_core::protocols::responses::request::{ResponsesRequest, read_request};
///
/// let body = Bytes::from_static(br#"{"model":"m","instructions":"Be brief.","input":"Hi","temperature":0.50}"#);
/// let request = ResponsesRequest::parse(body, &Limits::default())?;
/// assert!(request.store());
/// let chat = write_request(&read_request(request.request()).unwrap(), &ChatTarget::default()).unwrap();
/// assert_eq!(
///     chat.body,
///     concat!(
///         r#"{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],"#,
///         r#""temperature":0.50}"#
///     )
/// );
/// # Ok::<(), sluicegate_core::error::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ResponsesRequest {
    request: Request,
    /// Of each member in [`NAMES`], the last value, where it is not null.
    values: [Option<Value>; NAMES.len()],
    previous_response_id: Option<Box<str>>,
    refers: bool,
    unstorable: Option<Box<str>>,
}

impl ResponsesRequest {
    /// Reads a body. Of `limits`, `max_document` and `max_depth` apply.
    ///
    /// Only what routing and keeping depend on is checked; the rest is when it is put to an upstream.
    ///
    /// # Errors
    /// As [`Request::parse`] gives them, and [`ErrorKind::WrongType`] for a `store` or `background` that is neither a
    /// boolean nor null, and a `previous_response_id` that is neither a string nor null.
    pub fn parse(body: Bytes, limits: &Limits) -> Result<Self, Error> {
        let mut values = [None; NAMES.len()];
        let mut previous_response_id = None;
        let request = Request::read(body, limits, |body, member| {
            let value = member.value;
            let key = Node::new(body, member.key).decode().unwrap_or_default();
            let Some(number) = number(&key) else {
                return Ok(());
            };
            let allowed: &[Kind] = match NAMES.get(number).map(|(name, _)| *name) {
                Some("store" | "background") => &[Kind::True, Kind::False, Kind::Null],
                Some("previous_response_id") => {
                    previous_response_id = value.decode(body).map(|id| record::cut(&id).into());
                    &[Kind::String, Kind::Null]
                }
                _ => &[value.kind],
            };
            if !allowed.contains(&value.kind) {
                return Err(Error::new(ErrorKind::WrongType, value.start as u64));
            }
            if let Some(slot) = values.get_mut(number) {
                *slot = (value.kind != Kind::Null).then_some(value);
            }
            Ok(())
        })?;
        let mut request = ResponsesRequest {
            request,
            values,
            previous_response_id,
            refers: false,
            unstorable: None,
        };
        request.refers = request.has_references();
        request.unstorable = request.find_unstorable();
        Ok(request)
    }

    /// The value of a member in [`NAMES`]; None where it is absent or null.
    pub(super) fn get(&self, name: &str) -> Option<Node<'_>> {
        let value = (*self.values.get(number(name)?)?)?;
        Some(Node::new(self.request.body(), value))
    }

    /// The whole body.
    pub(super) fn root(&self) -> Node<'_> {
        self.request.root()
    }

    /// The request as bytes to edit in place, for an upstream that speaks Responses.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The body as it came, or as [`with_input_prefix`](Self::with_input_prefix) made it.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        self.request.body()
    }

    /// The `model` member, decoded. None where it is absent or no string.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.request.model()
    }

    /// The `stream` member. False where it is absent or null.
    #[must_use]
    pub fn stream(&self) -> bool {
        self.request.stream()
    }

    /// The `store` member. True where it is absent or null.
    #[must_use]
    pub fn store(&self) -> bool {
        self.get("store").is_none_or(|it| it.kind() == Kind::True)
    }

    /// The `background` member. False where it is absent or null.
    #[must_use]
    pub fn background(&self) -> bool {
        self.get("background")
            .is_some_and(|it| it.kind() == Kind::True)
    }

    /// The `previous_response_id` member, also where [`with_input_prefix`](Self::with_input_prefix) has taken it out.
    /// [Cut](record::cut) where it is longer than any id that is kept.
    #[must_use]
    pub fn previous_response_id(&self) -> Option<&str> {
        self.previous_response_id.as_deref()
    }

    /// Whether an item of the input stands for one that was made earlier: an `item_reference`, or an id and nothing
    /// else, as `OpenAI`'s clients may write it.
    #[must_use]
    pub fn refers(&self) -> bool {
        self.refers
    }

    /// The first member that names something in the store, `previous_response_id` or `input[2].id`, and cannot be kept
    /// as text: it has a lone surrogate or NUL. None where all can.
    #[must_use]
    pub fn unstorable(&self) -> Option<&str> {
        self.unstorable.as_deref()
    }

    /// The number of the conversation that it belongs to, see [`affinity`](crate::request::affinity); none where there
    /// is nothing to tell it from others. Looks through the input up to the first message from the user.
    #[must_use]
    pub fn affinity(&self) -> Option<u64> {
        let beginning = Beginning {
            cache_key: self.get("prompt_cache_key"),
            model: self.model().unwrap_or_default(),
            tools: self.get("tools"),
            instructions: self.get("instructions"),
            turns: self.get("input"),
        };
        beginning.affinity()
    }
}
