//! The mock upstream: an inference server that answers chat completions, and messages, as the prompt's script says.
//!
//! One thread. Every event is one HTTP chunk and one write, as real servers do it.

use std::io;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, sleep_until};

use crate::http::{Body, request_head};
use crate::script::{Script, write_content};

const BACKLOG: u32 = 4096;
const READ_SIZE: usize = 64 * 1024;
const SSE_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
    cache-control: no-cache\r\nserver: mock\r\ntransfer-encoding: chunked\r\n\r\n";
const CHUNK_START: &str = "{\"id\":\"chatcmpl-benchmark\",\"object\":\"chat.completion.chunk\",\
    \"created\":1767225600,\"model\":\"bench\",";
const CHOICE_START: &str = "\"choices\":[{\"index\":0,\"delta\":";
const DELTA_START: &str = "{\"type\":\"content_block_delta\",\"index\":0,\
    \"delta\":{\"type\":\"text_delta\",\"text\":\"";

#[derive(Deserialize)]
struct ChatRequest {
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct Message {
    content: Content,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    text: String,
}

impl Content {
    fn text(&self) -> &str {
        match self {
            Content::Text(text) => text,
            Content::Parts(parts) => parts.first().map_or("", |part| &part.text),
        }
    }
}

/// What a request asked for.
struct Asked {
    script: Script,
    prompt_bytes: usize,
    stream: bool,
    include_usage: bool,
    /// In the Messages API.
    messages: bool,
}

impl Asked {
    fn read(request: ChatRequest, messages: bool) -> Self {
        let prompt = request
            .messages
            .last()
            .map_or("", |message| message.content.text());
        let options = request.stream_options.as_ref();
        Self {
            script: Script::read(prompt),
            prompt_bytes: prompt.len(),
            stream: request.stream == Some(true),
            include_usage: options.and_then(|options| options.include_usage) == Some(true),
            messages,
        }
    }
}

/// Listens on a free port of 127.0.0.1.
pub(crate) fn listen() -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    socket.listen(BACKLOG)
}

/// Serves for ever.
pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A connection that breaks is its client's affair: the load generator counts what it missed.
        tokio::task::spawn_local(async move { connection(stream).await.ok() });
    }
}

async fn connection(mut stream: TcpStream) -> io::Result<()> {
    let mut input = Vec::with_capacity(READ_SIZE);
    loop {
        let head = loop {
            if let Some(head) = request_head(&input).map_err(io::Error::other)? {
                break head;
            }
            if read_more(&mut stream, &mut input).await? == 0 {
                return Ok(());
            }
        };
        input.drain(..head.length);
        let body = read_body(&mut stream, &mut input, head.body).await?;
        if head.get {
            answer(&mut stream, "200 OK", MODELS).await?;
        } else {
            let request = serde_json::from_slice::<ChatRequest>(&body)
                .map(|request| Asked::read(request, head.messages));
            // A stream that is held does not hold its request.
            drop(body);
            match request {
                Ok(asked) => reply(&mut stream, &asked).await?,
                Err(error) => answer(&mut stream, "400 Bad Request", &refusal(&error)).await?,
            }
        }
        if head.close {
            return stream.shutdown().await;
        }
    }
}

/// Enough for gateways that discover models before they route.
const MODELS: &str = r#"{"object":"list","data":[{"id":"bench","object":"model","created":1767225600,"owned_by":"bench"}]}"#;

fn refusal(error: &serde_json::Error) -> String {
    serde_json::json!({"error": {"message": error.to_string(), "type": "invalid_request_error"}})
        .to_string()
}

async fn read_more(stream: &mut TcpStream, input: &mut Vec<u8>) -> io::Result<usize> {
    input.reserve(READ_SIZE);
    stream.read_buf(input).await
}

/// Reads one body; what follows it stays in `input`.
async fn read_body(
    stream: &mut TcpStream,
    input: &mut Vec<u8>,
    mut framing: Body,
) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut rest = input.as_slice();
        while !rest.is_empty() && !framing.done() {
            body.extend_from_slice(framing.take(&mut rest).map_err(io::Error::other)?);
        }
        let consumed = input.len() - rest.len();
        input.drain(..consumed);
        if framing.done() {
            return Ok(body);
        }
        if read_more(stream, input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

async fn answer(stream: &mut TcpStream, status: &str, body: &str) -> io::Result<()> {
    let reply = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nserver: mock\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(reply.as_bytes()).await
}

async fn reply(stream: &mut TcpStream, asked: &Asked) -> io::Result<()> {
    if asked.stream {
        return stream_tokens(stream, asked).await;
    }
    let script = &asked.script;
    let mut content = Vec::new();
    write_content(script, 0, &mut content);
    let content = String::from_utf8_lossy(&content);
    let body = if asked.messages {
        format!(
            "{{\"id\":\"msg_benchmark\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"bench\",\
             \"content\":[{{\"type\":\"text\",\"text\":\"{content}\"}}],\"stop_reason\":\"end_turn\",\
             \"stop_sequence\":null,\"usage\":{{\"input_tokens\":{},\"output_tokens\":{}}}}}",
            asked.prompt_bytes, script.tokens
        )
    } else {
        format!(
            "{{\"id\":\"chatcmpl-benchmark\",\"object\":\"chat.completion\",\"created\":1767225600,\"model\":\"bench\",\
             \"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"{content}\",\"refusal\":null}},\
             \"logprobs\":null,\"finish_reason\":\"stop\"}}],\"usage\":{}}}",
            usage(asked.prompt_bytes, script.tokens)
        )
    };
    answer(stream, "200 OK", &body).await
}

/// `prompt_tokens` are the prompt's bytes, by which the load generator sees that it arrived whole.
fn usage(prompt_bytes: usize, tokens: u32) -> String {
    format!(
        "{{\"prompt_tokens\":{prompt_bytes},\"completion_tokens\":{tokens},\"total_tokens\":{},\
         \"prompt_tokens_details\":{{\"cached_tokens\":0}},\"completion_tokens_details\":{{\"reasoning_tokens\":0}}}}",
        prompt_bytes + tokens as usize
    )
}

/// The payloads of a stream before its tokens, and behind them.
fn framing(asked: &Asked) -> (Vec<String>, Vec<String>) {
    let (prompt_bytes, tokens) = (asked.prompt_bytes, asked.script.tokens);
    if asked.messages {
        let start = [
            format!(
                "{{\"type\":\"message_start\",\"message\":{{\"id\":\"msg_benchmark\",\"type\":\"message\",\
                 \"role\":\"assistant\",\"model\":\"bench\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\
                 \"usage\":{{\"input_tokens\":{prompt_bytes},\"output_tokens\":1}}}}}}"
            ),
            "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}"
                .to_owned(),
        ];
        let end = [
            "{\"type\":\"content_block_stop\",\"index\":0}".to_owned(),
            format!(
                "{{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"end_turn\",\"stop_sequence\":null}},\
                 \"usage\":{{\"input_tokens\":{prompt_bytes},\"output_tokens\":{tokens}}}}}"
            ),
            "{\"type\":\"message_stop\"}".to_owned(),
        ];
        return (start.into(), end.into());
    }
    let start = format!(
        "{CHUNK_START}{CHOICE_START}{{\"role\":\"assistant\",\"content\":\"\"}},\"finish_reason\":null}}]}}"
    );
    let mut end = vec![format!(
        "{CHUNK_START}{CHOICE_START}{{}},\"finish_reason\":\"stop\"}}]}}"
    )];
    if asked.include_usage {
        let usage = usage(prompt_bytes, tokens);
        end.push(format!("{CHUNK_START}\"choices\":[],\"usage\":{usage}}}"));
    }
    end.push("[DONE]".to_owned());
    (vec![start], end)
}

async fn stream_tokens(stream: &mut TcpStream, asked: &Asked) -> io::Result<()> {
    let script = &asked.script;
    let started = Instant::now();
    stream.write_all(SSE_HEAD).await?;
    let mut wire = Vec::with_capacity(1024);
    let (start, end) = framing(asked);
    for payload in &start {
        write_event(stream, &mut wire, asked.messages, |event| {
            event.extend_from_slice(payload.as_bytes())
        })
        .await?;
    }
    for number in 0..script.tokens {
        if script.rate > 0.0 {
            sleep_until(started + due(script, number)).await;
        } else {
            // All streams in turn: a stream that spoke until its socket was full would arrive in blocks.
            tokio::task::yield_now().await;
        }
        write_event(stream, &mut wire, asked.messages, |event| {
            write_token(script, number, asked.messages, event)
        })
        .await?;
    }
    for payload in &end {
        write_event(stream, &mut wire, asked.messages, |event| {
            event.extend_from_slice(payload.as_bytes())
        })
        .await?;
    }
    stream.write_all(b"0\r\n\r\n").await
}

/// When token `number` leaves. Each tag has a phase of its own (the golden ratio's multiples, which spread evenly
/// however many there are), or streams that open together would all speak in the same millisecond.
fn due(script: &Script, number: u32) -> Duration {
    let phase = (f64::from(script.tag) * 0.618_033_988_749_895).fract();
    Duration::from_secs_f64((phase + f64::from(number)) / script.rate)
}

fn write_token(script: &Script, number: u32, messages: bool, event: &mut Vec<u8>) {
    let (start, end): (&[&str], _) = if messages {
        (&[DELTA_START], "\"}}")
    } else {
        (
            &[CHUNK_START, CHOICE_START, "{\"content\":\""],
            "\"},\"finish_reason\":null}]}",
        )
    };
    for part in start {
        event.extend_from_slice(part.as_bytes());
    }
    write_content(script, number, event);
    event.extend_from_slice(end.as_bytes());
}

/// One event as one HTTP chunk in one write, named after its type where it is `named`. `wire` is scratch space.
async fn write_event(
    stream: &mut TcpStream,
    wire: &mut Vec<u8>,
    named: bool,
    payload: impl FnOnce(&mut Vec<u8>),
) -> io::Result<()> {
    /// Room for the chunk's size: eight hexadecimal digits and CRLF.
    const SIZE_LINE: usize = 10;
    wire.clear();
    wire.extend_from_slice(b"00000000\r\n");
    if named {
        // A payload begins with its type.
        let start = wire.len();
        payload(wire);
        let name = wire[start..].split(|byte| *byte == b'"').nth(3);
        let name = String::from_utf8_lossy(name.unwrap_or_default());
        let line = format!("event: {name}\ndata: ").into_bytes();
        wire.splice(start..start, line);
    } else {
        wire.extend_from_slice(b"data: ");
        payload(wire);
    }
    wire.extend_from_slice(b"\n\n");
    let size = format!("{:x}\r\n", wire.len() - SIZE_LINE);
    let start = SIZE_LINE - size.len();
    wire[start..SIZE_LINE].copy_from_slice(size.as_bytes());
    wire.extend_from_slice(b"\r\n");
    stream.write_all(&wire[start..]).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_64_bytes_is_an_event_of_about_240() {
        let mut event = Vec::new();
        write_token(&Script::default(), 5, false, &mut event);
        let value: serde_json::Value = serde_json::from_slice(&event).unwrap();
        assert_eq!(
            value["choices"][0]["delta"]["content"]
                .as_str()
                .unwrap()
                .len(),
            64
        );
        let event_bytes = event.len() + "data: \n\n".len();
        assert!((225..=250).contains(&event_bytes), "{event_bytes}");
    }

    #[test]
    fn a_token_of_messages_is_a_text_delta() {
        let mut event = Vec::new();
        write_token(&Script::default(), 5, true, &mut event);
        let value: serde_json::Value = serde_json::from_slice(&event).unwrap();
        assert_eq!(value["type"], "content_block_delta");
        assert_eq!(value["delta"]["text"].as_str().unwrap().len(), 64);
    }

    #[test]
    fn what_frames_tokens_is_json_and_has_the_usage() {
        for messages in [false, true] {
            let request = serde_json::json!({
                "stream": true, "stream_options": {"include_usage": true},
                "messages": [{"role": "user", "content": [{"type": "text", "text": "four"}]}],
            });
            let asked = Asked::read(serde_json::from_value(request).unwrap(), messages);
            let (start, end) = framing(&asked);
            let payloads: Vec<serde_json::Value> = start
                .iter()
                .chain(&end)
                .filter(|payload| *payload != "[DONE]")
                .map(|payload| serde_json::from_str(payload).unwrap())
                .collect();
            let name = if messages {
                "input_tokens"
            } else {
                "prompt_tokens"
            };
            assert!(payloads.iter().any(|payload| payload["usage"][name] == 4));
        }
    }

    #[test]
    fn tokens_are_due_at_the_rate_and_streams_are_spread() {
        let script = Script {
            tag: 1,
            rate: 50.0,
            ..Script::default()
        };
        assert_eq!((due(&script, 11) - due(&script, 1)).as_millis(), 200);
        let phases: Vec<u128> = (0..4)
            .map(|tag| due(&Script { tag, ..script }, 0).as_millis())
            .collect();
        assert_eq!(phases, [0, 12, 4, 17]);
    }
}
