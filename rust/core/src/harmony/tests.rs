use super::*;
use crate::json::string;
use crate::output::Phase;
use proptest::prelude::*;

/// What a piece says, those of the same kind put together.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Output {
    Thinks(String),
    Says(Option<Phase>, String),
    Calls(u64, String, bool, String),
    Break,
}

use Output::{Break, Calls, Says, Thinks};

fn add(said: &mut Vec<Output>, piece: Piece<'_>) {
    // A part may end in the middle of a character: bytes stand in for characters until all is there.
    let text = |text: &[u8]| text.iter().copied().map(char::from).collect::<String>();
    match (piece, said.last_mut()) {
        (Piece::Reasoning(Reasoning::Text(more)), Some(Thinks(so_far))) => *so_far += &text(more),
        (Piece::Reasoning(Reasoning::Text(more)), _) => said.push(Thinks(text(more))),
        (Piece::Text(more), Some(Says(phase, so_far))) if *phase == more.phase => {
            *so_far += &text(more.text);
        }
        (Piece::Text(more), _) => said.push(Says(more.phase, text(more.text))),
        (Piece::Call(call), Some(Calls(index, _, custom, so_far)))
            if call.index == Some(*index) && call.name.is_empty() =>
        {
            assert_eq!(*custom, call.custom);
            *so_far += &text(call.arguments);
        }
        (Piece::Call(call), _) => {
            assert!(!call.name.is_empty() && call.id.is_empty());
            said.push(Calls(
                call.index.unwrap(),
                text(call.name),
                call.custom,
                text(call.arguments),
            ));
        }
        (Piece::Break, _) => said.push(Break),
        (other, _) => panic!("{other:?}"),
    }
}

fn decoded<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<Output> {
    let mut decoder = Decoder::default();
    let mut said = Vec::new();
    for part in parts {
        decoder.feed(part, &mut |piece| add(&mut said, piece));
    }
    decoder.finish(&mut |piece| add(&mut said, piece));
    for said in &mut said {
        if let Thinks(text) | Says(_, text) | Calls(_, _, _, text) = said {
            let spelled: Vec<u8> = text.chars().map(|byte| byte as u8).collect();
            *text = string::decode(&spelled).into_owned();
        }
    }
    said
}

/// `text` in one part, and byte by byte: both must give the same.
fn said(text: &str) -> Vec<Output> {
    let mut spelled = Vec::new();
    string::spell(text, &mut spelled);
    let whole = decoded([&spelled[..]]);
    assert_eq!(decoded(spelled.chunks(1)), whole);
    whole
}

fn final_answer(text: &str) -> Output {
    Says(Some(Phase::FinalAnswer), text.into())
}

fn commentary(text: &str) -> Output {
    Says(Some(Phase::Commentary), text.into())
}

fn call(index: u64, name: &str, arguments: &str) -> Output {
    Calls(index, name.into(), false, arguments.into())
}

#[test]
fn a_recipient_is_said_once() {
    let (name, rest) = ("n".repeat(300), "x".repeat(300));
    for before in ["a b to=", "a b to=c to=", "a b functions."] {
        let text = format!("<|channel|>{before}{name} {rest}");
        let expected = [Calls(0, name.clone(), false, rest.clone()), Break];
        assert_eq!(decoded([text.as_bytes()]), expected, "{before}");
    }
}

#[test]
fn a_reply_with_thinking_and_an_answer() {
    let reply = "<|channel|>analysis<|message|>User says \"hi\".<|end|><|start|>assistant<|channel|>final<|message|>Hi!<|return|>";
    let expected = [
        Thinks("User says \"hi\".".into()),
        Break,
        final_answer("Hi!"),
        Break,
    ];
    assert_eq!(said(reply), expected);
    assert_eq!(said(&format!("<|start|>assistant{reply}")), expected);
    assert_eq!(said(reply.trim_end_matches("<|return|>")), expected);
}

#[test]
fn a_recipient_makes_a_call_wherever_it_stands() {
    for header in [
        "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json",
        "<|start|>assistant<|channel|>commentary to=functions.f<|constrain|>json",
        "<|start|>assistant<|channel|>commentary to=functions.f",
        "<|start|>assistant<|channel|>commentary to=functions.f json",
        "<|start|>assistant<|channel|>commentary functions.f",
        "<|start|>assistant<|channel|>commentary <|constrain|>json to=functions.f",
        "<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json",
        "<|start|>assistant to=functions.f<|channel|>analysis code",
        " to=functions.f<|channel|>commentary <|constrain|>json",
        "to=functions.f<|channel|>commentary",
        "<|channel|>commentary to=functions.f<|channel|>analysis",
        "commentary to=functions.f <|constrain|>json",
        "assistant<|channel|>commentary to=functions.f",
        "<|start|>to=functions.f",
    ] {
        for end in ["<|call|>", "<|end|>", ""] {
            let reply = format!("{header}<|message|>{{\"a\":\"x\\n\"}}{end}");
            assert_eq!(
                said(&reply),
                [call(0, "f", "{\"a\":\"x\\n\"}"), Break],
                "{reply}"
            );
        }
    }
}

#[test]
fn other_recipients() {
    assert_eq!(
        said("<|channel|>analysis to=browser.search code<|message|>{\"query\":\"q\"}<|call|>"),
        [call(0, "browser.search", "{\"query\":\"q\"}"), Break],
    );
    assert_eq!(
        said("<|channel|>analysis to=python code<|message|>print(1)<|call|>"),
        [Calls(0, "python".into(), true, "print(1)".into()), Break],
    );
    assert_eq!(
        said("<|start|>functions.f to=assistant<|channel|>commentary<|message|>{}<|end|>"),
        [commentary("{}"), Break],
    );
}

#[test]
fn many_messages_in_their_order() {
    let reply = concat!(
        "<|channel|>analysis<|message|>one<|end|>",
        "<|start|>assistant<|channel|>analysis<|message|>two<|end|>",
        "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>",
        "<|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|call|>",
        "<|start|>assistant<|channel|>commentary to=functions.g<|message|><|call|>",
        "\n<|start|>assistant<|channel|>analysis<|message|> three<|end|>",
        "<|start|>assistant<|channel|>final<|message|>Done.\n",
    );
    let expected = [
        Thinks("one".into()),
        Break,
        Thinks("two".into()),
        Break,
        commentary("I look."),
        Break,
        call(0, "f", "{}"),
        Break,
        call(1, "g", ""),
        Break,
        Thinks(" three".into()),
        Break,
        final_answer("Done.\n"),
        Break,
    ];
    assert_eq!(said(reply), expected);
}

#[test]
fn tokens_that_are_missing() {
    // The message ends where the next begins.
    for between in [
        "<|start|>assistant<|channel|>",
        "<|channel|>",
        "<|end|><|channel|>",
        "<|end|>assistant<|channel|>",
    ] {
        assert_eq!(
            said(&format!(
                "<|channel|>analysis<|message|>a{between}final<|message|>b"
            )),
            [Thinks("a".into()), Break, final_answer("b"), Break],
            "{between}",
        );
    }
    assert_eq!(
        said("analysis<|message|>a<|end|>"),
        [Thinks("a".into()), Break]
    );
    // Without <|message|>, what follows the header's words is the message.
    assert_eq!(
        said("<|channel|>commentary Hello you<|end|>"),
        [commentary("Hello you"), Break]
    );
    assert_eq!(
        said("<|start|>assistant Hello<|return|>"),
        [Says(None, "Hello".into()), Break]
    );
    assert_eq!(
        said("<|channel|>commentary to=functions.f {\"a\":1}<|call|>"),
        [call(0, "f", "{\"a\":1}"), Break]
    );
    assert_eq!(
        said("<|message|>Hello"),
        [Says(None, "Hello".into()), Break]
    );
}

#[test]
fn a_reply_cut_off_anywhere_ends_there() {
    let reply = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":1}";
    let open = reply.rfind("<|message|>").unwrap() + "<|message|>".len();
    for end in 0..=reply.len() {
        let said = said(&reply[..end]);
        let calls = said.iter().filter(|said| matches!(said, Calls(..))).count();
        assert_eq!(calls, usize::from(end >= open), "{end}: {said:?}");
        if end >= open {
            assert_eq!(said[2], call(0, "f", &reply[open..end]));
        }
    }
    assert_eq!(
        said("<|channel|>final<|message|>a<|start|>"),
        [final_answer("a"), Break]
    );
    assert_eq!(
        said("<|channel|>final<|message|>a<|e"),
        [final_answer("a<|e"), Break]
    );
}

#[test]
fn text_without_tokens_is_text() {
    for text in [
        "Hello",
        " ",
        "\n to be",
        "to=",
        "final",
        "finally",
        "assistant",
        "analysis of it",
        "a <|b|> c <",
        "to=x y z w v",
    ] {
        assert_eq!(said(text), [Says(None, text.into()), Break], "{text:?}");
        let ended = format!("{text}<|return|>");
        let expected: &[Output] = if text == " " {
            &[]
        } else {
            &[Says(None, text.into()), Break]
        };
        assert_eq!(said(&ended), expected, "{ended:?}");
    }
    assert_eq!(said(""), []);
    assert_eq!(
        said("Hello<|end|><|start|>assistant<|channel|>final<|message|>you"),
        [
            Says(None, "Hello".into()),
            Break,
            final_answer("you"),
            Break
        ],
    );
}

#[test]
fn tokens_that_a_message_is_about_are_its_text() {
    let text = "A header is `<|start|>` and a role, `<|channel|>` and a channel, `<|message|>`; <|constrain|> too.";
    assert_eq!(
        said(&format!("<|channel|>final<|message|>{text}<|return|>")),
        [final_answer(text), Break],
    );
    let long = format!("<|channel|>{}", "final ".repeat(200));
    assert_eq!(
        said(&format!("<|channel|>final<|message|>{long}")),
        [final_answer(&long), Break],
    );
}

#[test]
fn a_header_without_end_is_given_up() {
    let long = "word ".repeat(200);
    assert_eq!(
        said(&format!("<|channel|>final {long}")),
        [final_answer(&long), Break]
    );
    let to = format!("to={}", "x".repeat(900));
    assert_eq!(said(&to), [Says(None, to), Break]);
}

#[test]
fn letters_are_spelled_as_they_came() {
    let reply = br"\u003c|channel|\u003efinal\u003c|message|\u003e\u00e9\ud83d";
    let mut texts = Vec::new();
    let mut decoder = Decoder::default();
    let mut keep = |piece: Piece<'_>| {
        if let Piece::Text(text) = piece {
            texts.extend_from_slice(text.text);
        }
    };
    decoder.feed(reply, &mut keep);
    decoder.feed(br"\ude00\u003c|return|\u003e", &mut keep);
    decoder.finish(&mut keep);
    assert_eq!(texts, br"\u00e9\ud83d\ude00");
    assert_eq!(decoder.calls(), 0);
}

fn part() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "<|start|>",
        "<|channel|>",
        "<|constrain|>",
        "<|message|>",
        "<|end|>",
        "<|call|>",
        "<|return|>",
        "assistant",
        "analysis",
        "final",
        "commentary",
        " to=functions.f",
        "to=python",
        "json",
        " ",
        "\n",
        "é😀",
        "\"\\",
        "<|",
        "|>",
        "hello",
        "{}",
    ])
}

proptest! {
    #[test]
    fn any_cut_gives_the_same(parts in proptest::collection::vec(part(), 0..14), cuts in proptest::collection::vec(0usize..200, 0..8)) {
        let mut spelled = Vec::new();
        string::spell(&parts.concat(), &mut spelled);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(spelled.len())).collect();
        cuts.sort_unstable();
        cuts.insert(0, 0);
        cuts.push(spelled.len());
        let pieces = cuts.windows(2).map(|cut| &spelled[cut[0]..cut[1]]);
        let whole = decoded([&spelled[..]]);
        prop_assert_eq!(decoded(pieces), whole.clone());
        prop_assert_eq!(decoded(spelled.chunks(1)), whole);
    }

    #[test]
    fn text_of_messages_comes_out_whole(texts in proptest::collection::vec(("[a-z é😀\"\\\\\n<|>]{1,12}", 0usize..4), 1..6)) {
        let mut reply = String::new();
        let mut expected = Vec::new();
        let mut calls = 0;
        for (text, kind) in &texts {
            let (header, said) = match kind {
                0 => ("<|channel|>analysis", Thinks(text.clone())),
                1 => ("<|channel|>commentary", commentary(text)),
                2 => ("<|channel|>final", final_answer(text)),
                _ => {
                    calls += 1;
                    (" to=functions.f<|channel|>commentary", call(calls - 1, "f", text))
                }
            };
            reply += &format!("<|start|>assistant{header}<|message|>{text}<|end|>");
            expected.extend([said, Break]);
        }
        prop_assert_eq!(said(&reply), expected);
    }
}

/// Replies that would take hours if each token were weighed against all before it.
#[test]
fn tokens_without_end_cost_no_more_than_their_bytes() {
    for (lead, token) in [
        ("<|channel|>final", "<|constrain|>"),
        ("<|channel|>final", "<|channel|>"),
        ("<|channel|>final<|message|>a", "<|channel|>"),
        ("<|channel|>final<|message|>a", "<|start|>"),
        ("", "<|constrain|>"),
        ("", "<|channel|>final"),
        ("<|start|>assistant", "<|channel|>final "),
        ("<|channel|>final<|message|>a", "<|start|>assistant"),
    ] {
        let reply = [lead, &token.repeat(1 << 16)].concat();
        let mut decoder = Decoder::default();
        let mut pieces = 0_usize;
        let mut bytes = 0;
        let mut count = |piece: Piece<'_>| {
            pieces += 1;
            if let Piece::Text(text) = piece {
                bytes += text.text.len();
            }
        };
        for part in reply.as_bytes().chunks(1000) {
            decoder.feed(part, &mut count);
        }
        decoder.finish(&mut count);
        assert!(pieces > 0 && bytes <= reply.len(), "{lead}{token}");
    }
}

#[test]
fn too_many_tokens_make_no_header() {
    let tokens = "<|constrain|>".repeat(9);
    assert_eq!(
        said(&format!("<|channel|>final{tokens}json")),
        [final_answer("<|constrain|><|constrain|>json"), Break]
    );
}

#[test]
fn a_header_that_is_given_up_ends_between_characters() {
    for before in 0..4 {
        let words = [&"j".repeat(before), "é\u{1F600}".repeat(200).as_str()].concat();
        let said = said(&format!("<|constrain|>{words}"));
        let [Says(_, text), Break] = &said[..] else {
            panic!("{said:?}");
        };
        assert!(words.ends_with(text.as_str()), "{text}");
    }
}
