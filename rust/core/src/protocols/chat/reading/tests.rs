use super::*;

/// The pieces of a chunk with this delta, the head left out, written as Rust would.
fn pieces(delta: &str) -> Vec<String> {
    of_choice(&format!("{{\"index\":0,\"delta\":{delta}}}"))
}

fn of_choice(choice: &str) -> Vec<String> {
    let chunk = format!("{{\"id\":\"c\",\"choices\":[{choice}]}}");
    let mut pieces = Vec::new();
    ChatChunks::default()
        .read(chunk.as_bytes(), &mut |piece| pieces.push(shown(piece)))
        .unwrap();
    assert!(pieces.remove(0).starts_with("head"));
    pieces
}

fn shown(piece: &Piece<'_>) -> String {
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match piece {
        Piece::Head(head) => format!("head {}", words(head.model.unwrap_or_default())),
        Piece::Reasoning(Reasoning::Text(text)) => format!("thinks {}", words(text)),
        Piece::Reasoning(Reasoning::Summary(text)) => format!("sums up {}", words(text)),
        Piece::Reasoning(Reasoning::Sealed(sealed)) => format!("hides {}", words(sealed.data)),
        Piece::Text(Text { text, logprobs, .. }) => {
            let logprobs = logprobs.map_or(String::new(), |list| format!(" {}", words(list)));
            format!("says {}{logprobs}", words(text))
        }
        Piece::Refusal(text) => format!("refuses {}", words(text)),
        Piece::Annotation(noted) => format!("notes {}", words(noted.json)),
        Piece::Call(call) => {
            let index = call.index.map_or("-".into(), |index| index.to_string());
            let extra = call
                .extra
                .map_or(String::new(), |extra| format!(" {}", words(extra)));
            let custom = if call.custom { " custom" } else { "" };
            let (id, name) = (words(call.id), words(call.name));
            format!(
                "calls {index} {id} {name} {}{custom}{extra}",
                words(call.arguments)
            )
        }
        Piece::Finish(finish) => {
            let sequence = finish
                .sequence
                .map_or(String::new(), |at| format!(" at {}", words(at)));
            format!("stops {:?} {}{sequence}", finish.reason, words(finish.word))
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn one_delta_is_taken_in_the_order_of_thought() {
    let delta = r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}],"refusal":"no","content":"c","reasoning":"r"}"#;
    assert_eq!(
        pieces(delta),
        ["thinks r", "says c", "refuses no", "calls 0 a f {}"]
    );
}

#[test]
fn reasoning_has_many_names_and_is_said_once() {
    for name in REASONING {
        assert_eq!(pieces(&format!("{{\"{name}\":\"r\"}}")), ["thinks r"]);
    }
    assert_eq!(
        pieces(r#"{"reasoning":"r","reasoning_content":"r"}"#),
        ["thinks r"]
    );
    assert_eq!(
        pieces(r#"{"reasoning":"r","reasoning_content":null}"#),
        ["thinks r"]
    );
    assert_eq!(
        pieces(r#"{"reasoning":"r","reasoning_content":""}"#),
        ["thinks r"]
    );
    assert_eq!(pieces(r#"{"reasoning":""}"#), ["thinks "]);
    assert_eq!(
        pieces(
            r#"{"reasoning":"r","reasoning_details":[{"type":"reasoning.text","text":"r"},{"type":"reasoning.encrypted","data":"x"}]}"#
        ),
        ["thinks r", "hides x"]
    );
    assert_eq!(
        pieces(
            r#"{"reasoning_details":[{"type":"reasoning.summary","summary":"s"},{"type":"reasoning.text","text":"t"}]}"#
        ),
        ["sums up s", "thinks t"]
    );
}

#[test]
fn a_signature_is_given_behind_its_text() {
    let detail = |text: &str, signature: &str| {
        format!(r#"{{"type":"reasoning.text","text":{text},"signature":{signature},"index":0}}"#)
    };
    let details = |details: &[String]| format!("\"reasoning_details\":[{}]", details.join(","));
    let signed = details(&[detail("null", "\"s\"")]);
    assert_eq!(pieces(&format!("{{{signed}}}")), ["hides s"]);
    // All of it at once.
    let signed = details(&[detail("\"r\"", "\"s\"")]);
    assert_eq!(pieces(&format!("{{{signed}}}")), ["thinks r", "hides s"]);
    let both = format!("{{\"reasoning\":\"r\",{signed}}}");
    assert_eq!(pieces(&both), ["thinks r", "hides s"]);
    let signed = details(&[detail("\"q\"", "\"s\""), detail("\"r\"", "\"t\"")]);
    let both = format!("{{\"reasoning\":\"qr\",{signed}}}");
    assert_eq!(
        pieces(&both),
        ["thinks q", "hides s", "thinks r", "hides t"]
    );
}

#[test]
fn text_that_strings_have_said_is_not_said_again_beside_its_signature() {
    let mut reader = ChatChunks::default();
    let mut read = |delta: &str| {
        let mut seen = Vec::new();
        let chunk = format!("{{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}");
        let give = &mut |piece: &Piece<'_>| match piece {
            Piece::Head(_) => {}
            piece => seen.push(shown(piece)),
        };
        reader.read(chunk.as_bytes(), give).unwrap();
        (seen, reader.remembers())
    };
    let text = r#"{"reasoning_details":[{"type":"reasoning.text","text":"q"}]}"#;
    assert_eq!(read(text), (vec!["thinks q".to_owned()], true));
    assert_eq!(
        read(r#"{"reasoning":"r"}"#),
        (vec!["thinks r".to_owned()], false)
    );
    let again = r#"{"reasoning_details":[{"type":"reasoning.text","text":"qr","signature":"s"}]}"#;
    assert_eq!(read(again), (vec!["hides s".to_owned()], true));
}

#[test]
fn content_may_be_typed_parts() {
    assert_eq!(
        pieces(
            r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"type":"text","text":"c"}]}"#
        ),
        ["thinks a", "thinks b", "says c"]
    );
    assert_eq!(
        pieces(r#"{"content":[{"type":"thinking","thinking":"a"}]}"#),
        ["thinks a"]
    );
    assert_eq!(
        pieces(r#"{"content":[{"type":"refusal","refusal":"no"},{"type":"reference"},7]}"#),
        ["refuses no"]
    );
}

#[test]
fn nothing_is_made_of_null() {
    assert_eq!(
        pieces(
            r#"{"role":"assistant","content":null,"refusal":null,"tool_calls":null,"function_call":null,"reasoning":null}"#
        ),
        [""; 0]
    );
    assert_eq!(pieces("null"), [""; 0]);
    assert_eq!(of_choice(r#"{"index":0,"finish_reason":""}"#), [""; 0]);
    assert_eq!(
        of_choice(r#"{"index":1,"delta":{"content":"second choice"}}"#),
        [""; 0]
    );
}

#[test]
fn calls_come_in_every_shape() {
    assert_eq!(
        pieces(r#"{"tool_calls":{"index":0,"id":null,"function":{"name":"f","arguments":null}}}"#),
        ["calls 0  f "]
    );
    assert_eq!(
        pieces(
            r#"{"tool_calls":[{"id":"a","type":"custom","custom":{"name":"f","input":"ls"}},{"function":{"arguments":"{"}}]}"#
        ),
        ["calls - a f ls custom", "calls -   {"]
    );
    assert_eq!(
        pieces(r#"{"tool_calls":[{"function":{"name":"f","arguments":{"a": "b"}}}]}"#),
        [r#"calls -  f {\"a\": \"b\"}"#]
    );
    assert_eq!(
        pieces(r#"{"function_call":{"name":"f","arguments":"{}"}}"#),
        ["calls -  f {}"]
    );
    assert_eq!(
        pieces(
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f"},"extra_content":{"google":{"thought_signature":"s"}}}]}"#
        ),
        [r#"calls 0 a f  {"google":{"thought_signature":"s"}}"#]
    );
}

#[test]
fn what_stands_beside_the_delta_is_read() {
    assert_eq!(
        of_choice(
            r#"{"finish_reason":"stop","logprobs":{"content":[{"token":"a"}]},"delta":{"content":"a","annotations":[{"type":"url_citation"}]}}"#
        ),
        [
            r#"says a [{"token":"a"}]"#,
            r#"notes {"type":"url_citation"}"#,
            "stops Stop stop"
        ]
    );
    assert_eq!(
        of_choice(r#"{"logprobs":{"content":[]},"delta":{}}"#),
        [""; 0]
    );
    assert_eq!(of_choice(r#"{"text":"once","index":0}"#), ["says once"]);
    assert_eq!(
        of_choice(r#"{"message":{"content":"whole"}}"#),
        ["says whole"]
    );
}

#[test]
fn what_is_no_json_gives_nothing() {
    for payload in [
        "",
        "{",
        "{\"choices\":[{\"delta\":{\"content\":\"a\"}}]} x",
        "{\"choices\":[{\"delta\":{\"content\":\"a\"}]}",
    ] {
        let read = ChatChunks::default().read(payload.as_bytes(), &mut |_| unreachable!());
        assert!(read.is_err(), "{payload}");
    }
}

#[test]
fn words_of_other_servers_are_known() {
    for (members, expected) in [
        (
            r#""finish_reason":"stop","stop_reason":"END""#,
            "stops Sequence stop at END",
        ),
        (
            r#""finish_reason":"stop","stop_reason":2"#,
            "stops Stop stop",
        ),
        (
            r#""finish_reason":"stop","stop_reason":null"#,
            "stops Stop stop",
        ),
        (
            r#""finish_reason":"function_call""#,
            "stops Calls function_call",
        ),
        (r#""finish_reason":"MAX_TOKENS""#, "stops Length MAX_TOKENS"),
        (r#""finish_reason":"SAFETY""#, "stops Filter SAFETY"),
        (
            r#""finish_reason":"insufficient_system_resource""#,
            "stops Failed insufficient_system_resource",
        ),
        (r#""finish_reason":"eos""#, "stops Other eos"),
    ] {
        assert_eq!(
            of_choice(&format!("{{\"index\":0,\"delta\":{{}},{members}}}")),
            [expected]
        );
    }
}
