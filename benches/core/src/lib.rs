//! Workloads for the benches: made from a seed, so that each run measures the same bytes, and shaped like what real
//! servers send.

use std::sync::Arc;

use bytes::Bytes;
use sluicegate_core::api::Api;
use sluicegate_core::pipeline::ReplyPlan;
use sluicegate_core::protocols::responses::echo::{Asked, Echo};
use sluicegate_core::protocols::{ClientProtocol, ClientSide, UpstreamSide};

pub mod cpu;

/// A client of the Responses interface, and an upstream that knows chat completions only.
#[must_use]
pub fn translated(client_streams: bool) -> ReplyPlan {
    let echo = Echo::new("resp_0123456789abcdef0123456789abcdef", 1_761_900_000, "m");
    let client = ClientSide {
        protocol: ClientProtocol::Responses(Some(Asked::Echo(Arc::new(echo)))),
        ..ClientSide::new(Api::Responses, client_streams)
    };
    ReplyPlan::between(client, UpstreamSide::new(Api::Chat))
}

/// A client and an upstream that speak different protocols.
#[must_use]
pub fn between(upstream: Api, client: Api) -> ReplyPlan {
    ReplyPlan::between(ClientSide::new(client, true), UpstreamSide::new(upstream))
}

/// Bytes of one read from a socket, as hyper makes them under load.
pub const READ: usize = 16 << 10;

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, the same on every platform and in every version.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that always gives the same numbers for `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.number() % (bound as u64)).unwrap_or_default()
    }

    fn word(&mut self) -> &'static str {
        const WORDS: [&str; 16] = [
            " the",
            " of",
            " stream",
            " gateway",
            " token",
            ".",
            ",",
            " is",
            " a",
            "\\n\\n",
            " \\\"quoted\\\"",
            " größer",
            " 你好",
            " 🙂",
            " therefore",
            " 42",
        ];
        WORDS
            .get(self.below(WORDS.len()))
            .copied()
            .unwrap_or_default()
    }
}

/// One chat chunk of 150 to 300 bytes with a few words of content, without its framing.
fn chunk(random: &mut Random) -> String {
    let words: String = (0..1 + random.below(4)).map(|_| random.word()).collect();
    let fingerprint = if random.below(2) == 0 {
        ",\"system_fingerprint\":\"fp_44709d6fcb\",\"logprobs\":null"
    } else {
        ""
    };
    format!(
        "{{\"id\":\"chatcmpl-{:016x}\",\"object\":\"chat.completion.chunk\",\"created\":1761900000,\"model\":\"llama-3.1-8b\"{fingerprint},\
         \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{words}\"}},\"finish_reason\":null}}]}}",
        0x5EED_u64
    )
}

fn until(bytes: usize, seed: u64, mut event: impl FnMut(&mut Random, &mut String)) -> Bytes {
    let mut random = Random::new(seed);
    let mut stream = String::with_capacity(bytes + 1024);
    while stream.len() < bytes {
        event(&mut random, &mut stream);
    }
    stream.into()
}

/// A chat stream of about `bytes` bytes, LF only, each event one `data` line: what nearly all traffic is.
#[must_use]
pub fn chat_chunks(bytes: usize) -> Bytes {
    until(bytes, 1, |random, stream| {
        stream.push_str("data: ");
        stream.push_str(&chunk(random));
        stream.push_str("\n\n");
    })
}

/// The same chunks with `"usage":null`, as OpenAI sends them where usage was asked for.
#[must_use]
pub fn chat_chunks_with_null_usage(bytes: usize) -> Bytes {
    until(bytes, 1, |random, stream| {
        let chunk = chunk(random);
        let open = chunk.strip_suffix('}').unwrap_or(&chunk);
        stream.push_str(&format!("data: {open},\"usage\":null}}\n\n"));
    })
}

/// A chat stream of about `bytes` bytes whose events differ in one word each: an engine's tokens, about 230 bytes an
/// event.
#[must_use]
pub fn token_chunks(bytes: usize) -> Bytes {
    until(bytes, 4, |random, stream| {
        let word = random.word();
        stream.push_str(&format!(
            "data: {{\"id\":\"chatcmpl-4f9c1e6a7b3d4c0f8e2a5d6b7c8f9a0b\",\"object\":\"chat.completion.chunk\",\"created\":1761900000,\
             \"model\":\"meta-llama/Llama-3.1-8B-Instruct\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{word}\"}},\
             \"logprobs\":null,\"finish_reason\":null}}]}}\n\n",
        ));
    })
}

/// The same chunks with CRLF.
#[must_use]
pub fn chat_chunks_crlf(bytes: usize) -> Bytes {
    until(bytes, 1, |random, stream| {
        stream.push_str("data: ");
        stream.push_str(&chunk(random));
        stream.push_str("\r\n\r\n");
    })
}

/// Chat chunks that each carry a running total of usage, as vLLM sends with `--enable-force-include-usage`.
#[must_use]
pub fn chat_chunks_with_usage(bytes: usize) -> Bytes {
    let mut total = 0;
    until(bytes, 1, |random, stream| {
        total += 1;
        let chunk = chunk(random);
        let open = chunk.strip_suffix('}').unwrap_or(&chunk);
        stream.push_str(&format!(
            "data: {open},\"usage\":{{\"prompt_tokens\":17,\"total_tokens\":{},\"completion_tokens\":{total}}}}}\n\n",
            total + 17
        ));
    })
}

/// Usage-only chunks, one behind the other: every event is final and has a price.
#[must_use]
pub fn usage_chunks(bytes: usize) -> Bytes {
    until(bytes, 6, |random, stream| {
        let (prompt, completion) = (random.below(9999), random.below(999));
        stream.push_str(&format!(
            "data: {{\"id\":\"chatcmpl-0000000000005eed\",\"object\":\"chat.completion.chunk\",\"created\":1761900000,\
             \"model\":\"llama-3.1-8b\",\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":{completion},\
             \"total_tokens\":{},\"prompt_tokens_details\":{{\"cached_tokens\":0}}}}}}\n\n",
            prompt + completion
        ));
    })
}

/// Responses or Messages events: a name and a `data` line, with a keep-alive comment now and then.
#[must_use]
pub fn named_events(bytes: usize) -> Bytes {
    until(bytes, 2, |random, stream| {
        if random.below(20) == 0 {
            stream.push_str(": keep-alive\n\n");
        }
        let words: String = (0..1 + random.below(4)).map(|_| random.word()).collect();
        stream.push_str("event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"item_id\":\"msg_68f0\",");
        stream.push_str(&format!("\"output_index\":0,\"content_index\":0,\"sequence_number\":{},\"delta\":\"{words}\"}}\n\n", random.below(9999)));
    })
}

/// A Messages stream of about `bytes` bytes: one block of text, about 130 bytes an event.
#[must_use]
pub fn message_events(bytes: usize) -> Bytes {
    const START: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_01\",\"type\":\"message\",\
                         \"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":17,\"output_tokens\":1}}}\n\n\
                         event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\
                         \"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n";
    until(bytes, 5, |random, stream| {
        if stream.is_empty() {
            stream.push_str(START);
        }
        let words: String = (0..1 + random.below(4)).map(|_| random.word()).collect();
        stream.push_str(
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,",
        );
        stream.push_str(&format!(
            "\"delta\":{{\"type\":\"text_delta\",\"text\":\"{words}\"}}}}\n\n"
        ));
    })
}

/// A Responses stream of about `bytes` bytes: one item with one text, about 190 bytes an event.
#[must_use]
pub fn response_events(bytes: usize) -> Bytes {
    const START: &str = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\
                         \"id\":\"resp_68f0\",\"object\":\"response\",\"created_at\":1761900000,\"model\":\"m\",\
                         \"status\":\"in_progress\",\"output\":[]}}\n\n\
                         event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"sequence_number\":1,\
                         \"output_index\":0,\"item\":{\"id\":\"msg_68f0\",\"type\":\"message\",\"status\":\"in_progress\",\
                         \"role\":\"assistant\",\"content\":[]}}\n\n\
                         event: response.content_part.added\ndata: {\"type\":\"response.content_part.added\",\
                         \"sequence_number\":2,\"item_id\":\"msg_68f0\",\"output_index\":0,\"content_index\":0,\
                         \"part\":{\"type\":\"output_text\",\"text\":\"\",\"annotations\":[]}}\n\n";
    let mut number = 2;
    until(bytes, 7, |random, stream| {
        if stream.is_empty() {
            stream.push_str(START);
        }
        number += 1;
        let words: String = (0..1 + random.below(4)).map(|_| random.word()).collect();
        stream.push_str(&format!(
            "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"sequence_number\":{number},\
             \"item_id\":\"msg_68f0\",\"output_index\":0,\"content_index\":0,\"delta\":\"{words}\",\"logprobs\":[]}}\n\n",
        ));
    })
}

/// One event of about `bytes` bytes without any line ending in its data: an image as base64.
#[must_use]
pub fn large_event(bytes: usize) -> Bytes {
    format!("data: {{\"b64_json\":\"{}\"}}\n\n", base64(bytes)).into()
}

fn base64(bytes: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut random = Random::new(3);
    (0..bytes)
        .map(|_| char::from(ALPHABET.get(random.below(64)).copied().unwrap_or(b'A')))
        .collect()
}

/// A reply to an embeddings request: `vectors` vectors of 1,536 numbers.
#[must_use]
pub fn embeddings(vectors: usize) -> Bytes {
    let mut random = Random::new(4);
    let vector = |random: &mut Random| {
        let numbers: Vec<String> = (0..1536)
            .map(|_| {
                format!(
                    "{}0.{:09}",
                    if random.below(2) == 0 { "-" } else { "" },
                    random.below(1_000_000_000)
                )
            })
            .collect();
        format!(
            "{{\"object\":\"embedding\",\"index\":0,\"embedding\":[{}]}}",
            numbers.join(",")
        )
    };
    let all: Vec<String> = (0..vectors).map(|_| vector(&mut random)).collect();
    format!("{{\"object\":\"list\",\"data\":[{}],\"model\":\"m\",\"usage\":{{\"prompt_tokens\":8,\"total_tokens\":8}}}}", all.join(",")).into()
}

/// A chat request of about `bytes` bytes of text: an agent's turn, with messages and tools.
#[must_use]
pub fn agent_request(bytes: usize) -> Bytes {
    let mut random = Random::new(5);
    let mut body = String::from(
        "{\"model\":\"fast\",\"stream\":true,\"temperature\":0.7,\"messages\":[{\"role\":\"system\",\"content\":\"You help.\"}",
    );
    while body.len() < bytes {
        let words: String = (0..40 + random.below(200)).map(|_| random.word()).collect();
        body.push_str(&format!(",{{\"role\":\"user\",\"content\":\"{words}\"}}"));
    }
    body.push_str("],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"read_file\",\"parameters\":{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"}}}}}]}");
    body.into()
}

/// The turn of an agent in a protocol for conversations, of about `bytes` bytes: instructions, messages of both sides,
/// calls with their results, and a tool.
#[must_use]
pub fn agent_turn(api: Api, bytes: usize) -> Bytes {
    const SCHEMA: &str = "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"}}}";
    let mut random = Random::new(5);
    let mut items: Vec<String> = Vec::new();
    let mut size = 0;
    while size < bytes {
        let mut words =
            || -> String { (0..40 + random.below(200)).map(|_| random.word()).collect() };
        let (asked, said, result, id) = (words(), words(), words(), items.len());
        let turn = match api {
            Api::Responses => format!(
                "{{\"role\":\"user\",\"content\":\"{asked}\"}},{{\"role\":\"assistant\",\"content\":\"{said}\"}},\
                 {{\"type\":\"function_call\",\"call_id\":\"call_{id}\",\"name\":\"read_file\",\"arguments\":\"{{}}\"}},\
                 {{\"type\":\"function_call_output\",\"call_id\":\"call_{id}\",\"output\":\"{result}\"}}"
            ),
            Api::Messages => format!(
                "{{\"role\":\"user\",\"content\":\"{asked}\"}},{{\"role\":\"assistant\",\"content\":[\
                 {{\"type\":\"text\",\"text\":\"{said}\"}},\
                 {{\"type\":\"tool_use\",\"id\":\"call_{id}\",\"name\":\"read_file\",\"input\":{{}}}}]}},\
                 {{\"role\":\"user\",\"content\":[\
                 {{\"type\":\"tool_result\",\"tool_use_id\":\"call_{id}\",\"content\":\"{result}\"}}]}}"
            ),
            _ => format!(
                "{{\"role\":\"user\",\"content\":\"{asked}\"}},{{\"role\":\"assistant\",\"content\":\"{said}\",\"tool_calls\":[\
                 {{\"id\":\"call_{id}\",\"type\":\"function\",\"function\":{{\"name\":\"read_file\",\"arguments\":\"{{}}\"}}}}]}},\
                 {{\"role\":\"tool\",\"tool_call_id\":\"call_{id}\",\"content\":\"{result}\"}}"
            ),
        };
        size += turn.len();
        items.push(turn);
    }
    let items = items.join(",");
    let body = match api {
        Api::Responses => format!(
            "\"instructions\":\"You help.\",\"input\":[{items}],\
             \"tools\":[{{\"type\":\"function\",\"name\":\"read_file\",\"parameters\":{SCHEMA}}}]"
        ),
        Api::Messages => format!(
            "\"max_tokens\":4096,\"system\":\"You help.\",\"messages\":[{items}],\
             \"tools\":[{{\"name\":\"read_file\",\"input_schema\":{SCHEMA}}}]"
        ),
        _ => format!(
            "\"messages\":[{{\"role\":\"system\",\"content\":\"You help.\"}},{items}],\
             \"tools\":[{{\"type\":\"function\",\"function\":{{\"name\":\"read_file\",\"parameters\":{SCHEMA}}}}}]"
        ),
    };
    format!("{{\"model\":\"fast\",\"stream\":true,{body}}}").into()
}

/// A chat request that carries an image of about `bytes` bytes of base64.
#[must_use]
pub fn image_request(bytes: usize) -> Bytes {
    format!(
        "{{\"model\":\"vision\",\"messages\":[{{\"role\":\"user\",\"content\":[{{\"type\":\"image_url\",\"image_url\":\
         {{\"url\":\"data:image/png;base64,{}\"}}}}]}}],\"stream\":true}}",
        base64(bytes)
    )
    .into()
}

/// `stream` as reads of `size` bytes, cut without regard to events.
#[must_use]
pub fn reads(stream: &Bytes, size: usize) -> Vec<Bytes> {
    (0..stream.len())
        .step_by(size.max(1))
        .map(|start| stream.slice(start..stream.len().min(start + size)))
        .collect()
}
