//! Messages and their blocks as turns.
//!
//! - Results come first in a user's turn, whatever stood before them: they must follow their calls at once.
//! - Documents that are texts, and search results, become texts with a line in front that names them.
//! - Empty texts are dropped. A message of the model that has nothing left has one empty text.
//! - What a tool of Anthropic's did in an earlier turn is left out: the text that the model made of it stays.

use crate::input::block::{Block, Call, Content, File, Image, Media, Payload, Seal, Text};
use crate::input::left_out::LeftOut;
use crate::input::place::{Place, Refusal, Spot, Word, of_kind, spelled};
use crate::input::{Role, Room, Turn, seal};
use crate::json::node::Node;
use crate::json::scan::Kind;

/// How the first block of Claude Code's system prompt begins, which Anthropic takes out. It has a hash that is another
/// in each request, and would defeat every cache of prompts.
const BILLING: &[u8] = b"x-anthropic-billing-header:";

/// Whose content a block stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    User,
    Assistant,
    System,
    Result,
    Document,
}

impl Within {
    /// As it is called in an error.
    fn name(self) -> &'static str {
        match self {
            Within::User => "a user's message",
            Within::Assistant => "an assistant's message",
            Within::System => "a system prompt",
            Within::Result => "a tool's result",
            Within::Document => "a document",
        }
    }
}

/// Blocks as they are read.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub(super) left_out: LeftOut,
    room: Room,
}

/// Where the bytes of an image or a document are.
enum Source<'a> {
    Base64 {
        media_type: Option<&'a [u8]>,
        data: &'a [u8],
    },
    Url(&'a [u8]),
    Text(&'a [u8]),
    Content(Node<'a>),
}

impl Blocks {
    /// The system prompt.
    pub(super) fn system<'a>(
        &mut self,
        system: Option<Node<'a>>,
    ) -> Result<Vec<Block<'a>>, Refusal> {
        let mut blocks = Vec::new();
        let Some(system) = system else {
            return Ok(blocks);
        };
        let spot = Spot::top(Word::System);
        let is_billing = |block: &Block<'_>| match &block.content {
            Content::Text(text) => text.starts_with(BILLING),
            _ => false,
        };
        self.content(system, spot, Within::System, &mut blocks)?;
        let first = Spot::top(Word::System).element(0);
        if let Some(block) = blocks.first()
            && (block.spot == first || block.spot == spot)
            && is_billing(block)
        {
            self.left_out.add(Place::At(block.spot));
            blocks.remove(0);
        }
        Ok(blocks)
    }

    /// One message.
    pub(super) fn message<'a>(
        &mut self,
        message: Node<'a>,
        spot: Spot,
    ) -> Result<Turn<'a>, Refusal> {
        let place = Place::At(spot);
        of_kind(message, Kind::Object, "an object", &place)?;
        self.room.take(&place)?;
        let [role, content] = message.pick(["role", "content"]);
        let role_place = place.member("role");
        spelled(role, &role_place)?;
        let is = |name: &str| role.is_some_and(|role| role.is(name));
        let (role, within) = if is("user") {
            (Role::User, Within::User)
        } else if is("assistant") {
            (Role::Assistant, Within::Assistant)
        } else if is("system") {
            (Role::System, Within::System)
        } else {
            return Err(Refusal::new(
                &role_place,
                "The role must be 'user', 'assistant' or 'system'.",
            ));
        };
        let content_spot = spot.member(Word::Content);
        let content = content.ok_or_else(|| Refusal::missing(&Place::At(content_spot)))?;
        let mut blocks = Vec::new();
        self.content(content, content_spot, within, &mut blocks)?;
        match role {
            Role::User => {
                // Stable: within each kind the order stays.
                blocks.sort_by_key(|block| !matches!(block.content, Content::Result { .. }));
            }
            Role::Assistant if blocks.is_empty() => {
                blocks.push(Block::text(&b""[..], content_spot, None));
            }
            _ => {}
        }
        Ok(Turn {
            role,
            blocks,
            spot,
            named: false,
        })
    }

    /// A string, or an array of blocks.
    fn content<'a>(
        &mut self,
        content: Node<'a>,
        spot: Spot,
        within: Within,
        blocks: &mut Vec<Block<'a>>,
    ) -> Result<(), Refusal> {
        if let Some(text) = content.spelled() {
            if !text.is_empty() {
                blocks.push(Block::text(text, spot, Some(content)));
            }
            return Ok(());
        }
        if content.kind() != Kind::Array {
            let expected = "a string or an array";
            return Err(Refusal::wrong_type(
                &Place::At(spot),
                expected,
                content.kind(),
            ));
        }
        for (index, block) in content.elements().enumerate() {
            self.block(block, spot.element(index), within, blocks)?;
        }
        Ok(())
    }

    fn block<'a>(
        &mut self,
        block: Node<'a>,
        spot: Spot,
        within: Within,
        blocks: &mut Vec<Block<'a>>,
    ) -> Result<(), Refusal> {
        let place = Place::At(spot);
        of_kind(block, Kind::Object, "an object", &place)?;
        self.room.take(&place)?;
        let kind_place = place.member("type");
        let kind = block.get("type");
        spelled(kind, &kind_place)?;
        let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
        let content = match (kind.as_ref(), within) {
            ("text", _) => {
                let text = spelled(block.get("text"), &place.member("text"))?;
                if text.is_empty() {
                    return Ok(());
                }
                Content::Text(text.into())
            }
            ("image", Within::User | Within::Result | Within::Document) => {
                Content::Image(image(block, &place)?)
            }
            ("document", Within::User | Within::Result) => {
                return self.document(block, spot, blocks);
            }
            ("search_result", Within::User | Within::Result) => search_result(block, &place)?,
            ("tool_result", Within::User) => self.result(block, spot)?,
            ("tool_use", Within::Assistant) => Content::Call(call(block, &place)?),
            ("thinking", Within::Assistant) => match thinking(block, &place)? {
                Some(thinking) => thinking,
                None => return Ok(()),
            },
            ("redacted_thinking", Within::Assistant) => {
                let data = spelled(block.get("data"), &place.member("data"))?;
                Content::Thinking {
                    text: Text::default(),
                    seal: Some(match seal::Seal::of(data) {
                        Some(seal) => Seal::Wrapped(seal),
                        None => Seal::Redacted(data.into()),
                    }),
                }
            }
            ("compaction", Within::Assistant) => match block.get("content") {
                Some(text) => Content::Text(spelled(Some(text), &place.member("content"))?.into()),
                None => return Ok(()),
            },
            ("fallback" | "tool_reference", _) => {
                self.left_out.add_kind(place, &kind);
                return Ok(());
            }
            (name, Within::Assistant | Within::User)
                if name.ends_with("_tool_result") || name.ends_with("_tool_use") =>
            {
                self.left_out.add_kind(place, &kind);
                return Ok(());
            }
            (_, within) => {
                return Err(Refusal::new(
                    &kind_place,
                    format!(
                        "A block of type '{kind}' in {} can't be given to this model: its upstream does not speak Messages.",
                        within.name()
                    ),
                ));
            }
        };
        blocks.push(Block {
            content,
            spot,
            source: Some(block),
        });
        Ok(())
    }

    fn result<'a>(&mut self, block: Node<'a>, spot: Spot) -> Result<Content<'a>, Refusal> {
        let place = Place::At(spot);
        let [id, failed, content] = block.pick(["tool_use_id", "is_error", "content"]);
        let id = spelled(id, &place.member("tool_use_id"))?;
        let mut blocks = Vec::new();
        if let Some(content) = content {
            let spot = spot.member(Word::Content);
            self.content(content, spot, Within::Result, &mut blocks)?;
        }
        Ok(Content::Result {
            id: id.into(),
            failed: failed.is_some_and(|it| it.kind() == Kind::True),
            content: blocks,
        })
    }

    fn document<'a>(
        &mut self,
        block: Node<'a>,
        spot: Spot,
        blocks: &mut Vec<Block<'a>>,
    ) -> Result<(), Refusal> {
        let place = Place::At(spot);
        let [title, context] = block.pick(["title", "context"]);
        let text = |value: Option<Node<'a>>, name: &str| match value {
            Some(value) => spelled(Some(value), &place.member(name)),
            None => Ok(&b""[..]),
        };
        let title = text(title, "title")?;
        let context = text(context, "context")?;
        let media = match source(block, &place)? {
            Source::Base64 { media_type, data } => Media::Base64 {
                media_type: media_type.map(Into::into),
                data: data.into(),
            },
            Source::Url(url) => Media::Url(url.into()),
            Source::Text(text) => {
                let text = headed(&[title, context], &[text]);
                blocks.push(Block {
                    content: Content::Text(text),
                    spot,
                    source: Some(block),
                });
                return Ok(());
            }
            Source::Content(content) => {
                let head = headed(&[title, context], &[]);
                if !head.is_empty() {
                    blocks.push(Block::text(head, spot, Some(block)));
                }
                let spot = spot.member(Word::Source).member(Word::Content);
                return self.content(content, spot, Within::Document, blocks);
            }
        };
        let name = if title.is_empty() {
            &b"document.pdf"[..]
        } else {
            title
        };
        blocks.push(Block {
            content: Content::File(File {
                name: Some(name.into()),
                media,
                object: None,
            }),
            spot,
            source: Some(block),
        });
        Ok(())
    }
}

/// Texts, a line each, behind the lines that name them. Where there is one text and nothing to name it, it is not
/// copied.
fn headed<'a>(heads: &[&'a [u8]], texts: &[&'a [u8]]) -> Text<'a> {
    let lines: Vec<&[u8]> = heads
        .iter()
        .chain(texts)
        .copied()
        .filter(|line| !line.is_empty())
        .collect();
    match lines.as_slice() {
        [line] => Text::Borrowed(line),
        lines => Text::Owned(lines.join(&b"\\n"[..])),
    }
}

fn image<'a>(block: Node<'a>, place: &Place<'_>) -> Result<Image<'a>, Refusal> {
    let media = match source(block, place)? {
        Source::Base64 { media_type, data } => Media::Base64 {
            media_type: media_type.map(Into::into),
            data: data.into(),
        },
        Source::Url(url) => Media::Url(url.into()),
        Source::Text(_) | Source::Content(_) => {
            let place = place.member("source");
            return Err(Refusal::new(
                &place.member("type"),
                "An image's source must be 'base64' or 'url'.",
            ));
        }
    };
    Ok(Image {
        media,
        detail: None,
        object: None,
    })
}

fn source<'a>(block: Node<'a>, place: &Place<'_>) -> Result<Source<'a>, Refusal> {
    let place = place.member("source");
    let source = block
        .get("source")
        .ok_or_else(|| Refusal::missing(&place))?;
    of_kind(source, Kind::Object, "an object", &place)?;
    let [kind, media_type, data, url, content] =
        source.pick(["type", "media_type", "data", "url", "content"]);
    let kind_place = place.member("type");
    spelled(kind, &kind_place)?;
    match kind
        .and_then(|kind| kind.decode())
        .unwrap_or_default()
        .as_ref()
    {
        "base64" => Ok(Source::Base64 {
            media_type: match media_type {
                Some(kind) => Some(spelled(Some(kind), &place.member("media_type"))?),
                None => None,
            },
            data: spelled(data, &place.member("data"))?,
        }),
        "url" => Ok(Source::Url(spelled(url, &place.member("url"))?)),
        "text" => Ok(Source::Text(spelled(data, &place.member("data"))?)),
        "content" => {
            let content = content.ok_or_else(|| Refusal::missing(&place.member("content")))?;
            Ok(Source::Content(content))
        }
        "file" => Err(Refusal::new(
            &place.member("file_id"),
            "The file lies with Anthropic, and this model's upstream can't read it: send its content.",
        )),
        _ => Err(Refusal::new(
            &kind_place,
            "The type of the source is not known.",
        )),
    }
}

fn search_result<'a>(block: Node<'a>, place: &Place<'_>) -> Result<Content<'a>, Refusal> {
    let [title, source, content] = block.pick(["title", "source", "content"]);
    let title = spelled(title, &place.member("title"))?;
    let source = spelled(source, &place.member("source"))?;
    let mut texts = Vec::new();
    let place = place.member("content");
    for (index, block) in content.iter().flat_map(Node::elements).enumerate() {
        let place = place.element(index);
        texts.push(spelled(block.get("text"), &place.member("text"))?);
    }
    Ok(Content::Text(headed(&[title, source], &texts)))
}

fn call<'a>(block: Node<'a>, place: &Place<'_>) -> Result<Call<'a>, Refusal> {
    let [id, name, input] = block.pick(["id", "name", "input"]);
    let id = spelled(id, &place.member("id"))?;
    let name = spelled(name, &place.member("name"))?;
    let place = place.member("input");
    let input = input.ok_or_else(|| Refusal::missing(&place))?;
    of_kind(input, Kind::Object, "an object", &place)?;
    Ok(Call {
        id: id.into(),
        name: name.into(),
        namespace: None,
        input: Payload::Object(input),
        custom: false,
        extra: None,
    })
}

/// None where there is nothing in it.
fn thinking<'a>(block: Node<'a>, place: &Place<'_>) -> Result<Option<Content<'a>>, Refusal> {
    let [text, signature] = block.pick(["thinking", "signature"]);
    let text = spelled(text, &place.member("thinking"))?;
    let signature = match signature {
        Some(signature) => spelled(Some(signature), &place.member("signature"))?,
        None => b"",
    };
    let seal = match seal::Seal::of(signature) {
        Some(seal) if seal.is_mark() => None,
        Some(seal) => Some(Seal::Wrapped(seal)),
        None if signature.is_empty() => None,
        None => Some(Seal::Signature(signature.into())),
    };
    let is_empty = text.is_empty() && seal.is_none();
    Ok((!is_empty).then(|| Content::Thinking {
        text: text.into(),
        seal,
    }))
}
