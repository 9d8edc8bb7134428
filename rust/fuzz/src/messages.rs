//! A request of a client of Messages that is put to an upstream of another protocol, and one of another protocol for an
//! upstream that speaks Messages, is JSON, is not much larger, has every text of the conversation, and is the same each
//! time.

use arbitrary::Arbitrary;
use bytes::Bytes;
use sluicegate_core::input::{Conversation, Refusal, Written};
use sluicegate_core::json::node::Node;
use sluicegate_core::limits::Limits;
use sluicegate_core::protocols::chat::request::{self as chat, ChatTarget, LateSystem};
use sluicegate_core::protocols::messages::request::forwarded::without_seals;
use sluicegate_core::protocols::messages::request::{
    self as messages, MessagesTarget, Rest, ThinkingForm,
};
use sluicegate_core::protocols::responses::request as responses;
use sluicegate_core::request::Request;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    target: u8,
    body: &'a [u8],
}

/// Bytes of what is made for each of the request's: a tool of a few bytes becomes a function with a schema.
const GROWTH: usize = 32;

/// What a request of nothing may have.
const BASE: usize = 1024;

/// The texts of the messages, as they are spelled: strings, and blocks that are texts.
fn texts(root: Node<'_>, list: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for item in root.get(list).iter().flat_map(Node::elements) {
        if item.get("type").is_some_and(|kind| !kind.is("message")) {
            continue;
        }
        let Some(content) = item.get("content") else {
            continue;
        };
        found.extend(content.spelled().map(<[u8]>::to_vec));
        for part in content.elements() {
            if let Some(b"text" | b"input_text" | b"output_text") = part.filled("type") {
                found.extend(part.filled("text").map(<[u8]>::to_vec));
            }
        }
    }
    // White space may be cut at the end of a conversation, and dropped where there is nothing else.
    found.retain(|text| !text.is_empty() && !text.ends_with(b" ") && !text.contains(&b'\\'));
    found
}

fn check_written(root: Node<'_>, list: &str, written: &Written) {
    let body = &written.body;
    assert!(Node::document(body).is_some());
    assert!(body.len() <= BASE + GROWTH * root.bytes().len());
    assert!(written.left_out.len() <= 17);
    for text in texts(root, list) {
        let is_there = body.windows(text.len()).any(|window| window == text);
        assert!(is_there, "{}", text.escape_ascii());
    }
}

fn put<'a>(
    request: &'a Request,
    list: &str,
    read: impl Fn(&'a Request) -> Result<Conversation<'a>, Refusal>,
    write: impl Fn(&Conversation<'a>) -> Result<Written, Refusal>,
) {
    let root = Node::document(request.body()).expect("a request is JSON");
    let written = || read(request).and_then(|conversation| write(&conversation));
    if let Ok(made) = written() {
        check_written(root, list, &made);
        let again = written().expect("it was written before");
        assert_eq!(again.body, made.body);
    }
}

/// Checks the property on one input, as a request of each kind.
pub fn check(input: &[u8]) {
    let Some(input) = super::read::<Input<'_>>(input) else {
        return;
    };
    let bit = |place: u8| input.target >> place & 1 == 1;
    let target = MessagesTarget {
        thinking: [ThinkingForm::Adaptive, ThinkingForm::Budget][usize::from(bit(0))],
        signed: bit(1),
        inline_system: bit(2),
        rest: [Rest::Pass, Rest::Drop][usize::from(bit(3))],
        ..MessagesTarget::default()
    };
    let chat_target = ChatTarget {
        late_system: [LateSystem::System, LateSystem::User][usize::from(bit(4))],
        ..ChatTarget::default()
    };
    let body = Bytes::copy_from_slice(input.body);
    let Ok(request) = Request::parse(body, &Limits::default()) else {
        return;
    };
    put(
        &request,
        "messages",
        messages::read_request,
        |conversation| chat::write_request(conversation, &chat_target),
    );
    put(&request, "input", responses::read_request, |conversation| {
        messages::write_request(conversation, &target)
    });
    if let Some(made) = without_seals(request.body(), target.signed) {
        assert!(Node::document(&made.body).is_some());
        assert!(made.body.len() < request.body().len());
    }
}
