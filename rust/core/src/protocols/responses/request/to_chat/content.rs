//! The content of a message, part by part.

use crate::input::place::{Place, Refusal, of_kind, spelled};
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::writer::Writer;

/// The members of a file's part, which keep their names.
const FILE: [&str; 3] = ["filename", "file_data", "file_id"];

/// One part, checked.
#[derive(Debug)]
pub(super) enum ContentPart<'a> {
    /// A text's content between the quotes.
    Text(&'a [u8]),
    /// A refusal's content between the quotes.
    Refusal(&'a [u8]),
    /// An image.
    Image {
        url: Node<'a>,
        detail: Option<Node<'a>>,
    },
    /// A file: name, content, id.
    File([Option<Node<'a>>; 3]),
    /// A part in the form of Chat Completions.
    Same(&'a [u8]),
    /// A line that names the call whose output follows.
    OutputOf(&'a [u8]),
}

/// Reads a content: a string, or an array of parts. None is an empty content.
pub(super) fn parts<'a>(
    content: Option<Node<'a>>,
    place: &Place<'_>,
) -> Result<Vec<ContentPart<'a>>, Refusal> {
    let Some(content) = content else {
        return Ok(Vec::new());
    };
    if let Some(text) = content.spelled() {
        return Ok(vec![ContentPart::Text(text)]);
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

fn read<'a>(part: Node<'a>, place: &Place<'_>) -> Result<ContentPart<'a>, Refusal> {
    of_kind(part, Kind::Object, "an object", place)?;
    let [kind, text, refusal] = part.pick(["type", "text", "refusal"]);
    let kind_place = place.member("type");
    spelled(kind, &kind_place)?;
    let kind = kind.and_then(|kind| kind.decode()).unwrap_or_default();
    match kind.as_ref() {
        "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
            Ok(ContentPart::Text(spelled(text, &place.member("text"))?))
        }
        "encrypted_content" => sealed(part, &place.member("encrypted_content")),
        "refusal" => Ok(ContentPart::Refusal(spelled(
            refusal,
            &place.member("refusal"),
        )?)),
        "input_image" => image(part, place),
        "input_file" => file(part, place),
        // The same in both protocols, or the other one's own.
        "input_audio" | "image_url" | "file" | "audio_url" | "video_url" => {
            Ok(ContentPart::Same(part.bytes()))
        }
        _ => Err(Refusal::new(
            &kind_place,
            format!(
                "Content of type '{kind}' can't be given to this model: its upstream speaks Chat Completions."
            ),
        )),
    }
}

/// A message between two agents of Codex. OpenAI encrypts it; where another model wrote it, it is plain text.
fn sealed<'a>(part: Node<'a>, place: &Place<'_>) -> Result<ContentPart<'a>, Refusal> {
    /// How a Fernet token begins.
    const SEAL: &[u8] = b"gAAAA";
    let text = spelled(part.get("encrypted_content"), place)?;
    if text.starts_with(SEAL) {
        return Err(Refusal::new(
            place,
            "Only the provider that has encrypted this content can read it.",
        ));
    }
    Ok(ContentPart::Text(text))
}

fn image<'a>(part: Node<'a>, place: &Place<'_>) -> Result<ContentPart<'a>, Refusal> {
    let [url, file_id, detail] = part.pick(["image_url", "file_id", "detail"]);
    if url.is_none() && file_id.is_some() {
        return Err(by_id(&place.member("file_id"), "An image", "image_url"));
    }
    let place = place.member("image_url");
    let url = url.ok_or_else(|| Refusal::missing(&place))?;
    match url.kind() {
        Kind::String | Kind::Object => Ok(ContentPart::Image { url, detail }),
        kind => Err(Refusal::wrong_type(&place, "a string", kind)),
    }
}

fn file<'a>(part: Node<'a>, place: &Place<'_>) -> Result<ContentPart<'a>, Refusal> {
    let [data, file_id, url, filename] =
        part.pick(["file_data", "file_id", "file_url", "filename"]);
    if data.is_none() && file_id.is_none() {
        return Err(match url {
            Some(_) => by_id(&place.member("file_url"), "A file", "file_data"),
            None => Refusal::missing(&place.member("file_data")),
        });
    }
    let members = [filename, data, file_id];
    for (name, value) in FILE.into_iter().zip(members) {
        if let Some(value) = value {
            of_kind(value, Kind::String, "a string", &place.member(name))?;
        }
    }
    Ok(ContentPart::File(members))
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
                match part {
                    ContentPart::Text(text) => write_text(writer, "text", text),
                    ContentPart::Refusal(text) => write_text(writer, "refusal", text),
                    ContentPart::Image { url, detail } => write_image(writer, *url, *detail),
                    ContentPart::File(members) => write_file(writer, members),
                    ContentPart::Same(part) => writer.raw(part),
                    ContentPart::OutputOf(call) => {
                        let text = [b"Output of the tool call ", *call, b":"].concat();
                        write_text(writer, "text", &text);
                    }
                }
            }
            writer.close(b']');
        }
    }
}

fn write_image(writer: &mut Writer, url: Node<'_>, detail: Option<Node<'_>>) {
    writer.open(b'{');
    writer.member_spelled("type", b"image_url");
    writer.key("image_url");
    if url.kind() == Kind::Object {
        writer.raw(url.bytes());
    } else {
        writer.open(b'{');
        writer.member("url", url.bytes());
        // It is the default, and some upstreams do not know `detail`.
        if let Some(detail) = detail.filter(|detail| !detail.is("auto")) {
            writer.member("detail", detail.bytes());
        }
        writer.close(b'}');
    }
    writer.close(b'}');
}

fn write_file(writer: &mut Writer, members: &[Option<Node<'_>>; 3]) {
    writer.open(b'{');
    writer.member_spelled("type", b"file");
    writer.key("file");
    writer.open(b'{');
    for (name, value) in FILE.into_iter().zip(members) {
        if let Some(value) = value {
            writer.member(name, value.bytes());
        }
    }
    writer.close(b'}');
    writer.close(b'}');
}

fn write_text(writer: &mut Writer, kind: &str, text: &[u8]) {
    writer.open(b'{');
    writer.member_spelled("type", kind.as_bytes());
    writer.member_spelled(kind, text);
    writer.close(b'}');
}
