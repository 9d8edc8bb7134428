//! A request that is put to an upstream of another protocol is JSON, is not much larger, and has every text of the
//! conversation as it was spelled.

use arbitrary::Arbitrary;
use bytes::Bytes;
use sluicegate_core::json::node::Node;
use sluicegate_core::limits::Limits;
use sluicegate_core::protocols::chat::request::{
    self as chat, ChatTarget, InstructionsRole, ReasoningField,
};
use sluicegate_core::protocols::responses::conversation::{Page, Turn, page};
use sluicegate_core::protocols::responses::echo::Echo;
use sluicegate_core::protocols::responses::request::{
    self as responses, ResponsesRequest, ResponsesTarget,
};
use sluicegate_core::request::Request;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    target: u8,
    body: &'a [u8],
}

/// Bytes of what is made for each of the request's: a custom tool of a few bytes becomes a function with a schema.
const GROWTH: usize = 32;

/// What a request of nothing may have.
const BASE: usize = 1024;

fn made(body: &[u8], request: &[u8]) {
    assert!(Node::document(body).is_some());
    assert!(body.len() <= BASE + GROWTH * request.len());
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    text.is_empty() || body.windows(text.len()).any(|window| window == text)
}

/// The texts of a content, spelled.
fn texts<'a>(content: Node<'a>, found: &mut Vec<&'a [u8]>) {
    found.extend(content.spelled());
    for part in content.elements() {
        if let Some(b"text" | b"input_text" | b"output_text") = part.filled("type") {
            found.extend(part.filled("text"));
        }
    }
}

/// The texts of a conversation: a string, or the messages of a list.
fn conversation<'a>(list: Option<Node<'a>>, found: &mut Vec<&'a [u8]>) {
    let Some(list) = list else {
        return;
    };
    found.extend(list.spelled());
    for item in list.elements() {
        let is_message = item.get("type").is_none_or(|kind| kind.is("message"));
        if let Some(content) = item.get("content").filter(|_| is_message) {
            texts(content, found);
        }
    }
}

fn from_responses(request: &ResponsesRequest, target: u8) {
    let target = ChatTarget {
        instructions_role: [InstructionsRole::System, InstructionsRole::Developer]
            [usize::from(target & 1)],
        reasoning: [ReasoningField::ReasoningContent, ReasoningField::None]
            [usize::from(target >> 1 & 1)],
        ..ChatTarget::default()
    };
    let echo = Echo::of(request, "resp_1", 7);
    let members = [b"{", &echo.members[..], b"}"].concat();
    assert!(Node::document(&members).is_some());
    let turn = Turn {
        id: "resp_1",
        request: request.body(),
        response: b"",
    };
    let asked = Page {
        ascending: true,
        after: None,
        limit: usize::MAX,
    };
    let listed = page(&[turn], &asked).expect("the first page of a list is always there");
    assert!(Node::document(&listed).is_some());
    let read = responses::read_request(request.request());
    let Ok(chat) = read.and_then(|it| chat::write_request(&it, &target)) else {
        return;
    };
    made(&chat.body, request.body());
    let mut found = Vec::new();
    let root = Node::document(request.body()).expect("a request is JSON");
    conversation(root.get("input"), &mut found);
    found.extend(root.get("instructions").and_then(|it| it.spelled()));
    for text in found {
        assert!(contains(&chat.body, text), "{}", text.escape_ascii());
    }
    assert!(Request::parse(chat.body, &Limits::default()).is_ok());
}

fn of_chat(request: &Request, target: u8) {
    let target = ResponsesTarget {
        takes_reasoning: target & 1 == 1,
    };
    let read = chat::read_request(request);
    let Ok(asked) = read.and_then(|it| responses::write_request(&it, &target)) else {
        return;
    };
    made(&asked.body, request.body());
    let mut found = Vec::new();
    let root = Node::document(request.body()).expect("a request is JSON");
    conversation(root.get("messages"), &mut found);
    for text in found {
        assert!(contains(&asked.body, text), "{}", text.escape_ascii());
    }
    assert!(Request::parse(asked.body, &Limits::default()).is_ok());
}

/// Checks the property on one input, as a request of either kind.
pub fn check(input: &[u8]) {
    let Some(input) = super::read::<Input<'_>>(input) else {
        return;
    };
    let limits = Limits::default();
    let body = Bytes::copy_from_slice(input.body);
    if let Ok(request) = ResponsesRequest::parse(body.clone(), &limits) {
        from_responses(&request, input.target);
    }
    if let Ok(request) = Request::parse(body, &limits) {
        of_chat(&request, input.target);
    }
}
