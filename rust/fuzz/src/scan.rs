//! The scanner accepts what serde_json accepts, and refuses what it refuses.

use serde::de::IgnoredAny;
use sluicegate_core::json::scan;

/// Checks the property on one input.
pub fn check(text: &[u8]) {
    // serde_json bounds the depth at 128 open containers, and passes over strings that are not UTF-8 where it ignores
    // them.
    let ours = scan::document(text, 127);
    let theirs = serde_json::from_slice::<IgnoredAny>(text);
    match (ours, theirs) {
        (Ok(value), theirs) => {
            assert!(theirs.is_ok(), "{theirs:?}");
            assert_eq!(value.bytes(text), text.trim_ascii());
        }
        (Err(fault), Ok(_)) => {
            assert!(std::str::from_utf8(text).is_err(), "{fault}");
            assert_eq!(fault.problem, scan::Problem::InvalidUtf8);
        }
        (Err(_), Err(_)) => {}
    }
}
