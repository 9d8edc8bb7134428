//! An event that is recognised by its shape must fare as it does when it is read. Ids that differ keep events from
//! being recognised, so the same stream is sent twice: with one id, and with an id for each event.

use proptest::prelude::*;
use sluicegate_core::usage::Usage;

use super::*;

/// Asks for all that is known, so that what is shown tells what was counted.
struct Echo;

impl Pricer for Echo {
    fn price(&mut self, usage: &Usage) -> Option<Members> {
        let seen = (
            usage.input_tokens,
            usage.output_tokens,
            usage.reasoning_tokens,
        );
        let cost = format!("\"cost\":\"{seen:?}\",\"cost_details\":{{\"input_cost\":0.5}}");
        match usage.output_tokens.unwrap_or(0) % 5 {
            4 => None,
            3 => Members::parse(format!("{cost},\"more\":\n1")),
            _ => Members::parse(cost),
        }
    }
}

/// Numbers as upstreams write them, and as they should not.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        12 => (0..500u64).prop_map(|n| n.to_string()),
        1 => any::<u64>().prop_map(|n| n.to_string()),
        1 => prop::sample::select(vec!["0", "1.5", "-1", "1e3", "null", "\"7\"", "007", "18446744073709551616", "1 ", ""]).prop_map(str::to_owned),
    ]
}

/// A string's content as it is written, good and bad.
fn written() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "[a-z ,.]{0,12}",
        2 => "\\PC{0,6}".prop_map(|text| text.replace(['\\', '"'], "")),
        2 => prop::sample::select(vec!["\\n", "\\\"", "\\u00e9x", "\\ud83d\\ude00", "}}", "\\\\"]).prop_map(str::to_owned),
        1 => prop::sample::select(vec!["\\x", "\\u12", "\t", "\"", "\\"]).prop_map(str::to_owned),
    ]
}

const SHAPES: &[(Api, &str)] = &[
    (
        Api::Chat,
        r#"{"id":ID,"model":"theirs","choices":[{"index":0,"delta":{"content":"TEXT"},"finish_reason":null}],"usage":null}"#,
    ),
    (
        Api::Chat,
        r#"{"id":ID,"choices":[{"index":0,"delta":{"content":"","reasoning":"TEXT"}}],"obfuscation":"TEXT"}"#,
    ),
    (
        Api::Chat,
        r#"{"id":ID,"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"TEXT"}}]}}]}"#,
    ),
    (
        Api::Chat,
        r#"{"id":ID,"choices":[{"delta":{"content":"TEXT"}}],"usage":{"prompt_tokens":NUMBER,"completion_tokens":NUMBER,"total_tokens":NUMBER}}"#,
    ),
    (
        Api::Chat,
        r#"{"usage":{"completion_tokens":NUMBER,"prompt_tokens":NUMBER,"completion_tokens_details":{"reasoning_tokens":NUMBER,"other":7}},"id":ID,"choices":[]}"#,
    ),
    (
        Api::Chat,
        r#"{"id":ID,"choices":[],"usage":{"cost_details":{},"prompt_tokens":NUMBER}}"#,
    ),
    (
        Api::Chat,
        r#"{"id":ID,"choices":[],"usage":{"cost":NUMBER,"prompt_tokens":NUMBER}}"#,
    ),
    (
        Api::Chat,
        r#"{"id":ID,"model":"theirs","choices":[],"usage":{"prompt_tokens":NUMBER}}"#,
    ),
    (
        Api::Chat,
        r#"{"id":ID,"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":NUMBER}}"#,
    ),
    (
        Api::Chat,
        r#"{"id":ID,"choices":[],"timings":{"prompt_n":NUMBER},"x_groq":{"usage":{"completion_tokens":NUMBER}}}"#,
    ),
    (
        Api::Responses,
        r#"{"type":"response.output_text.delta","item_id":ID,"delta":"TEXT","sequence_number":NUMBER}"#,
    ),
    (
        Api::Responses,
        r#"{"type":"response.completed","response":{"model":"theirs","status":"completed","usage":{"input_tokens":NUMBER,"output_tokens":NUMBER}},"x":ID}"#,
    ),
    (
        Api::Messages,
        r#"{"type":"content_block_delta","x":ID,"delta":{"type":"text_delta","text":"TEXT"}}"#,
    ),
    (
        Api::Messages,
        r#"{"type":"message_delta","x":ID,"delta":{"stop_reason":null},"usage":{"output_tokens":NUMBER,"cache_read_input_tokens":NUMBER}}"#,
    ),
];

/// Events of one interface with their ids left open.
fn events() -> impl Strategy<Value = (Api, Vec<String>)> {
    let fill = (
        proptest::collection::vec(number(), 3),
        proptest::collection::vec(written(), 2),
    );
    let event = (
        any::<prop::sample::Index>(),
        fill,
        prop::sample::select(vec!["\n\n", "\n\n", "\r\n\r\n", "\r\r"]),
    );
    (
        prop::sample::select(vec![Api::Chat, Api::Chat, Api::Responses, Api::Messages]),
        // Few shapes, so that many events share one.
        proptest::collection::vec(any::<prop::sample::Index>(), 1..4),
        proptest::collection::vec(event, 1..24),
    )
        .prop_map(|(api, chosen, events)| {
            let shapes: Vec<&str> = SHAPES
                .iter()
                .filter(|(of, _)| *of == api)
                .map(|(_, shape)| *shape)
                .collect();
            let events = events
                .into_iter()
                .map(|(shape, (numbers, texts), end)| {
                    let mut event =
                        shapes[chosen[shape.index(chosen.len())].index(shapes.len())].to_owned();
                    for number in numbers {
                        event = event.replacen("NUMBER", &number, 1);
                    }
                    for text in texts {
                        event = event.replacen("TEXT", &text, 1);
                    }
                    format!("data: {event}{end}")
                })
                .collect();
            (api, events)
        })
}

fn run(plan: &ReplyPlan, reads: impl Iterator<Item = String>) -> (String, Facts) {
    let mut pipeline = Pipeline::new(plan.clone());
    let mut out = Vec::new();
    for read in reads {
        pipeline.feed(read.into(), &mut Echo, &mut out).unwrap();
    }
    pipeline.finish(&mut Echo, &mut out).unwrap();
    (
        String::from_utf8(out.concat()).unwrap(),
        pipeline.facts().clone(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn recognised_events_fare_as_read_ones((api, events) in events(), renames in any::<bool>(), hides in any::<bool>()) {
        let mut plan = ReplyPlan::new(api, true);
        if renames {
            plan = renamed(plan, "ours");
        }
        if hides {
            plan = hides_usage(plan);
        }
        let with_id = |i: usize| format!("\"#{i:03}#\"");
        let one_id = || events.iter().map(|event| event.replace("ID", &with_id(0)));
        let other_ids = events.iter().enumerate().map(|(i, event)| event.replace("ID", &with_id(i)));
        let (recognised, facts) = run(&plan, one_id());
        let (mut read, read_facts) = run(&plan, other_ids);
        for i in 1..events.len() {
            read = read.replace(&with_id(i), &with_id(0));
        }
        prop_assert_eq!(&recognised, &read);
        let without_id = |facts: Facts| Facts { reply_id: None, ..facts };
        prop_assert_eq!(without_id(facts), without_id(read_facts));
        // All in one read.
        let (at_once, _) = run(&plan, std::iter::once(one_id().collect::<String>()));
        prop_assert_eq!(at_once, recognised);
    }
}
