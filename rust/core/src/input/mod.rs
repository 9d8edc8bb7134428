//! What a client asks for, whatever protocol it came in: a [`Conversation`], which each protocol reads out of its
//! requests and writes its requests of.
//!
//! Nothing is copied that need not be: texts are the bytes between the quotes of the client's own JSON strings, escapes
//! untouched, and values are [`Node`]s of its body. A writer does one of four things with each thing that it finds: it
//! keeps it, changes it, leaves it out (and lists it, unless it speaks of cost, storage or display only), or refuses
//! the request, since the answer depends on it.
//!
//! * [`block`]: what a turn is made of.
//! * `left_out`: what of a request its upstream is not sent.
//! * [`names`]: what the upstream calls the tools.
//! * [`offer`]: all tools of a request as functions, for upstreams that have nothing else.
//! * [`place`]: where in a request something stands, and why a request is refused.
//! * `read`: what both protocols of OpenAI spell alike.
//! * [`seal`]: what an upstream wants back from a client that speaks another protocol.
//! * [`settings`]: the members that stand for themselves, `temperature` or `stop`.
//! * [`tools`]: the tools that the model may call.

pub mod block;
pub(crate) mod ids;
pub(crate) mod left_out;
pub(crate) mod media;
pub mod names;
pub mod offer;
pub mod place;
pub(crate) mod read;
pub mod seal;
pub mod settings;
pub mod tools;

use bytes::Bytes;
use std::sync::Arc;

pub use block::{Block, Call, Content, File, Image, Media, Own, Payload, Scope, Seal};
pub use names::Names;
pub use place::{Place, Refusal, Spot, Word};
pub use settings::{Setting, Settings};
pub use tools::{Choice, ChoiceKind, Tool, ToolKind};

use self::left_out::LeftOut;
use crate::api::Api;
use crate::json::node::Node;

/// Turns and blocks that one request may have, 131,072 in all.
///
/// Anthropic takes 100,000 messages, and nobody sends more than some thousand. Each costs up to twenty times what it
/// takes to spell it.
pub const MAX_BLOCKS: usize = 1 << 17;

/// A client's request to a model.
#[derive(Clone, Debug)]
pub struct Conversation<'a> {
    /// The protocol that the client speaks.
    pub api: Api,
    /// What stands above all turns: `instructions` of Responses, `system` of Messages, a text each. The system's
    /// messages of Chat Completions are turns.
    pub instructions: Vec<Block<'a>>,
    /// The conversation, oldest first. Neighbours may have the same role: a turn is one message or one item, as the
    /// client sent it.
    pub turns: Vec<Turn<'a>>,
    /// The tools that are offered, in their order.
    pub tools: Vec<Tool<'a>>,
    /// Which of the tools may or must be called.
    pub choice: Choice<'a>,
    /// The form that the answer must have.
    pub format: Format<'a>,
    /// How much the model is to think.
    pub reasoning: Reasoning<'a>,
    /// Whether the tokens' probabilities are asked for. How many of them is [`Setting::TopLogprobs`].
    pub logprobs: bool,
    /// The members of the request that stand for themselves.
    pub settings: Settings<'a>,
    /// What no other protocol has a place for and no answer needs: it is not read. Writers add to it.
    pub(crate) left_out: LeftOut,
}

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The operator, with the greatest weight.
    System,
    /// The operator, as newer models of OpenAI call it.
    Developer,
    /// The user. The results of calls are the user's, too.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// What every protocol calls it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::Developer => "developer",
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

/// One message of a conversation, or one item.
///
/// It may have no block, or one empty text.
#[derive(Clone, Debug)]
pub struct Turn<'a> {
    /// Who says it.
    pub role: Role,
    /// What is said, in the order in which it was said.
    pub blocks: Vec<Block<'a>>,
    /// `messages[3]`, `input[3]`; `input` where the input is a text.
    pub spot: Spot,
    /// Whether `name` says which of several participants it is; its place is the turn's `name`. Chat Completions only.
    pub named: bool,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Format<'a> {
    /// Which it is.
    pub kind: FormatKind<'a>,
    /// As the client wrote it: `response_format`, `text.format`, `output_config.format`.
    pub source: Option<Node<'a>>,
    /// Where it stands.
    pub spot: Spot,
    /// How long the answer is to be, a string, where the client says it beside the format: `text.verbosity`. Elsewhere
    /// it is [`Setting::Verbosity`].
    pub verbosity: Option<Node<'a>>,
}

/// Which form an answer must have.
#[derive(Clone, Copy, Debug, Default)]
pub enum FormatKind<'a> {
    /// Any text.
    #[default]
    Text,
    /// A JSON object.
    Object,
    /// JSON of a schema.
    Schema {
        /// The schema, where there is one.
        schema: Option<Node<'a>>,
        /// `name`, a string.
        name: Option<Node<'a>>,
        /// The object that holds `name`, `description`, `schema` and `strict` as both protocols of OpenAI spell them,
        /// with members that nobody here knows: of Chat Completions in [`Format::source`], of Responses the same; none
        /// of Messages.
        members: Option<Node<'a>>,
    },
    /// One that is not known. A protocol of OpenAI's is sent the source as it is.
    Own,
}

/// How much the model is to think, as far as the request says it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reasoning<'a> {
    /// Whether it is to think.
    pub mode: Thinking,
    /// A string, `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`: `reasoning_effort`, `reasoning.effort`,
    /// `output_config.effort`.
    pub effort: Option<Node<'a>>,
    /// The most tokens to think with, a number: `thinking.budget_tokens`.
    pub budget: Option<Node<'a>>,
    /// What of it is to be shown.
    pub shown: Shown<'a>,
    /// The object `reasoning` of Responses, which clients of Chat Completions send, too (OpenRouter's), with members
    /// that nobody here knows; none of Messages.
    pub members: Option<Node<'a>>,
}

/// Whether a model is to think.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thinking {
    /// The request does not say.
    #[default]
    Unsaid,
    /// It is: `thinking.type` is `enabled`.
    On,
    /// As it thinks fit: `adaptive`.
    Adaptive,
    /// It is not: `disabled`, or an effort of `none`.
    Off,
}

/// What is to be shown of reasoning.
#[derive(Clone, Copy, Debug, Default)]
pub enum Shown<'a> {
    /// The request does not say.
    #[default]
    Unsaid,
    /// A summary; its length as the client spelled it, `"auto"` or `"detailed"`, where its protocol has several.
    Summary(Option<Node<'a>>),
    /// Nothing.
    Nothing,
}

/// A request as an upstream is to have it.
#[derive(Clone, Debug)]
pub struct Written {
    /// One JSON object.
    pub body: Bytes,
    /// The parts that are not sent to the upstream, and on which the answer does not depend: `tools[2] (web_search)`.
    /// At most 16 of at most 64 bytes, and behind them how many more there are.
    pub left_out: Vec<Box<str>>,
    /// What the upstream calls the tools; None where all have their own names.
    pub names: Option<Arc<Names>>,
}

impl<'a> Format<'a> {
    /// Whether the members of a schema stand in an object of their own, as Chat Completions has them.
    #[must_use]
    pub fn is_nested(&self) -> bool {
        let FormatKind::Schema { members, .. } = self.kind else {
            return false;
        };
        let (Some(members), Some(source)) = (members, self.source) else {
            return false;
        };
        members.range() != source.range()
    }
}

/// How many more turns and blocks a request may have: see [`MAX_BLOCKS`].
#[derive(Debug)]
pub(crate) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Room(MAX_BLOCKS)
    }
}

impl Room {
    /// Takes the room for one, which stands at `place`.
    pub(crate) fn take(&mut self, place: &Place<'_>) -> Result<(), Refusal> {
        self.0 = self.0.checked_sub(1).ok_or_else(|| {
            Refusal::new(
                place,
                format!("The request has more than {MAX_BLOCKS} messages and parts of them."),
            )
        })?;
        Ok(())
    }
}
