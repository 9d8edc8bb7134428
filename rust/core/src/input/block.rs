//! What a turn is made of.

use std::borrow::Cow;

use super::place::Spot;
use crate::api::Api;
use crate::json::node::Node;
use crate::json::scan::Kind;

/// A text as it stands between the quotes of a JSON string, escapes untouched. Owned where it is put together of
/// several.
pub type Text<'a> = Cow<'a, [u8]>;

/// Whether a text says at once that it is an error; tags may stand in front.
pub(crate) fn says_error(text: &[u8]) -> bool {
    const FRONT: usize = 32;
    const WORD: &[u8] = b"error";
    let front = text.get(..FRONT).unwrap_or(text);
    front
        .windows(WORD.len())
        .any(|word| word.eq_ignore_ascii_case(WORD))
}

/// One piece of a turn.
#[derive(Clone, Debug)]
pub struct Block<'a> {
    /// What it is.
    pub content: Content<'a>,
    /// Where it stands: `messages[3].content[0]`, `messages[3].tool_calls[1]`, `messages[3].content` of a string; of a
    /// block that is an item, the item's place.
    pub spot: Spot,
    /// As the client wrote it: a part, a block or an item, or the string that is the whole content. `cache_control` and
    /// what else a vendor has put beside it is there.
    pub source: Option<Node<'a>>,
}

impl<'a> Block<'a> {
    /// A text.
    #[must_use]
    pub fn text(text: impl Into<Text<'a>>, spot: Spot, source: Option<Node<'a>>) -> Self {
        Block {
            content: Content::Text(text.into()),
            spot,
            source,
        }
    }

    /// Whether it is a content that the client wrote as one string, and not as a list of parts.
    #[must_use]
    pub fn is_whole_content(&self) -> bool {
        self.source.is_some_and(|it| it.kind() == Kind::String)
    }
}

/// What a block is.
#[derive(Clone, Debug)]
pub enum Content<'a> {
    /// A text. It may be empty.
    Text(Text<'a>),
    /// What the model said instead of an answer.
    Refusal(Text<'a>),
    /// An image.
    Image(Image<'a>),
    /// A file, or a document.
    File(File<'a>),
    /// Sound, as the part that both protocols of OpenAI have: `{"type":"input_audio",…}`.
    Audio(Node<'a>),
    /// What the model thought.
    Thinking {
        /// The text. Empty where only a seal is there, or nothing that can be read.
        text: Text<'a>,
        /// What proves or stands for it to who made it.
        seal: Option<Seal<'a>>,
    },
    /// A call of a tool.
    Call(Call<'a>),
    /// What came of a call.
    Result {
        /// The call's id.
        id: Text<'a>,
        /// Whether the call failed.
        failed: bool,
        /// Texts, images, files, and parts of the protocol's own.
        content: Vec<Block<'a>>,
    },
    /// What has no meaning but in one protocol.
    Own(Own<'a>),
}

/// An image.
#[derive(Clone, Debug)]
pub struct Image<'a> {
    /// Its bytes, or where they are. [`Media::Url`] of an empty text where `object` holds none.
    pub media: Media<'a>,
    /// A string, how closely it is to be looked at: `auto`, `low`, `high`.
    pub detail: Option<Node<'a>>,
    /// The object `{url, detail}` of Chat Completions, where the client wrote one, with members that nobody here knows.
    pub object: Option<Node<'a>>,
}

/// A file.
#[derive(Clone, Debug)]
pub struct File<'a> {
    /// Its name, or its title.
    pub name: Option<Text<'a>>,
    /// Its content, or where it is. The first of several is here: content, id, address.
    pub media: Media<'a>,
    /// The object that holds `filename`, `file_data`, `file_id` and `file_url` as both protocols of OpenAI spell them,
    /// with members that nobody here knows; none of Messages. Those that a protocol of OpenAI writes are copied from
    /// here.
    pub object: Option<Node<'a>>,
}

/// Where the bytes of an image or of a file are.
#[derive(Clone, Debug)]
pub enum Media<'a> {
    /// Behind an address; a data URL is one, too.
    Url(Text<'a>),
    /// Here, as base64.
    Base64 {
        /// `image/png`. None where the client does not say.
        media_type: Option<Text<'a>>,
        /// The base64.
        data: Text<'a>,
    },
    /// Here, as text.
    Text(Text<'a>),
    /// Here, as texts and images of their own.
    Blocks(Vec<Block<'a>>),
    /// At the provider, under this id.
    Id(Text<'a>),
}

impl<'a> Media<'a> {
    /// What `file_data` holds: a data URL, or base64 alone.
    #[must_use]
    pub fn of_file_data(data: Text<'a>) -> Self {
        if data.starts_with(b"data:") {
            Media::Url(data)
        } else {
            Media::Base64 {
                media_type: None,
                data,
            }
        }
    }
}

/// A call of a tool.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// The call's id.
    pub id: Text<'a>,
    /// The tool's name.
    pub name: Text<'a>,
    /// The tool's namespace, decoded. Responses only.
    pub namespace: Option<Cow<'a, str>>,
    /// What the tool is given.
    pub input: Payload<'a>,
    /// Whether the tool is a custom one: the input is a text of any form, not the text of a JSON object.
    pub custom: bool,
    /// `extra_content`, which Google puts beside a call and wants back.
    pub extra: Option<Node<'a>>,
}

/// What a tool is given.
#[derive(Clone, Debug)]
pub enum Payload<'a> {
    /// The content of a string: of a function the text of a JSON object, of a custom tool the input itself. It may be
    /// empty, and it may be no JSON.
    Text(Text<'a>),
    /// An object.
    Object(Node<'a>),
}

/// What proves reasoning, or stands for it, to the one who made it. Nobody else can do anything with it.
#[derive(Clone, Debug)]
pub enum Seal<'a> {
    /// The signature of the text beside it: `signature` of Messages.
    Signature(Text<'a>),
    /// What stands for a text that is not shown: `data` of a `redacted_thinking` block.
    Redacted(Text<'a>),
    /// What an item of Responses has encrypted: `encrypted_content`. It belongs to the whole item, which is the block's
    /// source.
    Encrypted(Text<'a>),
    /// What its maker, an upstream of another protocol, is to get back as it was.
    Wrapped(super::seal::Seal<'a>),
}

impl Seal<'_> {
    /// What an upstream of `api` made, JSON; None where another made it.
    #[must_use]
    pub fn made_by(&self, api: Api) -> Option<Vec<u8>> {
        let seal = match self {
            Seal::Encrypted(text) => super::seal::Seal::of(text)?,
            Seal::Wrapped(seal) => *seal,
            Seal::Signature(_) | Seal::Redacted(_) => return None,
        };
        (seal.api() == api).then(|| seal.open())?
    }
}

/// What has no meaning but in one protocol.
#[derive(Clone, Debug)]
pub struct Own<'a> {
    /// The protocol. Not always the client's: a part of Chat Completions may stand in a request for a response.
    pub api: Api,
    /// What it is called there; empty where it has no type.
    pub kind: Cow<'a, str>,
    /// What hangs on it.
    pub scope: Scope,
    /// The whole of it.
    pub json: Node<'a>,
}

/// What of a conversation something of a protocol's own stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A part of a message's content.
    Part,
    /// A turn of its own.
    Item,
    /// What a tool did that the provider itself runs. What came of it is in the text that the model made of it, so it
    /// may be left out.
    Trace,
}
