//! The cases of `tests/corpus/usage_cases.json`, each in every way its payloads can be framed and cut.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what fails here fails the test"
)]

use bytes::Bytes;
use serde_json::{Map, Value, json};
use sluicegate_core::api::Api;
use sluicegate_core::cost::Members;
use sluicegate_core::pipeline::{Facts, Pipeline, Pricer, ReplyPlan, Unpriced};
use sluicegate_core::usage::{Dialect, Usage};

struct Case {
    name: String,
    api: Api,
    dialect: Option<Dialect>,
    payloads: Vec<String>,
    usage: Value,
}

fn cases() -> Vec<Case> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/corpus/usage_cases.json"
    );
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(cases.len() > 50);
    cases
        .into_iter()
        .map(|case| Case {
            name: case["name"].as_str().unwrap().to_owned(),
            api: match case["api"].as_str().unwrap() {
                "chat" => Api::Chat,
                "completions" => Api::Completions,
                "embeddings" => Api::Embeddings,
                "responses" => Api::Responses,
                "messages" => Api::Messages,
                "other" => Api::Other,
                other => panic!("{other}"),
            },
            dialect: case
                .get("dialect")
                .map(|name| name.as_str().unwrap().parse().unwrap()),
            payloads: case["payloads"]
                .as_array()
                .unwrap()
                .iter()
                .map(|payload| match payload {
                    Value::String(raw) => raw.clone(),
                    other => other.to_string(),
                })
                .collect(),
            usage: case["usage"].clone(),
        })
        .collect()
}

fn normal_form(usage: Option<&Usage>) -> Value {
    let Some(usage) = usage else {
        return Value::Null;
    };
    let mut form = Map::new();
    for (name, count) in [
        ("input_tokens", usage.input_tokens),
        ("cached_input_tokens", usage.cached_input_tokens),
        ("cache_write_tokens", usage.cache_write_tokens),
        ("cache_write_1h_tokens", usage.cache_write_1h_tokens),
        ("output_tokens", usage.output_tokens),
        ("reasoning_tokens", usage.reasoning_tokens),
        ("input_audio_tokens", usage.input_audio_tokens),
        ("output_audio_tokens", usage.output_audio_tokens),
        ("input_image_tokens", usage.input_image_tokens),
        ("output_image_tokens", usage.output_image_tokens),
        ("total_tokens", usage.total_tokens()),
    ] {
        if let Some(count) = count {
            form.insert(name.to_owned(), json!(count));
        }
    }
    if let Some(cost) = &usage.upstream_cost {
        form.insert("upstream_cost".to_owned(), json!(**cost));
    }
    Value::Object(form)
}

fn event_stream(payloads: &[String], end: &str) -> String {
    payloads
        .iter()
        .map(|payload| {
            let lines = payload.replace('\n', &format!("{end}data: "));
            format!("data: {lines}{end}{end}")
        })
        .collect()
}

/// `payload` on as many lines as it has commas outside of strings.
fn on_many_lines(payload: &str) -> String {
    let mut lines = String::new();
    let (mut in_string, mut escaped) = (false, false);
    for char in payload.chars() {
        lines.push(char);
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => in_string = !in_string,
            ',' if !in_string => lines.push('\n'),
            _ => {}
        }
    }
    lines
}

fn run(case: &Case, streams: bool, pricer: &mut dyn Pricer, reads: &[&[u8]]) -> (Vec<u8>, Facts) {
    let mut plan = ReplyPlan::new(case.api, streams);
    plan.upstream.dialect = case.dialect;
    let mut pipeline = Pipeline::new(plan);
    let mut out = Vec::new();
    for read in reads {
        pipeline
            .feed(Bytes::copy_from_slice(read), pricer, &mut out)
            .unwrap();
    }
    pipeline.finish(pricer, &mut out).unwrap();
    (out.concat(), pipeline.facts().clone())
}

/// The bodies that say what `case` says, and whether they are event streams.
fn bodies(case: &Case) -> Vec<(&'static str, String, bool)> {
    let many_lines: Vec<String> = case.payloads.iter().map(|p| on_many_lines(p)).collect();
    let lf = event_stream(&case.payloads, "\n");
    vec![
        ("SSE, CRLF", event_stream(&case.payloads, "\r\n"), true),
        ("SSE, CR", event_stream(&case.payloads, "\r"), true),
        (
            "SSE, data on many lines",
            event_stream(&many_lines, "\n"),
            true,
        ),
        (
            "SSE, data on many lines, CRLF",
            event_stream(&many_lines, "\r\n"),
            true,
        ),
        (
            "SSE, no blank line at the end",
            lf[..lf.len() - 1].to_owned(),
            true,
        ),
        (
            "SSE, no line end at the end",
            lf[..lf.len() - 2].to_owned(),
            true,
        ),
        ("SSE, no space", lf.replace("data: ", "data:"), true),
        ("SSE", lf, true),
        ("lines of JSON", case.payloads.join("\n") + "\n", false),
        ("JSON back to back", case.payloads.concat(), false),
        (
            "JSON with white space",
            format!("\n {} \r\n", many_lines.join(" \t")),
            false,
        ),
    ]
}

#[test]
fn usage_is_read_alike_however_it_is_framed_and_nothing_changes() {
    for case in cases() {
        for (framing, body, streams) in bodies(&case) {
            let (out, facts) = run(&case, streams, &mut Unpriced, &[body.as_bytes()]);
            let what = format!("{}: {framing}", case.name);
            assert_eq!(normal_form(facts.usage.as_ref()), case.usage, "{what}");
            let (forwarded, added) = out.split_at(body.len());
            assert_eq!(forwarded, body.as_bytes(), "{what}");
            assert!(matches!(added, b"" | b"\n" | b"\n\n" | b"\r"), "{what}");
        }
    }
}

#[test]
fn nothing_depends_on_where_the_body_is_cut() {
    for case in cases() {
        for (framing, body, streams) in bodies(&case) {
            let body = body.as_bytes();
            let whole = run(&case, streams, &mut Unpriced, &[body]);
            let single: Vec<&[u8]> = body.chunks(1).collect();
            assert_eq!(
                run(&case, streams, &mut Unpriced, &single),
                whole,
                "{}: {framing}, byte by byte",
                case.name
            );
            // Byte by byte is every cut at once; these are cut in two as well.
            if !["SSE", "SSE, CRLF", "JSON back to back"].contains(&framing) {
                continue;
            }
            for cut in 1..body.len() {
                let (head, tail) = body.split_at(cut);
                assert_eq!(
                    run(&case, streams, &mut Unpriced, &[head, tail]),
                    whole,
                    "{}: {framing}, cut at {cut}",
                    case.name
                );
            }
        }
    }
}

/// Says which usage was priced, so that the text shows it.
struct Echo;

impl Pricer for Echo {
    fn price(&mut self, usage: &Usage) -> Option<Members> {
        let form = normal_form(Some(usage));
        Members::parse(format!("\"cost\":{form},\"cost_details\":null"))
    }
}

/// The payloads of an event stream or of lines of JSON, parsed.
fn payloads(body: &[u8], streams: bool) -> Vec<Option<Value>> {
    let text = String::from_utf8(body.to_vec()).unwrap();
    if streams {
        text.split("\n\n")
            .filter(|event| !event.is_empty())
            .map(|event| {
                let lines: Vec<&str> = event
                    .split('\n')
                    .map(|line| line.strip_prefix("data: ").unwrap())
                    .collect();
                serde_json::from_str(&lines.join("\n")).ok()
            })
            .collect()
    } else {
        text.lines()
            .map(|line| serde_json::from_str(line).ok())
            .collect()
    }
}

/// Takes our members out of the object at the place where they may be, and gives upstream's own names back.
fn without_cost(payload: &mut Value) -> Option<Value> {
    let mut cost = None;
    for place in ["/usage", "/x_groq/usage", "/response/usage", "/delta/usage"] {
        if let Some(Value::Object(usage)) = payload.pointer_mut(place)
            && usage.contains_key("cost_details")
        {
            cost = usage.remove("cost");
            usage.remove("cost_details");
            for name in ["cost", "cost_details"] {
                if let Some(theirs) = usage.remove(&format!("upstream_{name}")) {
                    usage.insert(name.to_owned(), theirs);
                }
            }
        }
    }
    cost
}

#[test]
fn a_priced_payload_is_what_it_was_but_for_the_cost() {
    for case in cases() {
        let many_lines: Vec<String> = case.payloads.iter().map(|p| on_many_lines(p)).collect();
        for (body, streams) in [
            (event_stream(&case.payloads, "\n"), true),
            (event_stream(&many_lines, "\n"), true),
            (
                case.payloads.join("\n").replace("1\n4", "1 4") + "\n",
                false,
            ),
        ] {
            let (out, facts) = run(&case, streams, &mut Echo, &[body.as_bytes()]);
            let single: Vec<&[u8]> = body.as_bytes().chunks(1).collect();
            assert_eq!(
                run(&case, streams, &mut Echo, &single),
                (out.clone(), facts.clone())
            );
            let before = payloads(body.as_bytes(), streams);
            let mut after = payloads(&out, streams);
            let mut last_cost = None;
            for payload in after.iter_mut().flatten() {
                last_cost = without_cost(payload).or(last_cost);
            }
            assert_eq!(after, before, "{}", case.name);
            let counts = facts.usage.as_ref().and_then(Usage::total_tokens);
            if let Some(cost) = last_cost {
                assert_eq!(cost, case.usage, "{}", case.name);
            } else if counts.is_some() {
                // Counts without a usage object have no place for a cost, and what serde_json refuses was not looked at
                // here.
                let placeless = ["timings", "eval_count", "usageMetadata", "\"meta\""];
                assert!(
                    placeless.iter().any(|name| body.contains(name)) || before.contains(&None),
                    "{}",
                    case.name
                );
            }
        }
    }
}
