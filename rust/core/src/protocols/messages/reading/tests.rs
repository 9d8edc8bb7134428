use super::*;
use crate::output::Reason;
use proptest::prelude::*;

/// What pieces say, one a line, parts of the same text put together.
fn log(events: &[&str]) -> Vec<String> {
    let mut reader = MessageEvents::default();
    let mut lines: Vec<String> = Vec::new();
    let mut add = |piece: &Piece<'_>| {
        let text = |text: &[u8]| String::from_utf8(text.to_vec()).unwrap();
        let line = match piece {
            Piece::Head(head) => format!("head {}", text(head.id.unwrap_or_default())),
            Piece::Text(said) => format!("says: {}", text(said.text)),
            Piece::Reasoning(Reasoning::Text(words)) => format!("thinks: {}", text(words)),
            Piece::Reasoning(Reasoning::Sealed(sealed)) if sealed.signs_text => {
                format!("signs {}", text(sealed.data))
            }
            Piece::Reasoning(Reasoning::Sealed(sealed)) => format!("hides {}", text(sealed.data)),
            Piece::Annotation(noted) => format!("cites {}", text(noted.json)),
            Piece::Call(call) if call.name.is_empty() => {
                format!("call {}: {}", call.index.unwrap(), text(call.arguments))
            }
            Piece::Call(call) => format!(
                "begins {} {} {} or {}",
                call.index.unwrap(),
                text(call.id),
                text(call.name),
                text(call.fallback)
            ),
            Piece::Item(item) => format!("item {}", text(item.json)),
            Piece::Finish(finish) => {
                let sequence = finish.sequence.map(text).unwrap_or_default();
                format!("stops {:?} {sequence}", finish.reason)
                    .trim_end()
                    .into()
            }
            other => format!("{other:?}"),
        };
        match (lines.last_mut(), line.split_once(": ")) {
            (Some(last), Some((kind, words))) if last.starts_with(&format!("{kind}: ")) => {
                last.push_str(words);
            }
            _ => lines.push(line),
        }
    };
    for event in events {
        reader.read(event.as_bytes(), &mut add).unwrap();
    }
    reader.end(&mut add);
    lines
}

const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"up","content":[],"usage":{"input_tokens":10,"output_tokens":1}}}"#;
const STOP: &str = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":4}}"#;

fn start(index: u64, block: &str) -> String {
    format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
}

fn delta(index: u64, delta: &str) -> String {
    format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#)
}

fn stop(index: u64) -> String {
    format!(r#"{{"type":"content_block_stop","index":{index}}}"#)
}

fn of(events: &[String]) -> Vec<String> {
    log(&events.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_stream_and_the_whole_message_say_the_same() {
    let events = [
        START.to_owned(),
        start(0, r#"{"type":"thinking","thinking":"","signature":""}"#),
        r#"{"type":"ping"}"#.to_owned(),
        delta(0, r#"{"type":"thinking_delta","thinking":"H"}"#),
        delta(0, r#"{"type":"thinking_delta","thinking":"m."}"#),
        delta(0, r#"{"type":"signature_delta","signature":"EqQB"}"#),
        stop(0),
        start(1, r#"{"type":"redacted_thinking","data":"EmwK"}"#),
        stop(1),
        start(2, r#"{"type":"text","text":""}"#),
        delta(2, r#"{"type":"text_delta","text":"A \u00e9"}"#),
        stop(2),
        start(3, r#"{"type":"tool_use","id":"toolu_1","name":"look","input":{}}"#),
        delta(3, r#"{"type":"input_json_delta","partial_json":""}"#),
        delta(3, r#"{"type":"input_json_delta","partial_json":"{\"q\":1}"}"#),
        stop(3),
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":4}}"#.to_owned(),
        r#"{"type":"message_stop"}"#.to_owned(),
    ];
    let expected = [
        "head msg_1",
        "thinks: Hm.",
        "signs EqQB",
        "hides EmwK",
        r"says: A \u00e9",
        "begins 3 toolu_1 look or {}",
        r#"call 3: {\"q\":1}"#,
        "Break",
        "stops Calls",
    ];
    assert_eq!(of(&events), expected);
    let whole = r#"{"id":"msg_1","type":"message","model":"up","content":[{"type":"thinking","thinking":"Hm.","signature":"EqQB"},{"type":"redacted_thinking","data":"EmwK"},{"type":"text","text":"A \u00e9"},{"type":"tool_use","id":"toolu_1","name":"look","input":{"q": 1}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":4}}"#;
    let expected = [
        "head msg_1",
        "thinks: Hm.",
        "signs EqQB",
        "hides EmwK",
        r"says: A \u00e9",
        r#"begins 3 toolu_1 look or {\"q\":1}"#,
        "Break",
        "stops Calls",
    ];
    assert_eq!(log(&[whole]), expected);
}

#[test]
fn blocks_of_text_are_parts_of_one_answer_and_unsigned_thinking_is_apart() {
    let block = |index, block: &str| [start(index, block), stop(index)];
    let events = [
        block(0, r#"{"type":"thinking","thinking":"a"}"#),
        block(1, r#"{"type":"thinking","thinking":"b","signature":"s"}"#),
        block(2, r#"{"type":"thinking","thinking":"c"}"#),
        block(
            3,
            r#"{"type":"text","text":"d","citations":[{"type":"page_location"}]}"#,
        ),
        block(4, r#"{"type":"text","text":"e"}"#),
    ];
    assert_eq!(
        of(&events.concat()),
        [
            "thinks: a",
            "Break",
            "thinks: b",
            "signs s",
            "thinks: c",
            r#"cites {"type":"page_location"}"#,
            "says: d",
            "Part",
            "says: e"
        ]
    );
}

#[test]
fn blocks_that_are_closed_late_are_read_in_their_order() {
    let events = [
        start(0, r#"{"type":"thinking","thinking":""}"#),
        delta(0, r#"{"type":"thinking_delta","thinking":"Hm."}"#),
        start(1, r#"{"type":"text","text":""}"#),
        delta(1, r#"{"type":"text_delta","text":"Yes"}"#),
        start(2, r#"{"type":"tool_use","id":"t1","name":"now"}"#),
        start(3, r#"{"type":"tool_use","id":"t2","name":"now"}"#),
        delta(0, r#"{"type":"signature_delta","signature":"late"}"#),
        stop(0),
        stop(1),
        stop(2),
        stop(3),
    ];
    let expected = [
        "thinks: Hm.",
        "says: Yes",
        "begins 2 t1 now or {}",
        "Break",
        "begins 3 t2 now or {}",
        "Break",
    ];
    assert_eq!(of(&events), expected);
}

#[test]
fn blocks_without_pieces_are_given_whole() {
    let events = [
        start(
            0,
            r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{}}"#,
        ),
        delta(
            0,
            r#"{"type":"input_json_delta","partial_json":"{\"query\":"}"#,
        ),
        delta(
            0,
            r#"{"type":"input_json_delta","partial_json":"\"\u00e9\"}"}"#,
        ),
        stop(0),
        start(1, r#"{"type":"compaction","content":null}"#),
        delta(1, r#"{"type":"compaction_delta","content":"Sum"}"#),
        delta(1, r#"{"type":"compaction_delta","content":"mary"}"#),
        start(2, r#"{"type":"brand_new", "x": [1]}"#),
        delta(2, r#"{"type":"text_delta","text":"no text of the answer"}"#),
        start(3, r#"{"type":"text","text":"a"}"#),
        delta(0, r#"{"type":"input_json_delta","partial_json":"late"}"#),
        stop(3),
        start(
            4,
            r#"{"type":"server_tool_use","id":"s","name":"n","input":{"a":1}}"#,
        ),
        delta(4, r#"{"type":"input_json_delta","partial_json":"{\"cut"}"#),
    ];
    let expected = [
        r#"item {"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"é"}}"#,
        r#"item {"type":"compaction","content":"Summary"}"#,
        r#"item {"type":"brand_new","x":[1]}"#,
        "says: a",
        r#"item {"type":"server_tool_use","id":"s","name":"n","input":{"a":1}}"#,
    ];
    assert_eq!(of(&events), expected);
}

#[test]
fn what_nobody_knows_is_passed_over() {
    let events = [
        START,
        r#"{"type":"brand_new","x":1}"#,
        r#"{"amazon-bedrock-invocationMetrics":{"inputTokenCount":1}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"new_delta","y":2}}"#,
        r#"{"type":"content_block_delta","index":0}"#,
        r#"{"type":"content_block_start","index":0}"#,
        STOP,
        STOP,
    ];
    assert_eq!(log(&events), ["head msg_1", "stops Stop"]);
    for payload in [&b"{"[..], b"[1]"] {
        assert!(MessageEvents::default().read(payload, &mut |_| ()).is_err());
    }
}

#[test]
fn a_second_reply_in_the_stream_is_a_fault() {
    let text = |reader: &mut MessageEvents| {
        let mut pieces = 0;
        let block = start(0, r#"{"type":"text","text":"a"}"#);
        reader.read(block.as_bytes(), &mut |_| pieces += 1).unwrap();
        pieces
    };
    let mut reader = MessageEvents::default();
    reader.read(START.as_bytes(), &mut |_| ()).unwrap();
    reader.read(START.as_bytes(), &mut |_| panic!()).unwrap();
    assert_eq!((reader.fault(), text(&mut reader)), (None, 1));
    let other = START.replace("msg_1", "msg_2");
    reader.read(other.as_bytes(), &mut |_| panic!()).unwrap();
    assert_eq!(reader.fault(), Some(ErrorKind::SecondReply));
    assert_eq!(text(&mut reader), 0);
}

#[test]
fn why_the_model_stopped() {
    let events = [
        r#"{"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":"END"}}"#,
    ];
    assert_eq!(log(&events), ["stops Sequence END"]);
    let null =
        r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":1}}"#;
    assert_eq!(log(&[null]), [""; 0]);
    let refused = r#"{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"explanation":"Not this."}}}"#;
    MessageEvents::default()
        .read(refused.as_bytes(), &mut |piece| {
            let Piece::Finish(finish) = piece else {
                panic!("{piece:?}");
            };
            assert_eq!(finish.reason, Reason::Filter);
            assert_eq!(finish.explanation(), Some(&b"Not this."[..]));
        })
        .unwrap();
}

#[test]
fn what_is_kept_of_a_block_is_bounded() {
    let mut reader = MessageEvents::new(Limits {
        max_document: 100,
        ..Limits::default()
    });
    let mut read = |event: String| reader.read(event.as_bytes(), &mut |_| ()).unwrap();
    read(start(0, r#"{"type":"server_tool_use","input":{}}"#));
    for _ in 0..20 {
        read(delta(
            0,
            r#"{"type":"input_json_delta","partial_json":"12345"}"#,
        ));
    }
    assert_eq!(reader.fault(), Some(ErrorKind::DocumentTooLarge));
    let mut reader = MessageEvents::default();
    for index in 0..=MAX_ITEMS as u64 {
        let block = start(index, r#"{"type":"brand_new"}"#);
        reader.read(block.as_bytes(), &mut |_| ()).unwrap();
    }
    assert_eq!(reader.fault(), Some(ErrorKind::TooManyItems));
}

proptest! {
    #[test]
    fn only_what_depends_on_nothing_is_not_remembered(kinds in prop::collection::vec((0..6u8, 0..3u64), 0..12)) {
        // Whoever does not remember says the same of a payload after any other.
        let mut reader = MessageEvents::default();
        for (kind, index) in kinds {
            let event = match kind {
                0 => start(index, r#"{"type":"text","text":""}"#),
                1 => start(index, r#"{"type":"server_tool_use","input":{}}"#),
                2 => stop(index),
                3 => delta(index, r#"{"type":"text_delta","text":"a"}"#),
                4 => delta(index, r#"{"type":"input_json_delta","partial_json":"{}"}"#),
                _ => r#"{"type":"ping"}"#.to_owned(),
            };
            let mut given = 0;
            reader.read(event.as_bytes(), &mut |_| given += 1).unwrap();
            if !reader.remembers() {
                let mut again = 0;
                reader.read(event.as_bytes(), &mut |_| again += 1).unwrap();
                prop_assert_eq!(given, again);
                prop_assert_eq!(given, usize::from(kind != 5));
            }
        }
    }
}
