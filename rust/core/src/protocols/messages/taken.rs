//! The ids of calls that a client's conversation holds.

use std::collections::BTreeSet;

use crate::json::node::Node;
use crate::limits::MAX_ID;

/// Ids of calls, decoded.
pub type TakenIds = BTreeSet<Box<str>>;

/// The ids of the calls in a request. One that is longer than [`MAX_ID`] is left out: no upstream gives such a one.
///
/// ```
/// use sluicegate_core::protocols::messages::taken::taken_ids;
///
/// let body = br#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1"}]}]}"#;
/// assert!(taken_ids(body).contains("toolu_1"));
/// ```
#[must_use]
pub fn taken_ids(body: &[u8]) -> TakenIds {
    let messages = Node::document(body).and_then(|request| request.get("messages"));
    let blocks = messages
        .iter()
        .flat_map(Node::elements)
        .filter_map(|message| {
            let [role, content] = message.pick(["role", "content"]);
            content.filter(|_| role.is_some_and(|role| role.is("assistant")))
        })
        .flat_map(|content| content.elements());
    blocks
        .filter_map(|block| {
            let [kind, id] = block.pick(["type", "id"]);
            let id = id.filter(|_| kind.is_some_and(|kind| kind.is("tool_use")))?;
            let is_short = id.spelled().is_some_and(|id| id.len() <= MAX_ID);
            is_short.then(|| id.decode().map(|id| Box::from(&*id)))?
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_of_the_assistant_count() {
        let body = br#"{"messages":[
            {"role":"user","content":"x"},
            {"role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"a\u0031"},{"type":"tool_use","id":7},{"type":"server_tool_use","id":"s"}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"r","id":"x"},{"type":"tool_use","id":"u"}]},
            {"role":"assistant","content":"text"},
            7
        ]}"#;
        assert_eq!(taken_ids(body), ["a1".into()].into());
        assert!(taken_ids(b"{").is_empty() && taken_ids(b"[]").is_empty());
    }
}
