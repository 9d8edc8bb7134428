//! The items of an input, a turn each.

use std::borrow::Cow;

use super::content;
use crate::api::Api;
use crate::input::block::Text;
use crate::input::place::{of_kind, spelled};
use crate::input::{
    Block, Call, Content, Own, Payload, Place, Refusal, Role, Room, Scope, Seal, Spot, Turn, Word,
};
use crate::json::node::Node;
use crate::json::scan::Kind;

/// The turns of an input as they are read.
#[derive(Debug, Default)]
pub(super) struct Items<'a> {
    pub(super) turns: Vec<Turn<'a>>,
    /// Whether the tools in items `additional_tools` were read.
    has_tools: bool,
    room: Room,
}

/// Members of an item, read in one pass.
struct Item<'a> {
    kind: Option<Node<'a>>,
    role: Option<Node<'a>>,
    content: Option<Node<'a>>,
    summary: Option<Node<'a>>,
    encrypted: Option<Node<'a>>,
    call_id: Option<Node<'a>>,
    name: Option<Node<'a>>,
    namespace: Option<Node<'a>>,
    arguments: Option<Node<'a>>,
    input: Option<Node<'a>>,
    output: Option<Node<'a>>,
    extra_content: Option<Node<'a>>,
    reasoning_content: Option<Node<'a>>,
    spot: Spot,
    source: Node<'a>,
}

impl<'a> Item<'a> {
    fn read(source: Node<'a>, spot: Spot) -> Self {
        let [
            kind,
            role,
            content,
            summary,
            encrypted,
            call_id,
            name,
            namespace,
            arguments,
            input,
            output,
            extra_content,
            reasoning_content,
        ] = source.pick([
            "type",
            "role",
            "content",
            "summary",
            "encrypted_content",
            "call_id",
            "name",
            "namespace",
            "arguments",
            "input",
            "output",
            "extra_content",
            "reasoning_content",
        ]);
        Item {
            kind,
            role,
            content,
            summary,
            encrypted,
            call_id,
            name,
            namespace,
            arguments,
            input,
            output,
            extra_content,
            reasoning_content,
            spot,
            source,
        }
    }

    /// The item as one block.
    fn block(&self, content: Content<'a>) -> Block<'a> {
        Block {
            content,
            spot: self.spot,
            source: Some(self.source),
        }
    }
}

impl<'a> Items<'a> {
    /// `has_tools`: whether the tools in items `additional_tools` were read.
    pub(super) fn new(has_tools: bool) -> Self {
        Items {
            has_tools,
            ..Items::default()
        }
    }

    /// An input that is a string.
    pub(super) fn text(&mut self, input: Node<'a>, place: &Place<'_>) -> Result<(), Refusal> {
        let text = spelled(Some(input), place)?;
        let spot = Spot::top(Word::Input);
        let block = Block::text(text, spot, Some(input));
        self.push(Role::User, vec![block], spot);
        Ok(())
    }

    /// One item of the input.
    pub(super) fn item(
        &mut self,
        item: Node<'a>,
        index: usize,
        place: &Place<'_>,
    ) -> Result<(), Refusal> {
        of_kind(item, Kind::Object, "an object", place)?;
        self.room.take(place)?;
        let item = Item::read(item, Spot::top(Word::Input).element(index));
        let Some(kind) = item.kind else {
            if item.role.is_none() {
                return Err(reference(place));
            }
            return self.message(&item, place);
        };
        spelled(Some(kind), &place.member("type"))?;
        let kind = kind.decode().unwrap_or_default();
        match kind.as_ref() {
            "message" => self.message(&item, place),
            "agent_message" => self.agent_message(&item, place),
            "function_call" => self.call(&item, false, place),
            "custom_tool_call" => self.call(&item, true, place),
            "function_call_output" | "custom_tool_call_output" => self.output(&item, place),
            "reasoning" => self.reasoning(&item, place),
            // They are among the tools.
            "additional_tools" if self.has_tools => Ok(()),
            "web_search_call" | "file_search_call" | "mcp_list_tools" | "tool_search_call"
            | "tool_search_output" => {
                self.own(&item, kind, Scope::Trace);
                Ok(())
            }
            "item_reference" => Err(reference(place)),
            _ => {
                self.own(&item, kind, Scope::Item);
                Ok(())
            }
        }
    }

    fn push(&mut self, role: Role, blocks: Vec<Block<'a>>, spot: Spot) {
        self.turns.push(Turn {
            role,
            blocks,
            spot,
            named: false,
        });
    }

    fn message(&mut self, item: &Item<'a>, place: &Place<'_>) -> Result<(), Refusal> {
        let role_place = place.member("role");
        spelled(item.role, &role_place)?;
        let role = item.role.and_then(|role| role.decode()).unwrap_or_default();
        let content_place = place.member("content");
        if item.content.is_none() && role != "assistant" {
            return Err(Refusal::missing(&content_place));
        }
        let mut blocks = self.content(item, &content_place)?;
        let role = match role.as_ref() {
            "assistant" => Role::Assistant,
            "user" => Role::User,
            "system" => Role::System,
            "developer" => Role::Developer,
            _ => {
                return Err(Refusal::new(
                    &role_place,
                    "The role must be 'user', 'assistant', 'system' or 'developer'.",
                ));
            }
        };
        if role == Role::Assistant {
            if blocks.is_empty() {
                let spot = item.spot.member(Word::Content);
                blocks.push(Block::text(&b""[..], spot, item.content));
            }
            let thought = item.reasoning_content.and_then(|it| it.spelled());
            if let Some(text) = thought.filter(|text| !text.is_empty()) {
                let content = Content::Thinking {
                    text: text.into(),
                    seal: None,
                };
                let spot = item.spot.member(Word::ReasoningContent);
                let source = item.reasoning_content;
                let block = Block {
                    content,
                    spot,
                    source,
                };
                blocks.insert(0, block);
            }
        }
        self.push(role, blocks, item.spot);
        Ok(())
    }

    /// A message between two agents of Codex, cut anywhere.
    fn agent_message(&mut self, item: &Item<'a>, place: &Place<'_>) -> Result<(), Refusal> {
        let mut blocks = self.content(item, &place.member("content"))?;
        let is_text = |block: &Block<'_>| matches!(block.content, Content::Text(_));
        if blocks.len() != 1 && blocks.iter().all(is_text) {
            let text = content::joined(blocks, b"").unwrap_or_default();
            let spot = item.spot.member(Word::Content);
            blocks = vec![Block::text(text, spot, item.content)];
        }
        self.push(Role::User, blocks, item.spot);
        Ok(())
    }

    fn content(&mut self, item: &Item<'a>, place: &Place<'_>) -> Result<Vec<Block<'a>>, Refusal> {
        let spot = item.spot.member(Word::Content);
        content::read(item.content, spot, place, &mut self.room)
    }

    fn reasoning(&mut self, item: &Item<'a>, place: &Place<'_>) -> Result<(), Refusal> {
        let mut parts = self.content(item, &place.member("content"))?;
        if parts.is_empty() {
            let spot = item.spot.member(Word::Summary);
            let place = place.member("summary");
            parts = content::read(item.summary, spot, &place, &mut self.room)?;
        }
        let unknown = parts.iter().find_map(|part| match &part.content {
            Content::Own(own) if own.api == Api::Responses => Some((part.spot, &own.kind)),
            _ => None,
        });
        if let Some((spot, kind)) = unknown {
            return Err(Refusal::new(
                &Place::At(spot).member("type"),
                format!("Reasoning has no content of type '{kind}'."),
            ));
        }
        let text = content::joined(parts, b"\\n\\n").unwrap_or_default();
        let encrypted = item.encrypted.and_then(|it| it.spelled());
        let block = item.block(Content::Thinking {
            text,
            seal: encrypted.map(|it| Seal::Encrypted(it.into())),
        });
        self.push(Role::Assistant, vec![block], item.spot);
        Ok(())
    }

    fn call(&mut self, item: &Item<'a>, custom: bool, place: &Place<'_>) -> Result<(), Refusal> {
        let (payload_name, payload) = if custom {
            ("input", item.input)
        } else {
            ("arguments", item.arguments)
        };
        let id = spelled(item.call_id, &place.member("call_id"))?;
        let name = spelled(item.name, &place.member("name"))?;
        let payload_place = place.member(payload_name);
        let payload = payload.ok_or_else(|| Refusal::missing(&payload_place))?;
        let input = if payload.kind() == Kind::Object && !custom {
            Payload::Object(payload)
        } else {
            Payload::Text(spelled(Some(payload), &payload_place)?.into())
        };
        let block = item.block(Content::Call(Call {
            id: id.into(),
            name: name.into(),
            namespace: item.namespace.and_then(|it| it.decode()),
            input,
            custom,
            extra: item.extra_content,
        }));
        self.push(Role::Assistant, vec![block], item.spot);
        Ok(())
    }

    fn output(&mut self, item: &Item<'a>, place: &Place<'_>) -> Result<(), Refusal> {
        let id: Text<'a> = spelled(item.call_id, &place.member("call_id"))?.into();
        let place = place.member("output");
        let output = item.output.ok_or_else(|| Refusal::missing(&place))?;
        let spot = item.spot.member(Word::Output);
        let content = content::read(Some(output), spot, &place, &mut self.room)?;
        let block = item.block(Content::Result {
            id,
            failed: false,
            content,
        });
        self.push(Role::User, vec![block], item.spot);
        Ok(())
    }

    fn own(&mut self, item: &Item<'a>, kind: Cow<'a, str>, scope: Scope) {
        let block = item.block(Content::Own(Own {
            api: Api::Responses,
            kind,
            scope,
            json: item.source,
        }));
        self.push(Role::Assistant, vec![block], item.spot);
    }
}

fn reference(place: &Place<'_>) -> Refusal {
    Refusal::new(
        place,
        "The item that is referred to is not known here: send the item itself.",
    )
}
