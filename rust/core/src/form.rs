//! `multipart/form-data` (RFC 7578), scanned as it comes: which model a form asks for, and where its name stands.
//!
//! The parts are not taken apart: what goes to the upstream is the client's bytes with another name in one place. A
//! parser that gives parts and not places would have the form written anew. What two readers could take in two ways (a
//! second `model`, a boundary that is not alone on its line, a part without one plain name) is refused, so that the
//! upstream cannot read another form than the one that was admitted.

use std::ops::Range;

use memchr::memmem::Finder;

/// Bytes of a boundary, 70 (RFC 2046, section 5.1.1).
const MAX_BOUNDARY: usize = 70;

/// Parts of a form, 256. The richest request, an edit of images, has some thirty.
const MAX_PARTS: usize = 256;

/// Bytes of a part's headers, 4 KiB: a file's name has at most 255 on most systems, three times that where it is
/// escaped.
const MAX_HEAD: usize = 4 << 10;

/// Bytes of a field that is read, 1 KiB.
const MAX_VALUE: usize = 1 << 10;

/// Why a form is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormFault {
    /// The `Content-Type` is not `multipart/form-data` with one plain boundary.
    ContentType,
    /// It breaks the grammar of forms.
    Malformed,
    /// It ends before its last boundary.
    Incomplete,
    /// It has more parts than anyone has a reason for.
    TooManyParts,
    /// A part's headers are larger than anyone has a reason for.
    LargeHead,
    /// `model` or `stream` is larger than anyone has a reason for, or no text.
    LargeValue,
    /// It has `model` or `stream` twice.
    Twice,
}

impl FormFault {
    /// A sentence for people.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            FormFault::ContentType => {
                "the request must be multipart/form-data with one boundary of at most 70 characters"
            }
            FormFault::Malformed => "the form is not multipart/form-data as RFC 7578 has it",
            FormFault::Incomplete => "the form ends before its last boundary",
            FormFault::TooManyParts => "the form has more than 256 parts",
            FormFault::LargeHead => "the headers of a part of the form are larger than 4096 bytes",
            FormFault::LargeValue => {
                "the form's model or stream is larger than 1024 bytes, or no text"
            }
            FormFault::Twice => "the form has its model, or stream, more than once",
        }
    }
}

/// What a form has said so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// The field `model`.
    pub model: Option<Box<str>>,
    /// Where its value stands, in bytes from the form's beginning.
    pub model_at: Range<usize>,
    /// The field `stream` is true.
    pub stream: bool,
    /// Its last boundary has come.
    pub ended: bool,
}

/// Reads a form, in whatever pieces it comes, in linear time and little memory.
///
/// ```
/// use sluicegate_core::form::FormScanner;
///
/// let mut scanner = FormScanner::new(b"multipart/form-data; boundary=b").unwrap();
/// let form = b"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--b--\r\n";
/// for piece in form.chunks(7) {
///     scanner.feed(piece).unwrap();
/// }
/// assert_eq!(scanner.form().model.as_deref(), Some("whisper-1"));
/// assert_eq!(&form[scanner.form().model_at.clone()], b"whisper-1");
/// assert!(scanner.finish().is_ok());
/// ```
pub struct FormScanner {
    /// Of `--boundary`.
    finder: Finder<'static>,
    form: Form,
    state: State,
    /// What was fed and not passed over yet; bounded by the largest of the constants.
    held: Vec<u8>,
    /// Bytes of the form before `held`.
    passed: usize,
    parts: usize,
    streams: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The first boundary is to come.
    Start,
    /// Behind a boundary.
    Boundary,
    /// In a part's headers.
    Head,
    /// In a part's content.
    Content(Field),
    /// Behind the last boundary.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Model,
    Stream,
    /// Nothing that is read here.
    Other,
}

/// More is needed.
struct More;

impl FormScanner {
    /// For a form with this `Content-Type`.
    ///
    /// # Errors
    /// It is no form's.
    pub fn new(content_type: &[u8]) -> Result<Self, FormFault> {
        let (kind, parameters) = parameters(content_type).ok_or(FormFault::ContentType)?;
        let mut boundaries = parameters
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(b"boundary"));
        let boundary = boundaries.next().map(|(_, value)| value);
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(byte);
        match boundary {
            Some(boundary)
                if kind.eq_ignore_ascii_case(b"multipart/form-data")
                    && boundaries.next().is_none()
                    && (1..=MAX_BOUNDARY).contains(&boundary.len())
                    && boundary.iter().all(is_plain)
                    && !boundary.ends_with(b" ") =>
            {
                Ok(Self {
                    finder: Finder::new(&[b"--", boundary.as_slice()].concat()).into_owned(),
                    form: Form::default(),
                    state: State::Start,
                    held: Vec::new(),
                    passed: 0,
                    parts: 0,
                    streams: false,
                })
            }
            _ => Err(FormFault::ContentType),
        }
    }

    /// What is known so far.
    #[must_use]
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// Takes in the next bytes.
    ///
    /// # Errors
    /// No form goes on like this. Nothing is to be fed after that.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), FormFault> {
        // In pieces, so that what is held is bounded however much comes at once.
        for piece in bytes.chunks(MAX_HEAD) {
            self.held.extend_from_slice(piece);
            while let Ok(()) = self.step()? {}
        }
        Ok(())
    }

    /// Nothing comes any more.
    ///
    /// # Errors
    /// The form is not whole.
    pub fn finish(&self) -> Result<&Form, FormFault> {
        if self.form.ended {
            Ok(&self.form)
        } else {
            Err(FormFault::Incomplete)
        }
    }

    fn pass(&mut self, bytes: usize) {
        self.held.drain(..bytes);
        self.passed += bytes;
    }

    /// Goes on by one element.
    fn step(&mut self) -> Result<Result<(), More>, FormFault> {
        match self.state {
            State::Start => self.start(),
            State::Boundary => self.boundary(),
            State::Head => self.head(),
            State::Content(field) => self.content(field),
            State::End => {
                // RFC 2046 allows an epilogue, which nobody sends.
                if !b"\r\n".starts_with(&self.held) {
                    return Err(FormFault::Malformed);
                }
                Ok(Err(More))
            }
        }
    }

    /// RFC 2046 allows a preamble, which nobody sends.
    fn start(&mut self) -> Result<Result<(), More>, FormFault> {
        let dashes = self.finder.needle();
        if let Some(prefix) = self.held.get(..dashes.len()) {
            if prefix != dashes {
                return Err(FormFault::Malformed);
            }
            self.pass(dashes.len());
            self.state = State::Boundary;
            return Ok(Ok(()));
        }
        if dashes.starts_with(&self.held) {
            Ok(Err(More))
        } else {
            Err(FormFault::Malformed)
        }
    }

    fn boundary(&mut self) -> Result<Result<(), More>, FormFault> {
        match self.held.get(..2) {
            None => Ok(Err(More)),
            Some(b"--") => {
                self.pass(2);
                self.state = State::End;
                self.form.ended = true;
                Ok(Ok(()))
            }
            Some(b"\r\n") => {
                self.parts += 1;
                if self.parts > MAX_PARTS {
                    return Err(FormFault::TooManyParts);
                }
                self.pass(2);
                self.state = State::Head;
                Ok(Ok(()))
            }
            Some(_) => Err(FormFault::Malformed),
        }
    }

    fn head(&mut self) -> Result<Result<(), More>, FormFault> {
        let Some(end) = memchr::memmem::find(&self.held, b"\r\n\r\n") else {
            // The blank line may have begun.
            return if self.held.len() > MAX_HEAD + 3 {
                Err(FormFault::LargeHead)
            } else {
                Ok(Err(More))
            };
        };
        if end > MAX_HEAD {
            return Err(FormFault::LargeHead);
        }
        let head = self.held.get(..end).unwrap_or_default();
        let field = field_of(head).ok_or(FormFault::Malformed)?;
        let seen = match field {
            Field::Model => self.form.model.is_some(),
            Field::Stream => std::mem::replace(&mut self.streams, true),
            Field::Other => false,
        };
        if seen {
            return Err(FormFault::Twice);
        }
        // The line end before a boundary may be the one behind the headers.
        self.pass(end + 2);
        self.state = State::Content(field);
        Ok(Ok(()))
    }

    /// `held` begins with the line end behind the part's headers, or with bytes of its content.
    fn content(&mut self, field: Field) -> Result<Result<(), More>, FormFault> {
        let dashes = self.finder.needle().len();
        let Some(found) = self.finder.find(&self.held) else {
            if field != Field::Other {
                return if self.held.len() > MAX_VALUE + dashes + 4 {
                    Err(FormFault::LargeValue)
                } else {
                    Ok(Err(More))
                };
            }
            // A boundary, with the line end before it, may be on its way.
            self.pass(self.held.len().saturating_sub(dashes + 1));
            return Ok(Err(More));
        };
        let Some(content) = self
            .held
            .get(..found)
            .and_then(|before| before.strip_suffix(b"\r\n"))
        else {
            return Err(FormFault::Malformed);
        };
        if field != Field::Other {
            // Without content the one line end is behind the headers and before the boundary.
            let value = content.strip_prefix(b"\r\n").unwrap_or_default();
            if value.len() > MAX_VALUE {
                return Err(FormFault::LargeValue);
            }
            let text = std::str::from_utf8(value).map_err(|_| FormFault::LargeValue)?;
            if field == Field::Model {
                self.form.model = Some(text.into());
                let start = self.passed + 2.min(content.len());
                self.form.model_at = start..start + value.len();
            } else {
                self.form.stream = matches!(text, "true" | "True" | "1");
            }
        }
        self.pass(found + dashes);
        self.state = State::Boundary;
        Ok(Ok(()))
    }
}

/// Which field a part with these headers is. None: that is not said, or in more than one way.
fn field_of(head: &[u8]) -> Option<Field> {
    let mut name = None;
    for line in memchr::memmem::find_iter(head, b"\r\n")
        .map(Some)
        .chain([None])
        .scan(0, |start, end| {
            let line = head.get(*start..end.unwrap_or(head.len()));
            *start = end.map_or(head.len(), |end| end + 2);
            line
        })
    {
        let colon = memchr::memchr(b':', line)?;
        let (header, value) = (line.get(..colon)?, line.get(colon + 1..)?);
        let is_token =
            |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        if header.is_empty()
            || !header.iter().all(is_token)
            || line.iter().any(|byte| b"\r\n\0".contains(byte))
        {
            return None;
        }
        if !header.eq_ignore_ascii_case(b"content-disposition") {
            continue;
        }
        let (kind, parameters) = parameters(value)?;
        let mut names = parameters.iter().filter(|(name, _)| {
            name.get(..4)
                .is_some_and(|start| start.eq_ignore_ascii_case(b"name"))
        });
        let (parameter, given) = names.next()?;
        let is_plain = parameter.eq_ignore_ascii_case(b"name") && names.next().is_none();
        if name.is_some() || !is_plain || !kind.eq_ignore_ascii_case(b"form-data") {
            return None;
        }
        name = Some(match given.as_slice() {
            b"model" => Field::Model,
            b"stream" => Field::Stream,
            _ => Field::Other,
        });
    }
    name
}

type Parameters = Vec<(Vec<u8>, Vec<u8>)>;

/// A header's value and its parameters (RFC 9110, section 5.6.6). None where they are malformed. A backslash in quotes
/// stands for itself unless it is before a quote: browsers and curl escape nothing else, and file names have them.
fn parameters(value: &[u8]) -> Option<(&[u8], Parameters)> {
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    let (kind, mut rest) = value.split_at(end);
    let mut parameters = Vec::new();
    while let Some(after) = rest.trim_ascii_start().strip_prefix(b";") {
        rest = after.trim_ascii_start();
        if rest.is_empty() {
            break;
        }
        let equals = memchr::memchr(b'=', rest)?;
        let name = rest.get(..equals)?;
        if name.is_empty()
            || name
                .iter()
                .any(|byte| byte.is_ascii_whitespace() || b";\"".contains(byte))
        {
            return None;
        }
        rest = rest.get(equals + 1..)?;
        let mut given = Vec::new();
        if let Some(mut quoted) = rest.strip_prefix(b"\"") {
            loop {
                let at = memchr::memchr(b'"', quoted)?;
                let before = quoted.get(..at)?;
                quoted = quoted.get(at + 1..)?;
                match before.strip_suffix(b"\\") {
                    Some(escaped) => {
                        given.extend_from_slice(escaped);
                        given.push(b'"');
                    }
                    None => {
                        given.extend_from_slice(before);
                        break;
                    }
                }
            }
            rest = quoted;
        } else {
            let end = memchr::memchr(b';', rest).unwrap_or(rest.len());
            let (plain, after) = rest.split_at(end);
            let plain = plain.trim_ascii();
            if plain.is_empty() || plain.contains(&b'"') {
                return None;
            }
            given.extend_from_slice(plain);
            rest = after;
        }
        parameters.push((name.to_vec(), given));
    }
    rest.trim_ascii()
        .is_empty()
        .then_some((kind.trim_ascii(), parameters))
}

#[cfg(test)]
mod tests;
