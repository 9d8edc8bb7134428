//! The little of HTTP/1.1 that both ends of a measurement need: heads, and bodies in any of their three framings.

use std::fmt;

const MAX_HEADERS: usize = 64;
/// No proxy measured here sends a longer head; more means that the bytes are not HTTP.
const MAX_HEAD: usize = 64 * 1024;

/// The path of the Messages API; all other requests are chat completions.
pub(crate) const MESSAGES: &str = "/v1/messages";

/// What the peer sent is not the HTTP that was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Malformed {
    Head,
    HeadTooLong,
    ChunkSize,
    ChunkEnd,
}

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Head => "malformed head",
            Self::HeadTooLong => "head too long",
            Self::ChunkSize => "malformed chunk size",
            Self::ChunkEnd => "chunk does not end with CRLF",
        })
    }
}

impl std::error::Error for Malformed {}

/// A message's head: a request's or a reply's.
pub(crate) struct Head {
    /// Bytes of the head, the blank line included.
    pub(crate) length: usize,
    /// A reply's status; 0 for a request.
    pub(crate) status: u16,
    pub(crate) get: bool,
    /// A request's path is that of the Messages API.
    pub(crate) messages: bool,
    pub(crate) body: Body,
    pub(crate) close: bool,
}

/// Reads a request's head; None where it is not whole yet.
pub(crate) fn request_head(input: &[u8]) -> Result<Option<Head>, Malformed> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(input).map_err(|_| Malformed::Head)? {
        httparse::Status::Partial => whole_or_too_long(input),
        httparse::Status::Complete(length) => {
            let get = request.method == Some("GET");
            let messages = request.path == Some(MESSAGES);
            let (body, close) = framing(request.headers, Body::Length(0))?;
            Ok(Some(Head {
                length,
                status: 0,
                get,
                messages,
                body,
                close,
            }))
        }
    }
}

/// Reads a reply's head; None where it is not whole yet.
pub(crate) fn response_head(input: &[u8]) -> Result<Option<Head>, Malformed> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(input).map_err(|_| Malformed::Head)? {
        httparse::Status::Partial => whole_or_too_long(input),
        httparse::Status::Complete(length) => {
            let status = response.code.unwrap_or(0);
            let (body, close) = framing(response.headers, Body::UntilClose)?;
            let close = close || body == Body::UntilClose;
            Ok(Some(Head {
                length,
                status,
                get: false,
                messages: false,
                body,
                close,
            }))
        }
    }
}

fn whole_or_too_long(input: &[u8]) -> Result<Option<Head>, Malformed> {
    if input.len() > MAX_HEAD {
        Err(Malformed::HeadTooLong)
    } else {
        Ok(None)
    }
}

/// RFC 9112 section 6.3: chunked wins over a length; without either a reply lasts until the connection closes.
fn framing(headers: &[httparse::Header<'_>], otherwise: Body) -> Result<(Body, bool), Malformed> {
    let mut body = otherwise;
    let mut close = false;
    for header in headers {
        if header.name.eq_ignore_ascii_case("content-length") && body != Body::start_of_chunks() {
            let digits = std::str::from_utf8(header.value).map_err(|_| Malformed::Head)?;
            body = Body::Length(digits.trim().parse().map_err(|_| Malformed::Head)?);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding")
            && header.value.eq_ignore_ascii_case(b"chunked")
        {
            body = Body::start_of_chunks();
        } else if header.name.eq_ignore_ascii_case("connection") {
            close = header.value.eq_ignore_ascii_case(b"close");
        }
    }
    Ok((body, close))
}

/// What is left of a body, as a machine that is fed whatever was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    Length(u64),
    Size {
        size: u64,
        digits: u8,
        extension: bool,
    },
    Chunk(u64),
    ChunkEnd,
    Trailer {
        line_length: u32,
    },
    UntilClose,
    Done,
}

impl Body {
    pub(crate) fn start_of_chunks() -> Self {
        Self::Size {
            size: 0,
            digits: 0,
            extension: false,
        }
    }

    pub(crate) fn done(&self) -> bool {
        matches!(self, Self::Done | Self::Length(0))
    }

    /// Consumes from the front of `input` up to the end of one run of body bytes, and returns that run.
    pub(crate) fn take<'a>(&mut self, input: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
        loop {
            match *self {
                Self::Length(left) => {
                    let run = split(input, left);
                    *self = Self::Length(left - run.len() as u64);
                    return Ok(run);
                }
                Self::Chunk(left) => {
                    let run = split(input, left);
                    let left = left - run.len() as u64;
                    *self = if left == 0 {
                        Self::ChunkEnd
                    } else {
                        Self::Chunk(left)
                    };
                    return Ok(run);
                }
                Self::UntilClose => return Ok(std::mem::take(input)),
                Self::Done => return Ok(&[]),
                _ => {
                    let Some((&byte, rest)) = input.split_first() else {
                        return Ok(&[]);
                    };
                    *input = rest;
                    *self = self.after(byte)?;
                }
            }
        }
    }

    fn after(self, byte: u8) -> Result<Self, Malformed> {
        Ok(match (self, byte) {
            (Self::Size { digits: 0, .. }, b'\n') => return Err(Malformed::ChunkSize),
            (Self::Size { size: 0, .. }, b'\n') => Self::Trailer { line_length: 0 },
            (Self::Size { size, .. }, b'\n') => Self::Chunk(size),
            (Self::Size { size, digits, .. }, b'\r' | b';' | b' ') => Self::Size {
                size,
                digits,
                extension: true,
            },
            (
                state @ Self::Size {
                    extension: true, ..
                },
                _,
            ) => state,
            (Self::Size { size, digits, .. }, byte) => {
                let digit = char::from(byte).to_digit(16).ok_or(Malformed::ChunkSize)?;
                if digits == 15 {
                    return Err(Malformed::ChunkSize);
                }
                Self::Size {
                    size: size * 16 + u64::from(digit),
                    digits: digits + 1,
                    extension: false,
                }
            }
            (Self::ChunkEnd, b'\r') => Self::ChunkEnd,
            (Self::ChunkEnd, b'\n') => Self::start_of_chunks(),
            (Self::ChunkEnd, _) => return Err(Malformed::ChunkEnd),
            (Self::Trailer { line_length: 0 }, b'\n') => Self::Done,
            (Self::Trailer { .. }, b'\n') => Self::Trailer { line_length: 0 },
            (state @ Self::Trailer { .. }, b'\r') => state,
            (Self::Trailer { line_length }, _) => Self::Trailer {
                line_length: line_length.saturating_add(1),
            },
            (state, _) => state,
        })
    }
}

fn split<'a>(input: &mut &'a [u8], limit: u64) -> &'a [u8] {
    let length = usize::try_from(limit)
        .unwrap_or(usize::MAX)
        .min(input.len());
    let (run, rest) = input.split_at(length);
    *input = rest;
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(wire: &[u8], step: usize) -> Result<(Vec<u8>, bool), Malformed> {
        let mut body = Body::start_of_chunks();
        let mut output = Vec::new();
        for mut piece in wire.chunks(step) {
            while !piece.is_empty() && !body.done() {
                output.extend_from_slice(body.take(&mut piece)?);
            }
        }
        Ok((output, body.done()))
    }

    #[test]
    fn chunks_are_read_the_same_however_they_were_cut() {
        let wire = b"5\r\nhello\r\nA;name=\"v\"\r\n, world\r\n!\r\n0\r\nx-trailer: 1\r\n\r\n";
        for step in 1..=wire.len() {
            assert_eq!(
                read_all(wire, step),
                Ok((b"hello, world\r\n!".to_vec(), true)),
                "step {step}"
            );
        }
    }

    #[test]
    fn a_body_without_its_last_chunk_is_not_done() {
        assert_eq!(
            read_all(b"5\r\nhello\r\n", 64),
            Ok((b"hello".to_vec(), false))
        );
    }

    #[test]
    fn framing_that_is_not_http_is_refused() {
        assert_eq!(read_all(b"g\r\n", 64), Err(Malformed::ChunkSize));
        assert_eq!(read_all(b"\r\n", 64), Err(Malformed::ChunkSize));
        assert_eq!(read_all(b"1\r\nab", 64), Err(Malformed::ChunkEnd));
        assert_eq!(
            read_all(b"fffffffffffffffff\r\n", 64),
            Err(Malformed::ChunkSize)
        );
    }

    #[test]
    fn heads_tell_framing_and_persistence() {
        let head = |text: &str| response_head(text.as_bytes()).unwrap().unwrap();
        let chunked =
            head("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n");
        assert_eq!(
            (chunked.status, chunked.body, chunked.close),
            (200, Body::start_of_chunks(), false)
        );
        let sized =
            head("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 12\r\nconnection: close\r\n\r\n");
        assert_eq!(
            (sized.status, sized.body, sized.close),
            (502, Body::Length(12), true)
        );
        let open = head("HTTP/1.1 200 OK\r\n\r\n");
        assert_eq!((open.body, open.close), (Body::UntilClose, true));
        assert!(response_head(b"HTTP/1.1 200 OK\r\n").unwrap().is_none());
        assert!(response_head(b"SSH-2.0\r\n\r\n").is_err());
        let request = request_head(b"POST / HTTP/1.1\r\ncontent-length: 7\r\n\r\n")
            .unwrap()
            .unwrap();
        assert_eq!((request.get, request.body), (false, Body::Length(7)));
    }
}
