//! What a completion is unfolded into is folded again, and unfolding and folding that changes nothing any more.

use sluicegate_core::limits::Limits;
use sluicegate_core::protocols::chat::fold::fold_chat;
use sluicegate_core::protocols::chat::unfold::{Unfold, unfold_chat};

const OPTIONS: Unfold = Unfold {
    include_usage: true,
};

/// Checks the property on one input.
pub fn check(input: &[u8]) {
    let limits = Limits::default();
    let Ok(stream) = unfold_chat(input, OPTIONS, limits) else {
        return;
    };
    // An error that stands in for a completion is no completion.
    let Ok(completion) = fold_chat(&stream, limits) else {
        return;
    };
    let stream = unfold_chat(&completion, OPTIONS, limits).expect("a completion can be unfolded");
    let again = fold_chat(&stream, limits).expect("its stream can be folded");
    assert!(
        is_same(&again, &completion),
        "{}\n{}",
        String::from_utf8_lossy(&again),
        String::from_utf8_lossy(&completion)
    );
}

/// Whether both say the same with the same bytes: a member that the first folding supplied may come back at another
/// place.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let sorted = |text: &[u8]| {
        let mut bytes = text.to_vec();
        bytes.sort_unstable();
        bytes
    };
    let parsed = |text| serde_json::from_slice::<serde_json::Value>(text).ok();
    sorted(one) == sorted(other) && parsed(one) == parsed(other)
}
