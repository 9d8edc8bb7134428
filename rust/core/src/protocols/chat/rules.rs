//! How a member that several chunks of a stream carry is joined: one table for all members.
//!
//! Each member has its own rule: text is appended, the first id is kept, a count is replaced by a newer one. Of a
//! member that the table does not name, the last value that is neither null nor empty is kept (`Join::Last`). That
//! holds for unknown strings as well: most are labels that are repeated with each delta (Groq's `channel`), and a label
//! appended to itself is worse than a text of which only the end is kept.

use super::delta::DeltaMember;

/// Where in a chunk a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// The chunk itself.
    Chunk,
    /// An element of `choices`.
    Choice,
    /// A choice's `delta`, which becomes its `message`.
    Message,
    /// A choice's `logprobs`.
    Logprobs,
    /// A message's `audio`.
    Audio,
    /// An element of `tool_calls`.
    Call,
    /// A call's `function` or `custom`, and a message's `function_call`.
    Function,
    /// A typed part: an element of a `content` that is an array, of `reasoning_details`, of `thinking_blocks`.
    Part,
    /// A typed part inside a part (Mistral's `{"type":"thinking","thinking":[…]}`).
    InnerPart,
}

/// How the values that chunks give for one member are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// The first value that is not `null`, `0` or empty stays.
    First,
    /// The last value stays, but `null` never replaces anything, an empty value only `null` or an empty one.
    Last,
    /// Strings are appended.
    Text,
    /// Strings of base64 are joined into one.
    Base64,
    /// Strings are appended, unless a chunk repeats the whole name.
    Name,
    /// Arrays are concatenated.
    List,
    /// Arrays of typed parts are concatenated; a part that goes on with the part before is merged into it.
    Parts,
    /// Either text or typed parts (Mistral changes from one to the other inside a stream).
    Content,
    /// Objects are merged member by member.
    Object(Level),
    /// Left out.
    Drop,
}

impl Level {
    /// How values of the member `key` are joined on this level. `key` is the key between its quotes.
    pub(super) fn join(self, key: &[u8]) -> Join {
        match self {
            Level::Chunk => match key {
                // Azure's first chunk has an empty id, model and creation time.
                b"id" | b"created" | b"model" => Join::First,
                // OpenAI's padding against guessing at lengths; a reply that is not streamed has none.
                b"obfuscation" => Join::Drop,
                _ => Join::Last,
            },
            Level::Choice => match key {
                // Ollama has sent "", OpenRouter sends the finish twice (ollama#4357, qwen-code#2402).
                b"finish_reason" | b"native_finish_reason" => Join::First,
                b"text" => Join::Text,
                b"logprobs" => Join::Object(Level::Logprobs),
                b"token_ids" => Join::List,
                _ => Join::Last,
            },
            Level::Message => match DeltaMember::of(key) {
                Some(DeltaMember::Content) => Join::Content,
                // Of several names of one thing each is kept as it came.
                Some(DeltaMember::Reasoning(_) | DeltaMember::Refusal) => Join::Text,
                Some(DeltaMember::ReasoningParts) => Join::Parts,
                Some(DeltaMember::FunctionCall) => Join::Object(Level::Function),
                Some(DeltaMember::Media | DeltaMember::Calls) | None => match key {
                    b"role" => Join::First,
                    b"annotations" | b"images" | b"token_ids" => Join::List,
                    b"audio" => Join::Object(Level::Audio),
                    _ => Join::Last,
                },
            },
            Level::Logprobs => match key {
                b"content" | b"refusal" => Join::List,
                // The form of `/v1/completions`.
                b"tokens" | b"token_logprobs" | b"top_logprobs" | b"text_offset" => Join::List,
                _ => Join::Last,
            },
            Level::Audio => match key {
                b"data" => Join::Base64,
                b"transcript" => Join::Text,
                _ => Join::Last,
            },
            Level::Call => match key {
                // A call's index is its place in the list.
                b"index" => Join::Drop,
                b"id" | b"type" => Join::First,
                b"function" | b"custom" => Join::Object(Level::Function),
                _ => Join::Last,
            },
            Level::Function => match key {
                b"name" => Join::Name,
                b"arguments" | b"input" => Join::Text,
                _ => Join::Last,
            },
            Level::Part => match key {
                b"type" => Join::First,
                b"text" | b"summary" => Join::Text,
                b"thinking" => Join::Content,
                _ => Join::Last,
            },
            // No further parts inside: the depth of what is merged stays fixed.
            Level::InnerPart => match key {
                b"type" => Join::First,
                b"text" => Join::Text,
                _ => Join::Last,
            },
        }
    }

    /// The level of the parts in a list of parts that is a member of this level.
    pub(super) const fn parts(self) -> Level {
        match self {
            Level::Part | Level::InnerPart => Level::InnerPart,
            _ => Level::Part,
        }
    }
}
