use super::*;
use crate::json::string;
use proptest::prelude::*;

/// What pieces say, one a line, texts of the same part put together.
#[derive(Default)]
struct Log(Vec<String>);

impl Log {
    fn add(&mut self, piece: &Piece<'_>) {
        let text = |text: &[u8]| String::from_utf8(text.to_vec()).unwrap();
        let line = match piece {
            Piece::Head(_) => return,
            Piece::Reasoning(Reasoning::Text(words)) => format!("thinks: {}", text(words)),
            Piece::Reasoning(Reasoning::Summary(words)) => format!("sums up: {}", text(words)),
            Piece::Reasoning(Reasoning::Sealed(sealed)) => format!("hides: {}", text(sealed.data)),
            Piece::Text(said) => {
                let phase = said
                    .phase
                    .map(|phase| format!(" {phase:?}"))
                    .unwrap_or_default();
                let logprobs = said.logprobs.map(text).unwrap_or_default();
                format!("says{phase}{logprobs}: {}", text(said.text))
            }
            Piece::Refusal(words) => format!("refuses: {}", text(words)),
            Piece::Annotation(noted) => format!("notes: {}", text(noted.json)),
            Piece::Call(call) => {
                let custom = if call.custom { " custom" } else { "" };
                let index = call.index.unwrap();
                let name = format!("{} {}", text(call.id), text(call.name));
                match name.trim() {
                    "" => format!("calls {index}{custom}: {}", text(call.arguments)),
                    name => {
                        self.0.push(format!("begins {index}{custom} {name}"));
                        return;
                    }
                }
            }
            Piece::Item(item) => format!("item: {}", text(item.json)),
            Piece::Part => "part".into(),
            Piece::Break => "break".into(),
            Piece::Finish(finish) => format!("finish: {}", word(finish.reason)),
        };
        let (kind, words) = line.split_once(": ").unwrap_or((&line, ""));
        match self.0.last_mut() {
            Some(last)
                if matches!(
                    kind.split(' ').next(),
                    Some("thinks" | "sums" | "says" | "refuses" | "calls")
                ) && last.starts_with(&format!("{kind}: ")) =>
            {
                last.push_str(words);
            }
            _ => self.0.push(line),
        }
    }
}

/// The word of Chat Completions for a reason.
fn word(reason: Reason) -> &'static str {
    match reason {
        Reason::Stop => "stop",
        Reason::Length => "length",
        Reason::Calls => "tool_calls",
        Reason::Filter => "content_filter",
        Reason::Failed => "error",
        _ => "other",
    }
}

fn log(events: &[&str]) -> Vec<String> {
    let mut reader = ResponseEvents::default();
    let mut log = Log::default();
    for event in events {
        reader
            .read(event.as_bytes(), &mut |piece| log.add(piece))
            .unwrap();
    }
    reader.end(&mut |piece| log.add(piece));
    log.0
}

#[test]
fn a_stream_by_the_book() {
    let events = [
        r#"{"type":"response.created","response":{"id":"resp_1","status":"in_progress","output":[]}}"#,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]}}"#,
        r#"{"type":"response.reasoning_summary_part.added","item_id":"rs_1","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}"#,
        r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"One"}"#,
        r#"{"type":"response.reasoning_summary_text.done","item_id":"rs_1","output_index":0,"summary_index":0,"text":"One"}"#,
        r#"{"type":"response.reasoning_summary_part.added","item_id":"rs_1","output_index":0,"summary_index":1,"part":{"type":"summary_text","text":""}}"#,
        r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":1,"delta":"Two"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"One"},{"type":"summary_text","text":"Two"}],"encrypted_content":"gAAA"}}"#,
        r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"message","id":"msg_1","role":"assistant","status":"in_progress","content":[],"phase":"final_answer"}}"#,
        r#"{"type":"response.content_part.added","item_id":"msg_1","output_index":1,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}}"#,
        r#"{"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"content_index":0,"delta":"Hel","logprobs":[]}"#,
        r#"{"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"content_index":0,"delta":"lo","logprobs":[{"token":"lo","logprob":-1}]}"#,
        r#"{"type":"response.output_text.annotation.added","item_id":"msg_1","output_index":1,"content_index":0,"annotation_index":0,"annotation":{"type":"url_citation","url":"u"}}"#,
        r#"{"type":"response.output_text.done","item_id":"msg_1","output_index":1,"content_index":0,"text":"Hello","logprobs":[{"token":"lo","logprob":-1}]}"#,
        r#"{"type":"response.content_part.done","item_id":"msg_1","output_index":1,"content_index":0,"part":{"type":"output_text","text":"Hello","annotations":[{"type":"url_citation","url":"u"}]}}"#,
        r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hello","annotations":[{"type":"url_citation","url":"u"}]}]}}"#,
        r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":""}}"#,
        r#"{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":2,"delta":"{}"}"#,
        r#"{"type":"response.function_call_arguments.done","item_id":"fc_1","output_index":2,"arguments":"{}"}"#,
        r#"{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{}"}}"#,
        r#"{"type":"response.output_item.added","output_index":3,"item":{"type":"web_search_call","id":"ws_1","status":"in_progress"}}"#,
        r#"{"type":"response.web_search_call.searching","output_index":3,"item_id":"ws_1"}"#,
        r#"{"type":"response.output_item.done","output_index":3,"item":{"type":"web_search_call","id":"ws_1","status":"completed"}}"#,
        r#"{"type":"response.output_item.added","output_index":4,"item":{"type":"custom_tool_call","id":"ctc_1","call_id":"call_2","name":"sh","input":""}}"#,
        r#"{"type":"response.custom_tool_call_input.delta","item_id":"ctc_1","output_index":4,"delta":"ls"}"#,
        r#"{"type":"response.custom_tool_call_input.done","item_id":"ctc_1","output_index":4,"input":"ls"}"#,
        r#"{"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"One"},{"type":"summary_text","text":"Two"}],"encrypted_content":"gAAA"},{"type":"message","id":"msg_1","content":[{"type":"output_text","text":"Hello","annotations":[{"type":"url_citation","url":"u"}]}]},{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{}"},{"type":"web_search_call","id":"ws_1","status":"completed"},{"type":"custom_tool_call","id":"ctc_1","call_id":"call_2","name":"sh","input":"ls"}]}}"#,
    ];
    let expected = [
        "sums up: One",
        "part",
        "sums up: Two",
        "hides: gAAA",
        "says FinalAnswer: Hel",
        "says FinalAnswer[{\"token\":\"lo\",\"logprob\":-1}]: lo",
        r#"notes: {"type":"url_citation","url":"u"}"#,
        "begins 0 call_1 f",
        "calls 0: {}",
        r#"item: {"type":"web_search_call","id":"ws_1","status":"completed"}"#,
        "begins 1 custom call_2 sh",
        "calls 1 custom: ls",
        "finish: tool_calls",
    ];
    assert_eq!(log(&events), expected);
    // The last event alone, and the response by itself, say the same.
    let whole = events.last().unwrap();
    let response = whole
        .strip_prefix(r#"{"type":"response.completed","response":"#)
        .unwrap();
    let without = |line: &&&str| !line.starts_with("says");
    let expected: Vec<_> = expected.iter().filter(without).copied().collect();
    for only in [*whole, &response[..response.len() - 1]] {
        let log = log(&[only]);
        let log: Vec<_> = log
            .iter()
            .map(String::as_str)
            .filter(|line| without(&line))
            .collect();
        assert_eq!(log, expected);
    }
}

#[test]
fn a_stream_without_numbers_whose_done_events_come_late() {
    let log = log(&[
        r#"{"type":"response.created","response":{"id":"r","object":"response","status":"in_progress"}}"#,
        r#"{"type":"response.output_item.added","item":{"id":"rs","type":"reasoning","summary":[],"content":[],"encrypted_content":""}}"#,
        r#"{"type":"response.reasoning_text.delta","delta":" hm","item_id":"rs"}"#,
        r#"{"type":"response.output_item.added","item":{"content":[],"id":"m","role":"assistant","type":"message"}}"#,
        r#"{"type":"response.content_part.added","item_id":"m","part":{"type":"output_text","text":""}}"#,
        r#"{"type":"response.output_text.delta","item_id":"m","delta":"a"}"#,
        r#"{"type":"response.output_item.done","item":{"id":"rs","type":"reasoning","summary":[],"content":[{"text":" hm","type":"reasoning_text"}],"encrypted_content":""}}"#,
        r#"{"type":"response.output_text.delta","item_id":"m","delta":"b"}"#,
        r#"{"type":"response.output_text.done","item_id":"m","text":"ab"}"#,
        r#"{"type":"response.output_item.added","item":{"id":"f1","arguments":"","call_id":"c1","name":"f","type":"function_call"}}"#,
        r#"{"type":"response.function_call_arguments.delta","delta":"{\"a\"","item_id":"f1"}"#,
        r#"{"type":"response.output_item.added","item":{"id":"f2","arguments":"","call_id":"c2","name":"f","type":"function_call"}}"#,
        r#"{"type":"response.function_call_arguments.delta","delta":"{}","item_id":"f2"}"#,
        r#"{"type":"response.function_call_arguments.delta","delta":":1}","item_id":"f1"}"#,
        r#"{"type":"response.output_item.done","item":{"id":"f1","type":"function_call","arguments":"{\"a\":1}","call_id":"c1","name":"f"}}"#,
        r#"{"type":"response.completed","response":{"id":"r","status":"completed","output":[{"id":"rs","type":"reasoning","content":[{"text":" hm","type":"reasoning_text"}]},{"id":"m","type":"message","content":[{"type":"output_text","text":"ab"}]},{"id":"f1","type":"function_call","arguments":"{\"a\":1}","call_id":"c1","name":"f"},{"id":"f2","type":"function_call","arguments":"{}","call_id":"c2","name":"f"}]}}"#,
    ]);
    let expected = [
        "thinks:  hm",
        "says: ab",
        "begins 0 c1 f",
        r#"calls 0: {\"a\""#,
        "begins 1 c2 f",
        "calls 1: {}",
        "calls 0: :1}",
        "finish: tool_calls",
    ];
    assert_eq!(log, expected);
}

#[test]
fn an_id_that_changes_in_each_event() {
    let log = log(&[
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"a","type":"reasoning","summary":[]}}"#,
        r#"{"type":"response.reasoning_summary_text.delta","item_id":"b","output_index":0,"summary_index":0,"delta":"x"}"#,
        r#"{"type":"response.reasoning_summary_text.done","item_id":"c","output_index":0,"summary_index":0,"text":"x"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"d","type":"reasoning","summary":[{"type":"summary_text","text":"x"}],"encrypted_content":"e"}}"#,
        r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"f","type":"message","content":[]}}"#,
        r#"{"type":"response.output_text.delta","item_id":"g","output_index":1,"content_index":0,"delta":"y"}"#,
        r#"{"type":"response.output_item.done","output_index":1,"item":{"id":"h","type":"message","content":[{"type":"output_text","text":"yz"}]}}"#,
        r#"{"type":"response.output_item.added","output_index":2,"item":{"id":"i","type":"function_call","call_id":"k","name":"f","arguments":""}}"#,
        r#"{"type":"response.function_call_arguments.delta","item_id":"j","output_index":2,"delta":"{}"}"#,
        r#"{"type":"response.function_call_arguments.done","item_id":"l","output_index":2,"arguments":"{}"}"#,
        r#"{"type":"response.completed","response":{"id":"r","status":"completed","output":[{"id":"m","type":"reasoning","summary":[{"type":"summary_text","text":"x"}],"encrypted_content":"e"},{"id":"n","type":"message","content":[{"type":"output_text","text":"yz"}]},{"id":"o","type":"function_call","call_id":"k","name":"f","arguments":"{}"}]}}"#,
    ]);
    let expected = [
        "sums up: x",
        "hides: e",
        "says: yz",
        "begins 0 k f",
        "calls 0: {}",
        "finish: tool_calls",
    ];
    assert_eq!(log, expected);
}

#[test]
fn items_that_share_an_output_index() {
    let log = log(&[
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"m1","type":"message","content":[]}}"#,
        r#"{"type":"response.output_text.delta","item_id":"m1","output_index":0,"delta":"a"}"#,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"m2","type":"message","content":[]}}"#,
        r#"{"type":"response.output_text.delta","item_id":"m2","output_index":0,"delta":"a"}"#,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"","type":"function_call","call_id":"c1","name":"f"}}"#,
        r#"{"type":"response.function_call_arguments.delta","item_id":"","output_index":0,"delta":"{}"}"#,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"","type":"function_call","call_id":"c2","name":"f"}}"#,
        r#"{"type":"response.function_call_arguments.delta","item_id":"","output_index":0,"delta":"{}"}"#,
        r#"{"type":"response.completed","response":{"status":"completed","output":[{"id":"m1","type":"message","content":[{"type":"output_text","text":"a"}]},{"id":"m2","type":"message","content":[{"type":"output_text","text":"ab"}]},{"id":"","type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"id":"","type":"function_call","call_id":"c2","name":"f","arguments":"{}"}]}}"#,
    ]);
    let expected = [
        "says: a",
        "break",
        "says: a",
        "begins 0 c1 f",
        "calls 0: {}",
        "begins 1 c2 f",
        "calls 1: {}",
        "says: b",
        "finish: tool_calls",
    ];
    assert_eq!(log, expected);
}

#[test]
fn events_that_are_missing() {
    // Nothing but deltas.
    assert_eq!(
        log(&[
            r#"{"type":"response.reasoning_text.delta","delta":"t"}"#,
            r#"{"type":"response.output_text.delta","delta":"a"}"#,
            r#"{"type":"response.output_text.delta","delta":"b"}"#,
            r#"{"type":"response.refusal.delta","delta":"n"}"#,
        ]),
        ["thinks: t", "says: ab", "part", "refuses: n"],
    );
    // Nothing but done events, and no parts around a text.
    assert_eq!(
        log(&[
            r#"{"type":"response.output_text.done","item_id":"m","text":"a"}"#,
            r#"{"type":"response.output_item.done","item":{"type":"message","id":"n","content":"b"}}"#,
            r#"{"type":"response.output_item.done","item":{"type":"function_call","id":"f","call_id":"c","name":"f","arguments":"{}"}}"#,
            r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#,
        ]),
        [
            "says: a",
            "break",
            "says: b",
            "begins 0 c f",
            "calls 0: {}",
            "finish: tool_calls"
        ],
    );
    // A call that was not announced: its name comes with its end.
    assert_eq!(
        log(&[
            r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{"}"#,
            r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{}"}"#,
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","id":"f","name":"f","arguments":"{}"}}"#,
        ]),
        ["calls 0: {}", "begins 0 f f"],
    );
    // Parts of a summary that say not where they stand.
    assert_eq!(
        log(&[
            r#"{"type":"response.reasoning_summary_part.added","item_id":"r","part":{"type":"summary_text","text":""}}"#,
            r#"{"type":"response.reasoning_summary_text.delta","item_id":"r","delta":"a"}"#,
            r#"{"type":"response.reasoning_summary_part.added","item_id":"r","part":{"type":"summary_text","text":""}}"#,
            r#"{"type":"response.reasoning_summary_text.delta","item_id":"r","delta":"b"}"#,
            r#"{"type":"response.output_item.done","item":{"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"a"},{"type":"summary_text","text":"b"}]}}"#,
        ]),
        ["sums up: a", "part", "sums up: b"],
    );
}

#[test]
fn items_of_which_nothing_is_said() {
    let empty = r#"{"type":"reasoning","id":"rs","summary":[]}"#;
    let events = [
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs","summary":[]}}"#,
        &format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{empty}}}"#),
        r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"message","id":"m","content":[]}}"#,
        r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"message","id":"m","content":[{"type":"output_text","text":""}]}}"#,
        &format!(
            r#"{{"type":"response.completed","response":{{"output":[{empty},{{"type":"message","id":"m","content":[]}}]}}}}"#
        ),
    ];
    let log = log(&events);
    assert_eq!(log[0], format!("item: {empty}"));
    assert!(
        log[1..]
            .iter()
            .all(|line| line == "says: " || line == "finish: stop"),
        "{log:?}"
    );
}

#[test]
fn why_it_ends() {
    let end = |kind: &str, response: &str| {
        let event = format!(r#"{{"type":"response.{kind}","response":{response}}}"#);
        log(&[&event]).pop().unwrap_or_default()
    };
    assert_eq!(
        end(
            "completed",
            r#"{"status":"completed","incomplete_details":null}"#
        ),
        "finish: stop"
    );
    assert_eq!(end("completed", "{}"), "finish: stop");
    assert_eq!(end("incomplete", "{}"), "finish: length");
    assert_eq!(
        end("completed", r#"{"status":"incomplete"}"#),
        "finish: length"
    );
    let filtered = r#"{"status":"completed","incomplete_details":{"reason":"content_filter"}}"#;
    assert_eq!(end("completed", filtered), "finish: content_filter");
    let cut = r#"{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}"#;
    assert_eq!(end("completed", cut), "finish: length");
    assert_eq!(
        end(
            "failed",
            r#"{"status":"failed","error":{"code":"e","message":"m"}}"#
        ),
        ""
    );
    assert_eq!(end("cancelled", "{}"), "finish: error");
    assert_eq!(
        log(&[
            r#"{"error":{"message":"m"}}"#,
            r#"{"type":"error","message":"m"}"#
        ]),
        [""; 0]
    );
    assert_eq!(
        log(&[r#"{"object":"response","status":"in_progress","output":[]}"#]),
        [""; 0]
    );
    // Said twice, it is one end.
    let done = r#"{"type":"response.completed","response":{"status":"completed"}}"#;
    assert_eq!(log(&[done, done]), ["finish: stop"]);
}

#[test]
fn what_is_no_event_gives_nothing() {
    let mut reader = ResponseEvents::default();
    for payload in [
        &b"[DONE]"[..],
        b"{",
        b"\"x\"",
        b"[1]",
        b"7",
        b"{\"type\":7}",
        b"{\"type\":\"response.output_item.done\"}",
    ] {
        let _ = reader.read(payload, &mut |piece| panic!("{piece:?}"));
    }
    assert!(reader.read(b"{", &mut |_| {}).is_err());
}

proptest! {
    #[test]
    fn deltas_and_repeated_wholes_give_each_text_once(
        texts in proptest::collection::vec("[a-c\"é\n]{0,6}", 1..5),
        cut in 1usize..4,
        kept in proptest::collection::vec(any::<bool>(), 64),
    ) {
        // Any of the events may be missing: the last one has all texts.
        let mut kept = kept.into_iter().cycle();
        let mut events: Vec<serde_json::Value> = Vec::new();
        let mut output = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            let id = format!("m{index}");
            let item = serde_json::json!({"type": "message", "id": id, "content": [{"type": "output_text", "text": text}]});
            let name = |mut event: serde_json::Value| {
                event["item_id"] = id.clone().into();
                event["output_index"] = index.into();
                event
            };
            events.push(name(serde_json::json!({"type": "response.output_item.added", "item": {"type": "message", "id": id, "content": []}})));
            let chars: Vec<char> = text.chars().collect();
            let mut deltas: Vec<_> = chars
                .chunks(cut)
                .map(|delta| serde_json::json!({"type": "response.output_text.delta", "delta": delta.iter().collect::<String>()}))
                .map(name)
                .collect();
            // The last ones may be missing.
            if kept.next() == Some(false) {
                deltas.pop();
            }
            events.extend(deltas);
            if kept.next() == Some(true) {
                events.push(name(serde_json::json!({"type": "response.output_text.done", "text": text})));
            }
            if kept.next() == Some(true) {
                events.push(name(serde_json::json!({"type": "response.output_item.done", "item": item})));
            }
            output.push(item);
        }
        events.push(serde_json::json!({"type": "response.completed", "response": {"status": "completed", "output": output}}));
        let mut reader = ResponseEvents::default();
        let mut given = 0;
        for event in &events {
            reader.read(event.to_string().as_bytes(), &mut |piece| if let Piece::Text(text) = piece {
                given += string::decode(text.text).chars().count();
            }).unwrap();
        }
        prop_assert_eq!(given, texts.iter().map(|text| text.chars().count()).sum::<usize>());
    }
}
