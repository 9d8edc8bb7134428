//! A request's body, read within bounds.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};

use crate::bounds::Pace;
use crate::refusal::Refusal;
use crate::room::Share;

/// Bytes that are allocated at once for a body with a `content-length`. A client that declares more than it sends costs
/// no more than this.
const FIRST_ROOM: usize = 1024 * 1024;

/// What a client may still send of a body that is not read, so that it sees the answer and not a reset (RFC 9112,
/// section 9.6).
const DISCARD_BYTES: usize = 64 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// All of `body`, at most `limit` bytes, at `pace` since the request was `begun`. It takes its `share` as long as any
/// part of it is there.
pub(crate) async fn read_body(
    body: &mut Incoming,
    declared: Option<u64>,
    limit: usize,
    pace: &Pace,
    begun: Instant,
    mut share: Share,
) -> Result<Bytes, Refusal> {
    if declared.is_some_and(|declared| declared > limit as u64) {
        return Err(Refusal::TooLarge(limit));
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut patience = pace.pause;
    loop {
        let frame = match timeout(patience, body.frame()).await {
            Err(_) => return Err(Refusal::Late),
            Ok(Some(Err(error))) => return Err(broken(&error)),
            Ok(Some(Ok(frame))) => frame,
            Ok(None) if rest.is_empty() => return Ok(share.held_by(first)),
            Ok(None) => return Ok(share.held_by(rest.freeze())),
        };
        let data = frame.into_data().unwrap_or_default();
        let size = first.len().max(rest.len()) + data.len();
        if size > limit {
            return Err(Refusal::TooLarge(limit));
        }
        if !share.grow_to(size) {
            return Err(Refusal::Overloaded);
        }
        if first.is_empty() && rest.is_empty() {
            if declared == Some(data.len() as u64) {
                return Ok(share.held_by(data));
            }
            patience = pace.patience(size, begun.elapsed());
            first = data;
            continue;
        }
        patience = pace.patience(size, begun.elapsed());
        if rest.is_empty() {
            let declared = declared.map_or(0, |n| usize::try_from(n).unwrap_or(FIRST_ROOM));
            rest.reserve(declared.clamp(size, FIRST_ROOM.max(size)));
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        rest.extend_from_slice(&data);
        if declared == Some(rest.len() as u64) {
            return Ok(share.held_by(rest.freeze()));
        }
    }
}

/// Why a body cannot be read on: its client sends no more, or not how it should.
pub(crate) fn broken(error: &hyper::Error) -> Refusal {
    let cause = error
        .source()
        .and_then(|cause| cause.downcast_ref::<io::Error>());
    let ended = cause.is_some_and(|cause| cause.kind() == io::ErrorKind::UnexpectedEof);
    if ended || error.is_incomplete_message() {
        Refusal::Incomplete
    } else {
        Refusal::Malformed
    }
}

/// Read on and drop what the client sends, within bounds.
pub(crate) async fn discard(mut body: Incoming) {
    let reading = async {
        let mut size = 0;
        while let Some(Ok(frame)) = body.frame().await {
            size += frame.data_ref().map_or(0, Bytes::len);
            if size > DISCARD_BYTES {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(DISCARD_TIME, reading).await;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::num::NonZeroU32;
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};

    use http_body_util::Empty;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use hyper_util::rt::TokioIo;
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::room::BodyRoom;

    const LIMIT: usize = 100;
    const PAUSE: Duration = Duration::from_secs(10);
    const PACE: Pace = Pace {
        pause: PAUSE,
        rate: NonZeroU32::new(2).unwrap(),
    };

    /// What is read of a request with this `head` whose body comes in `parts`, each `between` after the one before.
    /// `ends`: the client closes its side then.
    fn read(head: &str, parts: &[&[u8]], between: Duration, ends: bool) -> Result<Bytes, Refusal> {
        read_within(&BodyRoom::new(LIMIT), LIMIT, head, parts, between, ends)
    }

    /// The same with another `limit`, in this `room`.
    fn read_within(
        room: &Arc<BodyRoom>,
        limit: usize,
        head: &str,
        parts: &[&[u8]],
        between: Duration,
        ends: bool,
    ) -> Result<Bytes, Refusal> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        runtime.block_on(async {
            let (mut client, server) = tokio::io::duplex(1024 * 1024);
            let service = service_fn(|request: Request<Incoming>| {
                let tell = tell.lock().unwrap().clone();
                let share = Share::new(room);
                async move {
                    let mut body = request.into_body();
                    let declared = hyper::body::Body::size_hint(&body).exact();
                    let read =
                        read_body(&mut body, declared, limit, &PACE, Instant::now(), share).await;
                    tell.send(read).unwrap();
                    Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
                }
            });
            let sending = async {
                let head = format!("POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{head}\r\n");
                let _ = client.write_all(head.as_bytes()).await;
                for part in parts {
                    tokio::time::sleep(between).await;
                    let _ = client.write_all(part).await;
                }
                if ends {
                    drop(client);
                } else {
                    std::future::pending::<()>().await;
                }
            };
            let serving = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(server), service);
            tokio::select! {
                _ = serving => {}
                () = async { sending.await; std::future::pending().await } => {}
            }
        });
        told.try_recv().expect("no request was read")
    }

    const MOMENT: Duration = Duration::from_millis(10);

    fn length(declared: usize) -> String {
        format!("content-length: {declared}\r\n")
    }

    #[test]
    fn a_body_may_be_as_large_as_the_limit() {
        for size in [0, 1, LIMIT] {
            let text = vec![b'x'; size];
            let (first, second) = text.split_at(size / 2);
            assert_eq!(read(&length(size), &[&text], MOMENT, false).unwrap(), text);
            assert_eq!(
                read(&length(size), &[first, second], MOMENT, false).unwrap(),
                text
            );
        }
    }

    #[test]
    fn a_length_above_the_limit_is_refused_unread() {
        assert_eq!(
            read(&length(LIMIT + 1), &[], MOMENT, false),
            Err(Refusal::TooLarge(LIMIT))
        );
        let most = format!("content-length: {}\r\n", u64::MAX / 2);
        assert_eq!(
            read(&most, &[], MOMENT, false),
            Err(Refusal::TooLarge(LIMIT))
        );
    }

    #[test]
    fn a_body_for_which_there_is_no_room_is_refused_as_it_comes() {
        const SIZE: usize = 60_000;
        let text = vec![b'x'; SIZE];
        let room = BodyRoom::new(SIZE * 3 / 2);
        let read =
            |parts: &[&[u8]]| read_within(&room, SIZE * 2, &length(SIZE), parts, MOMENT, false);
        let first = read(&[&text]).unwrap();
        assert_eq!(first, text);
        // It is refused before it is whole: its client would send no more.
        assert_eq!(read(&[&text[..SIZE - 1]]), Err(Refusal::Overloaded));
        drop(first);
        assert_eq!(read(&[&text]).unwrap(), text);
    }

    #[test]
    fn a_body_without_a_length_is_refused_as_it_grows() {
        let chunk = format!("{:x}\r\n{}\r\n", 60, "x".repeat(60));
        let chunk = chunk.as_bytes();
        let chunked = "transfer-encoding: chunked\r\n";
        assert_eq!(
            read(chunked, &[chunk, chunk], MOMENT, false),
            Err(Refusal::TooLarge(LIMIT))
        );
        assert_eq!(
            read(chunked, &[chunk, b"0\r\n\r\n"], MOMENT, false)
                .unwrap()
                .len(),
            60
        );
    }

    #[test]
    fn each_part_has_its_time() {
        let half = vec![b'x'; 20];
        let slow = PAUSE - Duration::from_secs(1);
        assert_eq!(
            read(&length(60), &[&half, &half, &half], slow, false)
                .unwrap()
                .len(),
            60
        );
        let late = PAUSE + Duration::from_secs(1);
        assert_eq!(
            read(&length(40), &[&half, &half], late, false),
            Err(Refusal::Late)
        );
        assert_eq!(
            read(&length(40), &[&half], MOMENT, false),
            Err(Refusal::Late)
        );
    }

    #[test]
    fn all_of_them_together_have_theirs() {
        let bytes = [b"x".as_slice(); 60];
        let pace = |millis| read(&length(60), &bytes, Duration::from_millis(millis), false);
        // Two bytes a second, and the time of one pause.
        assert_eq!(pace(500).unwrap().len(), 60);
        assert_eq!(pace(650).unwrap().len(), 60);
        assert_eq!(pace(700), Err(Refusal::Late));
        assert_eq!(pace(9_000), Err(Refusal::Late), "each comes in time");
        let empty = [b"".as_slice(); 60];
        assert_eq!(read(&length(1), &empty, MOMENT, false), Err(Refusal::Late));
    }

    #[test]
    fn patience_has_no_end_that_overflows() {
        let pace = |pause, rate| Pace {
            pause,
            rate: NonZeroU32::new(rate).unwrap(),
        };
        let most = pace(Duration::MAX, 1).patience(usize::MAX, Duration::ZERO);
        assert_eq!(most, Duration::MAX);
        assert_eq!(pace(PAUSE, 1).patience(0, Duration::MAX), Duration::ZERO);
        assert_eq!(pace(PAUSE, u32::MAX).patience(1, PAUSE), Duration::ZERO);
        assert_eq!(pace(PAUSE, 1).patience(3, PAUSE), Duration::from_secs(3));
    }

    #[test]
    fn a_body_that_ends_too_soon_is_incomplete_and_a_garbled_one_malformed() {
        assert_eq!(
            read(&length(20), &[b"x"], MOMENT, true),
            Err(Refusal::Incomplete)
        );
        let chunked = "transfer-encoding: chunked\r\n";
        assert_eq!(
            read(chunked, &[b"zz\r\n"], MOMENT, false),
            Err(Refusal::Malformed)
        );
        assert_eq!(
            read(chunked, &[b"5\r\nhello\r\n"], MOMENT, true),
            Err(Refusal::Incomplete)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn any_parts_give_the_whole(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            chunked: bool,
        ) {
            let whole = parts.concat();
            let (head, mut sent) = if chunked {
                let chunk = |part: &Vec<u8>| {
                    [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat()
                };
                ("transfer-encoding: chunked\r\n".to_owned(), parts.iter().map(chunk).collect())
            } else {
                (length(whole.len()), parts.clone())
            };
            if chunked {
                sent.push(b"0\r\n\r\n".to_vec());
            }
            let sent = sent.iter().map(Vec::as_slice).collect::<Vec<_>>();
            let read = read(&head, &sent, MOMENT, false);
            if whole.len() <= LIMIT {
                prop_assert_eq!(read.unwrap(), whole);
            } else {
                prop_assert_eq!(read, Err(Refusal::TooLarge(LIMIT)));
            }
        }
    }
}
