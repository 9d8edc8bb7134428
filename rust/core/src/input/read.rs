//! What both protocols of OpenAI spell alike: a content with parts, and a choice of tools.

use std::borrow::Cow;

use super::block::{Block, Content};
use super::place::{Place, Refusal, Spot, of_kind};
use super::tools::{Choice, ChoiceKind, Named};
use super::{MAX_BLOCKS, Room};
use crate::json::node::Node;
use crate::json::scan::Kind;

/// Reads a content that is a string, or an array of parts, each with `part`.
pub(crate) fn read_content<'a>(
    content: Node<'a>,
    spot: Spot,
    place: &Place<'_>,
    room: &mut Room,
    part: impl Fn(Node<'a>, &Place<'_>) -> Result<Content<'a>, Refusal>,
) -> Result<Vec<Block<'a>>, Refusal> {
    match content.kind() {
        Kind::String => {
            room.take(place)?;
            let text = content.spelled().unwrap_or_default();
            Ok(vec![Block::text(text, spot, Some(content))])
        }
        Kind::Array => read_parts(content, spot, place, room, part),
        kind => Err(Refusal::wrong_type(place, "a string or an array", kind)),
    }
}

/// Reads an array of parts, each with `part`.
pub(crate) fn read_parts<'a>(
    parts: Node<'a>,
    spot: Spot,
    place: &Place<'_>,
    room: &mut Room,
    part: impl Fn(Node<'a>, &Place<'_>) -> Result<Content<'a>, Refusal>,
) -> Result<Vec<Block<'a>>, Refusal> {
    let mut blocks = Vec::new();
    for (index, source) in parts.elements().enumerate() {
        let place = place.element(index);
        room.take(&place)?;
        blocks.push(Block {
            content: part(source, &place)?,
            spot: spot.element(index),
            source: Some(source),
        });
    }
    Ok(blocks)
}

/// Reads `tool_choice`: a word, or an object. `other_word` reads a word that is none of both protocols.
pub(crate) fn read_choice<'a>(
    source: Option<Node<'a>>,
    other_word: impl FnOnce(Cow<'a, str>, &Place<'_>) -> Result<ChoiceKind<'a>, Refusal>,
    object: impl FnOnce(Node<'a>, &Place<'_>) -> Result<ChoiceKind<'a>, Refusal>,
) -> Result<Choice<'a>, Refusal> {
    let place = Place::Top("tool_choice");
    let kind = match source.map(|source| (source, source.kind())) {
        None => ChoiceKind::Unsaid,
        Some((source, Kind::String)) => {
            let word = source.decode().unwrap_or_default();
            match word.as_ref() {
                "auto" => ChoiceKind::Auto,
                "none" => ChoiceKind::None,
                "required" => ChoiceKind::Required,
                _ => other_word(word, &place)?,
            }
        }
        Some((source, Kind::Object)) => object(source, &place)?,
        Some((_, kind)) => {
            return Err(Refusal::wrong_type(&place, "a string or an object", kind));
        }
    };
    Ok(Choice {
        kind,
        source,
        one_call: false,
    })
}

/// Reads the tools that a choice allows, an array, each with `named`.
pub(crate) fn read_allowed<'a>(
    tools: Node<'a>,
    spot: Spot,
    place: &Place<'_>,
    named: impl Fn(Node<'a>, Spot, &Place<'_>) -> Result<Named<'a>, Refusal>,
) -> Result<Vec<Named<'a>>, Refusal> {
    of_kind(tools, Kind::Array, "an array", place)?;
    let mut allowed = Vec::new();
    for (index, tool) in tools.elements().enumerate() {
        let place = place.element(index);
        if index == MAX_BLOCKS {
            let message = format!("More than {MAX_BLOCKS} tools are allowed.");
            return Err(Refusal::new(&place, message));
        }
        allowed.push(named(tool, spot.element(index), &place)?);
    }
    Ok(allowed)
}
