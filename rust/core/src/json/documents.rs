//! JSON documents one behind the other: a single reply, NDJSON, or documents with nothing between them.
//!
//! Only brackets and strings are looked at, enough to tell where a document ends; whether it is JSON is for whoever reads it.

use bytes::Bytes;

use crate::error::{Error, ErrorKind};
use crate::limits::Limits;

/// A part of a body. All parts in their order are the body, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A whole document: an object, an array or a string, or a run of other bytes up to white space or the next of those.
    Document(Bytes),
    /// White space before, between or behind documents. Where it is cut depends on the reads.
    Space(Bytes),
}

impl Part {
    /// The part's bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        match self {
            Part::Document(bytes) | Part::Space(bytes) => bytes,
        }
    }
}

/// Cuts a body's reads into documents. A document that lies in one read is a slice of it; one that spans reads is copied.
///
/// ```
/// use bytes::Bytes;
/// use sluicegate_core::json::documents::{Documents, Part};
/// use sluicegate_core::limits::Limits;
///
/// let mut documents = Documents::new(&Limits::default());
/// let mut parts = Vec::new();
/// documents.feed(Bytes::from_static(b"{\"a\":\"}\"}\n{\"b\""), &mut parts).unwrap();
/// documents.feed(Bytes::from_static(b":[]}"), &mut parts).unwrap();
/// assert_eq!(parts[0], Part::Document(Bytes::from_static(b"{\"a\":\"}\"}")));
/// assert_eq!(parts[1], Part::Space(Bytes::from_static(b"\n")));
/// assert_eq!(parts[2], Part::Document(Bytes::from_static(b"{\"b\":[]}")));
/// assert_eq!(documents.finish(), None);
/// ```
///
/// After an error it has failed for good: what it held is gone, each further [`feed`](Self::feed) gives the same error and
/// [`finish`](Self::finish) gives nothing.
#[derive(Clone, Debug)]
pub struct Documents {
    pending: Vec<u8>,
    /// Bytes handed out: where `pending` begins in the body.
    offset: u64,
    place: Place,
    depth: usize,
    failed: Option<Error>,
    max_document: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    /// Not in a document.
    Between,
    /// In an object or array, outside its strings.
    Container,
    /// In a string, inside a container or not.
    String,
    /// In a string, behind a backslash.
    Escape,
    /// In a run of other bytes.
    Other,
}

impl Documents {
    /// For a body's start. Of `limits`, `max_document` applies.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Documents {
            pending: Vec::new(),
            offset: 0,
            place: Place::Between,
            depth: 0,
            failed: None,
            max_document: limits.max_document,
        }
    }

    /// Takes in a read and appends what became whole to `parts`.
    ///
    /// # Errors
    /// [`ErrorKind::DocumentTooLarge`], at the offset of the first byte too many. What came before that document is in `parts`.
    pub fn feed(&mut self, mut input: Bytes, parts: &mut Vec<Part>) -> Result<(), Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        while !input.is_empty() {
            if self.place == Place::Between {
                let space = super::scan::skip_space(&input, 0);
                if space > 0 {
                    self.offset += space as u64;
                    parts.push(Part::Space(input.split_to(space)));
                    continue;
                }
            }
            let Some(end) = self.document_end(&input) else {
                self.check_bound(input.len())?;
                self.pending.extend_from_slice(&input);
                return Ok(());
            };
            self.check_bound(end)?;
            let last = input.split_to(end);
            let document = if self.pending.is_empty() {
                last
            } else {
                self.pending.reserve_exact(end);
                self.pending.extend_from_slice(&last);
                Bytes::from(std::mem::take(&mut self.pending))
            };
            self.offset += document.len() as u64;
            parts.push(Part::Document(document));
        }
        Ok(())
    }

    /// The body has ended: what is left of a document that did not end, or None. A run of other bytes, which nothing ends but white
    /// space or another document, is left too.
    pub fn finish(&mut self) -> Option<Bytes> {
        let rest = std::mem::take(&mut self.pending);
        self.offset += rest.len() as u64;
        self.place = Place::Between;
        self.depth = 0;
        (!rest.is_empty()).then(|| rest.into())
    }

    /// Bytes of an unfinished document that are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.pending.len()
    }

    fn check_bound(&mut self, added: usize) -> Result<(), Error> {
        if self.pending.len() + added <= self.max_document {
            return Ok(());
        }
        let offset = self.offset + self.max_document as u64;
        let error = Error::new(ErrorKind::DocumentTooLarge, offset);
        self.pending = Vec::new();
        self.failed = Some(error);
        Err(error)
    }

    /// Reads on in the document that `input` begins or continues. Offset behind its end, or None when it goes on behind `input`.
    fn document_end(&mut self, input: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            let rest = input.get(at..)?;
            match self.place {
                Place::Between => {
                    self.place = match rest.first()? {
                        b'{' | b'[' => Place::Container,
                        b'"' => {
                            at += 1;
                            Place::String
                        }
                        _ => Place::Other,
                    };
                }
                Place::Container => {
                    at += structural(rest)?;
                    match input.get(at)? {
                        b'"' => self.place = Place::String,
                        b'{' | b'[' => self.depth += 1,
                        _ => self.depth = self.depth.saturating_sub(1),
                    }
                    at += 1;
                    if self.depth == 0 && self.place == Place::Container {
                        self.place = Place::Between;
                        return Some(at);
                    }
                }
                Place::String => {
                    at += memchr::memchr2(b'"', b'\\', rest)?;
                    if input.get(at) == Some(&b'\\') {
                        self.place = Place::Escape;
                    } else if self.depth > 0 {
                        self.place = Place::Container;
                    } else {
                        self.place = Place::Between;
                        return Some(at + 1);
                    }
                    at += 1;
                }
                Place::Escape => {
                    rest.first()?;
                    at += 1;
                    self.place = Place::String;
                }
                Place::Other => {
                    let ends = |byte: &u8| b" \t\r\n{[\"".contains(byte);
                    at += rest.iter().position(ends)?;
                    self.place = Place::Between;
                    return Some(at);
                }
            }
        }
    }
}

/// Offset of the first bracket or quote.
///
/// Whole blocks are tested without branching, which the compiler turns into vector code: replies with embeddings are mostly numbers.
fn structural(bytes: &[u8]) -> Option<usize> {
    // Brackets and braces differ in 0x20 only. A quote with that bit cleared, 0x02, passes here and is seen through below.
    const fn may_be(byte: u8) -> u8 {
        let folded = byte | 0x20;
        (folded == b'{') as u8 | (folded == b'}') as u8 | (folded == b'"') as u8
    }
    let exact = |byte: &u8| matches!(byte, b'{' | b'}' | b'[' | b']' | b'"');
    const NEAR: usize = 16;
    const BLOCK: usize = 64;
    let (near, far) = bytes.split_at(bytes.len().min(NEAR));
    if let Some(found) = near.iter().position(exact) {
        return Some(found);
    }
    let mut at = near.len();
    for block in far.chunks(BLOCK) {
        if block.iter().fold(0, |any, &byte| any | may_be(byte)) != 0
            && let Some(found) = block.iter().position(exact)
        {
            return Some(at + found);
        }
        at += block.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq)]
    struct Outcome {
        documents: Vec<Bytes>,
        bytes: Vec<u8>,
        rest: Option<Bytes>,
        error: Option<Error>,
    }

    fn split<'a>(reads: impl IntoIterator<Item = &'a [u8]>, max_document: usize) -> Outcome {
        let mut documents = Documents::new(&Limits {
            max_document,
            ..Limits::default()
        });
        let mut parts = Vec::new();
        let mut error = None;
        for read in reads {
            error = documents
                .feed(Bytes::copy_from_slice(read), &mut parts)
                .err();
        }
        let is_document = |part: &&Part| matches!(part, Part::Document(_));
        Outcome {
            documents: parts
                .iter()
                .filter(is_document)
                .map(|part| part.bytes().clone())
                .collect(),
            bytes: parts
                .iter()
                .flat_map(|part| part.bytes())
                .copied()
                .collect(),
            rest: documents.finish(),
            error,
        }
    }

    fn documents(body: &str) -> Vec<String> {
        let outcome = split([body.as_bytes()], usize::MAX);
        assert_eq!(outcome.error, None);
        outcome
            .documents
            .iter()
            .chain(&outcome.rest)
            .map(|document| String::from_utf8(document.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn documents_end_where_their_brackets_close() {
        assert_eq!(documents("{\"a\":[{}]}"), ["{\"a\":[{}]}"]);
        assert_eq!(documents("{}{}[]"), ["{}", "{}", "[]"]);
        assert_eq!(
            documents(" {\"a\":1}\r\n\n{\"b\":2}\n"),
            ["{\"a\":1}", "{\"b\":2}"]
        );
    }

    #[test]
    fn brackets_and_escaped_quotes_in_strings_do_not_count() {
        let body = r#"{"a":"}{][","b\"}":"\\"}"#;
        assert_eq!(documents(&format!("{body}{body}")), [body, body]);
    }

    #[test]
    fn what_is_no_object_or_array_is_handed_out_too() {
        assert_eq!(documents("\"a b\"\"c\""), ["\"a b\"", "\"c\""]);
        assert_eq!(
            documents("{}null true{}garbage"),
            ["{}", "null", "true", "{}", "garbage"]
        );
        assert_eq!(documents("]{}"), ["]", "{}"]);
    }

    #[test]
    fn a_long_run_of_numbers_hides_no_bracket() {
        for length in 0..80 {
            let body = format!("[{}]", "1".repeat(length));
            assert_eq!(documents(&format!("{body}{body}")), [&body[..], &body]);
            let odd = format!("[{}]", "\u{2}".repeat(length));
            assert_eq!(documents(&format!("{odd}{odd}")), [&odd[..], &odd]);
        }
    }

    #[test]
    fn a_document_in_one_read_is_a_slice_of_it() {
        let read = Bytes::from_static(b"\n{\"a\":1}");
        let mut parts = Vec::new();
        Documents::new(&Limits::default())
            .feed(read.clone(), &mut parts)
            .unwrap();
        assert_eq!(parts[1].bytes().as_ptr(), read[1..].as_ptr());
    }

    #[test]
    fn white_space_is_handed_out_at_once() {
        let mut documents = Documents::new(&Limits::default());
        let mut parts = Vec::new();
        documents
            .feed(Bytes::from_static(b"\n\n"), &mut parts)
            .unwrap();
        assert_eq!(parts, [Part::Space(Bytes::from_static(b"\n\n"))]);
    }

    #[test]
    fn a_document_over_the_bound_is_an_error_for_good() {
        assert_eq!(split([&b"{}[1]"[..]], 3).error, None);
        let outcome = split([&b"{}[12]{}"[..]], 3);
        assert_eq!(outcome.documents, ["{}"]);
        assert_eq!(
            outcome.error,
            Some(Error::new(ErrorKind::DocumentTooLarge, 5))
        );
        assert_eq!(outcome.rest, None);
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same(
            body in "[]{}\\[\"\\\\ \na1]{0,40}",
            at in any::<prop::sample::Index>(),
            max_document in prop_oneof![Just(usize::MAX), 1..12usize],
        ) {
            let body = body.as_bytes();
            let whole = split([body], max_document);
            let (head, tail) = body.split_at(at.index(body.len() + 1));
            let two = split([head, tail], max_document);
            let ones = split(body.chunks(1), max_document);
            if whole.error.is_none() {
                let mut all = whole.bytes.clone();
                all.extend(whole.rest.iter().flatten());
                prop_assert_eq!(all, body);
            }
            prop_assert_eq!(&two, &whole);
            prop_assert_eq!(&ones, &whole);
        }

        #[test]
        fn valid_documents_are_found_again(values in proptest::collection::vec("[a-z{}\"\\\\\\[ ]{0,9}", 0..6), space in "[ \n]{0,2}") {
            let texts: Vec<String> = values.iter().map(|value| serde_json::json!({ "k": [value] }).to_string()).collect();
            prop_assert_eq!(documents(&texts.join(&space)), texts);
        }
    }
}
