//! Images and files that stand in a request itself, as data URLs (RFC 2397).

use std::borrow::Cow;

use crate::base64;
use crate::json::string;

/// A data URL in base64, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataUrl<'a> {
    /// `image/png`, without parameters, in small letters.
    pub(crate) media_type: Box<str>,
    /// The base64 text, as it is spelled between the quotes of a JSON string.
    pub(crate) data: &'a [u8],
}

impl<'a> DataUrl<'a> {
    /// Reads a URL, spelled as between the quotes of a JSON string; None for one of another kind.
    pub(crate) fn parse(url: &'a [u8]) -> Option<Self> {
        /// Type and parameters are short.
        const MAX_HEAD: usize = 256;
        let comma = memchr::memchr(b',', url.get(..url.len().min(MAX_HEAD))?)?;
        let head = string::decode(url.get(..comma)?).to_ascii_lowercase();
        let kind = head.strip_prefix("data:")?.strip_suffix(";base64")?;
        let media_type = kind.split(';').next().unwrap_or_default();
        Some(DataUrl {
            media_type: media_type.into(),
            data: url.get(comma + 1..)?,
        })
    }

    /// The text that it holds; None where it is no text in UTF-8.
    pub(crate) fn text(&self) -> Option<String> {
        // Some encoders write each solidus as an escape.
        let data = if self.data.contains(&b'\\') {
            Cow::Owned(string::decode(self.data).into_owned().into_bytes())
        } else {
            Cow::Borrowed(self.data)
        };
        String::from_utf8(base64::decode(&data)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_url_is_taken_apart() {
        for (url, media_type, data) in [
            (
                "data:image/png;base64,iVBORw0KGgo=",
                "image/png",
                "iVBORw0KGgo=",
            ),
            ("DATA:Image\\/PNG;base64,\\/9j\\/", "image/png", "\\/9j\\/"),
            (
                "data:text/plain;charset=utf-8;base64,aGk=",
                "text/plain",
                "aGk=",
            ),
            ("data:;base64,", "", ""),
        ] {
            let found = DataUrl::parse(url.as_bytes()).unwrap();
            assert_eq!(
                (&*found.media_type, found.data),
                (media_type, data.as_bytes())
            );
        }
        for url in [
            "https://example.com/a,b",
            "data:text/plain,hi",
            "data:image/png;base64",
            "",
        ] {
            assert_eq!(DataUrl::parse(url.as_bytes()), None, "{url}");
        }
    }

    #[test]
    fn text_is_decoded() {
        let text = |url: &str| DataUrl::parse(url.as_bytes()).unwrap().text();
        assert_eq!(text("data:text/plain;base64,aGk=").unwrap(), "hi");
        assert_eq!(text("data:text/plain;base64,Pz8\\/").unwrap(), "???");
        assert_eq!(text("data:text/plain;base64,/w=="), None);
        assert_eq!(text("data:text/plain;base64,?"), None);
    }
}
