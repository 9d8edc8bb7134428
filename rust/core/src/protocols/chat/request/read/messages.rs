//! The messages, a turn each. What the assistant says is its reasoning, its text and its calls, in this order.

use super::super::super::delta::REASONING;
use super::content;
use crate::api::Api;
use crate::input::left_out::LeftOut;
use crate::input::place::{of_kind, spelled};
use crate::input::{
    Block, Call, Content, Own, Payload, Place, Refusal, Role, Room, Scope, Spot, Turn, Word,
};
use crate::json::node::Node;
use crate::json::scan::Kind;

/// The names of reasoning, as they are in [`REASONING`].
const WORDS: [Word; REASONING.len()] = [
    Word::ReasoningContent,
    Word::Reasoning,
    Word::Thinking,
    Word::ReasoningText,
    Word::ToolPlan,
];

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
        content::read(content, spot, &place, &mut self.room)
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
        blocks.extend(self.reasoning(message, spot));
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

    /// The reasoning, under the first of its names. Clients that send several say the same in each; what is not the same is left out.
    fn reasoning(&mut self, message: Node<'a>, spot: Spot) -> Option<Block<'a>> {
        let mut first: Option<(&[u8], Block<'a>)> = None;
        for (word, source) in WORDS.into_iter().zip(message.pick(REASONING)) {
            let text = source.and_then(|source| source.spelled());
            let Some(text) = text.filter(|text| !text.is_empty()) else {
                continue;
            };
            let spot = spot.member(word);
            match &first {
                Some((said, _)) if *said == text => {}
                Some(_) => self.left_out.add(spot),
                None => {
                    let content = Content::Thinking {
                        text: text.into(),
                        seal: None,
                    };
                    let block = Block {
                        content,
                        spot,
                        source,
                    };
                    first = Some((text, block));
                }
            }
        }
        Some(first?.1)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_stands_where_its_name_says() {
        for name in REASONING {
            let message = format!("{{\"{name}\":\"hm\"}}");
            let message = Node::document(message.as_bytes()).unwrap();
            let spot = Spot::top(Word::Messages).element(0);
            let block = Messages::default().reasoning(message, spot).unwrap();
            assert_eq!(block.spot.to_string(), format!("messages[0].{name}"));
        }
    }

    #[test]
    fn reasoning_under_another_name_is_left_out_unless_it_is_the_same() {
        let message = br#"{"thinking":"hm","reasoning_content":"hm","tool_plan":"so"}"#;
        let message = Node::document(message).unwrap();
        let mut messages = Messages::default();
        let block = messages.reasoning(message, Spot::top(Word::Messages).element(2));
        assert_eq!(
            block.unwrap().spot.to_string(),
            "messages[2].reasoning_content"
        );
        let left_out = messages.left_out.finish();
        assert_eq!(*left_out, ["messages[2].tool_plan".into()]);
    }
}
