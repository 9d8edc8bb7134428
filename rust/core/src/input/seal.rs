//! Reasoning on its way through a client that has no place for it: a text that only this gateway reads.
//!
//! Upstreams want their reasoning back as it was: a signature is checked against the block that it stands in, and
//! encrypted reasoning against the item. A client of another protocol keeps one opaque text (`signature`, `data`,
//! `encrypted_content`) and returns it. So that text is the whole block or item, and the protocol of its maker:
//! `sg1.<api>.<base64url>`.
//!
//! A seal protects nothing: whoever holds one can read it and make another. Its maker checks what is in it.

use bytes::Bytes;
use memchr::memmem;

use super::left_out::LeftOut;
use crate::api::Api;
use crate::base64;
use crate::json::node::Node;
use crate::json::scan::{self, MAX_DEPTH};
use crate::json::splice::Splice;

/// What every seal begins with. A body that does not hold it holds no seal.
pub const PREFIX: &[u8] = b"sg1.";

/// Appends the seal of `content`, JSON of `api`: for Chat Completions an entry of `reasoning_details`, or a list of
/// them. The seal of nothing, which is one of Chat Completions, marks reasoning that nobody signed.
///
/// ```
/// use sluicegate_core::api::Api;
/// use sluicegate_core::input::seal::{self, Seal};
///
/// let mut text = Vec::new();
/// seal::write(Api::Responses, br#"{"type":"reasoning"}"#, &mut text);
/// assert_eq!(text, b"sg1.responses.eyJ0eXBlIjoicmVhc29uaW5nIn0");
/// let seal = Seal::of(&text).unwrap();
/// assert_eq!((seal.api(), seal.open().as_deref()), (Api::Responses, Some(&br#"{"type":"reasoning"}"#[..])));
/// ```
pub fn write(api: Api, content: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(PREFIX);
    out.extend_from_slice(name(api).as_bytes());
    out.push(b'.');
    base64::encode_url(content, out);
}

fn name(api: Api) -> &'static str {
    match api {
        Api::Messages => "messages",
        Api::Responses => "responses",
        Api::Chat | Api::Completions | Api::Embeddings | Api::Other => "chat",
    }
}

/// A text that is a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal<'a> {
    api: Api,
    content: &'a [u8],
}

impl<'a> Seal<'a> {
    /// The seal that a string's content is, spelled as it stands between the quotes. None where it is none: then it is
    /// somebody else's.
    #[must_use]
    pub fn of(spelled: &'a [u8]) -> Option<Self> {
        let rest = spelled.strip_prefix(PREFIX)?;
        let dot = rest.iter().position(|byte| *byte == b'.')?;
        let (maker, content) = rest.split_at_checked(dot)?;
        let api = [Api::Messages, Api::Responses, Api::Chat];
        let api = api.into_iter().find(|api| name(*api).as_bytes() == maker)?;
        Some(Seal {
            api,
            content: content.get(1..)?,
        })
    }

    /// The protocol of the upstream that made what is sealed.
    #[must_use]
    pub fn api(&self) -> Api {
        self.api
    }

    /// It holds nothing: it marks that nobody signed the text beside it.
    #[must_use]
    pub fn is_mark(&self) -> bool {
        self.content.is_empty()
    }

    /// What is sealed, JSON. None where there is nothing, or nothing that could be: the client has changed it.
    #[must_use]
    pub fn open(&self) -> Option<Vec<u8>> {
        let content = base64::decode_url(self.content)?;
        scan::document(&content, MAX_DEPTH).ok()?;
        Some(content)
    }
}

/// A request that is forwarded, without seals; every other byte is as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsealed {
    /// One JSON object.
    pub body: Bytes,
    /// What is not sent: `messages[1].content[0]`.
    pub left_out: Vec<Box<str>>,
}

/// The request in `body`, if there may be a seal in it. Else nothing of it is parsed.
pub(crate) fn sealed(body: &[u8]) -> Option<Node<'_>> {
    memmem::find(body, &[b"\"", PREFIX].concat())?;
    Node::document(body)
}

/// `body`, edited; None where there was nothing to edit.
pub(crate) fn unsealed(body: &[u8], mut edits: Splice, left_out: LeftOut) -> Option<Unsealed> {
    if edits.is_empty() {
        return None;
    }
    let mut made = Vec::with_capacity(body.len());
    edits.apply(body, &mut made);
    Some(Unsealed {
        body: made.into(),
        left_out: left_out.finish(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_seal_is_somebody_elses() {
        for text in [
            "",
            "sg1",
            "sg1.",
            "sg1.chat",
            "sg1.other.e30",
            "sg2.chat.e30",
            "EqQBCg",
            " sg1.chat.",
        ] {
            assert_eq!(Seal::of(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_a_client_has_changed_is_not_opened() {
        for text in [
            "sg1.chat.",
            "sg1.messages.e",
            "sg1.messages.e30=",
            "sg1.messages.e3",
            "sg1.responses.AAAA",
        ] {
            assert_eq!(Seal::of(text.as_bytes()).unwrap().open(), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_sealed_comes_back(text in any::<String>()) {
            let content = serde_json::json!({"text": text}).to_string();
            for api in [Api::Messages, Api::Responses, Api::Chat] {
                let mut sealed = Vec::new();
                write(api, content.as_bytes(), &mut sealed);
                let seal = Seal::of(&sealed).unwrap();
                prop_assert_eq!(seal.api(), api);
                prop_assert_eq!(seal.open().unwrap(), content.as_bytes());
            }
        }
    }
}
