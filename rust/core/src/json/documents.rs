//! JSON documents one behind the other: a single reply, NDJSON, or documents with nothing between them.
//!
//! Only brackets and strings are looked at, enough to tell where a document ends; whether it is valid JSON is left to
//! its reader.

use bytes::Bytes;

use crate::error::{Error, ErrorKind};
use crate::limits::Limits;

/// RFC 8259 section 8.1: whoever reads JSON may ignore a byte-order mark. Some servers write one.
const BOM: &[u8; 3] = b"\xEF\xBB\xBF";

/// A part of a body. All parts in their order are the body, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyPart {
    /// A whole document: an object, an array or a string, or a run of other bytes up to white space or the next of
    /// those.
    Document(Bytes),
    /// White space before, between or behind documents, or a byte-order mark. Where it is cut depends on the reads.
    Space(Bytes),
}

impl BodyPart {
    /// The part's bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        match self {
            BodyPart::Document(bytes) | BodyPart::Space(bytes) => bytes,
        }
    }
}

/// Cuts a body's reads into documents. A document that lies in one read is a slice of it; one that spans reads is
/// copied.
///
/// ```
/// use bytes::Bytes;
/// use sluicegate_core::json::documents::{BodyPart, Documents};
/// use sluicegate_core::limits::Limits;
///
/// let mut documents = Documents::new(&Limits::default());
/// let mut parts = Vec::new();
/// documents.feed(Bytes::from_static(b"{\"a\":\"}\"}\n{\"b\""), &mut parts).unwrap();
/// documents.feed(Bytes::from_static(b":[]}"), &mut parts).unwrap();
/// assert_eq!(parts[0], BodyPart::Document(Bytes::from_static(b"{\"a\":\"}\"}")));
/// assert_eq!(parts[1], BodyPart::Space(Bytes::from_static(b"\n")));
/// assert_eq!(parts[2], BodyPart::Document(Bytes::from_static(b"{\"b\":[]}")));
/// assert_eq!(documents.finish(), None);
/// ```
///
/// After an error it has failed for good: what it held is gone, each further [`feed`](Self::feed) gives the same error
/// and [`finish`](Self::finish) gives nothing.
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
    /// [`ErrorKind::DocumentTooLarge`], at the offset of the first byte too many. What came before that document is in
    /// `parts`.
    pub fn feed(&mut self, mut input: Bytes, parts: &mut Vec<BodyPart>) -> Result<(), Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        while !input.is_empty() {
            if self.place == Place::Between {
                let space = super::scan::skip_space(&input, 0);
                if space > 0 {
                    self.offset += space as u64;
                    parts.push(BodyPart::Space(input.split_to(space)));
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
            parts.push(if *document == *BOM {
                BodyPart::Space(document)
            } else {
                BodyPart::Document(document)
            });
        }
        Ok(())
    }

    /// The body has ended: what is left of a document that did not end, or None. A run of other bytes, which nothing
    /// ends but white space or another document, is left too.
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

    /// Reads on in the document that `input` begins or continues. Offset behind its end, or None when it goes on behind
    /// `input`.
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
/// Whole blocks are tested without branching, which the compiler turns into vector code: replies with embeddings are
/// mostly numbers.
fn structural(bytes: &[u8]) -> Option<usize> {
    // Brackets and braces differ in 0x20 only. A quote with that bit cleared, 0x02, passes here and is seen through
    // below.
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
mod tests;
