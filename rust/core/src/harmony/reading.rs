//! Chunks of a chat completion, or of a text completion, whose content is harmony text → pieces.

use super::Decoder;
use crate::error::Error;
use crate::json::scan::Fault;
use crate::limits::Limits;
use crate::output::{Finish, Piece, Reader, Reason};
use crate::protocols::chat::reading::{ChatChunks, read_unfolded};

/// Reads chunks as [`ChatChunks`] does and decodes their text. What an upstream has taken out of the text itself,
/// reasoning or calls, is given as it came. Log probabilities are left out: they tell of tokens, some of which are no
/// text.
#[derive(Debug)]
pub struct HarmonyChunks {
    chunks: ChatChunks,
    decoder: Decoder,
}

impl HarmonyChunks {
    /// A reader that refuses chunks with more than `max_depth` open containers.
    #[must_use]
    pub fn new(max_depth: usize) -> Self {
        HarmonyChunks {
            chunks: ChatChunks::new(max_depth),
            decoder: Decoder::default(),
        }
    }
}

impl Reader for HarmonyChunks {
    fn read(&mut self, payload: &[u8], give: &mut dyn FnMut(&Piece<'_>)) -> Result<(), Fault> {
        let decoder = &mut self.decoder;
        self.chunks.read(payload, &mut |piece| match piece {
            Piece::Text(text) => decoder.feed(text.text, &mut |piece| give(&piece)),
            Piece::Finish(finish) => {
                decoder.finish(&mut |piece| give(&piece));
                // Stopping at `<|call|>` is stopping, to the upstream.
                let reason = match finish.reason {
                    Reason::Stop | Reason::Sequence if decoder.calls() > 0 => Reason::Calls,
                    reason => reason,
                };
                give(&Piece::Finish(Finish { reason, ..*finish }));
            }
            piece => give(piece),
        })
    }

    fn read_whole(
        &mut self,
        document: &[u8],
        limits: &Limits,
        give: &mut dyn FnMut(&Piece<'_>),
    ) -> Result<(), Error> {
        read_unfolded(self, document, limits, give)
    }

    fn remembers(&self) -> bool {
        true
    }

    fn end(&mut self, give: &mut dyn FnMut(&Piece<'_>)) {
        self.decoder.finish(&mut |piece| give(&piece));
        self.chunks.end(give);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Call, Reasoning};

    fn read(payloads: &[&str]) -> Vec<String> {
        let mut reader = HarmonyChunks::new(64);
        let mut seen = Vec::new();
        let mut note = |piece: &Piece<'_>| {
            let text = |text: &[u8]| String::from_utf8(text.to_vec()).unwrap();
            seen.push(match piece {
                Piece::Reasoning(Reasoning::Text(words)) => format!("thinks {}", text(words)),
                Piece::Text(words) => format!("says {}", text(words.text)),
                Piece::Call(Call {
                    name, arguments, ..
                }) => {
                    format!("calls {}{}", text(name), text(arguments))
                }
                Piece::Finish(finish) => format!("finish {:?}", finish.reason),
                _ => return,
            });
        };
        for payload in payloads {
            reader.read(payload.as_bytes(), &mut note).unwrap();
        }
        reader.end(&mut note);
        seen
    }

    #[test]
    fn content_of_chat_and_text_of_completions() {
        let chat = [
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"<|channel|>anal"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"ysis<|message|>Hm<|end|>\u003c|start|"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":">assistant<|channel|>commentary to=functions.f<|message|>{\"a\""}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":":1}"},"finish_reason":"stop"}]}"#,
        ];
        let expected = [
            "thinks Hm",
            "calls f",
            r#"calls {\"a\""#,
            "calls :1}",
            "finish Calls",
        ];
        assert_eq!(read(&chat), expected);
        let text = chat.map(|chunk| {
            chunk
                .replace("\"delta\":{\"content\"", "\"text\"")
                .replace("\"}}", "\"}")
                .replace("\"},\"f", "\",\"f")
                .replace("\"delta\":{\"role\":\"assistant\",\"content\"", "\"text\"")
        });
        assert_eq!(read(&text.each_ref().map(String::as_str)), expected);
    }

    #[test]
    fn text_that_is_kept_back_comes_before_the_reason_or_the_end() {
        let part =
            r#"{"choices":[{"index":0,"delta":{"content":"<|channel|>final<|message|>a <|"}}]}"#;
        let stop = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}"#;
        assert_eq!(read(&[part, stop]), ["says a ", "says <|", "finish Length"]);
        assert_eq!(read(&[part]), ["says a ", "says <|"]);
    }

    #[test]
    fn what_the_upstream_took_out_itself_stays_apart() {
        let chunk = r#"{"choices":[{"index":0,"delta":{"reasoning":"r","content":"plain text","tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"stop"}]}"#;
        assert_eq!(
            read(&[chunk]),
            ["thinks r", "says plain text", "calls f{}", "finish Stop"]
        );
    }
}
