//! A client's request body: what routing needs of it, and the body as one upstream is to have it.
//!
//! The body is checked in one pass against RFC 8259, without building a tree, and never written anew: an edit puts a
//! few bytes in place and leaves all others as they came, unknown members and their order included.

pub mod affinity;
mod estimate;
mod members;

use bytes::Bytes;

use crate::error::{Error, ErrorKind};
use crate::json::node::Node;
use crate::json::scan::{self, Kind, Member, Members, Value};
use crate::json::splice::Splice;
use crate::json::string;
use crate::limits::Limits;
use crate::record;

pub use members::MemberEdits;

/// Times that a member which the gateway reads may occur in one object, 16.
///
/// Parsers differ in which of several equal keys they take, so all are edited, and their places are kept. Nobody sends
/// more than one; a body made of millions of them would cost many times its size.
const MAX_DUPLICATES: usize = 16;

const MODEL: &str = "model";
const STREAM: &str = "stream";
const STREAM_OPTIONS: &str = "stream_options";
const INCLUDE_USAGE: &str = "include_usage";

/// A client's own bound on output tokens, under the names that the interfaces have for it.
const OUTPUT_BOUNDS: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];

/// The end user that the client names.
const USER: &str = "user";

/// Bytes of a user's name that are taken; of a longer one nothing is.
const MAX_USER: usize = 256;

/// What to do about the usage chunk of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageAsk {
    /// Send what the client sent.
    #[default]
    Leave,
    /// Ask for it: `stream_options.include_usage` becomes true, the member's other options stay. Upstreams refuse the
    /// option without `stream: true` (`9router#3081`), so a request that will not stream is left as it is.
    Ask,
    /// Take `stream_options` out, for an upstream that refuses it.
    Remove,
}

/// How a body is to differ for one upstream. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestEdit<'a> {
    /// The upstream's name for the model.
    pub model: Option<&'a str>,
    /// The usage chunk.
    pub usage: UsageAsk,
    /// Whether the upstream is to stream.
    pub stream: Option<bool>,
    /// What else, once these are made.
    pub members: Option<&'a MemberEdits>,
}

/// A client's request body, one JSON object, read once.
///
/// ```
/// use bytes::Bytes;
/// use sluicegate_core::limits::Limits;
/// use sluicegate_core::request::{Request, RequestEdit, UsageAsk};
///
/// let body = Bytes::from_static(br#"{"model": "fast", "stream": true, "temperature": 0.50}"#);
/// let request = Request::parse(body, &Limits::default())?;
/// assert_eq!(request.model(), Some("fast"));
/// let edit = RequestEdit { model: Some("llama-3"), usage: UsageAsk::Ask, ..RequestEdit::default() };
/// assert_eq!(
///     request.edit(&edit),
///     r#"{"model": "llama-3", "stream": true, "temperature": 0.50,"stream_options":{"include_usage":true}}"#
/// );
/// # Ok::<(), sluicegate_core::error::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    body: Bytes,
    model: Option<Box<str>>,
    stream: bool,
    include_usage: bool,
    output_bound: Option<u64>,
    user: Option<Box<str>>,
    models: Vec<Value>,
    streams: Vec<Value>,
    options: Vec<Options>,
    members: usize,
    /// Where a new last member goes.
    end: usize,
}

/// A `stream_options` member and its surroundings.
#[derive(Clone, Debug)]
struct Options {
    value: Value,
    /// The `include_usage` members in it, where it is an object.
    asks: Vec<Value>,
    /// Whether it has any member.
    is_empty: bool,
    /// What to cut to take it out, with one comma, where a member that stays comes before it …
    after_another: std::ops::Range<usize>,
    /// … and where none does.
    before_others: std::ops::Range<usize>,
    has_kept_before: bool,
}

impl Request {
    /// Reads a body. Of `limits`, `max_document` and `max_depth` apply.
    ///
    /// # Errors
    /// - [`ErrorKind::DocumentTooLarge`]; the offset is the bound.
    /// - A fault against JSON's grammar: [`UnexpectedEnd`](ErrorKind::UnexpectedEnd),
    ///   [`UnexpectedByte`](ErrorKind::UnexpectedByte), [`InvalidUtf8`](ErrorKind::InvalidUtf8),
    ///   [`TooDeep`](ErrorKind::TooDeep), [`TrailingBytes`](ErrorKind::TrailingBytes).
    /// - [`ErrorKind::NotAnObject`] for JSON of another kind.
    /// - [`ErrorKind::WrongType`] for a `stream` that is neither a boolean nor null.
    /// - [`ErrorKind::TooManyDuplicates`] for a member that is read and occurs more than 16 times.
    pub fn parse(body: Bytes, limits: &Limits) -> Result<Self, Error> {
        Request::read(body, limits, |_, _| Ok(()))
    }

    /// The whole body.
    pub(crate) fn root(&self) -> Node<'_> {
        let start = scan::skip_space(&self.body, 0);
        let (kind, end) = (Kind::Object, self.body.len());
        Node::new(&self.body, Value { kind, start, end })
    }

    /// [`parse`](Self::parse), showing each member of the body to `visit` on the way.
    pub(crate) fn read(
        body: Bytes,
        limits: &Limits,
        mut visit: impl FnMut(&[u8], Member) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        if body.len() > limits.max_document {
            let offset = limits.max_document as u64;
            return Err(Error::new(ErrorKind::DocumentTooLarge, offset));
        }
        let start = scan::skip_space(&body, 0);
        if body.get(start) != Some(&b'{') {
            let value = scan::document(&body, limits.max_depth)?;
            return Err(Error::new(ErrorKind::NotAnObject, value.start as u64));
        }
        let mut request = Request {
            body: body.clone(),
            model: None,
            stream: false,
            include_usage: false,
            output_bound: None,
            user: None,
            models: Vec::new(),
            streams: Vec::new(),
            options: Vec::new(),
            members: 0,
            end: start + 1,
        };
        for member in Members::document(&body, limits.max_depth)? {
            let member = member?;
            request.add(member, limits.max_depth)?;
            visit(&body, member)?;
        }
        Ok(request)
    }

    fn add(&mut self, member: Member, max_depth: usize) -> Result<(), Error> {
        let body = self.body.clone();
        self.leave_behind_first_members(member.key.start);
        let Member { key, value } = member;
        if member.key_is(&body, MODEL) {
            push_bounded(&mut self.models, value, key)?;
            self.model = value.decode(&body).map(|name| record::cut(&name).into());
        } else if member.key_is(&body, STREAM) {
            push_bounded(&mut self.streams, value, key)?;
            self.stream = match value.kind {
                Kind::True => true,
                Kind::False | Kind::Null => false,
                _ => return Err(Error::new(ErrorKind::WrongType, value.start as u64)),
            };
        } else if member.key_is(&body, STREAM_OPTIONS) {
            let options = self.read_options(member, max_depth)?;
            self.include_usage = options
                .asks
                .last()
                .is_some_and(|ask| ask.kind == Kind::True);
            push_bounded(&mut self.options, options, key)?;
        } else if value.kind == Kind::Number
            && OUTPUT_BOUNDS.iter().any(|name| member.key_is(&body, name))
        {
            let digits = std::str::from_utf8(value.bytes(&body)).unwrap_or_default();
            self.output_bound = self.output_bound.max(digits.parse().ok());
        } else if value.kind == Kind::String && member.key_is(&body, USER) {
            let user = (value.end - value.start <= MAX_USER).then(|| value.decode(&body));
            self.user = user.flatten().map(|user| user.into());
        }
        self.members += 1;
        self.end = value.end;
        Ok(())
    }

    /// The next member begins at `start`: a `stream_options` member in front of it, with none before that stays, is cut
    /// up to there.
    fn leave_behind_first_members(&mut self, start: usize) {
        if let Some(last) = self.options.last_mut()
            && last.value.end == self.end
        {
            last.before_others.end = start;
        }
    }

    fn read_options(&self, member: Member, max_depth: usize) -> Result<Options, Error> {
        let Member { key, value } = member;
        let mut asks = Vec::new();
        let mut is_empty = true;
        if value.kind == Kind::Object {
            for member in Members::at(&self.body, value.start, max_depth)? {
                let member = member?;
                is_empty = false;
                if member.key_is(&self.body, INCLUDE_USAGE) {
                    push_bounded(&mut asks, member.value, member.key)?;
                }
            }
        }
        Ok(Options {
            value,
            asks,
            is_empty,
            after_another: self.end..value.end,
            before_others: key.start..value.end,
            has_kept_before: self.members > self.options.len(),
        })
    }

    /// The `model` member, decoded; of several, the last. None where it is absent or no string. [Cut](record::cut)
    /// where it is longer than any model's name.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The `stream` member; of several, the last. False where it is absent or null.
    #[must_use]
    pub fn stream(&self) -> bool {
        self.stream
    }

    /// Whether there is a `stream` member.
    #[must_use]
    pub fn says_stream(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Whether the client asks for a usage chunk: `stream_options.include_usage` is true.
    #[must_use]
    pub fn include_usage(&self) -> bool {
        self.include_usage
    }

    /// The client's bound on output tokens: the largest of those that it names. None where it names none as a whole
    /// number.
    #[must_use]
    pub fn output_bound(&self) -> Option<u64> {
        self.output_bound
    }

    /// The `user` member, decoded; of several, the last. None where it is absent, no string, or longer than 256 bytes.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The body as it came.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The body for one upstream: valid JSON, with every byte that `edit` does not name as it came. All members of a
    /// name are edited where there are several; a missing one is added at the object's end. A body that stays as it is
    /// is not copied.
    ///
    /// A `stream_options` that is neither an object nor null is the client's fault and left for the upstream to refuse.
    #[must_use]
    pub fn edit(&self, edit: &RequestEdit<'_>) -> Bytes {
        let mut splice = Splice::new();
        let mut added = Vec::new();
        if let Some(model) = edit.model {
            self.set_model(model, &mut splice, &mut added);
        }
        if let Some(stream) = edit.stream {
            self.set_stream(stream, &mut splice, &mut added);
        }
        let mut members = self.members;
        match edit.usage {
            UsageAsk::Leave => {}
            UsageAsk::Ask => {
                if edit.stream.unwrap_or(self.stream) {
                    self.ask_usage(&mut splice, &mut added);
                }
            }
            UsageAsk::Remove => {
                for options in &self.options {
                    let cut = if options.has_kept_before {
                        &options.after_another
                    } else {
                        &options.before_others
                    };
                    splice.replace(cut.clone(), Bytes::new());
                }
                members -= self.options.len();
            }
        }
        if !added.is_empty() {
            let comma = if members > 0 { "," } else { "" };
            splice.insert(self.end, [comma, &added.join(",")].concat());
        }
        let edited = if splice.is_empty() {
            self.body.clone()
        } else {
            let inserted: usize = splice.edits().map(|(_, with)| with.len()).sum();
            let mut edited = Vec::with_capacity(self.body.len() + inserted);
            splice.apply(&self.body, &mut edited);
            edited.into()
        };
        match edit.members {
            Some(members) => members.apply(&edited),
            None => edited,
        }
    }

    fn set_model(&self, model: &str, splice: &mut Splice, added: &mut Vec<String>) {
        let mut encoded = Vec::with_capacity(model.len() + 2);
        string::encode(model, &mut encoded);
        let encoded = Bytes::from(encoded);
        for value in &self.models {
            if value.bytes(&self.body) != encoded {
                splice.replace(value.range(), encoded.clone());
            }
        }
        if self.models.is_empty() {
            added.push(format!("\"{MODEL}\":{}", String::from_utf8_lossy(&encoded)));
        }
    }

    fn set_stream(&self, stream: bool, splice: &mut Splice, added: &mut Vec<String>) {
        let (kind, text) = if stream {
            (Kind::True, "true")
        } else {
            (Kind::False, "false")
        };
        for value in self.streams.iter().filter(|value| value.kind != kind) {
            splice.replace(value.range(), text);
        }
        if self.streams.is_empty() {
            added.push(format!("\"{STREAM}\":{text}"));
        }
    }

    fn ask_usage(&self, splice: &mut Splice, added: &mut Vec<String>) {
        for options in &self.options {
            match options.value.kind {
                Kind::Object => {
                    for ask in options.asks.iter().filter(|ask| ask.kind != Kind::True) {
                        splice.replace(ask.range(), "true");
                    }
                    if options.asks.is_empty() {
                        let comma = if options.is_empty { "" } else { "," };
                        let text = format!("{comma}\"{INCLUDE_USAGE}\":true");
                        splice.insert(options.value.end - 1, text);
                    }
                }
                Kind::Null => {
                    let text = format!("{{\"{INCLUDE_USAGE}\":true}}");
                    splice.replace(options.value.range(), text);
                }
                _ => {}
            }
        }
        if self.options.is_empty() {
            added.push(format!("\"{STREAM_OPTIONS}\":{{\"{INCLUDE_USAGE}\":true}}"));
        }
    }
}

fn push_bounded<T>(list: &mut Vec<T>, value: T, key: Value) -> Result<(), Error> {
    if list.len() >= MAX_DUPLICATES {
        return Err(Error::new(ErrorKind::TooManyDuplicates, key.start as u64));
    }
    list.push(value);
    Ok(())
}

#[cfg(test)]
mod tests;
