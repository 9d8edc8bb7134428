//! Seals in a request that is forwarded: what another upstream's reply made of reasoning, and this one's would refuse
//! as a wrong signature.
//!
//! The body is searched once. Where nothing is found it goes up as it came, and nothing of it is parsed.

use crate::input::left_out::LeftOut;
use crate::input::place::Place;
use crate::input::seal::{self, Seal, Unsealed};
use crate::json::node::Node;
use crate::json::splice::Splice;

/// `body`, a request's, without its seals; None where it has none. For an upstream that checks signatures (`signed`)
/// their blocks are cut out, for others the text of a block stays and has an empty signature.
#[must_use]
pub fn without_seals(body: &[u8], signed: bool) -> Option<Unsealed> {
    let root = seal::sealed(body)?;
    let mut splice = Splice::new();
    let mut signatures = Vec::new();
    let mut left_out = LeftOut::default();
    let place = Place::Top("messages");
    for (index, message) in root
        .get("messages")
        .iter()
        .flat_map(Node::elements)
        .enumerate()
    {
        let Some(content) = message.get("content") else {
            continue;
        };
        let place = place.element(index);
        let place = place.member("content");
        let blocks = content.elements().enumerate().map(|(index, block)| {
            let [kind, signature, data] = block.pick(["type", "signature", "data"]);
            let is = |name: &str| kind.is_some_and(|kind| kind.is(name));
            let is_cut = if is("thinking") {
                match signature.filter(is_sealed) {
                    Some(signature) if !signed => {
                        signatures.push(signature.range());
                        false
                    }
                    sealed => sealed.is_some(),
                }
            } else {
                is("redacted_thinking") && data.is_some_and(|data| is_sealed(&data))
            };
            if is_cut {
                left_out.add(place.element(index));
            }
            (block.range(), is_cut)
        });
        splice.cut_elements(blocks);
    }
    for signature in signatures {
        splice.replace(signature, &b"\"\""[..]);
    }
    seal::unsealed(body, splice, left_out)
}

fn is_sealed(text: &Node<'_>) -> bool {
    text.spelled().and_then(Seal::of).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsealed(body: &str, signed: bool) -> Option<(String, Vec<Box<str>>)> {
        let made = without_seals(body.as_bytes(), signed)?;
        Some((
            String::from_utf8(made.body.to_vec()).unwrap(),
            made.left_out,
        ))
    }

    #[test]
    fn a_body_without_seals_is_not_touched() {
        for body in [
            r#"{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"EqQBCg\u003d"}]}]}"#,
            r#"{"messages":[{"role":"user","content":"say \"sg1.chat.\""}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"sg1.chat."}]}]}"#,
            r#"{"messages":[{"role":"assistant","content":[{"type":"thinking","signature":"sg1.chat."}]"#,
        ] {
            assert_eq!(unsealed(body, true), None, "{body}");
        }
    }

    #[test]
    fn sealed_blocks_are_cut_out_where_signatures_are_checked() {
        let sealed = r#"{"type":"thinking","thinking":"Hm.","signature":"sg1.chat."}"#;
        let redacted = r#"{"type":"redacted_thinking","data":"sg1.responses.e30"}"#;
        let text = r#"{"type":"text","text":"Yes"}"#;
        for (blocks, kept, places) in [
            (vec![sealed, text], vec![text], vec![0]),
            (vec![text, sealed], vec![text], vec![1]),
            (
                vec![sealed, redacted, text, redacted, sealed, text],
                vec![text, text],
                vec![0, 1, 3, 4],
            ),
            (vec![sealed, redacted], vec![], vec![0, 1]),
        ] {
            let body = |blocks: Vec<&str>| {
                let blocks = blocks.join(" ,\n");
                format!(
                    r#"{{"a": 1.0 ,"messages":[{{"role":"user","content":"Hi"}},{{"content": [{blocks}] ,"role":"assistant"}}] }}"#
                )
            };
            let (made, left_out) = unsealed(&body(blocks), true).unwrap();
            let same = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
            assert_eq!(same(&made), same(&body(kept)));
            let places: Vec<Box<str>> = places
                .iter()
                .map(|place| format!("messages[1].content[{place}]").into())
                .collect();
            assert_eq!(left_out, places);
        }
    }

    #[test]
    fn elsewhere_the_text_stays_without_its_seal() {
        let body = |thinking: &str| {
            format!(
                r#"{{"messages":[{{"role":"assistant","content":[{thinking}{{"type":"text","text":"Yes"}}]}}]}}"#
            )
        };
        let sealed = body(
            r#"{"type":"thinking","thinking":"Hm.","signature":"sg1.responses.e30"},{"type":"redacted_thinking","data":"sg1.responses.e30"},"#,
        );
        let (made, left_out) = unsealed(&sealed, false).unwrap();
        assert_eq!(
            made,
            body(r#"{"type":"thinking","thinking":"Hm.","signature":""},"#)
        );
        assert_eq!(left_out, [Box::from("messages[0].content[1]")]);
    }
}
