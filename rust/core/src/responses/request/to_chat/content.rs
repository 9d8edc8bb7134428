//! The content of a message, part by part.

use super::super::refusal::{Place, Refusal, of_kind, spelled};
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::writer::Writer;

/// One part.
#[derive(Debug)]
pub(super) enum Part<'a> {
    /// A text's content between the quotes.
    Text(&'a [u8]),
    /// A refusal's content between the quotes.
    Refusal(&'a [u8]),
    /// A part in the form of Chat Completions.
    Other(Vec<u8>),
}

/// Reads a content: a string, or an array of parts. None is an empty content.
pub(super) fn parts<'a>(
    content: Option<Node<'a>>,
    place: &Place<'_>,
) -> Result<Vec<Part<'a>>, Refusal> {
    let Some(content) = content else {
        return Ok(Vec::new());
    };
    if let Some(text) = content.spelled() {
        return Ok(vec![Part::Text(text)]);
    }
    if content.kind() != Kind::Array {
        let kind = content.kind();
        return Err(Refusal::wrong_type(place, "a string or an array", kind));
    }
    content
        .elements()
        .enumerate()
        .map(|(index, part)| read(part, &place.element(index)))
        .collect()
}

fn read<'a>(part: Node<'a>, place: &Place<'_>) -> Result<Part<'a>, Refusal> {
    of_kind(part, Kind::Object, "an object", place)?;
    let [kind, text, refusal] = part.pick(["type", "text", "refusal"]);
    let kind_place = place.member("type");
    spelled(kind, &kind_place)?;
    let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
    match kind.as_ref() {
        "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
            Ok(Part::Text(spelled(text, &place.member("text"))?))
        }
        "encrypted_content" => sealed(part, &place.member("encrypted_content")),
        "refusal" => Ok(Part::Refusal(spelled(refusal, &place.member("refusal"))?)),
        "input_image" => image(part, place).map(Part::Other),
        "input_file" => file(part, place).map(Part::Other),
        // The same in both protocols, or the other one's own.
        "input_audio" | "image_url" | "file" | "audio_url" | "video_url" => {
            Ok(Part::Other(part.bytes().to_vec()))
        }
        _ => Err(Refusal::new(
            &kind_place,
            format!(
                "Content of type '{kind}' can't be given to this model: its upstream speaks Chat Completions."
            ),
        )),
    }
}

/// What one agent of Codex tells another. It is sealed by OpenAI only; where any other model wrote it, it is plain text.
fn sealed<'a>(part: Node<'a>, place: &Place<'_>) -> Result<Part<'a>, Refusal> {
    /// How a Fernet token begins.
    const SEAL: &[u8] = b"gAAAA";
    let text = spelled(part.get("encrypted_content"), place)?;
    if text.starts_with(SEAL) {
        return Err(Refusal::new(
            place,
            "Only the provider that has encrypted this content can read it.",
        ));
    }
    Ok(Part::Text(text))
}

fn image(part: Node<'_>, place: &Place<'_>) -> Result<Vec<u8>, Refusal> {
    let [url, file_id, detail] = part.pick(["image_url", "file_id", "detail"]);
    if url.is_none() && file_id.is_some() {
        return Err(by_id(&place.member("file_id"), "An image", "image_url"));
    }
    let place = place.member("image_url");
    let url = url.ok_or_else(|| Refusal::missing(&place))?;
    let mut writer = Writer::with_capacity(part.bytes().len() + 32);
    writer.open(b'{');
    writer.member_spelled("type", b"image_url");
    if url.kind() == Kind::Object {
        writer.member("image_url", url.bytes());
    } else {
        of_kind(url, Kind::String, "a string", &place)?;
        writer.key("image_url");
        writer.open(b'{');
        writer.member("url", url.bytes());
        // It is what an upstream does when it is told nothing, and some know no `detail`.
        if let Some(detail) = detail.filter(|detail| !detail.is("auto")) {
            writer.member("detail", detail.bytes());
        }
        writer.close(b'}');
    }
    writer.close(b'}');
    Ok(writer.into_bytes())
}

fn file(part: Node<'_>, place: &Place<'_>) -> Result<Vec<u8>, Refusal> {
    let [data, file_id, url, filename] =
        part.pick(["file_data", "file_id", "file_url", "filename"]);
    if data.is_none() && file_id.is_none() {
        return Err(match url {
            Some(_) => by_id(&place.member("file_url"), "A file", "file_data"),
            None => Refusal::missing(&place.member("file_data")),
        });
    }
    let mut writer = Writer::with_capacity(part.bytes().len() + 32);
    writer.open(b'{');
    writer.member_spelled("type", b"file");
    writer.key("file");
    writer.open(b'{');
    for (name, value) in [
        ("filename", filename),
        ("file_data", data),
        ("file_id", file_id),
    ] {
        if let Some(value) = value {
            let value = spelled(Some(value), &place.member(name))?;
            writer.member_spelled(name, value);
        }
    }
    writer.close(b'}');
    writer.close(b'}');
    Ok(writer.into_bytes())
}

fn by_id(place: &Place<'_>, what: &str, instead: &str) -> Refusal {
    Refusal::new(
        place,
        format!(
            "{what} can be given to this model in '{instead}' only: its upstream speaks Chat Completions."
        ),
    )
}

/// The texts one behind the other; None where a part is no text.
pub(super) fn joined(parts: &[Part<'_>], gap: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let Part::Text(part) = part else {
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
pub(super) fn write(writer: &mut Writer, parts: &[Part<'_>]) {
    match parts {
        [] => writer.spelled(b""),
        [Part::Text(text)] => writer.spelled(text),
        _ => {
            writer.open(b'[');
            for part in parts {
                match part {
                    Part::Text(text) => write_text(writer, "text", text),
                    Part::Refusal(text) => write_text(writer, "refusal", text),
                    Part::Other(part) => writer.raw(part),
                }
            }
            writer.close(b']');
        }
    }
}

pub(super) fn write_text(writer: &mut Writer, kind: &str, text: &[u8]) {
    writer.open(b'{');
    writer.member_spelled("type", kind.as_bytes());
    writer.member_spelled(kind, text);
    writer.close(b'}');
}
