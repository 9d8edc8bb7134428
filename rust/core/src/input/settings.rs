//! The members of a request that stand for themselves.

use std::borrow::Cow;

use super::place::{Place, Refusal};
use crate::json::node::Node;
use crate::json::scan::Kind;

/// What a member of a request asks for. Each protocol has a table of its names for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Setting {
    /// The model's name.
    Model,
    /// Whether the answer comes as a stream.
    Stream,
    /// `stream_options`.
    StreamOptions,
    /// The most tokens of the answer, those for reasoning included: `max_tokens`, `max_completion_tokens`,
    /// `max_output_tokens`.
    MaxTokens,
    /// `temperature`
    Temperature,
    /// `top_p`
    TopP,
    /// `top_k`. Of OpenAI's protocols it is a vendor's own, and among [`Settings::rest`].
    TopK,
    /// `seed`
    Seed,
    /// Texts at which the answer ends, a string or an array: `stop`, `stop_sequences`.
    Stop,
    /// How many answers: `n`.
    Candidates,
    /// `presence_penalty`
    PresencePenalty,
    /// `frequency_penalty`
    FrequencyPenalty,
    /// `logit_bias`
    LogitBias,
    /// How many likely tokens are told for each place: `top_logprobs`.
    TopLogprobs,
    /// Whether several tools may be called at once, a boolean: `parallel_tool_calls`. What every protocol can say is
    /// [`Choice::one_call`](super::Choice::one_call).
    ParallelCalls,
    /// `service_tier`, in the words of OpenAI: `auto`, `default`, `flex`, `priority`. A reader of other words gives one
    /// of these.
    ServiceTier,
    /// Who the end user is, a string: `user`, `metadata.user_id`.
    User,
    /// The same, as OpenAI calls it for abuse alone: `safety_identifier`.
    SafetyIdentifier,
    /// `prompt_cache_key`
    CacheKey,
    /// `prompt_cache_retention`
    CacheRetention,
    /// How long the answer is to be, a string: `verbosity`. See [`Format::verbosity`](super::Format::verbosity).
    Verbosity,
    /// Whether the provider keeps the answer: `store`.
    Store,
    /// The caller's own notes, an object of strings: `metadata` of OpenAI's protocols.
    Metadata,
    /// A text that the answer may repeat: `prediction`.
    Prediction,
    /// What the answer may be, an array of `text`, `audio`: `modalities`.
    Modalities,
    /// How the answer is to sound: `audio`.
    AudioOutput,
    /// Searching the web, as Chat Completions asks for it: `web_search_options`.
    WebSearch,
    /// The tools of Chat Completions before there were tools: `functions`.
    Functions,
    /// Their choice: `function_call`.
    FunctionCall,
    /// What else a response is to hold, an array of strings: `include` of Responses. See
    /// [`Conversation::logprobs`](super::Conversation::logprobs).
    Include,
    /// `text` of Responses, where a client of Chat Completions gives it.
    TextOptions,
    /// `truncation` of Responses.
    Truncation,
    /// `max_tool_calls` of Responses.
    MaxToolCalls,
    /// A member of the protocol's own without which the answer is another: `conversation`, `container`. It is refused.
    Needed,
    /// A member of the protocol's own that an upstream of another protocol can do without: it is left out, and listed.
    Spared,
    /// A member of the protocol's own that speaks of cost, storage or display: it is left out.
    Silent,
    /// A member that is read into another field of the conversation: its turns, its tools.
    Read,
}

/// How many settings have one place: those before [`Setting::Needed`].
const PLACED: usize = Setting::Needed as usize;

/// Members that the object of a request may have, 1,024: the protocols know some forty.
pub const MAX_MEMBERS: usize = 1024;

/// A table of a protocol's names: what a member of this name is, decoded. None for one that the protocol does not know,
/// a vendor's own.
pub type Table = fn(&str) -> Option<Setting>;

/// A member of the request's own object.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its name, as the client spelled it, quotes included.
    pub key: Node<'a>,
    /// Its value.
    pub value: Node<'a>,
}

impl Member<'_> {
    /// Its name, decoded.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        self.key.decode().unwrap_or_default()
    }
}

/// The members of a request's own object.
#[derive(Clone, Debug)]
pub struct Settings<'a> {
    root: Node<'a>,
    members: Vec<(Option<Setting>, Member<'a>)>,
    /// Of each setting that was given its name and its value.
    values: [Option<Member<'a>>; PLACED],
}

impl<'a> Settings<'a> {
    /// Those of `root`, a request's whole body. Of several members of a name the last counts; none where that is null.
    /// Where several names mean the same setting, the one behind counts; [`set`](Self::set) says otherwise.
    ///
    /// # Errors
    /// More members than [`MAX_MEMBERS`].
    pub fn read(root: Node<'a>, table: Table) -> Result<Self, Refusal> {
        let mut settings = Settings {
            root,
            members: Vec::with_capacity(16),
            values: [None; PLACED],
        };
        for (key, value) in root.members() {
            let member = Member { key, value };
            if settings.members.len() == MAX_MEMBERS {
                return Err(Refusal::new(
                    &Place::Top(&member.name()),
                    format!("The request has more than {MAX_MEMBERS} members."),
                ));
            }
            let setting = table(&member.name());
            if let Some(setting) = setting {
                settings.set(setting, (value.kind() != Kind::Null).then_some(member));
            }
            settings.members.push((setting, member));
        }
        Ok(settings)
    }

    /// Bytes of the request's whole body.
    #[must_use]
    pub fn size(&self) -> usize {
        self.root.bytes().len()
    }

    /// The value of the member of this name, which has no place of its own; of several the last, and none where that is
    /// null.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Node<'a>> {
        Some(self.find_member(name)?.value)
    }

    /// The same with its name as the client spelled it.
    #[must_use]
    pub fn find_member(&self, name: &str) -> Option<Member<'a>> {
        let mut members = self.members.iter().rev();
        let (_, member) = members.find(|(_, member)| member.key.is(name))?;
        Some(*member).filter(|member| member.value.kind() != Kind::Null)
    }

    /// Its value.
    #[must_use]
    pub fn get(&self, setting: Setting) -> Option<Node<'a>> {
        Some(self.member(setting)?.value)
    }

    /// Its name, as the client spelled it, and its value.
    #[must_use]
    pub fn member(&self, setting: Setting) -> Option<Member<'a>> {
        *self.values.get(setting as usize)?
    }

    /// Gives a setting a value that stands elsewhere in the request, `metadata.user_id`, or none.
    /// [`members`](Self::members) stays as it is.
    pub fn set(&mut self, setting: Setting, member: Option<Member<'a>>) {
        if let Some(slot) = self.values.get_mut(setting as usize) {
            *slot = member;
        }
    }

    /// All members in the client's order, as often as they were given and null or not, each with what it is in the
    /// client's protocol; None for a vendor's own.
    #[must_use]
    pub fn members(&self) -> &[(Option<Setting>, Member<'a>)] {
        &self.members
    }

    /// The members that the client's protocol does not know, a vendor's own, in their order.
    pub fn rest(&self) -> impl Iterator<Item = Member<'a>> + '_ {
        let members = self.members.iter();
        members.filter_map(|(setting, member)| setting.is_none().then_some(*member))
    }
}
