//! The content of a message, part by part.

use std::borrow::Cow;

use crate::api::Api;
use crate::input::place::{of_kind, spelled};
use crate::input::read::read_content;
use crate::input::{Block, Content, File, Image, Media, Own, Place, Refusal, Room, Scope, Spot};
use crate::json::node::Node;
use crate::json::scan::Kind;

/// Reads a content: a string, or an array of parts. None is an empty content.
pub(super) fn read<'a>(
    content: Option<Node<'a>>,
    spot: Spot,
    place: &Place<'_>,
    room: &mut Room,
) -> Result<Vec<Block<'a>>, Refusal> {
    let Some(content) = content else {
        return Ok(Vec::new());
    };
    read_content(content, spot, place, room, part_content)
}

fn part_content<'a>(part: Node<'a>, place: &Place<'_>) -> Result<Content<'a>, Refusal> {
    of_kind(part, Kind::Object, "an object", place)?;
    let [kind, text, refusal] = part.pick(["type", "text", "refusal"]);
    spelled(kind, &place.member("type"))?;
    let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
    match kind.as_ref() {
        "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
            Ok(Content::Text(spelled(text, &place.member("text"))?.into()))
        }
        "encrypted_content" => sealed(part, &place.member("encrypted_content")),
        "refusal" => {
            let text = spelled(refusal, &place.member("refusal"))?;
            Ok(Content::Refusal(text.into()))
        }
        "input_image" => Ok(Content::Image(image(part, place)?)),
        "input_file" => Ok(Content::File(file(part, place)?)),
        "input_audio" => Ok(Content::Audio(part)),
        // Clients of Chat Completions often keep its form.
        "image_url" | "file" | "audio_url" | "video_url" => Ok(own(part, Api::Chat, kind)),
        _ => Ok(own(part, Api::Responses, kind)),
    }
}

fn own<'a>(json: Node<'a>, api: Api, kind: Cow<'a, str>) -> Content<'a> {
    Content::Own(Own {
        api,
        kind,
        scope: Scope::Part,
        json,
    })
}

/// A message between two agents of Codex. OpenAI encrypts it; where another model wrote it, it is plain text.
fn sealed<'a>(part: Node<'a>, place: &Place<'_>) -> Result<Content<'a>, Refusal> {
    /// How a Fernet token begins.
    const SEAL: &[u8] = b"gAAAA";
    let text = spelled(part.get("encrypted_content"), place)?;
    if text.starts_with(SEAL) {
        return Err(Refusal::new(
            place,
            "Only the provider that has encrypted this content can read it.",
        ));
    }
    Ok(Content::Text(text.into()))
}

fn image<'a>(part: Node<'a>, place: &Place<'_>) -> Result<Image<'a>, Refusal> {
    let [url, file_id, detail] = part.pick(["image_url", "file_id", "detail"]);
    let Some(url) = url else {
        let id = file_id.ok_or_else(|| Refusal::missing(&place.member("image_url")))?;
        return Ok(Image {
            media: Media::Id(content_of(id)),
            detail,
            object: None,
        });
    };
    match url.kind() {
        Kind::String => Ok(Image {
            media: Media::Url(content_of(url)),
            detail,
            object: None,
        }),
        Kind::Object => {
            let [address, own_detail] = url.pick(["url", "detail"]);
            Ok(Image {
                media: Media::Url(address.map(content_of).unwrap_or_default()),
                detail: own_detail.or(detail),
                object: Some(url),
            })
        }
        kind => Err(Refusal::wrong_type(
            &place.member("image_url"),
            "a string",
            kind,
        )),
    }
}

fn file<'a>(part: Node<'a>, place: &Place<'_>) -> Result<File<'a>, Refusal> {
    const NAMES: [&str; 3] = ["filename", "file_data", "file_id"];
    let [name, data, id] = part.pick(NAMES);
    if data.is_none() && id.is_none() {
        let url = part.get("file_url");
        let url = url.ok_or_else(|| Refusal::missing(&place.member("file_data")))?;
        return Ok(File {
            name: name.map(content_of),
            media: Media::Url(content_of(url)),
            object: Some(part),
        });
    }
    for (member, value) in NAMES.into_iter().zip([name, data, id]) {
        if let Some(value) = value {
            of_kind(value, Kind::String, "a string", &place.member(member))?;
        }
    }
    let media = match (data.map(content_of), id) {
        (Some(data), _) => Media::of_file_data(data),
        (None, id) => Media::Id(id.map(content_of).unwrap_or_default()),
    };
    Ok(File {
        name: name.map(content_of),
        media,
        object: Some(part),
    })
}

/// A string's content; nothing of what is no string.
fn content_of(node: Node<'_>) -> Cow<'_, [u8]> {
    Cow::Borrowed(node.spelled().unwrap_or_default())
}

/// The texts one behind the other; None where a part is no text.
pub(super) fn joined<'a>(parts: Vec<Block<'a>>, gap: &[u8]) -> Option<Cow<'a, [u8]>> {
    let mut joined = Cow::Borrowed(&b""[..]);
    for (index, part) in parts.into_iter().enumerate() {
        let Content::Text(text) = part.content else {
            return None;
        };
        if index == 0 {
            joined = text;
        } else {
            let joined = joined.to_mut();
            joined.extend_from_slice(gap);
            joined.extend_from_slice(&text);
        }
    }
    Some(joined)
}
