//! Pieces of output → the chunks of a chat completion, or the completion alone.
//!
//! The form is OpenAI's, which strict clients check: the role in the first chunk, `index`, `id`, `type` and name in a
//! call's first delta, one finish chunk, a usage chunk without choices if the client asked for one, `[DONE]`. What has
//! no place there is left out: hosted tools' items, and where messages begin and end, which become one content.
//!
//! Annotations wait for the end and come in one delta. The OpenAI SDK's accumulating helper refuses a second list
//! without indices (openai-python `_deltas.py`), and their places count letters of the whole content, of which the
//! upstream may have had several parts.

mod calls;
mod usage_object;

use crate::api::{Api, DONE};
use crate::json::fields::compact;
use crate::json::node::Node;
use crate::json::scan;
use crate::json::string;
use crate::limits::{Limits, MAX_DEPTH};
use crate::output::spelled::note_first;
use crate::output::{
    Annotation, Ending, Failure, Finish, Head, Piece, Reason, Reasoning, Sealed, Spelled, Spent,
    Text, Writer,
};
use crate::protocols::chat::fold::ChatFold;

use calls::Calls;

/// What the client asked for.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// It wants an event stream; otherwise the completion is written when it ends, as a JSON object.
    pub streams: bool,
    /// It wants a usage chunk. A completion has its usage in any case.
    pub include_usage: bool,
    /// Shown instead of the upstream's model.
    pub model: Option<Box<str>>,
    /// Seconds since 1970, used where the upstream does not give its own time in time.
    pub created: Option<u64>,
}

/// Writes one chat completion.
///
/// ```
/// use sluicegate_core::protocols::chat::writing::{ChatWriter, Written};
/// use sluicegate_core::limits::Limits;
/// use sluicegate_core::output::{Ending, Finish, Head, Piece, Reason, Text, Writer};
///
/// let asked = Written { streams: true, ..Written::default() };
/// let mut writer = ChatWriter::new(asked, Limits::default());
/// let mut stream = Vec::new();
/// let head = Head { id: Some(b"r"), model: Some(b"m"), created: Some(b"7"), ..Head::default() };
/// writer.write(&Piece::Head(head), &mut stream);
/// writer.write(&Piece::Text(Text { text: b"Hi", ..Text::default() }), &mut stream);
/// writer.write(&Piece::Finish(Finish::of(Reason::Stop)), &mut stream);
/// writer.end(Ending::Regular, None, None, &mut stream);
/// let head = r#"{"id":"r","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":"#;
/// assert_eq!(String::from_utf8(stream).unwrap(), [
///     format!("data: {head}{{\"role\":\"assistant\",\"content\":\"\"}},\"finish_reason\":null}}]}}\n\n"),
///     format!("data: {head}{{\"content\":\"Hi\"}},\"finish_reason\":null}}]}}\n\n"),
///     format!("data: {head}{{}},\"finish_reason\":\"stop\"}}]}}\n\n"),
///     "data: [DONE]\n\n".to_owned(),
/// ].concat());
/// ```
#[derive(Debug)]
pub struct ChatWriter {
    asked: Written,
    chunks: Chunks,
    calls: Calls,
    /// Annotations, each with a comma before it.
    annotations: Vec<u8>,
    /// Letters of the content, and how many there were before its present part.
    letters: u64,
    part_starts: u64,
    /// A summary has been written; the next one begins a new paragraph.
    summed_up: bool,
    paragraph: bool,
    /// Readable reasoning that may still be signed.
    thought: Vec<u8>,
    /// Pieces of sealed reasoning.
    sealed: u64,
    finish: Option<Stopped>,
    begun: bool,
    ended: bool,
}

/// Why the model stopped, kept for the end.
#[derive(Debug, Default)]
struct Stopped {
    reason: Reason,
    word: Vec<u8>,
    sequence: Option<Vec<u8>>,
    explanation: Option<Vec<u8>>,
}

impl Stopped {
    fn at(finish: &Finish<'_>) -> Self {
        let refused = finish.reason == Reason::Filter;
        let explanation = finish.explanation().filter(|_| refused);
        Stopped {
            reason: finish.reason,
            word: finish.word.to_vec(),
            sequence: finish.sequence.map(<[u8]>::to_vec),
            explanation: explanation.map(<[u8]>::to_vec),
        }
    }
}

/// Writes chunks, or puts them together.
#[derive(Debug)]
struct Chunks {
    id: Vec<u8>,
    created: Vec<u8>,
    model: Vec<u8>,
    service_tier: Vec<u8>,
    /// The members of each chunk before its choices.
    head: Vec<u8>,
    /// All of it is known.
    is_settled: bool,
    /// The members of each chunk behind its choices.
    tail: &'static [u8],
    fold: Option<ChatFold>,
    chunk: Vec<u8>,
}

impl ChatWriter {
    /// A writer for one completion. `limits.max_document` bounds a completion that is not streamed.
    #[must_use]
    pub fn new(asked: Written, limits: Limits) -> Self {
        ChatWriter {
            chunks: Chunks {
                id: Vec::new(),
                created: Vec::new(),
                model: Vec::new(),
                service_tier: Vec::new(),
                head: Vec::new(),
                is_settled: false,
                tail: if asked.include_usage && asked.streams {
                    b",\"usage\":null"
                } else {
                    b""
                },
                fold: (!asked.streams).then(|| ChatFold::new(limits)),
                chunk: Vec::new(),
            },
            asked,
            calls: Calls::default(),
            annotations: Vec::new(),
            letters: 0,
            part_starts: 0,
            summed_up: false,
            paragraph: false,
            thought: Vec::new(),
            sealed: 0,
            finish: None,
            begun: false,
            ended: false,
        }
    }

    fn note_head(&mut self, head: &Head<'_>) {
        let chunks = &mut self.chunks;
        note_first(&mut chunks.id, head.id);
        note_first(&mut chunks.model, head.model);
        note_first(&mut chunks.service_tier, head.service_tier);
        // Seconds with a fraction (transformers) are none here.
        let whole = |seconds: &&[u8]| !seconds.is_empty() && seconds.iter().all(u8::is_ascii_digit);
        let seconds = head
            .created
            .and_then(|number| number.split(|byte| *byte == b'.').next());
        note_first(&mut chunks.created, seconds.filter(whole));
        // llama.cpp sends with its last event what others send with the first.
        if self.begun && !chunks.is_settled {
            chunks.settle_head(&self.asked);
        }
    }

    /// The first chunk, with the role.
    fn begin(&mut self, speaks: bool, out: &mut Vec<u8>) {
        if self.begun {
            return;
        }
        self.begun = true;
        self.chunks.settle_head(&self.asked);
        let delta: &[u8] = if speaks {
            b"\"role\":\"assistant\",\"content\":\"\""
        } else {
            b"\"role\":\"assistant\",\"content\":null"
        };
        self.chunks.delta(&[delta], None, out);
    }

    fn think(&mut self, reasoning: Reasoning<'_>, out: &mut Vec<u8>) {
        match reasoning {
            Reasoning::Text(text) => {
                self.thought.extend_from_slice(text);
                self.say("reasoning_content", text, None, out);
            }
            Reasoning::Summary(text) => {
                if text.is_empty() {
                    return;
                }
                if std::mem::take(&mut self.paragraph) {
                    self.say("reasoning_content", b"\\n\\n", None, out);
                }
                self.summed_up = true;
                self.say("reasoning_content", text, None, out);
            }
            Reasoning::Sealed(sealed) => self.seal(&sealed, out),
        }
    }

    /// Reasoning that has to come back, in OpenRouter's form: each piece whole, since accumulating clients join the
    /// strings of deltas. An item of the Responses interface comes back whole or not at all.
    fn seal(&mut self, sealed: &Sealed<'_>, out: &mut Vec<u8>) {
        let index = self.sealed.to_string();
        self.sealed += 1;
        let thought = std::mem::take(&mut self.thought);
        if sealed.api == Api::Chat {
            let mut detail = Vec::new();
            sealed.whole(&thought, &mut detail);
            return self
                .chunks
                .delta(&[b"\"reasoning_details\":[", &detail, b"]"], None, out);
        }
        let wrapped;
        let content: &[&[u8]] = if sealed.signs_text {
            &[
                b"reasoning.text\",\"text\":\"",
                &thought,
                b"\",\"signature\":\"",
                sealed.data,
            ]
        } else {
            let data = match sealed.api {
                Api::Responses => {
                    wrapped = sealed.wrapped();
                    &wrapped
                }
                _ => sealed.data,
            };
            &[b"reasoning.encrypted\",\"data\":\"", data]
        };
        let format: &[u8] = match sealed.api {
            Api::Messages => b"\",\"format\":\"anthropic-claude-v1",
            _ => b"",
        };
        let content = content.concat();
        let parts: [&[u8]; 6] = [
            b"\"reasoning_details\":[{\"type\":\"",
            &content,
            format,
            b"\",\"index\":",
            index.as_bytes(),
            b"}]",
        ];
        self.chunks.delta(&parts, None, out);
    }

    fn say(&mut self, member: &str, text: Spelled<'_>, logprobs: Option<&[u8]>, out: &mut Vec<u8>) {
        if text.is_empty() && logprobs.is_none() {
            return;
        }
        let parts: [&[u8]; 5] = [b"\"", member.as_bytes(), b"\":\"", text, b"\""];
        self.chunks.delta(&parts, logprobs, out);
    }

    fn speak(&mut self, text: &Text<'_>, out: &mut Vec<u8>) {
        self.say("content", text.text, text.logprobs, out);
        self.letters += letters(text.text);
    }

    /// Keeps an annotation that chat has a form for: a link.
    fn annotate(&mut self, annotation: &Annotation<'_>) {
        let Some(object) = annotation.known_to_openai() else {
            return;
        };
        let Ok(value) = scan::document(&object, MAX_DEPTH) else {
            return;
        };
        let annotation = Node::new(&object, value);
        if !annotation
            .get("type")
            .is_some_and(|value| value.is("url_citation"))
        {
            return;
        }
        let out = &mut self.annotations;
        out.extend_from_slice(b",{\"type\":\"url_citation\",\"url_citation\":");
        // As chat has it, it comes from a chat upstream.
        if let Some(inner) = annotation.get("url_citation") {
            compact(inner.bytes(), out);
            out.push(b'}');
            return;
        }
        let mut separator = b'{';
        for (key, value) in annotation.members() {
            if key.is("type") {
                continue;
            }
            out.push(separator);
            separator = b',';
            out.extend_from_slice(key.bytes());
            out.push(b':');
            let place = value
                .as_u64()
                .filter(|_| key.is("start_index") || key.is("end_index"));
            match place {
                Some(place) => {
                    let place = place.saturating_add(self.part_starts);
                    out.extend_from_slice(place.to_string().as_bytes());
                }
                None => compact(value.bytes(), out),
            }
        }
        if separator == b'{' {
            out.push(b'{');
        }
        out.extend_from_slice(b"}}");
    }

    fn finish(&mut self, spent: Option<Spent<'_>>, out: &mut Vec<u8>) {
        self.begin(true, out);
        self.calls.end(&mut self.chunks, out);
        let annotations = std::mem::take(&mut self.annotations);
        if let Some(annotations) = annotations.strip_prefix(b",") {
            self.chunks
                .delta(&[b"\"annotations\":[", annotations, b"]"], None, out);
        }
        let finish = self.finish.take().unwrap_or_default();
        if let Some(explanation) = &finish.explanation {
            self.say("refusal", explanation, None, out);
        }
        let word: &[u8] = match finish.reason {
            // A reply with calls asks for their results, whatever the upstream thinks (Gemini; Responses has no word
            // for it).
            Reason::Stop if !self.calls.is_empty() => b"tool_calls",
            Reason::Stop | Reason::Sequence | Reason::Pause => b"stop",
            Reason::Other if finish.word.is_empty() => b"stop",
            Reason::Calls => b"tool_calls",
            Reason::Length | Reason::Context => b"length",
            Reason::Filter => b"content_filter",
            Reason::Failed => b"error",
            Reason::Other => &finish.word,
        };
        let mut choice = vec![&b"\"delta\":{},\"finish_reason\":\""[..], word, b"\""];
        // As vLLM says at which text it stopped.
        if let Some(sequence) = &finish.sequence {
            choice.extend([&b",\"stop_reason\":\""[..], sequence, b"\""]);
        }
        self.chunks.choice(&choice, out);
        if let Some(spent) = spent.filter(|_| self.asked.include_usage || !self.asked.streams) {
            let mut usage = b",\"usage\":".to_vec();
            usage_object::write(spent, &mut usage);
            self.chunks.last(&usage, out);
        }
        match self.chunks.fold.take() {
            // A fold that failed was too large; `held` reports that.
            Some(fold) => out.extend_from_slice(&fold.finish().unwrap_or_default()),
            None => out.extend_from_slice(DONE),
        }
    }

    fn fail(&mut self, failure: Failure<'_>, out: &mut Vec<u8>) {
        let streams = self.chunks.fold.is_none();
        if streams {
            out.extend_from_slice(b"data: ");
        }
        let word = |word: Option<&str>, out: &mut Vec<u8>| match word {
            Some(word) => string::encode(word, out),
            None => out.extend_from_slice(b"null"),
        };
        out.extend_from_slice(b"{\"error\":{\"message\":");
        string::encode(failure.message, out);
        out.extend_from_slice(b",\"type\":");
        word(failure.kind, out);
        out.extend_from_slice(b",\"code\":");
        word(failure.code, out);
        out.extend_from_slice(b",\"param\":null}}");
        if streams {
            out.extend_from_slice(b"\n\n");
        }
    }
}

impl Writer for ChatWriter {
    fn write(&mut self, piece: &Piece<'_>, out: &mut Vec<u8>) {
        if self.ended {
            return;
        }
        match piece {
            Piece::Head(head) => return self.note_head(head),
            Piece::Item(_) | Piece::Part | Piece::Break => {
                // Parts of calls come call by call: accumulating clients take one for whole when the next begins.
                if matches!(piece, Piece::Break) {
                    self.calls.end(&mut self.chunks, out);
                }
                self.part_starts = self.letters;
                self.paragraph = self.summed_up;
                self.thought.clear();
                return;
            }
            Piece::Finish(finish) => {
                self.finish.get_or_insert_with(|| Stopped::at(finish));
                return;
            }
            Piece::Annotation(object) => return self.annotate(object),
            _ => self.begin(matches!(piece, Piece::Text(_)), out),
        }
        if !matches!(piece, Piece::Reasoning(Reasoning::Summary(_))) {
            self.paragraph = self.summed_up;
        }
        if !matches!(piece, Piece::Text(_)) {
            self.part_starts = self.letters;
        }
        match piece {
            Piece::Reasoning(reasoning) => self.think(*reasoning, out),
            Piece::Text(text) => self.speak(text, out),
            Piece::Refusal(text) => self.say("refusal", text, None, out),
            Piece::Call(call) => self.calls.push(call, &mut self.chunks, out),
            _ => {}
        }
    }

    fn end(
        &mut self,
        ending: Ending<'_>,
        spent: Option<Spent<'_>>,
        _now: Option<u64>,
        out: &mut Vec<u8>,
    ) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        match ending {
            Ending::Regular => self.finish(spent, out),
            Ending::Failed(failure) => self.fail(failure, out),
        }
    }

    fn held(&self) -> usize {
        let fold = self.chunks.fold.as_ref().map_or(0, ChatFold::held);
        fold + self.annotations.len() + self.thought.len() + self.calls.held()
    }
}

impl Chunks {
    /// Where the next chunk is written, with its head.
    fn begin_chunk<'a>(&'a mut self, out: &'a mut Vec<u8>) -> &'a mut Vec<u8> {
        let chunk = if self.fold.is_some() {
            self.chunk.clear();
            &mut self.chunk
        } else {
            out.extend_from_slice(b"data: ");
            out
        };
        chunk.extend_from_slice(&self.head);
        chunk
    }

    fn end_chunk(&mut self, out: &mut Vec<u8>) {
        match &mut self.fold {
            Some(fold) => {
                self.chunk.push(b'}');
                // What goes wrong is that it becomes too large, and that stays known.
                let _ = fold.push(&self.chunk);
            }
            None => out.extend_from_slice(b"}\n\n"),
        }
    }

    fn settle_head(&mut self, asked: &Written) {
        let created = asked.created.unwrap_or(0).to_string();
        let or = |known: &[u8], other: &[u8], head: &mut Vec<u8>| {
            head.extend_from_slice(if known.is_empty() { other } else { known });
        };
        let known = [&self.id, &self.created, &self.model];
        self.is_settled = known.iter().all(|member| !member.is_empty());
        let head = &mut self.head;
        head.clear();
        head.extend_from_slice(b"{\"id\":\"");
        or(&self.id, b"chatcmpl-0", head);
        head.extend_from_slice(b"\",\"object\":\"chat.completion.chunk\",\"created\":");
        or(&self.created, created.as_bytes(), head);
        head.extend_from_slice(b",\"model\":\"");
        match &asked.model {
            Some(model) => string::spell(model, head),
            None => head.extend_from_slice(&self.model),
        }
        head.push(b'"');
        if !self.service_tier.is_empty() {
            head.extend_from_slice(b",\"service_tier\":\"");
            head.extend_from_slice(&self.service_tier);
            head.push(b'"');
        }
        head.extend_from_slice(b",\"choices\":[");
    }

    /// A chunk with `delta`.
    fn delta(&mut self, delta: &[&[u8]], logprobs: Option<&[u8]>, out: &mut Vec<u8>) {
        let tail = self.tail;
        let chunk = self.begin_chunk(out);
        chunk.extend_from_slice(b"{\"index\":0,\"delta\":{");
        for part in delta {
            chunk.extend_from_slice(part);
        }
        chunk.push(b'}');
        if let Some(logprobs) = logprobs {
            chunk.extend_from_slice(b",\"logprobs\":{\"content\":");
            compact(logprobs, chunk);
            chunk.extend_from_slice(b",\"refusal\":null}");
        }
        chunk.extend_from_slice(b",\"finish_reason\":null}]");
        chunk.extend_from_slice(tail);
        self.end_chunk(out);
    }

    /// A chunk with a choice of these members.
    fn choice(&mut self, members: &[&[u8]], out: &mut Vec<u8>) {
        let tail = self.tail;
        let chunk = self.begin_chunk(out);
        chunk.extend_from_slice(b"{\"index\":0,");
        for part in members {
            chunk.extend_from_slice(part);
        }
        chunk.extend_from_slice(b"}]");
        chunk.extend_from_slice(tail);
        self.end_chunk(out);
    }

    /// The chunk without choices.
    fn last(&mut self, members: &[u8], out: &mut Vec<u8>) {
        let chunk = self.begin_chunk(out);
        chunk.push(b']');
        chunk.extend_from_slice(members);
        self.end_chunk(out);
    }
}

/// Letters of spelled text, as Unicode counts them; half a surrogate pair is half a letter, and the other half is the
/// rest of it.
fn letters(text: &[u8]) -> u64 {
    let mut letters = 0;
    let mut rest = text;
    loop {
        let plain = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
        let (before, escape) = rest.split_at_checked(plain).unwrap_or((rest, &[]));
        letters += before.iter().filter(|byte| (**byte & 0xC0) != 0x80).count() as u64;
        rest = match escape {
            [] => return letters,
            [
                b'\\',
                b'u',
                b'd' | b'D',
                b'c'..=b'f' | b'C'..=b'F',
                _,
                _,
                rest @ ..,
            ] => rest,
            [b'\\', b'u', _, _, _, _, rest @ ..] | [b'\\', _, rest @ ..] => {
                letters += 1;
                rest
            }
            [_, rest @ ..] => rest,
        };
    }
}

#[cfg(test)]
mod tests;
