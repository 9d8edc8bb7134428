//! The content of a message, part by part.

use std::borrow::Cow;

use crate::api::Api;
use crate::input::place::{of_kind, spelled};
use crate::input::read::read_parts;
use crate::input::{Block, Content, File, Image, Media, Own, Place, Refusal, Room, Scope, Spot};
use crate::json::node::Node;
use crate::json::scan::Kind;

/// Reads a part of a content that goes to the model.
pub(super) fn part<'a>(part: Node<'a>, place: &Place<'_>) -> Result<Content<'a>, Refusal> {
    of_kind(part, Kind::Object, "an object", place)?;
    let [kind, text, image, file] = part.pick(["type", "text", "image_url", "file"]);
    spelled(kind, &place.member("type"))?;
    let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
    match kind.as_ref() {
        "text" => Ok(Content::Text(spelled(text, &place.member("text"))?.into())),
        "image_url" => {
            let place = place.member("image_url");
            let image = image.ok_or_else(|| Refusal::missing(&place))?;
            let [url, detail] = image.pick(["url", "detail"]);
            let url = spelled(url.or(Some(image)), &place.member("url"))?;
            Ok(Content::Image(Image {
                media: Media::Url(url.into()),
                detail,
                object: (image.kind() == Kind::Object).then_some(image),
            }))
        }
        "file" => {
            let place = place.member("file");
            let file = file.ok_or_else(|| Refusal::missing(&place))?;
            of_kind(file, Kind::Object, "an object", &place)?;
            Ok(Content::File(read_file(file)))
        }
        "input_audio" => Ok(Content::Audio(part)),
        _ => Ok(Content::Own(Own {
            api: Api::Chat,
            kind,
            scope: Scope::Part,
            json: part,
        })),
    }
}

fn read_file(file: Node<'_>) -> File<'_> {
    let [name, data, id, url] = file.pick(["filename", "file_data", "file_id", "file_url"]);
    let [name, data, id, url] =
        [name, data, id, url].map(|it| it.and_then(|it| it.spelled()).map(Cow::Borrowed));
    let media = match (data, id, url) {
        (Some(data), ..) => Media::of_file_data(data),
        (None, None, Some(url)) => Media::Url(url),
        (None, id, _) => Media::Id(id.unwrap_or_default()),
    };
    File {
        name,
        media,
        object: Some(file),
    }
}

/// Reads a content of the assistant's: texts and refusals.
pub(super) fn read_said<'a>(
    content: Node<'a>,
    spot: Spot,
    place: &Place<'_>,
    room: &mut Room,
) -> Result<Vec<Block<'a>>, Refusal> {
    if content.kind() != Kind::Array {
        room.take(place)?;
        let text = spelled(Some(content), place)?;
        return Ok(vec![Block::text(text, spot, Some(content))]);
    }
    read_parts(content, spot, place, room, |part, place| {
        of_kind(part, Kind::Object, "an object", place)?;
        let [kind, text, refusal] = part.pick(["type", "text", "refusal"]);
        if kind.is_some_and(|kind| kind.is("text")) {
            Ok(Content::Text(spelled(text, &place.member("text"))?.into()))
        } else if kind.is_some_and(|kind| kind.is("refusal")) {
            let text = spelled(refusal, &place.member("refusal"))?;
            Ok(Content::Refusal(text.into()))
        } else {
            Err(Refusal::new(
                &place.member("type"),
                "The assistant's content must be of type 'text' or 'refusal'.",
            ))
        }
    })
}
