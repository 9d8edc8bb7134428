//! The reply's body, decoded where the upstream compressed it although it was asked not to (RFC 9110 section 8.4).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use http::header::{CONTENT_ENCODING, HeaderMap};
use tokio::io::AsyncRead;
use tokio_util::io::{StreamReader, poll_read_buf};

use crate::body::UpstreamBody;

/// One read of decoded bytes, at most.
const DECODE_BUFFER: usize = 16 * 1024;

/// The largest window of a Zstandard frame that is decoded, as the logarithm of its bytes: 8 MiB, the least that a
/// decoder should support (RFC 8878 section 3.1.1.1.2). A frame may ask for much more memory than it has bytes.
const ZSTD_WINDOW_LOG: u32 = 23;

/// Why a body could not be read on.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// The connection broke, or its framing did.
    Broken,
    /// The encoding is unknown, or its data is damaged.
    Encoding,
}

/// The body of an upstream's reply.
pub(crate) enum ReplyBody {
    Plain(UpstreamBody),
    Decoded {
        reader: Pin<Box<dyn AsyncRead + Send>>,
        buffer: BytesMut,
    },
}

struct Chunks(UpstreamBody);

impl Stream for Chunks {
    type Item = io::Result<Bytes>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        let data = ready!(self.0.poll_data(cx));
        Poll::Ready(data.map(|data| data.map_err(|_| io::ErrorKind::UnexpectedEof.into())))
    }
}

impl ReplyBody {
    pub(crate) fn new(headers: &HeaderMap, body: UpstreamBody) -> Result<Self, BodyError> {
        let mut codings = headers
            .get_all(CONTENT_ENCODING)
            .iter()
            .flat_map(|value| value.as_bytes().split(|b| *b == b','))
            .map(|name| name.trim_ascii().to_ascii_lowercase())
            .filter(|name| !name.is_empty() && name != b"identity");
        let Some(coding) = codings.next() else {
            return Ok(Self::Plain(body));
        };
        if codings.next().is_some() {
            return Err(BodyError::Encoding);
        }
        let input = StreamReader::new(Chunks(body));
        let reader: Pin<Box<dyn AsyncRead + Send>> = match coding.as_slice() {
            b"gzip" | b"x-gzip" => {
                // One body may be several members (RFC 1952 section 2.2): a server that begins anew for each write
                // makes such.
                let mut decoder = GzipDecoder::new(input);
                decoder.multiple_members(true);
                Box::pin(decoder)
            }
            b"deflate" => Box::pin(ZlibDecoder::new(input)),
            b"br" => Box::pin(BrotliDecoder::new(input)),
            b"zstd" => {
                // Several frames likewise (RFC 8878 section 3.1).
                let window = DParameter::window_log_max(ZSTD_WINDOW_LOG);
                let mut decoder = ZstdDecoder::with_params(input, &[window]);
                decoder.multiple_members(true);
                Box::pin(decoder)
            }
            _ => return Err(BodyError::Encoding),
        };
        Ok(Self::Decoded {
            reader,
            buffer: BytesMut::new(),
        })
    }

    /// The next bytes; `None` at the regular end.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        match self {
            ReplyBody::Plain(body) => {
                let data = ready!(body.poll_data(cx));
                Poll::Ready(data.map(|data| data.map_err(|_| BodyError::Broken)))
            }
            ReplyBody::Decoded { reader, buffer } => {
                buffer.reserve(DECODE_BUFFER);
                Poll::Ready(match ready!(poll_read_buf(reader.as_mut(), cx, buffer)) {
                    Ok(0) => None,
                    Ok(_) => Some(Ok(buffer.split().freeze())),
                    Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                        Some(Err(BodyError::Broken))
                    }
                    Err(_) => Some(Err(BodyError::Encoding)),
                })
            }
        }
    }
}
