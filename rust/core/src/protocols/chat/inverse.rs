//! Property tests of both directions: folding undoes unfolding.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use proptest::sample::Index;

use super::fold::{ChatFold, fold_chat};
use super::tree::{Tree, any_text, any_tree, number};
use super::unfold::{Unfold, unfold_chat};
use crate::limits::Limits;
use crate::sse::event::Events;

const WITH_USAGE: Unfold = Unfold {
    include_usage: true,
};

fn unfold(completion: &Tree, options: Unfold) -> Vec<u8> {
    let text = completion.to_string();
    unfold_chat(text.as_bytes(), options, Limits::default()).unwrap()
}

fn fold(stream: &[u8]) -> Tree {
    Tree::parse(&fold_chat(stream, Limits::default()).unwrap())
}

/// The data of a stream's events, `[DONE]` left out.
fn payloads(stream: &[u8]) -> Vec<Tree> {
    Events::new(stream)
        .map(|event| event.data().unwrap().to_vec())
        .filter(|data| data != b"[DONE]")
        .map(|data| Tree::parse(&data))
        .collect()
}

/// Some of `members`, and some that nobody knows.
fn some_of(
    members: Vec<(&'static str, BoxedStrategy<Tree>)>,
) -> impl Strategy<Value = BTreeMap<String, Tree>> {
    let known: Vec<_> = members
        .into_iter()
        .map(|(key, value)| prop::option::of(value).prop_map(move |value| (key.to_owned(), value)))
        .collect();
    let unknown = prop::collection::btree_map("[a-z_\"\\\\é]{1,6}", any_tree(), 0..3);
    (known, unknown).prop_map(|(known, mut all)| {
        // An unknown key that happens to be a known one would not be arbitrary any more.
        all.retain(|key, _| key.len() > 1 && !KNOWN.contains(&&**key));
        all.extend(
            known
                .into_iter()
                .filter_map(|(key, value)| Some((key, value?))),
        );
        all
    })
}

const KNOWN: &[&str] = &[
    "audio", "delta", "error", "images", "index", "input", "object", "role", "text", "type",
    "usage", "custom", "name", "data", "model",
];

fn text_or_null() -> BoxedStrategy<Tree> {
    prop_oneof![3 => any_text(), 1 => Just(Tree::null())].boxed()
}

fn list_of(value: impl Strategy<Value = Tree> + 'static) -> BoxedStrategy<Tree> {
    prop::collection::vec(value, 0..4)
        .prop_map(Tree::List)
        .boxed()
}

fn object_of(members: Vec<(&'static str, BoxedStrategy<Tree>)>) -> BoxedStrategy<Tree> {
    some_of(members).prop_map(Tree::Object).boxed()
}

fn or_anything(value: BoxedStrategy<Tree>) -> BoxedStrategy<Tree> {
    prop_oneof![8 => value, 1 => any_tree()].boxed()
}

fn parts() -> BoxedStrategy<Tree> {
    let kinds = "text|thinking|reasoning\\.text|reasoning\\.encrypted|image_url";
    let inner = object_of(vec![
        ("type", Just(Tree::text("text")).boxed()),
        ("text", any_text().boxed()),
    ]);
    let thinking = prop_oneof![any_text(), list_of(inner)].boxed();
    list_of(or_anything(object_of(vec![
        ("type", kinds.prop_map(Tree::Text).boxed()),
        ("text", or_anything(text_or_null())),
        ("thinking", thinking),
        ("signature", text_or_null()),
        ("index", "0|1".prop_map(Tree::Plain).boxed()),
    ])))
}

fn function() -> BoxedStrategy<Tree> {
    object_of(vec![("name", any_text().boxed())])
        .prop_flat_map(|function| (Just(function), any_text()))
        .prop_map(|(mut function, arguments)| {
            if let Tree::Object(members) = &mut function {
                members.insert("arguments".into(), arguments);
            }
            function
        })
        .boxed()
}

/// Calls with ids of their own.
fn calls() -> BoxedStrategy<Tree> {
    let call = (
        "function|custom",
        or_anything(function()),
        object_of(vec![("extra_content", any_tree().boxed())]),
    );
    prop::collection::vec(call, 0..4)
        .prop_map(|calls| {
            let calls = calls
                .into_iter()
                .enumerate()
                .map(|(i, (kind, inner, mut call))| {
                    if let Tree::Object(members) = &mut call {
                        members.insert("id".into(), Tree::Text(format!("call_{i}")));
                        // An object needs arguments to be a function, anything else is kept as it is.
                        let is_call =
                            inner.get("arguments").is_some() || !matches!(inner, Tree::Object(_));
                        let key = if is_call { kind.as_str() } else { "unknown" };
                        members.insert(key.into(), inner);
                        members.insert("type".into(), Tree::Text(kind));
                    }
                    call
                });
            Tree::List(calls.collect())
        })
        .boxed()
}

fn message() -> BoxedStrategy<Tree> {
    let members = some_of(vec![
        (
            "content",
            prop_oneof![6 => text_or_null(), 1 => parts(), 1 => any_tree()].boxed(),
        ),
        ("reasoning_content", or_anything(text_or_null())),
        ("reasoning", text_or_null()),
        ("thinking", text_or_null()),
        ("reasoning_details", or_anything(parts())),
        ("refusal", text_or_null()),
        (
            "tool_calls",
            prop_oneof![6 => calls(), 1 => Just(Tree::null())].boxed(),
        ),
        ("function_call", or_anything(function())),
        ("annotations", or_anything(list_of(any_tree()))),
        (
            "audio",
            or_anything(object_of(vec![
                ("data", text_or_null()),
                ("transcript", text_or_null()),
            ])),
        ),
    ]);
    members
        .prop_map(|mut members| {
            members.insert("role".into(), Tree::text("assistant"));
            Tree::Object(members)
        })
        .boxed()
}

fn choice_members() -> Vec<(&'static str, BoxedStrategy<Tree>)> {
    let tokens = || prop_oneof![4 => list_of(any_tree()), 1 => Just(Tree::null())].boxed();
    let finish = "stop|length|tool_calls|content_filter|eos|".prop_map(Tree::Text);
    vec![
        (
            "finish_reason",
            prop_oneof![4 => finish, 1 => Just(Tree::null())].boxed(),
        ),
        (
            "logprobs",
            or_anything(object_of(vec![
                ("content", tokens()),
                ("refusal", tokens()),
                ("top_logprobs", tokens()),
            ])),
        ),
        ("token_ids", or_anything(list_of(number()))),
    ]
}

/// A completion as OpenAI's schema has it: `choices` in the order of their indices, each message with a role, tool
/// calls told apart by their ids, a function with arguments. All else is arbitrary.
fn completion() -> impl Strategy<Value = Tree> {
    let chat = (some_of(choice_members()), message()).prop_map(|(mut choice, message)| {
        choice.insert("message".into(), message);
        choice
    });
    let text = (some_of(choice_members()), text_or_null()).prop_map(|(mut choice, text)| {
        choice.insert("text".into(), text);
        choice
    });
    let choices = prop_oneof![
        3 => (Just("chat.completion"), prop::collection::vec((1..4u64, chat), 0..4)),
        1 => (Just("text_completion"), prop::collection::vec((1..4u64, text), 0..4)),
    ];
    let top = some_of(vec![
        ("id", or_anything(text_or_null())),
        ("created", or_anything(number().boxed())),
        ("model", or_anything(text_or_null())),
        ("system_fingerprint", or_anything(text_or_null())),
        ("usage", prop_oneof![4 => object_of(vec![("prompt_tokens", number().boxed()), ("cost", number().boxed())]), 1 => any_tree()].boxed()),
        ("error", "null|false|0".prop_map(Tree::Plain).boxed()),
    ]);
    (top, choices).prop_map(|(mut members, (object, choices))| {
        let mut index = 0;
        let choices = choices.into_iter().map(|(step, mut choice)| {
            index += step;
            choice.insert("index".into(), Tree::Plain((index - 1).to_string()));
            Tree::Object(choice)
        });
        members.insert("choices".into(), Tree::List(choices.collect()));
        members.insert("object".into(), Tree::text(object));
        Tree::Object(members)
    })
}

/// The texts of a chunk, at the places where they come in pieces.
fn streamed_text(chunk: &mut Tree) -> Option<&mut String> {
    let choice = chunk.get_mut("choices")?.list_mut().first_mut()?;
    if choice.get("text").is_some() {
        return as_text(choice.get_mut("text"));
    }
    let delta = choice.get_mut("delta")?;
    if delta.get("tool_calls").is_some() {
        let call = delta.get_mut("tool_calls")?.list_mut().first_mut()?;
        return as_text(call.get_mut("function")?.get_mut("arguments"));
    }
    let key = [
        "content",
        "reasoning_content",
        "reasoning",
        "thinking",
        "refusal",
    ];
    let key = key
        .into_iter()
        .find(|key| matches!(delta.get(key), Some(Tree::Text(_))))?;
    as_text(delta.get_mut(key))
}

fn as_text(tree: Option<&mut Tree>) -> Option<&mut String> {
    match tree {
        Some(Tree::Text(text)) => Some(text),
        _ => None,
    }
}

/// The chunk, and behind it one that says the rest of its text and nothing else.
fn cut(chunk: &Tree, at: Index) -> Vec<Tree> {
    let mut head = chunk.clone();
    let Some(text) = streamed_text(&mut head).filter(|text| !text.is_empty()) else {
        return vec![head];
    };
    let at = at.index(text.chars().count() + 1);
    let rest: String = text.chars().skip(at).collect();
    *text = text.chars().take(at).collect();
    let index = |tree: &Tree| tree.get("index").cloned().unwrap_or_else(Tree::null);
    let choice = head.get_mut("choices").unwrap().list_mut()[0].clone();
    let rest = Tree::Text(rest);
    let mut tail = vec![("index", index(&choice))];
    if choice.get("text").is_some() {
        tail.push(("text", rest));
    } else {
        let mut delta = choice.get("delta").unwrap().clone();
        let said = match delta.get_mut("tool_calls") {
            Some(calls) => {
                let call = index(&calls.list_mut()[0]);
                let function = Tree::object([("arguments", rest)]);
                (
                    "tool_calls",
                    Tree::List(vec![Tree::object([
                        ("index", call),
                        ("function", function),
                    ])]),
                )
            }
            None => {
                let keys = [
                    "content",
                    "reasoning_content",
                    "reasoning",
                    "thinking",
                    "refusal",
                ];
                let is_text = |key: &&str| matches!(delta.get(key), Some(Tree::Text(_)));
                (keys.into_iter().find(is_text).unwrap(), rest)
            }
        };
        tail.push(("delta", Tree::object([said])));
    }
    let tail = Tree::object([("choices", Tree::List(vec![Tree::object(tail)]))]);
    vec![head, tail]
}

proptest! {
    #[test]
    fn folding_undoes_unfolding(completion in completion()) {
        prop_assert_eq!(fold(&unfold(&completion, WITH_USAGE)), completion);
    }

    #[test]
    fn without_usage_all_else_comes_back(completion in completion()) {
        let folded = fold(&unfold(&completion, Unfold::default()));
        let Tree::Object(mut members) = completion else { panic!() };
        members.remove("usage");
        prop_assert_eq!(folded, Tree::Object(members));
    }

    /// However the texts are cut, and whichever choice is ahead of the others.
    #[test]
    fn folding_does_not_depend_on_cuts_and_order(
        completion in completion(),
        cuts in prop::collection::vec(any::<Index>(), 1..20),
        turns in prop::collection::vec(any::<Index>(), 1..20),
    ) {
        let chunks = payloads(&unfold(&completion, WITH_USAGE));
        let mut queues: BTreeMap<String, VecDeque<Tree>> = BTreeMap::new();
        for (chunk, at) in chunks.iter().zip(cuts.iter().cycle()) {
            for mut piece in cut(chunk, *at) {
                let choice = piece.get_mut("choices").and_then(|choices| choices.list_mut().first());
                let index = choice.and_then(|choice| choice.get("index")).map(Tree::to_string);
                queues.entry(index.unwrap_or_default()).or_default().push_back(piece);
            }
        }
        let mut mixed = ChatFold::new(Limits::default());
        for turn in turns.iter().cycle() {
            queues.retain(|_, queue| !queue.is_empty());
            if queues.is_empty() {
                break;
            }
            let turn = turn.index(queues.len());
            let piece = queues.values_mut().nth(turn).and_then(VecDeque::pop_front).unwrap();
            mixed.push(piece.to_string().as_bytes()).unwrap();
        }
        prop_assert_eq!(Tree::parse(&mixed.finish().unwrap()), completion);
    }

    #[test]
    fn any_document_gives_a_stream_that_folds(value in any_tree()) {
        let choice = Tree::object([("message", value.clone()), ("logprobs", value.clone())]);
        let document = Tree::object([("choices", Tree::List(vec![value, choice]))]);
        prop_assert!(fold_chat(&unfold(&document, WITH_USAGE), Limits::default()).is_ok());
    }
}
