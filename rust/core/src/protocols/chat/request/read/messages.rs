//! The messages, a turn each. What the assistant says is its reasoning, its text and its calls, in this order.

use super::super::thinking;
use super::content;
use crate::api::Api;
use crate::input::left_out::LeftOut;
use crate::input::place::{of_kind, spelled};
use crate::input::read::read_content;
use crate::input::{
    Block, Call, Content, Own, Payload, Place, Refusal, Role, Room, Scope, Spot, Turn, Word,
};
use crate::json::node::Node;
use crate::json::scan::Kind;

/// The turns of a conversation as they are read.
#[derive(Debug, Default)]
pub(super) struct Messages<'a> {
    pub(super) turns: Vec<Turn<'a>>,
    pub(super) left_out: LeftOut,
    room: Room,
}

impl<'a> Messages<'a> {
    pub(super) fn message(
        &mut self,
        message: Node<'a>,
        index: usize,
        place: &Place<'_>,
    ) -> Result<(), Refusal> {
        of_kind(message, Kind::Object, "an object", place)?;
        self.room.take(place)?;
        let spot = Spot::top(Word::Messages).element(index);
        let [role, content, name] = message.pick(["role", "content", "name"]);
        let role_place = place.member("role");
        spelled(role, &role_place)?;
        let role = role.and_then(|role| role.decode()).unwrap_or_default();
        let (role, blocks) = match role.as_ref() {
            "user" => (Role::User, self.content(content, spot, place)?),
            "system" => (Role::System, self.content(content, spot, place)?),
            "developer" => (Role::Developer, self.content(content, spot, place)?),
            "assistant" => (Role::Assistant, self.reply(message, content, spot, place)?),
            "tool" => {
                let output = self.output(message, content, spot, place)?;
                self.push(Role::User, vec![output], spot, false);
                return Ok(());
            }
            // The output of a call before there were tools.
            "function" => (Role::User, vec![own(message, role.into_owned(), spot)]),
            _ => {
                return Err(Refusal::new(
                    &role_place,
                    "The role must be 'user', 'assistant', 'tool', 'system' or 'developer'.",
                ));
            }
        };
        self.push(role, blocks, spot, name.is_some());
        Ok(())
    }

    fn push(&mut self, role: Role, blocks: Vec<Block<'a>>, spot: Spot, named: bool) {
        self.turns.push(Turn {
            role,
            blocks,
            spot,
            named,
        });
    }

    /// A content that goes to the model.
    fn content(
        &mut self,
        content: Option<Node<'a>>,
        spot: Spot,
        place: &Place<'_>,
    ) -> Result<Vec<Block<'a>>, Refusal> {
        let place = place.member("content");
        let content = content.ok_or_else(|| Refusal::missing(&place))?;
        let spot = spot.member(Word::Content);
        read_content(content, spot, &place, &mut self.room, content::part)
    }

    fn output(
        &mut self,
        message: Node<'a>,
        content: Option<Node<'a>>,
        spot: Spot,
        place: &Place<'_>,
    ) -> Result<Block<'a>, Refusal> {
        let id = spelled(message.get("tool_call_id"), &place.member("tool_call_id"))?;
        Ok(Block {
            content: Content::Result {
                id: id.into(),
                failed: false,
                content: self.content(content, spot, place)?,
            },
            spot,
            source: Some(message),
        })
    }

    fn reply(
        &mut self,
        message: Node<'a>,
        content: Option<Node<'a>>,
        spot: Spot,
        place: &Place<'_>,
    ) -> Result<Vec<Block<'a>>, Refusal> {
        let [refusal, calls, audio, function_call] =
            message.pick(["refusal", "tool_calls", "audio", "function_call"]);
        let mut blocks = Vec::new();
        for (word, value) in [(Word::Audio, audio), (Word::FunctionCall, function_call)] {
            if let Some(value) = value {
                blocks.push(own(value, word.as_str().into(), spot.member(word)));
            }
        }
        let thinking = thinking::read(message, spot, &mut self.room, &mut self.left_out)?;
        blocks.extend(thinking);
        if let Some(refusal) = refusal {
            let text = spelled(Some(refusal), &place.member("refusal"))?;
            blocks.push(Block {
                content: Content::Refusal(text.into()),
                spot: spot.member(Word::Refusal),
                source: Some(refusal),
            });
        }
        // Beside calls an empty text says nothing.
        if let Some(content) = content.filter(|content| !content.is("") || calls.is_none()) {
            let place = place.member("content");
            let spot = spot.member(Word::Content);
            let said = content::read_said(content, spot, &place, &mut self.room)?;
            if said.is_empty() && refusal.is_none() {
                blocks.push(Block::text(&b""[..], spot, Some(content)));
            }
            blocks.extend(said);
        }
        if let Some(calls) = calls {
            let place = place.member("tool_calls");
            of_kind(calls, Kind::Array, "an array", &place)?;
            let spot = spot.member(Word::ToolCalls);
            for (index, call) in calls.elements().enumerate() {
                let place = place.element(index);
                self.room.take(&place)?;
                blocks.push(read_call(call, spot.element(index), &place)?);
            }
        }
        Ok(blocks)
    }
}

fn own(json: Node<'_>, kind: String, spot: Spot) -> Block<'_> {
    Block {
        content: Content::Own(Own {
            api: Api::Chat,
            kind: kind.into(),
            scope: Scope::Item,
            json,
        }),
        spot,
        source: Some(json),
    }
}

fn read_call<'a>(call: Node<'a>, spot: Spot, place: &Place<'_>) -> Result<Block<'a>, Refusal> {
    of_kind(call, Kind::Object, "an object", place)?;
    let [id, function, custom, extra] = call.pick(["id", "function", "custom", "extra_content"]);
    let id = spelled(id, &place.member("id"))?;
    let (member, payload, inner) = match custom {
        Some(custom) => ("custom", "input", custom),
        None => {
            let place = place.member("function");
            let function = function.ok_or_else(|| Refusal::missing(&place))?;
            ("function", "arguments", function)
        }
    };
    let place = place.member(member);
    of_kind(inner, Kind::Object, "an object", &place)?;
    let [name, input] = inner.pick(["name", payload]);
    let name = spelled(name, &place.member("name"))?;
    let input = match input {
        Some(input) => spelled(Some(input), &place.member(payload))?,
        None => b"",
    };
    Ok(Block {
        content: Content::Call(Call {
            id: id.into(),
            name: name.into(),
            namespace: None,
            input: Payload::Text(input.into()),
            custom: custom.is_some(),
            extra,
        }),
        spot,
        source: Some(call),
    })
}
