//! A request that is put to an upstream of another protocol is JSON, is not much larger, has every text of the
//! conversation as it was spelled, and is the same each time.

use arbitrary::Arbitrary;
use bytes::Bytes;
use sluicegate_core::api::Api;
use sluicegate_core::json::node::Node;
use sluicegate_core::limits::Limits;
use sluicegate_core::protocols::chat::request::{
    ChatTarget, InstructionsRole, LateSystem, ReasoningField,
};
use sluicegate_core::protocols::messages::request::{MessagesTarget, Rest, ThinkingForm};
use sluicegate_core::protocols::responses::conversation::{Page, Turn, page};
use sluicegate_core::protocols::responses::echo::Echo;
use sluicegate_core::protocols::responses::request::{ResponsesRequest, ResponsesTarget};
use sluicegate_core::protocols::{Targets, read_request};
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

/// The protocols with the members that hold their conversation, and what is said before it.
const PROTOCOLS: [(Api, &[&str]); 3] = [
    (Api::Chat, &["messages"]),
    (Api::Responses, &["instructions", "input"]),
    (Api::Messages, &["system", "messages"]),
];

/// What an upstream may want, made of eight bits.
fn targets(bits: u8) -> Targets {
    let bit = |place: u8| bits >> place & 1 == 1;
    let pick = |place: u8| usize::from(bit(place));
    Targets {
        chat: ChatTarget {
            instructions_role: [InstructionsRole::System, InstructionsRole::Developer][pick(0)],
            reasoning: [ReasoningField::ReasoningContent, ReasoningField::None][pick(1)],
            late_system: [LateSystem::System, LateSystem::User][pick(4)],
            ..ChatTarget::default()
        },
        responses: ResponsesTarget {
            takes_reasoning: bit(0),
        },
        messages: MessagesTarget {
            thinking: [ThinkingForm::Adaptive, ThinkingForm::Budget][pick(0)],
            signed: bit(1),
            inline_system: bit(2),
            rest: [Rest::Pass, Rest::Drop][pick(3)],
            ..MessagesTarget::default()
        },
    }
}

/// The texts of a conversation: a string, or those of a list of messages, each a string or texts in a list.
fn texts<'a>(root: Node<'a>, members: &[&str]) -> Vec<&'a [u8]> {
    let said = || members.iter().filter_map(|member| root.get(member));
    let mut found: Vec<_> = said().filter_map(|it| it.spelled()).collect();
    for item in said().flat_map(|it| it.elements()) {
        let is_message = item.get("type").is_none_or(|kind| kind.is("message"));
        let Some(content) = item.get("content").filter(|_| is_message) else {
            continue;
        };
        found.extend(content.spelled());
        for part in content.elements() {
            if let Some(b"text" | b"input_text" | b"output_text") = part.filled("type") {
                found.extend(part.filled("text"));
            }
        }
    }
    found
}

/// Whether there may be white space in a text that Messages has no place for: at the end of a conversation it is cut,
/// and where there is nothing else it is dropped.
fn may_be_changed(text: &[u8]) -> bool {
    text.ends_with(b" ") || text.contains(&b'\\')
}

fn check_translated(request: &Request, targets: &Targets) {
    let root = Node::document(request.body()).expect("a request is JSON");
    for (from, members) in PROTOCOLS {
        for (to, _) in PROTOCOLS.into_iter().filter(|(to, _)| *to != from) {
            let target = targets.of(to).expect("requests are translated to it");
            let written = || {
                let read = read_request(from, request).expect("requests of it are translated");
                read.and_then(|conversation| target.write_request(&conversation))
            };
            let Ok(made) = written() else {
                continue;
            };
            let body = &made.body;
            assert!(body.len() <= BASE + GROWTH * request.body().len());
            assert!(made.left_out.len() <= 17);
            let has_messages = [from, to].contains(&Api::Messages);
            for text in texts(root, members) {
                if text.is_empty() || has_messages && may_be_changed(text) {
                    continue;
                }
                let is_there = body.windows(text.len()).any(|window| window == text);
                assert!(is_there, "{from:?} {to:?} {}", text.escape_ascii());
            }
            let again = written().expect("it was written before");
            assert_eq!(&again.body, body);
            assert!(Request::parse(made.body, &Limits::default()).is_ok());
        }
    }
}

/// What a request that is forwarded loses is seals, and nothing else that makes it JSON.
fn check_forwarded(request: &Request, targets: &Targets) {
    for (api, _) in PROTOCOLS {
        if let Some(made) = targets.without_seals(api, request.body()) {
            assert!(Node::document(&made.body).is_some());
            assert!(made.body.len() < request.body().len());
        }
    }
}

/// What a response repeats of its request is JSON, and so is the list of its items.
fn check_repeated(request: &ResponsesRequest) {
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
}

/// Checks the properties on one input, as a request of each protocol.
pub fn check(input: &[u8]) {
    let Some(input) = super::read::<Input<'_>>(input) else {
        return;
    };
    let limits = Limits::default();
    let body = Bytes::copy_from_slice(input.body);
    let targets = targets(input.target);
    if let Ok(request) = ResponsesRequest::parse(body.clone(), &limits) {
        check_repeated(&request);
    }
    if let Ok(request) = Request::parse(body, &limits) {
        check_translated(&request, &targets);
        check_forwarded(&request, &targets);
    }
}
