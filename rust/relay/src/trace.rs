//! A trace context for requests that bring none (W3C Trace Context, section 3.2).

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;

/// A `traceparent`. The trace is the request: an id of 32 hex digits, as the gateway makes them, is the trace's own, so
/// that logs and traces are found by one number; any other is hashed. The upstream may record it: `01`.
pub(crate) fn parent(request_id: &str) -> Option<HeaderValue> {
    static SEED: OnceLock<RandomState> = OnceLock::new();
    static SPANS: AtomicU64 = AtomicU64::new(0);
    let seed = SEED.get_or_init(RandomState::new);
    let is_trace = request_id.len() == 32
        && request_id
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        && request_id.bytes().any(|b| b != b'0');
    let trace = if is_trace {
        request_id.to_owned()
    } else {
        let halves = [
            seed.hash_one((request_id, 1)),
            seed.hash_one((request_id, 2)),
        ];
        format!("{:016x}{:016x}", halves[0], halves[1] | 1)
    };
    // All zeros are no id.
    let span = seed.hash_one(SPANS.fetch_add(1, Ordering::Relaxed)) | 1;
    HeaderValue::try_from(format!("00-{trace}-{span:016x}-01")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(request_id: &str) -> (String, String) {
        let value = parent(request_id).unwrap();
        let text = value.to_str().unwrap();
        let [version, trace, span, flags] = text.split('-').collect::<Vec<_>>()[..] else {
            panic!("{text}");
        };
        assert_eq!((version, flags), ("00", "01"));
        assert_eq!((trace.len(), span.len()), (32, 16));
        for id in [trace, span] {
            assert!(
                id.bytes()
                    .all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase())
            );
            assert!(id.bytes().any(|b| b != b'0'));
        }
        (trace.to_owned(), span.to_owned())
    }

    #[test]
    fn the_trace_is_the_request_and_each_attempt_a_span() {
        let id = "0af7651916cd43dd8448eb211c80319c";
        let (first, second) = (parts(id), parts(id));
        assert_eq!(first.0, id);
        assert_eq!(second.0, id);
        assert_ne!(first.1, second.1);
    }

    #[test]
    fn other_request_ids_have_traces_of_their_own() {
        for id in [
            "",
            "req-1",
            "0AF7651916CD43DD8448EB211C80319C",
            &"0".repeat(32),
        ] {
            let (first, second) = (parts(id), parts(id));
            assert_eq!(first.0, second.0);
            assert_ne!(first.0, parts("another").0);
        }
    }
}
