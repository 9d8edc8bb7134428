//! What the model thought in an earlier turn, as clients of Chat Completions give it back.
//!
//! | member | whose | what |
//! | --- | --- | --- |
//! | `reasoning_details` | OpenRouter | texts, each with a signature, and encrypted ones; `format` says whose |
//! | `thinking_blocks` | LiteLLM | the blocks of Messages |
//! | `reasoning_content`, `reasoning`, … | servers of open models | one text |
//!
//! The first of these that has anything counts: the others say the same once more. What this gateway sealed (`data` of
//! an encrypted detail) goes back to its maker whole, and its text, in the members for that, to others.

use crate::input::Room;
use crate::input::block::{Block, Content, Seal, Text};
use crate::input::left_out::LeftOut;
use crate::input::place::{Place, Refusal, Spot, Word};
use crate::input::seal;
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::protocols::chat::delta::REASONING;

/// What Anthropic's models made is called in `reasoning_details`.
const ANTHROPIC: &str = "anthropic-claude-v1";

/// The words of [`REASONING`] for places.
const WORDS: [Word; REASONING.len()] = [
    Word::ReasoningContent,
    Word::Reasoning,
    Word::Thinking,
    Word::ReasoningText,
    Word::ToolPlan,
];

/// The reasoning in a message of the assistant, which stands at `spot`.
pub(super) fn read<'a>(
    message: Node<'a>,
    spot: Spot,
    room: &mut Room,
    left_out: &mut LeftOut,
) -> Result<Vec<Block<'a>>, Refusal> {
    let [details, blocks] = message.pick(["reasoning_details", "thinking_blocks"]);
    let mut found = Vec::new();
    let spot_of = |word, index| spot.member(word).element(index);
    for (index, detail) in details.iter().flat_map(Node::elements).enumerate() {
        let spot = spot_of(Word::ReasoningDetails, index);
        room.take(&Place::At(spot))?;
        found.extend(read_detail(detail, spot, left_out));
    }
    if let Some(first) = found.first_mut() {
        // What is sealed may be shown beside it, for upstreams that did not make it.
        if let Content::Thinking {
            text,
            seal: Some(Seal::Wrapped(_)),
        } = &mut first.content
        {
            let mut shown = message.pick(REASONING).into_iter().flatten();
            let shown = shown.find_map(|source| source.spelled().filter(|text| !text.is_empty()));
            *text = shown.unwrap_or_default().into();
        }
        return Ok(found);
    }
    for (index, block) in blocks.iter().flat_map(Node::elements).enumerate() {
        let spot = spot_of(Word::ThinkingBlocks, index);
        room.take(&Place::At(spot))?;
        found.extend(read_block(block, spot));
    }
    if !found.is_empty() {
        return Ok(found);
    }
    // Clients that send several names say the same in each; what is not the same is left out.
    let mut first: Option<&[u8]> = None;
    for (word, source) in WORDS.into_iter().zip(message.pick(REASONING)) {
        let text = source.and_then(|source| source.spelled());
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            continue;
        };
        match first {
            Some(said) if said == text => {}
            Some(_) => left_out.add(spot.member(word)),
            None => {
                first = Some(text);
                found.push(block(text, None, spot.member(word), source));
            }
        }
    }
    Ok(found)
}

fn block<'a>(
    text: &'a [u8],
    seal: Option<Seal<'a>>,
    spot: Spot,
    source: Option<Node<'a>>,
) -> Block<'a> {
    Block {
        content: Content::Thinking {
            text: text.into(),
            seal,
        },
        spot,
        source,
    }
}

fn read_detail<'a>(detail: Node<'a>, spot: Spot, left_out: &mut LeftOut) -> Option<Block<'a>> {
    let [kind, text, summary, signature, data, format] =
        detail.pick(["type", "text", "summary", "signature", "data", "format"]);
    let is_ours = format.is_none_or(|format| format.is(ANTHROPIC));
    let filled = |value: Option<Node<'a>>| {
        let value = value.and_then(|value| value.spelled());
        value.filter(|value| !value.is_empty())
    };
    if kind.is_some_and(|kind| kind.is("reasoning.encrypted")) {
        let data = filled(data)?;
        if let Some(seal) = seal::Seal::of(data) {
            return Some(block(b"", Some(Seal::Wrapped(seal)), spot, Some(detail)));
        }
        if !is_ours {
            left_out.add(Place::At(spot));
            return None;
        }
        let seal = Seal::Redacted(Text::Borrowed(data));
        return Some(block(b"", Some(seal), spot, Some(detail)));
    }
    let signature = filled(signature).filter(|_| is_ours);
    let text = filled(text).or_else(|| filled(summary));
    if text.is_none() && signature.is_none() {
        return None;
    }
    let seal = signature.map(|signature| Seal::Signature(signature.into()));
    Some(block(text.unwrap_or_default(), seal, spot, Some(detail)))
}

fn read_block<'a>(source: Node<'a>, spot: Spot) -> Option<Block<'a>> {
    if source.kind() != Kind::Object {
        return None;
    }
    if let Some(data) = source.filled("data") {
        let seal = Seal::Redacted(data.into());
        return Some(block(b"", Some(seal), spot, Some(source)));
    }
    let text = source.filled("thinking");
    let signature = source.filled("signature");
    if text.is_none() && signature.is_none() {
        return None;
    }
    let seal = signature.map(|signature| Seal::Signature(signature.into()));
    Some(block(text.unwrap_or_default(), seal, spot, Some(source)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(message: &str) -> (Vec<String>, Vec<Box<str>>) {
        let message = Node::document(message.as_bytes()).unwrap();
        let spot = Spot::top(Word::Messages).element(0);
        let mut left_out = LeftOut::default();
        let blocks = read(message, spot, &mut Room::default(), &mut left_out).unwrap();
        let described = blocks.iter().map(|block| match &block.content {
            Content::Thinking { text, seal } => {
                let seal = match seal {
                    None => "unsigned",
                    Some(Seal::Signature(_)) => "signed",
                    Some(Seal::Wrapped(_)) => "wrapped",
                    Some(_) => "redacted",
                };
                format!("{} {seal} {}", block.spot, String::from_utf8_lossy(text))
            }
            other => format!("{other:?}"),
        });
        (described.collect(), left_out.finish())
    }

    #[test]
    fn reasoning_stands_where_its_name_says() {
        for name in REASONING {
            let (blocks, _) = read_all(&format!("{{\"{name}\":\"hm\"}}"));
            assert_eq!(blocks, [format!("messages[0].{name} unsigned hm")]);
        }
        assert_eq!(read_all("{}"), (Vec::new(), Vec::new()));
        assert_eq!(
            read_all(r#"{"reasoning":{},"reasoning_details":"a"}"#)
                .0
                .len(),
            0
        );
    }

    #[test]
    fn reasoning_under_another_name_is_left_out_unless_it_is_the_same() {
        let (blocks, left_out) =
            read_all(r#"{"thinking":"hm","reasoning_content":"hm","tool_plan":"so"}"#);
        assert_eq!(blocks, ["messages[0].reasoning_content unsigned hm"]);
        assert_eq!(left_out, [Box::from("messages[0].tool_plan")]);
    }

    #[test]
    fn signed_blocks_come_before_their_texts() {
        let (blocks, left_out) = read_all(
            r#"{"reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm","signature":"s"},{"type":"reasoning.encrypted","data":"d"},7]}"#,
        );
        assert_eq!(
            blocks,
            [
                "messages[0].reasoning_details[0] signed hm",
                "messages[0].reasoning_details[1] redacted "
            ]
        );
        assert_eq!(left_out.len(), 0);
        let (blocks, _) = read_all(
            r#"{"reasoning_content":"hm","reasoning_details":[],"thinking_blocks":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"d"}]}"#,
        );
        assert_eq!(
            blocks,
            [
                "messages[0].thinking_blocks[0] signed hm",
                "messages[0].thinking_blocks[1] redacted "
            ]
        );
    }

    #[test]
    fn what_others_have_signed_is_text() {
        let (blocks, left_out) = read_all(
            r#"{"reasoning_details":[{"type":"reasoning.text","text":"hm","signature":"s","format":"google-gemini-v1"},{"type":"reasoning.encrypted","data":"d","format":"openai-responses-v1"}]}"#,
        );
        assert_eq!(blocks, ["messages[0].reasoning_details[0] unsigned hm"]);
        assert_eq!(left_out, [Box::from("messages[0].reasoning_details[1]")]);
    }

    #[test]
    fn what_was_sealed_here_keeps_its_text() {
        let (blocks, left_out) = read_all(
            r#"{"reasoning_content":"hm","reasoning_details":[{"type":"reasoning.encrypted","data":"sg1.responses.e30"},{"type":"reasoning.encrypted","data":"sg1.responses.e30","format":"x"}]}"#,
        );
        assert_eq!(
            blocks,
            [
                "messages[0].reasoning_details[0] wrapped hm",
                "messages[0].reasoning_details[1] wrapped "
            ]
        );
        assert_eq!(left_out.len(), 0);
    }
}
