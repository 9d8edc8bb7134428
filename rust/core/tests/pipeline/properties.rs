//! What holds for any stream, however odd, cut anywhere.

use proptest::prelude::*;
use serde_json::{Value, json};
use sluicegate_core::sse::event::Events;

use super::*;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z ]{1,12}",
        "\\PC{0,6}",
        Just("\"usage\":{\"prompt_tokens\":1}".to_owned()),
        Just("\n\ndata: [DONE]\n\n".to_owned()),
    ]
}

fn usage() -> impl Strategy<Value = Value> {
    let count = prop_oneof![
        Just(json!(null)),
        (0..50u64).prop_map(|n| json!(n)),
        Just(json!("7"))
    ];
    prop_oneof![
        3 => Just(Value::Null),
        1 => Just(json!({})),
        3 => (count.clone(), count.clone(), count.clone(), count).prop_map(|(a, b, c, d)| json!({
            "prompt_tokens": a, "completion_tokens": b, "total_tokens": c, "cost": d,
            "completion_tokens_details": {"reasoning_tokens": 3},
        })),
    ]
}

/// One event's data: chunks of few shapes, as real streams have them, and now and then anything else.
fn payload() -> impl Strategy<Value = String> {
    let chunk = |kind: usize,
                 text: String,
                 finish: Option<&'static str>,
                 usage: Option<Value>,
                 obfuscation: Option<String>| {
        let delta = match kind {
            0 => json!({"content": text}),
            1 => json!({"content": "", "reasoning_content": text}),
            2 => json!({"role": "assistant"}),
            3 => json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}),
            _ => json!({}),
        };
        let choices = if kind == 5 {
            json!([])
        } else {
            json!([{"index": 0, "delta": delta, "finish_reason": finish}])
        };
        let mut chunk = json!({"id": "c", "model": "theirs", "choices": choices});
        if let Some(usage) = usage {
            chunk["usage"] = usage;
        }
        if let Some(obfuscation) = obfuscation {
            chunk["obfuscation"] = obfuscation.into();
        }
        chunk.to_string()
    };
    let finish = prop_oneof![6 => Just(None), 1 => Just(Some("stop")), 1 => Just(Some(""))];
    let obfuscation = proptest::option::of("[a-z]{0,5}");
    let usage = || proptest::option::weighted(0.3, usage());
    prop_oneof![
        12 => (0usize..6, text(), finish, usage(), obfuscation).prop_map(move |(kind, text, finish, usage, obfuscation)| chunk(kind, text, finish, usage, obfuscation)),
        1 => (text(), 0..20u64).prop_map(|(text, n)| json!({"type": "response.output_text.delta", "delta": text, "sequence_number": n}).to_string()),
        1 => Just("[DONE]".to_owned()),
        1 => Just(json!({"error": {"message": "no"}}).to_string()),
        1 => "[a-z{}\\[\\]:\", ]{0,12}".prop_map(String::from),
    ]
}

fn event() -> impl Strategy<Value = String> {
    let end = prop::sample::select(vec!["\n", "\r\n", "\r"]);
    let framed = (
        payload(),
        prop::sample::select(vec!["", "event: x", "event: error", ": note"]),
        end.clone(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(payload, before, end, space, split)| {
            let payload = if split {
                payload.replace(",\"", ",\n\"")
            } else {
                payload
            };
            let field = if space { "data: " } else { "data:" };
            let lines = payload.replace('\n', &format!("{end}{field}"));
            let before = if before.is_empty() {
                String::new()
            } else {
                format!("{before}{end}")
            };
            format!("{before}{field}{lines}{end}{end}")
        });
    let keep_alive = end.prop_map(|end| format!(": ping{end}{end}"));
    prop_oneof![12 => framed, 1 => keep_alive, 1 => Just("\n".to_owned()), 1 => "[\\r\\n:a ]{0,6}"]
}

/// Events that repeat, as a stream's do, so that their shapes are recognised.
fn stream() -> impl Strategy<Value = String> {
    (
        proptest::collection::vec((event(), 1usize..4), 0..12),
        proptest::option::of(0usize..12),
    )
        .prop_map(|(events, cut)| {
            let mut stream: String = events
                .iter()
                .map(|(event, times)| event.repeat(*times))
                .collect();
            if let Some(cut) = cut {
                let mut len = stream.len().saturating_sub(cut);
                while !stream.is_char_boundary(len) {
                    len -= 1;
                }
                stream.truncate(len);
            }
            format!("data: 0\n\n{stream}")
        })
}

fn run(plan: &ReplyPlan, pricer: &mut dyn Pricer, reads: &[&[u8]]) -> (Vec<u8>, Facts) {
    let mut pipeline = Pipeline::new(plan.clone());
    let mut out = Vec::new();
    for read in reads {
        pipeline
            .feed(Bytes::copy_from_slice(read), pricer, &mut out)
            .unwrap();
    }
    pipeline.finish(pricer, &mut out).unwrap();
    (out.concat(), pipeline.facts().clone())
}

fn plans() -> impl Strategy<Value = ReplyPlan> {
    (
        prop::sample::select(vec![Api::Chat, Api::Responses, Api::Messages]),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(api, hides, renames)| {
            let mut plan = ReplyPlan::new(api, true);
            if hides {
                plan = hides_usage(plan);
            }
            if renames {
                plan = renamed(plan, "ours");
            }
            plan
        })
}

/// Each event by itself: nothing can be recognised from another one. Facts that span events are left out.
fn event_by_event(plan: &ReplyPlan, stream: &[u8]) -> (u64, u64, u64) {
    let mut counted = (0, 0, 0);
    for event in Events::new(stream) {
        let (_, facts) = run(plan, &mut Unpriced, &[b"data: 0\n\n", event.bytes()]);
        counted.0 += facts.events - 1;
        counted.1 += facts.token_events;
        counted.2 += facts.malformed;
    }
    counted
}

/// The data of each event, parsed where it is JSON.
fn payloads(stream: &[u8]) -> Vec<Value> {
    Events::new(stream)
        .filter_map(|event| event.data().map(|data| data.to_vec()))
        .map(|data| serde_json::from_slice(&data).unwrap_or_else(|_| data.into()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn cuts_change_nothing(stream in stream(), plan in plans(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let bytes = stream.as_bytes();
        let whole = run(&plan, &mut Flat, &[bytes]);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&run(&plan, &mut Flat, &single), &whole);
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).chain([0, bytes.len()]).collect();
        at.sort_unstable();
        let reads: Vec<&[u8]> = at.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        prop_assert_eq!(&run(&plan, &mut Flat, &reads), &whole);
    }

    #[test]
    fn what_needs_no_change_is_not_changed(stream in stream(), api in prop::sample::select(vec![Api::Chat, Api::Responses, Api::Messages])) {
        let (out, _) = run(&ReplyPlan::new(api, true), &mut Unpriced, &[stream.as_bytes()]);
        prop_assert!(out.starts_with(stream.as_bytes()));
        let added = &out[stream.len()..];
        prop_assert!(added.len() <= 4 && added.iter().all(|byte| matches!(byte, b'\r' | b'\n')));
    }

    #[test]
    fn an_event_that_is_recognised_says_what_it_says_when_it_is_read(stream in stream(), plan in plans()) {
        let (_, facts) = run(&plan, &mut Unpriced, &[stream.as_bytes()]);
        let mut ended = stream.into_bytes();
        let (out, _) = run(&ReplyPlan::new(plan.client.api(), true), &mut Unpriced, &[&ended]);
        ended.extend_from_slice(&out[ended.len()..]);
        prop_assert_eq!((facts.events, facts.token_events, facts.malformed), event_by_event(&plan, &ended));
    }

    #[test]
    fn payloads_stay_what_they_were_but_for_cost_and_model(stream in stream()) {
        let stream = format!("{stream}\n\n");
        let plan = renamed(ReplyPlan::new(Api::Chat, true), "ours");
        let (out, _) = run(&plan, &mut Flat, &[stream.as_bytes()]);
        let mut after = payloads(&out);
        for payload in &mut after {
            if payload.get("model") == Some(&json!("ours")) {
                payload["model"] = json!("theirs");
            }
            if let Some(Value::Object(usage)) = payload.get_mut("usage")
                && usage.get("cost") == Some(&json!(1))
            {
                usage.remove("cost");
                if let Some(theirs) = usage.remove("upstream_cost") {
                    usage.insert("cost".to_owned(), theirs);
                }
            }
        }
        let before = payloads(stream.as_bytes());
        prop_assert_eq!(after.len(), before.len());
        for (after, before) in after.iter().zip(&before) {
            // Where the upstream's own cost is 1 too, the one cannot be told from the other.
            if before.pointer("/usage/cost") != Some(&json!(1)) {
                prop_assert_eq!(after, before);
            }
        }
    }

    #[test]
    fn no_bytes_at_all_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), head in prop::sample::select(vec!["data: ", "{", "[", ":", ""]), streams in any::<bool>(), api in prop::sample::select(vec![Api::Chat, Api::Responses, Api::Messages, Api::Completions, Api::Embeddings])) {
        let mut body = head.as_bytes().to_vec();
        body.extend_from_slice(&bytes);
        let mut pipeline = Pipeline::new(ReplyPlan::new(api, streams));
        let mut out = Vec::new();
        for read in body.chunks(9) {
            let _ = pipeline.feed(Bytes::copy_from_slice(read), &mut Flat, &mut out);
        }
        let _ = pipeline.finish(&mut Flat, &mut out);
        pipeline.fail("t", "c", "m", &mut out);
    }
}
