//! An estimate of how many tokens the input of a request has, whatever its protocol: for upstreams that cannot count
//! them, and for limits that a request is held against before it runs.

use super::Request;
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::string;

/// Bytes of English text, or of code, that a token has on average.
const BYTES_A_TOKEN: u64 = 4;

/// Tokens that an image or a file counts for: the most that Anthropic's API counts for an image (its documentation,
/// "Vision").
const MEDIA_TOKENS: u64 = 1600;

/// Contents within contents that are looked at: a message's, a tool's result in that, and a document in that.
const MAX_NESTING: u32 = 4;

#[derive(Default)]
struct Counted {
    bytes: u64,
    media: u64,
}

impl Counted {
    fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// A text, or a list of blocks.
    fn content(&mut self, content: Node<'_>, nesting: u32) {
        if let Some(text) = content.spelled() {
            self.add(text.len());
        } else if content.kind() == Kind::Array && nesting < MAX_NESTING {
            for block in content.elements() {
                self.block(block, nesting);
            }
        }
    }

    /// A message, an item or a block; a list of prompts has texts in their place.
    fn block(&mut self, block: Node<'_>, nesting: u32) {
        if let Some(text) = block.spelled() {
            self.add(text.len());
            return;
        }
        let mut has_media = false;
        for (key, value) in block
            .members()
            .filter(|(_, value)| value.kind() != Kind::Null)
        {
            match &*string::plain(key.spelled().unwrap_or_default()) {
                b"text" | b"thinking" | b"title" | b"context" | b"refusal" | b"arguments"
                | b"reasoning" | b"reasoning_content" => {
                    self.add(value.spelled().map_or(0, <[u8]>::len))
                }
                // An image, a sound or a file, or where it is.
                b"image_url" | b"input_audio" | b"file" | b"file_data" => has_media = true,
                b"input" | b"tool_calls" => self.add(value.bytes().len()),
                b"content" | b"output" => self.content(value, nesting + 1),
                b"source" => self.source(value, nesting),
                _ => {}
            }
        }
        self.media += u64::from(has_media);
    }

    fn source(&mut self, source: Node<'_>, nesting: u32) {
        let [kind, data, content] = source.pick(["type", "data", "content"]);
        match (kind, data, content) {
            (Some(kind), Some(data), _) if kind.is("text") => self.content(data, nesting + 1),
            (Some(kind), _, Some(content)) if kind.is("content") => {
                self.content(content, nesting + 1);
            }
            _ => self.media += 1,
        }
    }
}

impl Request {
    /// About how many tokens the input has, at least 1: a quarter of the bytes of all text, of tools and of the calls
    /// to them, of schemas, documents and replies that are foreseen, and a fixed number for each image and file.
    #[must_use]
    pub fn estimated_input_tokens(&self) -> u64 {
        let mut counted = Counted::default();
        let root = self.root();
        // A schema of the reply, or a reply that is foreseen, is read as tools are.
        let others = root.pick([
            "tools",
            "functions",
            "response_format",
            "output_config",
            "text",
            "prediction",
            "documents",
            "query",
        ]);
        let inputs = root.pick(["system", "instructions", "messages", "input", "prompt"]);
        for other in others.into_iter().flatten() {
            counted.add(other.bytes().len());
        }
        for content in inputs.into_iter().flatten() {
            counted.content(content, 0);
        }
        let text = counted.bytes.div_ceil(BYTES_A_TOKEN);
        (text + counted.media * MEDIA_TOKENS).max(1)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::limits::Limits;

    fn estimate(body: &str) -> u64 {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let request = Request::parse(body, &Limits::default()).unwrap();
        request.estimated_input_tokens()
    }

    fn of_content(content: &str) -> u64 {
        estimate(&format!(
            r#"{{"messages":[{{"role":"user","content":{content}}}]}}"#
        ))
    }

    #[test]
    fn it_is_never_0() {
        for body in [
            "{}",
            r#"{"messages":[]}"#,
            r#"{"messages":7,"system":null}"#,
        ] {
            assert_eq!(estimate(body), 1, "{body}");
        }
    }

    #[test]
    fn text_counts_wherever_it_stands() {
        let text = "x".repeat(400);
        for content in [
            format!(r#""{text}""#),
            format!(r#"[{{"type":"text","text":"{text}"}}]"#),
            format!(r#"[{{"type":"thinking","thinking":"{text}","signature":"s"}}]"#),
            format!(r#"[{{"type":"tool_result","tool_use_id":"i","content":"{text}"}}]"#),
            format!(r#"[{{"type":"tool_result","content":[{{"type":"text","text":"{text}"}}]}}]"#),
            format!(r#"[{{"type":"document","source":{{"type":"text","data":"{text}"}}}}]"#),
        ] {
            assert_eq!(of_content(&content), 100, "{content}");
        }
        assert_eq!(estimate(&format!(r#"{{"system":"{text}"}}"#)), 100);
        assert!(estimate(&format!(r#"{{"tools":[{{"description":"{text}"}}]}}"#)) >= 100);
        let call = format!(r#"[{{"type":"tool_use","name":"n","input":{{"a":"{text}"}}}}]"#);
        assert!(of_content(&call) >= 100);
    }

    #[test]
    fn every_protocol_is_read() {
        let text = "x".repeat(400);
        for body in [
            format!(r#"{{"prompt":"{text}"}}"#),
            format!(r#"{{"query":"{}"}}"#, &text[2..]),
            format!(r#"{{"functions":["{}"]}}"#, &text[4..]),
            format!(r#"{{"response_format":["{}"]}}"#, &text[4..]),
            format!(r#"{{"prediction":["{}"]}}"#, &text[4..]),
            format!(r#"{{"input":["{text}"]}}"#),
            format!(r#"{{"instructions":"{text}"}}"#),
            format!(r#"{{"input":[{{"type":"function_call_output","output":"{text}"}}]}}"#),
            format!(r#"{{"input":[{{"type":"function_call","arguments":"{text}"}}]}}"#),
            format!(r#"{{"input":[{{"role":"user","content":[{{"text":"{text}"}}]}}]}}"#),
            format!(r#"{{"messages":[{{"role":"tool","content":"{text}"}}]}}"#),
        ] {
            assert_eq!(estimate(&body), 100, "{body}");
        }
        let image = r#"[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]"#;
        assert_eq!(of_content(image), MEDIA_TOKENS);
    }

    #[test]
    fn media_count_for_a_fixed_number_whatever_their_size() {
        let data = "A".repeat(100_000);
        let image = format!(r#"{{"type":"image","source":{{"type":"base64","data":"{data}"}}}}"#);
        assert_eq!(of_content(&format!("[{image}]")), MEDIA_TOKENS);
        let result = format!(r#"[{{"type":"tool_result","content":[{image},{image}]}}]"#);
        assert_eq!(of_content(&result), 2 * MEDIA_TOKENS);
    }

    #[test]
    fn nesting_without_end_is_not_followed() {
        let deep = r#"[{"content":"#.repeat(20) + r#""xxxxxxxx""# + &"}]".repeat(20);
        assert_eq!(of_content(&deep), 1);
    }
}
