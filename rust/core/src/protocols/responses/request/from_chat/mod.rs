//! A request to Chat Completions as a request for a response, for upstreams that only speak Responses.
//!
//! | member | there |
//! | --- | --- |
//! | `messages` | `input` |
//! | `tools`, `tool_choice` | the same, one level flatter; a function is not strict unless the client says so, as in Chat Completions |
//! | `response_format`, `verbosity` | `text.format`, `text.verbosity` |
//! | `reasoning_effort` | `reasoning.effort`, beside what a client's `reasoning` says |
//! | `max_completion_tokens`, `max_tokens` | `max_output_tokens` |
//! | `logprobs` | `include: ["message.output_text.logprobs"]` |
//! | `store` | the same, and false where the client says nothing, as in Chat Completions |
//! | `stream_options.include_obfuscation` | the same; the other options nothing, as usage comes by itself |
//! | `prediction` | left out: it makes an answer faster, not another one |
//! | `n`, `stop`, `seed`, `logit_bias`, `presence_penalty`, `frequency_penalty`, `modalities`, `audio`, `web_search_options`, `functions`, `function_call` | refused, unless they ask for nothing (`n: 1`, `stop: null`) |
//! | any other (`temperature`, `parallel_tool_calls`, `service_tier`, a vendor's own) | the same |

mod messages;
pub(in crate::protocols::responses) mod tools;

use bytes::Bytes;

use self::messages::Items;
use crate::input::place::{Place, Refusal, of_kind, spelled};
use crate::json::node::Node;
use crate::json::scan::{Kind, Value, skip_space};
use crate::json::writer::Writer;
use crate::request::Request;

/// What an upstream that speaks Responses wants to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponsesTarget {
    /// Whether it takes reasoning of earlier turns as text (vLLM does; OpenAI's own takes only what it has encrypted itself).
    pub takes_reasoning: bool,
    /// Members of the request not to send, for upstreams that refuse what they don't know.
    pub omit: Vec<Box<str>>,
}

/// A request for a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FromChat {
    /// One JSON object.
    pub body: Bytes,
    /// The parts that are not sent to the upstream: `messages[3].reasoning_content`, `prediction`. At most 16 of at most 64 bytes, and behind them how
    /// many more there are.
    pub left_out: Vec<Box<str>>,
}

/// The members of a request whose meaning changes in the translation.
#[derive(Default)]
struct Read<'a> {
    messages: Option<Node<'a>>,
    tools: Option<Node<'a>>,
    tool_choice: Option<Node<'a>>,
    response_format: Option<Node<'a>>,
    verbosity: Option<Node<'a>>,
    reasoning: Option<Node<'a>>,
    reasoning_effort: Option<Node<'a>>,
    max_tokens: Option<Node<'a>>,
    max_completion_tokens: Option<Node<'a>>,
    logprobs: Option<Node<'a>>,
    include: Option<Node<'a>>,
    text: Option<Node<'a>>,
    stream_options: Option<Node<'a>>,
    prediction: Option<Node<'a>>,
    has_store: bool,
}

impl<'a> Read<'a> {
    /// Where a member's value goes; None for one that stays as it is.
    fn slot(&mut self, key: Node<'_>) -> Option<&mut Option<Node<'a>>> {
        let key = key.decode()?;
        Some(match key.as_ref() {
            "messages" => &mut self.messages,
            "tools" => &mut self.tools,
            "tool_choice" => &mut self.tool_choice,
            "response_format" => &mut self.response_format,
            "verbosity" => &mut self.verbosity,
            "reasoning" => &mut self.reasoning,
            "reasoning_effort" => &mut self.reasoning_effort,
            "max_tokens" => &mut self.max_tokens,
            "max_completion_tokens" => &mut self.max_completion_tokens,
            "logprobs" => &mut self.logprobs,
            "include" => &mut self.include,
            "text" => &mut self.text,
            "stream_options" => &mut self.stream_options,
            "prediction" => &mut self.prediction,
            _ => return None,
        })
    }
}

/// Whether a member that Responses has no place for asks for nothing. None for any other member.
fn asks_nothing(name: &str, value: Node<'_>) -> Option<bool> {
    let is_empty =
        |value: Node<'_>| value.members().next().is_none() && value.elements().next().is_none();
    Some(match name {
        "n" => value.as_u64() == Some(1),
        "presence_penalty" | "frequency_penalty" => is_zero(value.bytes()),
        "stop" | "logit_bias" | "functions" => {
            matches!(value.kind(), Kind::Array | Kind::Object) && is_empty(value)
        }
        "modalities" => {
            value.kind() == Kind::Array && value.elements().all(|modality| modality.is("text"))
        }
        "function_call" => value.is("auto") || value.is("none"),
        "seed" | "audio" | "web_search_options" => false,
        _ => return None,
    })
}

/// Whether a number, as it is spelled, is 0.
fn is_zero(number: &[u8]) -> bool {
    let significand = number.split(|byte| matches!(byte, b'e' | b'E')).next();
    significand.is_some_and(|digits| digits.iter().all(|byte| b"-0.".contains(byte)))
}

/// The request for an upstream that speaks Responses. Nothing of it that changes the answer is left out without a word.
///
/// # Errors
/// What the request asks for is beyond such an upstream, or malformed.
pub fn from_chat(request: &Request, target: &ResponsesTarget) -> Result<FromChat, Refusal> {
    let body = request.body();
    let start = skip_space(body, 0);
    let (kind, end) = (Kind::Object, body.len());
    let root = Node::new(body, Value { kind, start, end });

    let mut read = Read::default();
    let mut writer = Writer::with_capacity(body.len() + 256);
    writer.open(b'{');
    let is_sent = |name: &str| !target.omit.iter().any(|omitted| **omitted == *name);
    for (key, value) in root.members() {
        if let Some(slot) = read.slot(key) {
            *slot = (value.kind() != Kind::Null).then_some(value);
            continue;
        }
        let name = key.decode().unwrap_or_default();
        if value.kind() == Kind::Null {
            continue;
        }
        match asks_nothing(&name, value) {
            Some(true) => continue,
            Some(false) => return Err(beyond(&Place::Top(&name))),
            None => {}
        }
        if name == "input" || name == "instructions" {
            return Err(Refusal::new(
                &Place::Top(&name),
                format!("'{name}' belongs to Responses: send 'messages'."),
            ));
        }
        read.has_store |= name == "store";
        if is_sent(&name) {
            writer.copy_member(key.bytes(), value.bytes());
        }
    }
    let place = Place::Top("messages");
    let messages = read.messages.ok_or_else(|| Refusal::missing(&place))?;
    of_kind(messages, Kind::Array, "an array", &place)?;
    writer.key("input");
    let mut items = Items::new(target, &mut writer);
    for (index, message) in messages.elements().enumerate() {
        items.message(message, &place.element(index))?;
    }
    let mut left_out = items.finish();
    if !read.has_store && is_sent("store") {
        writer.member("store", b"false");
    }
    if let Some(tools) = read.tools {
        tools::write_tools(tools, &mut writer)?;
    }
    if let Some(choice) = read.tool_choice {
        writer.key("tool_choice");
        tools::write_choice(choice, &mut writer)?;
    }
    write_text(&read, &mut writer)?;
    write_reasoning(&read, &mut writer)?;
    write_logprobs(&read, &mut writer)?;
    for (name, value) in [
        ("max_completion_tokens", read.max_completion_tokens),
        ("max_tokens", read.max_tokens),
    ] {
        if let Some(value) = value {
            let value = of_kind(value, Kind::Number, "a number", &Place::Top(name))?;
            writer.member("max_output_tokens", value.bytes());
            break;
        }
    }
    if let Some(padding) = read
        .stream_options
        .and_then(|it| it.get("include_obfuscation"))
    {
        writer.key("stream_options");
        writer.open(b'{');
        writer.member("include_obfuscation", padding.bytes());
        writer.close(b'}');
    }
    if read.prediction.is_some() {
        left_out.add("prediction");
    }
    writer.close(b'}');
    Ok(FromChat {
        body: writer.into_bytes().into(),
        left_out: left_out.finish(),
    })
}

/// What an upstream that speaks Responses has no place for.
fn beyond(place: &Place<'_>) -> Refusal {
    Refusal::new(
        place,
        format!("'{place}' can't be used with this model: its upstream speaks Responses."),
    )
}

fn write_text(read: &Read<'_>, writer: &mut Writer) -> Result<(), Refusal> {
    let mut inner = Writer::default();
    if let Some(format) = read.response_format {
        inner.key("format");
        write_format(format, &mut inner)?;
    }
    if let Some(verbosity) = read.verbosity {
        inner.member("verbosity", verbosity.bytes());
    }
    write_object("text", inner, read.text, &["format", "verbosity"], writer)
}

fn write_reasoning(read: &Read<'_>, writer: &mut Writer) -> Result<(), Refusal> {
    let mut inner = Writer::default();
    if let Some(effort) = read.reasoning_effort {
        inner.member("effort", effort.bytes());
    }
    write_object("reasoning", inner, read.reasoning, &["effort"], writer)
}

/// An object made of members that Chat Completions has elsewhere, and of those that the client gave in the object itself.
fn write_object(
    name: &'static str,
    mut inner: Writer,
    own: Option<Node<'_>>,
    said: &[&str],
    writer: &mut Writer,
) -> Result<(), Refusal> {
    let is_said = !inner.is_empty();
    if let Some(own) = own {
        of_kind(own, Kind::Object, "an object", &Place::Top(name))?;
        for (key, value) in own.members() {
            if !is_said || !said.iter().any(|said| key.is(said)) {
                inner.copy_member(key.bytes(), value.bytes());
            }
        }
    }
    if !inner.is_empty() {
        writer.member(name, &[b"{", inner.as_bytes(), b"}"].concat());
    }
    Ok(())
}

fn write_format(format: Node<'_>, writer: &mut Writer) -> Result<(), Refusal> {
    let place = Place::Top("response_format");
    of_kind(format, Kind::Object, "an object", &place)?;
    let [kind, schema] = format.pick(["type", "json_schema"]);
    spelled(kind, &place.member("type"))?;
    let Some(schema) = schema.filter(|_| kind.is_some_and(|kind| kind.is("json_schema"))) else {
        writer.raw(format.bytes());
        return Ok(());
    };
    of_kind(
        schema,
        Kind::Object,
        "an object",
        &place.member("json_schema"),
    )?;
    writer.open(b'{');
    writer.member_spelled("type", b"json_schema");
    for (key, value) in schema.members() {
        if !key.is("type") && value.kind() != Kind::Null {
            writer.copy_member(key.bytes(), value.bytes());
        }
    }
    writer.close(b'}');
    Ok(())
}

fn write_logprobs(read: &Read<'_>, writer: &mut Writer) -> Result<(), Refusal> {
    let place = Place::Top("logprobs");
    let wanted = match read.logprobs {
        Some(wanted) if !matches!(wanted.kind(), Kind::True | Kind::False) => {
            return Err(Refusal::wrong_type(&place, "a boolean", wanted.kind()));
        }
        Some(wanted) => wanted.kind() == Kind::True,
        None => false,
    };
    let own = read.include.filter(|include| include.kind() == Kind::Array);
    if !wanted && own.is_none() {
        return Ok(());
    }
    writer.key("include");
    writer.open(b'[');
    for name in own.iter().flat_map(Node::elements) {
        writer.raw(name.bytes());
    }
    if wanted {
        writer.spelled(b"message.output_text.logprobs");
    }
    writer.close(b']');
    Ok(())
}
