//! Contents of messages as blocks.

use crate::api::Api;
use crate::input::block::{Block, Content, File, Image, Media};
use crate::input::media::DataUrl;
use crate::input::place::{Place, Refusal};
use crate::json::node::Node;
use crate::json::string;
use crate::json::writer::Writer;

/// Whether a text, spelled as between the quotes of a JSON string, is white space alone or nothing.
pub(super) fn is_blank(text: &[u8]) -> bool {
    trimmed(text).is_empty()
}

/// A text without the white space at its end, which a last message of the model must not have.
pub(super) fn trimmed(mut text: &[u8]) -> &[u8] {
    loop {
        let Some((last, rest)) = text.split_last() else {
            return text;
        };
        match last {
            b' ' => text = rest,
            b'n' | b'r' | b't' | b'f' => {
                // An escape has an odd number of backslashes in front: of an even number each second one is the text's
                // own.
                let slashes = rest.iter().rev().take_while(|byte| **byte == b'\\').count();
                if slashes % 2 == 0 {
                    return text;
                }
                text = rest.get(..rest.len() - 1).unwrap_or_default();
            }
            _ => return text,
        }
    }
}

/// What a provider is to keep in its cache up to here, as the client wrote it beside a part or a tool.
pub(super) fn cache_control<'a>(source: Option<Node<'a>>) -> Option<Node<'a>> {
    source?.get("cache_control")
}

/// Writes a text.
pub(super) fn text(text: &[u8], source: Option<Node<'_>>, writer: &mut Writer) {
    writer.open(b'{');
    writer.member_spelled("type", b"text");
    writer.member_spelled("text", text);
    close(source, writer);
}

fn close(source: Option<Node<'_>>, writer: &mut Writer) {
    if let Some(cache) = cache_control(source) {
        writer.member("cache_control", cache.bytes());
    }
    writer.close(b'}');
}

/// What an upstream that speaks Messages has no place for.
pub(super) fn beyond(place: &Place<'_>) -> Refusal {
    Refusal::new(
        place,
        format!("'{place}' can't be used with this model: its upstream speaks Messages."),
    )
}

/// Writes a block of a user's message or of a result that is no text: an image or a file. `api` is the client's.
pub(super) fn media(block: &Block<'_>, api: Api, writer: &mut Writer) -> Result<(), Refusal> {
    let place = Place::At(block.spot);
    match &block.content {
        Content::Image(image) => {
            let inner = place.member("image_url");
            self::image(image, api, &place, &inner, writer)?;
        }
        Content::File(file) => {
            let inner = place.member("file");
            let inner = match api {
                Api::Chat => &inner,
                _ => &place,
            };
            self::file(file, inner, writer)?;
        }
        _ => {
            return Err(Refusal::new(
                &place.member("type"),
                "Content of this type can't be given to this model: its upstream speaks Messages.",
            ));
        }
    }
    close(block.source, writer);
    Ok(())
}

fn image(
    image: &Image<'_>,
    api: Api,
    place: &Place<'_>,
    inner: &Place<'_>,
    writer: &mut Writer,
) -> Result<(), Refusal> {
    let url_place = inner.member("url");
    let url_place = match api {
        Api::Chat => &url_place,
        _ => inner,
    };
    writer.open(b'{');
    writer.member_spelled("type", b"image");
    match &image.media {
        Media::Url(url) if url.is_empty() => return Err(Refusal::missing(url_place)),
        Media::Url(url) => match DataUrl::parse(url) {
            Some(data) => base64(&spelled(&data.media_type), data.data, writer),
            None if url.starts_with(b"data:") => {
                return Err(Refusal::new(url_place, "A data URL must be in base64."));
            }
            None => by_url(url, writer),
        },
        Media::Base64 { media_type, data } => {
            base64(media_type.as_deref().unwrap_or(b"image/png"), data, writer);
        }
        Media::Id(_) => return Err(by_id(&place.member("file_id"))),
        Media::Text(_) | Media::Blocks(_) => return Err(beyond(place)),
    }
    Ok(())
}

fn file(file: &File<'_>, place: &Place<'_>, writer: &mut Writer) -> Result<(), Refusal> {
    const PDF: &str = "application/pdf";
    writer.open(b'{');
    writer.member_spelled("type", b"document");
    let data_place = place.member("file_data");
    match &file.media {
        Media::Url(url) => match DataUrl::parse(url) {
            Some(data) if &*data.media_type == PDF => base64(PDF.as_bytes(), data.data, writer),
            Some(data) => {
                let text =
                    data.media_type.starts_with("text/") || &*data.media_type == "application/json";
                let text = text.then(|| data.text()).flatten().ok_or_else(|| {
                    Refusal::new(&data_place, "A file must be a PDF or a text in UTF-8.")
                })?;
                plain(&spelled(&text), writer);
            }
            None if url.starts_with(b"data:") => {
                return Err(Refusal::new(&data_place, "A data URL must be in base64."));
            }
            None => by_url(url, writer),
        },
        Media::Base64 { media_type, data } => {
            base64(
                media_type.as_deref().unwrap_or(PDF.as_bytes()),
                data,
                writer,
            );
        }
        Media::Text(text) => plain(text, writer),
        Media::Id(_) => return Err(by_id(&place.member("file_id"))),
        Media::Blocks(_) => return Err(beyond(place)),
    }
    if let Some(name) = file.name.as_deref().filter(|name| !name.is_empty()) {
        writer.member_spelled("title", name);
    }
    Ok(())
}

fn spelled(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    string::spell(text, &mut out);
    out
}

fn base64(media_type: &[u8], data: &[u8], writer: &mut Writer) {
    source("base64", writer);
    writer.member_spelled("media_type", media_type);
    writer.member_spelled("data", data);
    writer.close(b'}');
}

fn by_url(url: &[u8], writer: &mut Writer) {
    source("url", writer);
    writer.member_spelled("url", url);
    writer.close(b'}');
}

fn plain(text: &[u8], writer: &mut Writer) {
    source("text", writer);
    writer.member_spelled("media_type", b"text/plain");
    writer.member_spelled("data", text);
    writer.close(b'}');
}

fn source(kind: &str, writer: &mut Writer) {
    writer.key("source");
    writer.open(b'{');
    writer.member_spelled("type", kind.as_bytes());
}

fn by_id(place: &Place<'_>) -> Refusal {
    Refusal::new(
        place,
        "The file lies with another provider, and this model's upstream can't read it: send its content.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_at_the_end_is_cut_however_it_is_spelled() {
        for (text, expected) in [
            (r"Sure: \n", "Sure:"),
            (r"a\t\r\n \f", "a"),
            (r"a\\n", r"a\\n"),
            (r"a\\\n", r"a\\"),
            (r"a\u0020", r"a\u0020"),
            ("n", "n"),
            (r"\n", ""),
            ("", ""),
        ] {
            assert_eq!(trimmed(text.as_bytes()), expected.as_bytes(), "{text}");
            assert_eq!(is_blank(text.as_bytes()), expected.is_empty());
        }
    }
}
