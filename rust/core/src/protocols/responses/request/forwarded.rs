//! Seals in a request that is forwarded: reasoning of an upstream of another protocol, which this one's would take for
//! its own and refuse.
//!
//! The body is searched once. Where nothing is found it goes up as it came, and nothing of it is parsed.

use crate::input::left_out::LeftOut;
use crate::input::place::Place;
use crate::input::seal::{self, Seal, Unsealed};
use crate::json::node::Node;
use crate::json::splice::Splice;

/// `body`, a request's, without its seals; None where it has none. An upstream that takes reasoning as text
/// (`takes_reasoning`) gets the items that have one, for others they are cut out.
#[must_use]
pub fn without_seals(body: &[u8], takes_reasoning: bool) -> Option<Unsealed> {
    let root = seal::sealed(body)?;
    let mut splice = Splice::new();
    let mut left_out = LeftOut::default();
    let mut emptied = Vec::new();
    let place = Place::Top("input");
    let items = root.get("input");
    let items = items.iter().flat_map(Node::elements).enumerate();
    splice.cut_elements(items.map(|(index, item)| {
        let [kind, encrypted, content] = item.pick(["type", "encrypted_content", "content"]);
        let is_reasoning = kind.is_some_and(|kind| kind.is("reasoning"));
        let sealed = encrypted.filter(|text| text.spelled().and_then(Seal::of).is_some());
        let Some(sealed) = sealed.filter(|_| is_reasoning) else {
            return (item.range(), false);
        };
        let has_text = content.is_some_and(|content| content.elements().next().is_some());
        if takes_reasoning && has_text {
            emptied.push(sealed.range());
            return (item.range(), false);
        }
        left_out.add(place.element(index));
        (item.range(), true)
    }));
    for text in emptied {
        splice.replace(text, &b"null"[..]);
    }
    seal::unsealed(body, splice, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEALED: &str = r#"{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}],"encrypted_content":"sg1.messages.W10"}"#;

    fn body(items: &str) -> String {
        format!(r#"{{"input": [{{"role":"user","content":"Hi"}}{items}],"model":"m"}}"#)
    }

    #[test]
    fn sealed_items_are_cut_out() {
        let made = without_seals(body(&format!(",{SEALED}")).as_bytes(), false).unwrap();
        assert_eq!(made.body, body(""));
        assert_eq!(*made.left_out, [Box::from("input[1]")]);
    }

    #[test]
    fn where_reasoning_is_taken_its_text_stays() {
        let made = without_seals(body(&format!(",{SEALED}")).as_bytes(), true).unwrap();
        let item = SEALED.replace("\"sg1.messages.W10\"", "null");
        assert_eq!(made.body, body(&format!(",{item}")));
        assert_eq!(made.left_out.len(), 0);
    }

    #[test]
    fn what_its_own_upstream_has_encrypted_is_not_touched() {
        for items in [
            r#",{"type":"reasoning","summary":[],"encrypted_content":"gAAAA1"}"#,
            r#",{"role":"user","content":"sg1.chat."}"#,
        ] {
            assert_eq!(without_seals(body(items).as_bytes(), false), None);
        }
    }
}
