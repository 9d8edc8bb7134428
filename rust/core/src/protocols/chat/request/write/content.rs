//! The content of a message, part by part.

use crate::api::Api;
use crate::input::{Block, Content, File, Image, Media, Place, Refusal};
use crate::json::node::Node;
use crate::json::writer::Writer;

/// The members of a file's part, which keep their names.
const FILE: [&str; 3] = ["filename", "file_data", "file_id"];

/// One part that can be written.
#[derive(Clone, Copy, Debug)]
pub(super) enum ContentPart<'c> {
    /// A text's content between the quotes.
    Text(&'c [u8]),
    /// A refusal's content between the quotes.
    Refusal(&'c [u8]),
    /// An image.
    Image(&'c Image<'c>),
    /// A file in members of OpenAI's.
    File([Option<Node<'c>>; 3]),
    /// A file as base64: its name, its type, its content, all between the quotes.
    Base64([&'c [u8]; 3]),
    /// A part in the form of Chat Completions.
    Same(&'c [u8]),
    /// A line that names the call whose output follows.
    OutputOf(&'c [u8]),
}

/// The parts of a content. What is no part of one is passed over.
pub(super) fn parts<'c>(blocks: &'c [Block<'_>]) -> Result<Vec<ContentPart<'c>>, Refusal> {
    let mut parts = Vec::with_capacity(blocks.len());
    for block in blocks {
        add(block, &mut parts)?;
    }
    Ok(parts)
}

/// Adds the parts that a block is.
pub(super) fn add<'c>(
    block: &'c Block<'_>,
    parts: &mut Vec<ContentPart<'c>>,
) -> Result<(), Refusal> {
    let place = Place::At(block.spot);
    match &block.content {
        Content::Text(text) => parts.push(ContentPart::Text(text)),
        Content::Refusal(text) => parts.push(ContentPart::Refusal(text)),
        Content::Image(image) => match image.media {
            Media::Id(_) => return Err(by_reference(&place, block, "An image", "image_url")),
            _ => parts.push(ContentPart::Image(image)),
        },
        Content::File(file) => add_file(file, block, parts)?,
        Content::Audio(part) => parts.push(ContentPart::Same(part.bytes())),
        Content::Own(own) if own.api == Api::Chat => {
            parts.push(ContentPart::Same(own.json.bytes()));
        }
        Content::Own(own) => {
            return Err(Refusal::new(
                &place.member("type"),
                format!(
                    "Content of type '{}' can't be given to this model: its upstream speaks Chat Completions.",
                    own.kind
                ),
            ));
        }
        Content::Thinking { .. } | Content::Call(_) | Content::Result { .. } => {}
    }
    Ok(())
}

fn add_file<'c>(
    file: &'c File<'_>,
    block: &'c Block<'_>,
    parts: &mut Vec<ContentPart<'c>>,
) -> Result<(), Refusal> {
    if let Some(object) = file.object {
        let members = object.pick(FILE);
        if let [_, None, None] = members {
            let place = Place::At(block.spot);
            return Err(by_reference(&place, block, "A file", "file_data"));
        }
        parts.push(ContentPart::File(members));
        return Ok(());
    }
    let name = file.name.as_deref();
    match &file.media {
        Media::Base64 { media_type, data } => {
            let name = name.unwrap_or(b"document.pdf");
            let media_type = media_type.as_deref().unwrap_or(b"application/pdf");
            parts.push(ContentPart::Base64([name, media_type, data]));
        }
        Media::Text(text) => {
            parts.extend(name.map(ContentPart::Text));
            parts.push(ContentPart::Text(text));
        }
        Media::Blocks(blocks) => {
            parts.extend(name.map(ContentPart::Text));
            for block in blocks {
                add(block, parts)?;
            }
        }
        Media::Url(_) | Media::Id(_) => {
            let place = Place::At(block.spot);
            return Err(by_reference(&place, block, "A file", "file_data"));
        }
    }
    Ok(())
}

/// Something that is not in the request itself.
fn by_reference(place: &Place<'_>, block: &Block<'_>, what: &str, instead: &str) -> Refusal {
    // The member that refers to it, in whichever protocol.
    let members = ["file_id", "file_url", "source"];
    let source = block.source;
    let given = members
        .into_iter()
        .find(|name| source.is_some_and(|source| source.get(name).is_some()));
    let place = place.member(given.unwrap_or("file_id"));
    let inner = place.member("url");
    Refusal::new(
        if given == Some("source") {
            &inner
        } else {
            &place
        },
        format!(
            "{what} can be given to this model in '{instead}' only: its upstream speaks Chat Completions."
        ),
    )
}

/// The texts one behind the other; None where a part is no text.
pub(super) fn joined(parts: &[ContentPart<'_>], gap: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let ContentPart::Text(part) = part else {
            return None;
        };
        if index > 0 {
            text.extend_from_slice(gap);
        }
        text.extend_from_slice(part);
    }
    Some(text)
}

/// Writes a content: one text as a string, which every upstream takes, anything else as an array.
pub(super) fn write(writer: &mut Writer, parts: &[ContentPart<'_>]) {
    match parts {
        [] => writer.spelled(b""),
        [ContentPart::Text(text)] => writer.spelled(text),
        _ => {
            writer.open(b'[');
            for part in parts {
                write_part(writer, part);
            }
            writer.close(b']');
        }
    }
}

fn write_part(writer: &mut Writer, part: &ContentPart<'_>) {
    match part {
        ContentPart::Text(text) => write_text(writer, "text", text),
        ContentPart::Refusal(text) => write_text(writer, "refusal", text),
        ContentPart::Image(image) => write_image(writer, image),
        ContentPart::File(members) => {
            open_file(writer);
            for (name, value) in FILE.into_iter().zip(members) {
                if let Some(value) = value {
                    writer.member(name, value.bytes());
                }
            }
            writer.close(b'}');
            writer.close(b'}');
        }
        ContentPart::Base64([name, media_type, data]) => {
            open_file(writer);
            writer.member_spelled("filename", name);
            writer.key("file_data");
            writer.spelled_parts(&[b"data:", media_type, b";base64,", data]);
            writer.close(b'}');
            writer.close(b'}');
        }
        ContentPart::Same(part) => writer.raw(part),
        ContentPart::OutputOf(call) => {
            let text = [b"Output of the tool call ", *call, b":"].concat();
            write_text(writer, "text", &text);
        }
    }
}

fn write_image(writer: &mut Writer, image: &Image<'_>) {
    writer.open(b'{');
    writer.member_spelled("type", b"image_url");
    writer.key("image_url");
    if let Some(object) = image.object {
        writer.raw(object.bytes());
    } else {
        writer.open(b'{');
        writer.key("url");
        match &image.media {
            Media::Base64 { media_type, data } => {
                let media_type = media_type.as_deref().unwrap_or(b"image/png");
                writer.spelled_parts(&[b"data:", media_type, b";base64,", data]);
            }
            Media::Url(text) | Media::Text(text) | Media::Id(text) => writer.spelled(text),
            Media::Blocks(_) => writer.spelled(b""),
        }
        // It is the default, and some upstreams do not know `detail`.
        if let Some(detail) = image.detail.filter(|detail| !detail.is("auto")) {
            writer.member("detail", detail.bytes());
        }
        writer.close(b'}');
    }
    writer.close(b'}');
}

fn open_file(writer: &mut Writer) {
    writer.open(b'{');
    writer.member_spelled("type", b"file");
    writer.key("file");
    writer.open(b'{');
}

fn write_text(writer: &mut Writer, kind: &str, text: &[u8]) {
    writer.open(b'{');
    writer.member_spelled("type", kind.as_bytes());
    writer.member_spelled(kind, text);
    writer.close(b'}');
}
