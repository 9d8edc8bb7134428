//! Reasoning that only its maker can read or check.

use super::Spelled;
use crate::api::Api;
use crate::input::seal;
use crate::json::fields::compact;
use crate::json::node::Node;

/// Reasoning that only the upstream that made it can read or check. It belongs to the readable reasoning before it in
/// the same item, if there is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed<'a> {
    /// The protocol that the upstream speaks.
    pub api: Api,
    /// The signature, or the unreadable reasoning itself.
    pub data: Spelled<'a>,
    /// It signs the text before it, which has to come back with it, byte for byte (`thinking` of the Messages
    /// interface, `reasoning.text` of `OpenRouter`).
    pub signs_text: bool,
    /// What it stands in, a JSON object as it came: the whole item, where its maker checks all of that (Responses), or
    /// an entry of `reasoning_details` (Chat Completions), of which the text may have come before it.
    pub item: Option<&'a [u8]>,
}

impl Sealed<'_> {
    /// The [`seal`] of it, for a client of another protocol that keeps the text beside it.
    pub(crate) fn wrapped(&self) -> Vec<u8> {
        let mut whole = Vec::new();
        match self.item {
            Some(item) => compact(item, &mut whole),
            None => self.whole(b"", &mut whole),
        }
        let mut wrapped = Vec::new();
        seal::write(self.api, &whole, &mut wrapped);
        wrapped
    }

    /// Appends what its maker wants back, a JSON object of its protocol: the block, item or entry, with the `text` that
    /// came before it where that is signed.
    pub(crate) fn whole(&self, text: Spelled<'_>, out: &mut Vec<u8>) {
        let parts: &[&[u8]] = match (self.item, self.api) {
            (Some(item), _) if self.signs_text => return with_text(item, text, out),
            (Some(item), _) => return compact(item, out),
            (None, Api::Messages) if self.signs_text => &[
                b"{\"type\":\"thinking\",\"thinking\":\"",
                text,
                b"\",\"signature\":\"",
                self.data,
            ],
            (None, Api::Messages) => &[b"{\"type\":\"redacted_thinking\",\"data\":\"", self.data],
            (None, _) => &[b"{\"type\":\"reasoning.encrypted\",\"data\":\"", self.data],
        };
        parts.iter().for_each(|part| out.extend_from_slice(part));
        out.extend_from_slice(b"\"}");
    }
}

/// Appends `detail`, an entry of `reasoning_details`, with this text in place of its own. Streams say the text of an
/// entry in parts and its signature behind them, in a part without text; the entry has to come back in one piece.
pub(crate) fn with_text(detail: &[u8], text: Spelled<'_>, out: &mut Vec<u8>) {
    out.push(b'{');
    let members = Node::document(detail).into_iter();
    for (key, value) in members.flat_map(|detail| detail.members()) {
        if !key.is("text") {
            out.extend_from_slice(key.bytes());
            out.push(b':');
            compact(value.bytes(), out);
            out.push(b',');
        }
    }
    out.extend_from_slice(b"\"text\":\"");
    out.extend_from_slice(text);
    out.extend_from_slice(b"\"}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(signs_text: bool, item: Option<&'static [u8]>) -> Sealed<'static> {
        Sealed {
            api: Api::Chat,
            data: b"s",
            signs_text,
            item,
        }
    }

    fn whole(sealed: &Sealed<'_>) -> String {
        let mut out = Vec::new();
        sealed.whole(br"a\n", &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_entry_gets_the_text_that_came_before_its_signature() {
        let signature =
            br#"{ "type": "reasoning.text", "text": null, "signature": "s", "index": 0 }"#;
        assert_eq!(
            whole(&sealed(true, Some(signature))),
            r#"{"type":"reasoning.text","signature":"s","index":0,"text":"a\n"}"#
        );
        let encrypted = br#"{ "type": "reasoning.encrypted", "data": "s", "id": "rs_1" }"#;
        assert_eq!(
            whole(&sealed(false, Some(encrypted))),
            r#"{"type":"reasoning.encrypted","data":"s","id":"rs_1"}"#
        );
        assert_eq!(
            whole(&sealed(false, None)),
            r#"{"type":"reasoning.encrypted","data":"s"}"#
        );
    }
}
