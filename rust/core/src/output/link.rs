//! Citations of the Messages interface, for the others.

use std::borrow::Cow;

use crate::api::Api;
use crate::json::fields::compact;
use crate::json::node::Node;

use super::Annotation;

impl<'a> Annotation<'a> {
    /// The annotation in a form that Chat Completions or the Responses interface know. Of what the Messages interface
    /// cites only links have one, and where in the text they are cited is not known: both places are 0.
    pub(crate) fn known_to_openai(&self) -> Option<Cow<'a, [u8]>> {
        if self.api != Api::Messages {
            return Some(Cow::Borrowed(self.json));
        }
        let [url, title] = Node::document(self.json)?.pick(["url", "title"]);
        let url = url?.spelled().filter(|url| !url.is_empty())?;
        let title = title.and_then(|title| title.spelled()).unwrap_or_default();
        let object = [
            &br#"{"type":"url_citation","url_citation":{"start_index":0,"end_index":0,"url":""#[..],
            url,
            b"\",\"title\":\"",
            title,
            b"\"}}",
        ];
        let mut out = Vec::new();
        compact(&object.concat(), &mut out);
        Some(Cow::Owned(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(api: Api, json: &str) -> Option<String> {
        let annotation = Annotation {
            api,
            json: json.as_bytes(),
        };
        let known = annotation.known_to_openai()?;
        Some(String::from_utf8(known.into_owned()).unwrap())
    }

    #[test]
    fn a_link_is_a_citation_of_a_url_and_other_places_are_none() {
        let cited = r#"{"type":"web_search_result_location","url":"https://a.b","title":"T\u0022","cited_text":"x"}"#;
        let link = r#"{"type":"url_citation","url_citation":{"start_index":0,"end_index":0,"url":"https://a.b","title":"T\u0022"}}"#;
        assert_eq!(known(Api::Messages, cited).as_deref(), Some(link));
        let untitled = r#"{"type":"web_search_result_location","url":"u","title":null}"#;
        assert!(
            known(Api::Messages, untitled)
                .unwrap()
                .ends_with("\"title\":\"\"}}")
        );
        let page = r#"{"type":"page_location","document_index":0,"start_page_number":1}"#;
        assert_eq!(known(Api::Messages, page), None);
        assert_eq!(known(Api::Chat, page).as_deref(), Some(page));
    }
}
