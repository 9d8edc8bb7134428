//! What a model puts out, piece by piece, whatever protocol it came in. Readers make pieces of a protocol, writers make
//! a protocol of pieces, so that each protocol is read once and written once.
//!
//! Text stays spelled as it stood between the quotes of a JSON string: it is moved from one document into another
//! without being decoded. Half a surrogate pair may end one piece and begin the next.

pub(crate) mod identity;
mod link;
pub(crate) mod named;
pub(crate) mod sealed;
pub(crate) mod spelled;
pub(crate) mod spent;

use crate::api::Api;
use crate::cost::Members;
use crate::error::{Error, ErrorKind};
use crate::json::node::Node;
use crate::json::scan::Fault;
use crate::limits::Limits;
use crate::usage::Usage;

pub use sealed::Sealed;

/// Text as it is spelled between the quotes of a JSON string, without them.
pub type Spelled<'a> = &'a [u8];

/// One piece of output, in the order in which the model made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The reply's id, model and other members of its own; only the first value of each counts.
    Head(Head<'a>),
    /// Thinking.
    Reasoning(Reasoning<'a>),
    /// Text of the answer.
    Text(Text<'a>),
    /// Text of a refusal.
    Refusal(Spelled<'a>),
    /// One annotation of the text around it.
    Annotation(Annotation<'a>),
    /// A part of a tool call.
    Call(Call<'a>),
    /// What has no pieces: an item or block of one protocol's own. Only a writer of that protocol has a place for it.
    Item(Item<'a>),
    /// A part of the open item ends here: what follows of the same kind is the item's next part (of a summary, of a
    /// message's content).
    Part,
    /// What is open ends here: a piece of the same kind that follows begins a new item.
    Break,
    /// Why the model stopped; only the first counts.
    Finish(Finish<'a>),
}

/// The reply as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head<'a> {
    /// The upstream's id for the reply.
    pub id: Option<Spelled<'a>>,
    /// The upstream's name for the model.
    pub model: Option<Spelled<'a>>,
    /// Seconds since 1970, a number as it is spelled.
    pub created: Option<&'a [u8]>,
    /// `service_tier`.
    pub service_tier: Option<Spelled<'a>>,
}

/// Thinking, or what stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning<'a> {
    /// The model's own words.
    Text(Spelled<'a>),
    /// A summary of them.
    Summary(Spelled<'a>),
    /// What only its maker can make use of: to be given back as it came.
    Sealed(Sealed<'a>),
}

/// An item or block as a whole: a hosted tool's call, a compaction, ….
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The protocol that knows it.
    pub api: Api,
    /// A JSON object as it came, in its last state.
    pub json: &'a [u8],
}

/// Text of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Text<'a> {
    /// May be empty.
    pub text: Spelled<'a>,
    /// A JSON array of token log probabilities in the form of Chat Completions (`choices[].logprobs.content`).
    pub logprobs: Option<&'a [u8]>,
    /// Whether the text is commentary or the answer, where the model marks it.
    pub phase: Option<Phase>,
}

/// What a text says about a part of itself: where it is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation<'a> {
    /// The protocol that has it in this form.
    pub api: Api,
    /// A JSON object as it came.
    pub json: &'a [u8],
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Text before the answer (gpt-oss: channel `commentary` without a recipient).
    Commentary,
    /// The answer.
    FinalAnswer,
}

/// A part of a tool call. Which call it belongs to is for the writer to find out: upstreams say it in many ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call<'a> {
    /// Among the calls of the reply, as the upstream counts.
    pub index: Option<u64>,
    /// Empty: not said.
    pub id: Spelled<'a>,
    /// Empty: not said.
    pub name: Spelled<'a>,
    /// The next part of the arguments, a JSON text in a JSON string (of a custom tool: of its input).
    pub arguments: Spelled<'a>,
    /// What the arguments are if no part of them follows, spelled as they are. Empty: nothing is said of it.
    pub fallback: Spelled<'a>,
    /// A custom tool's, whose input is free text.
    pub custom: bool,
    /// `extra_content`, a JSON object that has to be given back as it came (Gemini's thought signatures: google/genai's
    /// `python-genai#2868`, `pi#6733`).
    pub extra: Option<&'a [u8]>,
}

/// Why the model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finish<'a> {
    /// What its protocol's word means.
    pub reason: Reason,
    /// That word.
    pub word: Spelled<'a>,
    /// The stop sequence that the model wrote, where the upstream names it.
    pub sequence: Option<Spelled<'a>>,
    /// What there is to say about it: `stop_details` of the Messages interface, a JSON object as it came.
    pub details: Option<&'a [u8]>,
}

impl<'a> Finish<'a> {
    /// This reason, of which nothing else is known.
    #[must_use]
    pub const fn of(reason: Reason) -> Self {
        Finish {
            reason,
            word: b"",
            sequence: None,
            details: None,
        }
    }

    /// A sentence for people that says why.
    #[must_use]
    pub fn explanation(&self) -> Option<Spelled<'a>> {
        Node::document(self.details?)?.filled("explanation")
    }
}

/// What ended the model's turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// It had said everything.
    #[default]
    Stop,
    /// It wrote a text at which it was to stop.
    Sequence,
    /// It wants the results of its calls.
    Calls,
    /// The bound on its tokens.
    Length,
    /// The bound of its context.
    Context,
    /// What it said, or was to say, is not allowed.
    Filter,
    /// A hosted tool's loop is to go on with the next request.
    Pause,
    /// The upstream gave up.
    Failed,
    /// A word that nobody knows.
    Other,
}

/// How a reply ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending<'a> {
    /// The upstream marked the end: with a reason ([`Piece::Finish`]), or in the way of its protocol.
    Regular,
    /// Before its end.
    Failed(Failure<'a>),
}

/// Why a reply failed, decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failure<'a> {
    /// A sentence for people.
    pub message: &'a str,
    /// A word for programs.
    pub code: Option<&'a str>,
    /// The class of errors that it belongs to (`type`).
    pub kind: Option<&'a str>,
}

/// What a reply used.
#[derive(Clone, Copy, Debug)]
pub struct Spent<'a> {
    /// The counts.
    pub usage: &'a Usage,
    /// What is to be added to the usage object.
    pub members: Option<&'a Members>,
}

/// Writes pieces in one protocol. It bounds nothing itself: its caller checks [`held`](Self::held).
pub trait Writer: Send {
    /// What the upstream has said of its usage before it said anything else. For protocols that count the input first.
    fn foresee(&mut self, _usage: &Usage) {}

    /// Takes one piece, and appends what can be sent to the client by now.
    fn write(&mut self, piece: &Piece<'_>, out: &mut Vec<u8>);

    /// The reply's end: what is open is closed. Called once; nothing is written after it. `now`: seconds since 1970,
    /// where known.
    fn end(
        &mut self,
        ending: Ending<'_>,
        spent: Option<Spent<'_>>,
        now: Option<u64>,
        out: &mut Vec<u8>,
    );

    /// Bytes that are kept until the end.
    fn held(&self) -> usize;
}

/// Where a text is that an event says the next part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPlace {
    pub(crate) item: usize,
    pub(crate) text: usize,
}

/// Makes pieces of a protocol.
pub trait Reader: Send {
    /// Reads the payload of one event and calls `give` with each of its pieces, in their order. Nothing is given of a
    /// payload that is no JSON.
    ///
    /// # Errors
    /// `payload` is not one JSON document.
    fn read(&mut self, payload: &[u8], give: &mut dyn FnMut(&Piece<'_>)) -> Result<(), Fault>;

    /// Reads a reply that comes whole, as one JSON document that was checked. Nothing comes after it.
    ///
    /// # Errors
    /// It cannot be read as a reply, or has more of something than `limits` allow.
    fn read_whole(
        &mut self,
        document: &[u8],
        _limits: &Limits,
        give: &mut dyn FnMut(&Piece<'_>),
    ) -> Result<(), Error> {
        // What is deeper than this reader goes gives nothing, as in an event.
        let _ = self.read(document, give);
        Ok(())
    }

    /// Whether what the payload that was read last gives, or what those behind it give, depends on what came before.
    /// Every payload like it has to be read, then, and those behind it have to be read once more before they count as
    /// known.
    fn remembers(&self) -> bool;

    /// The text that the payload which was read last said the next part of, and no more than that. What differs from it
    /// in that part alone may be [said](Self::say) instead of being read, until another payload is read after which the
    /// reader [remembers](Self::remembers).
    fn continued(&self) -> Option<TextPlace> {
        None
    }

    /// Takes in the next part of the text at `place`, and calls `give` with its pieces.
    fn say(&mut self, _place: TextPlace, _text: Spelled<'_>, _give: &mut dyn FnMut(&Piece<'_>)) {}

    /// Why the reply cannot be read to its end: there is more of it than can be told apart, or it is not one reply.
    /// Nothing is given any more, and the reply cannot be completed.
    fn fault(&self) -> Option<ErrorKind> {
        None
    }

    /// No payload follows: what was kept back is given.
    fn end(&mut self, give: &mut dyn FnMut(&Piece<'_>));
}
