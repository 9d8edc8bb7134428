//! Which conversation a request belongs to: one number for all of its turns, so that they can be sent where a server
//! still has their beginning in its cache.
//!
//! The number is that of `prompt_cache_key`, where the client gives one. Else it is made of what no later turn changes:
//! the model, the tools, the instructions, and the messages up to the first one from the user. A system prompt alone
//! would gather everybody on one server. Of messages only roles and texts count, because a stored message comes back
//! with an id and in another form. It is XXH3 with 64 bits, so all machines agree on it.

use bytes::Bytes;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::Request;
use crate::error::Error;
use crate::json::node::Node;
use crate::json::scan::{Kind, Member, Value};
use crate::limits::Limits;

/// Bytes that count of each text, 16 KiB.
const COUNTED: usize = 16 << 10;

/// The number of all requests that name this key.
#[must_use]
pub fn of_key(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// What no later turn of a conversation changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beginning<'a> {
    pub(crate) cache_key: Option<Node<'a>>,
    pub(crate) model: &'a str,
    pub(crate) tools: Option<Node<'a>>,
    pub(crate) instructions: Option<Node<'a>>,
    /// Messages or items in their order, or one text of the user.
    pub(crate) turns: Option<Node<'a>>,
}

impl Beginning<'_> {
    /// The conversation's number; none where there is nothing to tell it from others.
    pub(crate) fn affinity(&self) -> Option<u64> {
        let key = self.cache_key.and_then(|key| key.decode());
        if let Some(key) = key.filter(|key| !key.is_empty()) {
            return Some(of_key(key.as_bytes()));
        }
        let mut hash = Hash(Xxh3::new());
        hash.take(self.model.as_bytes());
        hash.take(self.tools.map_or(&[], |tools| tools.bytes()));
        match self.instructions.filter(|text| text.kind() == Kind::Array) {
            None => hash.take_text(self.instructions),
            Some(blocks) => blocks.elements().for_each(|block| hash.take_block(block)),
        }
        let turns = self.turns?;
        if turns.kind() == Kind::String {
            hash.take(b"user");
            hash.take_text(Some(turns));
            return Some(hash.0.digest());
        }
        let mut any = false;
        for turn in turns.elements() {
            let [role, content] = turn.pick(["role", "content"]);
            let (Some(role), Some(content)) = (role.and_then(|role| role.decode()), content) else {
                continue;
            };
            any = true;
            hash.take(role.as_bytes());
            if content.kind() == Kind::Array {
                for part in content.elements() {
                    let [text, image] = part.pick(["text", "image_url"]);
                    hash.take_text(text.or(image));
                }
            } else {
                hash.take_text(Some(content));
            }
            if role == "user" {
                break;
            }
        }
        any.then(|| hash.0.digest())
    }
}

struct Hash(Xxh3);

impl Hash {
    /// The length first, so that no two lists of texts look alike.
    fn take(&mut self, text: &[u8]) {
        let text = text.get(..COUNTED).unwrap_or(text);
        self.0.update(&(text.len() as u64).to_le_bytes());
        self.0.update(text);
    }

    /// A text block of a system prompt. Claude Code's first one holds a number that changes from turn to turn.
    fn take_block(&mut self, block: Node<'_>) {
        let text = block.get("text");
        let bills = |text: &Node<'_>| {
            let spelled = text.spelled().unwrap_or_default();
            spelled.starts_with(b"x-anthropic-billing-header:")
        };
        if !text.as_ref().is_some_and(bills) {
            self.take_text(text);
        }
    }

    /// A string as it reads, so that it may be spelled in another way; anything else as it is spelled.
    fn take_text(&mut self, value: Option<Node<'_>>) {
        match value {
            None => self.take(&[]),
            Some(value) => match value.decode() {
                Some(text) => self.take(text.as_bytes()),
                None => self.take(value.bytes()),
            },
        }
    }
}

impl Request {
    /// [`parse`](Self::parse) of a request to Chat Completions or Messages, and its conversation's number; none where
    /// there is nothing to tell it from others.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_conversation(body: Bytes, limits: &Limits) -> Result<(Self, Option<u64>), Error> {
        const NAMES: [&str; 4] = ["prompt_cache_key", "tools", "system", "messages"];
        let mut found: [Option<Value>; 4] = [None; 4];
        let request = Request::read(body, limits, |body, Member { key, value }| {
            let key = Node::new(body, key);
            let place = NAMES.iter().position(|name| key.is(name));
            if let Some(slot) = place.and_then(|place| found.get_mut(place)) {
                *slot = (value.kind != Kind::Null).then_some(value);
            }
            Ok(())
        })?;
        let [cache_key, tools, instructions, turns] =
            found.map(|value| Some(Node::new(&request.body, value?)));
        let beginning = Beginning {
            cache_key,
            model: request.model().unwrap_or_default(),
            tools,
            instructions,
            turns,
        };
        let affinity = beginning.affinity();
        Ok((request, affinity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn affinity(body: &str) -> Option<u64> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let (request, affinity) =
            Request::parse_conversation(body.clone(), &Limits::default()).unwrap();
        assert_eq!(request.body(), &body);
        affinity
    }

    #[test]
    fn a_system_prompt_tells_conversations_apart_but_not_what_a_client_counts_in_it() {
        let turns = |system: &str| {
            affinity(&format!(
                r#"{{"model":"m","system":{system},"messages":[{{"role":"user","content":"Hi"}}]}}"#
            ))
        };
        let blocks = |count: u32, text: &str| {
            turns(&format!(
                r#"[{{"type":"text","text":"x-anthropic-billing-header: n={count}"}},{{"type":"text","text":"{text}"}}]"#
            ))
        };
        assert!(blocks(1, "Be brief.").is_some());
        assert_eq!(blocks(1, "Be brief."), blocks(2, "Be brief."));
        assert_ne!(blocks(1, "Be brief."), blocks(1, "Be long."));
        assert_ne!(turns(r#""Be brief.""#), turns(r#""Be long.""#));
    }

    const SYSTEM: &str = r#"{"role":"system","content":"Be brief."}"#;

    fn chat(turns: &[&str]) -> Option<u64> {
        affinity(&format!(
            r#"{{"model":"m","messages":[{}]}}"#,
            turns.join(",")
        ))
    }

    #[test]
    fn all_turns_of_a_conversation_are_alike_and_those_of_another_are_not() {
        let first = r#"{"role":"user","content":"Hi"}"#;
        let once = chat(&[SYSTEM, first]);
        assert!(once.is_some());
        let answer = r#"{"role":"assistant","content":"Yes?"}"#;
        let second = r#"{"role":"user","content":"More"}"#;
        assert_eq!(chat(&[SYSTEM, first, answer, second]), once);
        assert_ne!(chat(&[SYSTEM, second]), once, "a shared system prompt");
        assert_ne!(chat(&[first]), once);
    }

    #[test]
    fn a_message_may_be_spelled_in_another_way() {
        let plain = chat(&[r#"{"role":"user","content":"Hi/\n"}"#]);
        let other = r#"{ "id":"msg_1", "content":[{"type":"text","text":"Hi\/\u000a"}], "role":"us\u0065r"}"#;
        assert_eq!(chat(&[other]), plain);
    }

    #[test]
    fn model_and_tools_tell_conversations_apart() {
        let one = |model: &str, tools: &str| {
            let text = format!(
                r#"{{"tools":{tools},"model":"{model}","messages":[{{"role":"user","content":"Hi"}}]}}"#
            );
            affinity(&text)
        };
        assert_eq!(one("m", "[]"), one("m", "[]"));
        assert_ne!(one("m", "[]"), one("n", "[]"));
        assert_ne!(one("m", "[]"), one("m", "[1]"));
    }

    #[test]
    fn a_cache_key_goes_before_all_else() {
        let with = |key: &str, text: &str| {
            affinity(&format!(
                r#"{{"model":"m","prompt_cache_key":{key},"messages":[{{"role":"user","content":"{text}"}}]}}"#
            ))
        };
        assert_eq!(with(r#""a""#, "x"), Some(of_key(b"a")));
        assert_eq!(with(r#""a""#, "y"), Some(of_key(b"a")));
        assert_eq!(with(r#""""#, "x"), with("null", "x"));
        assert_ne!(with("null", "x"), with("null", "y"));
    }

    #[test]
    fn a_long_text_counts_by_its_beginning() {
        let one = |text: &str| chat(&[&format!(r#"{{"role":"user","content":"{text}"}}"#)]);
        let long = "x".repeat(COUNTED);
        assert_eq!(one(&format!("{long}a")), one(&format!("{long}b")));
        assert_ne!(one(&long[1..]), one(&long));
    }

    #[test]
    fn what_is_no_conversation_has_none() {
        for body in [
            "{}",
            r#"{"messages":[]}"#,
            r#"{"messages":7}"#,
            r#"{"messages":[null,{"role":1}]}"#,
        ] {
            assert_eq!(affinity(body), None, "{body}");
        }
        assert!(Request::parse_conversation(Bytes::from_static(b"{"), &Limits::default()).is_err());
    }

    #[test]
    fn all_machines_agree() {
        // The number that the algorithm's specification gives for no bytes.
        assert_eq!(of_key(b""), 0x2D06_8005_38D3_94C2);
    }
}
