//! What a reply's bytes become, and what is then known of it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what fails here fails the test"
)]

use bytes::Bytes;
use sluicegate_core::api::Api;
use sluicegate_core::cost::Members;
use sluicegate_core::error::{Error, ErrorKind};
use sluicegate_core::limits::Limits;
use sluicegate_core::mode::Mode;
use sluicegate_core::pipeline::{Facts, Pipeline, Pricer, ReplyPlan, Unpriced};
use sluicegate_core::protocols::{ClientProtocol, ClientSide, Reading, UpstreamSide, UsageChunk};
use sluicegate_core::usage::Usage;

mod changes;
mod conversions;
mod errors;
mod forwarded;
mod frames;
mod other;
mod properties;
mod reading;
mod recognition;

/// Every usage costs 1.
struct Flat;

impl Pricer for Flat {
    fn price(&mut self, _usage: &Usage) -> Option<Members> {
        Members::parse("\"cost\":1")
    }
}

fn chat(streams: bool) -> ReplyPlan {
    ReplyPlan::new(Api::Chat, streams)
}

/// The plan for a client that did not ask for the usage that the gateway asked for.
fn hides_usage(mut plan: ReplyPlan) -> ReplyPlan {
    if let ClientProtocol::Chat(usage) | ClientProtocol::Completions(usage) =
        &mut plan.client.protocol
    {
        *usage = UsageChunk {
            include: false,
            hide: true,
        };
    }
    plan
}

/// The plan for a client that is shown another name of the model.
fn renamed(mut plan: ReplyPlan, model: &str) -> ReplyPlan {
    plan.client.reply_model = Some(model.into());
    plan
}

/// The reply in one read, and byte by byte: both must give the same.
fn pass(plan: &ReplyPlan, pricer: &mut dyn Pricer, body: &str) -> (String, Facts) {
    let mut results = Vec::new();
    for size in [body.len().max(1), 1] {
        let mut pipeline = Pipeline::new(plan.clone());
        let mut out = Vec::new();
        for read in body.as_bytes().chunks(size) {
            let read = Bytes::copy_from_slice(read);
            pipeline.feed(read, pricer, &mut out).unwrap();
        }
        pipeline.finish(pricer, &mut out).unwrap();
        let text = String::from_utf8(out.concat()).unwrap();
        results.push((text, pipeline.facts().clone()));
    }
    assert_eq!(results[0], results[1]);
    results.remove(0)
}

fn facts(api: Api, body: &str) -> Facts {
    let (out, facts) = pass(&ReplyPlan::new(api, true), &mut Unpriced, body);
    assert!(out.starts_with(body));
    facts
}

const HI: &str = "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}],\"usage\":null}\n\n";
const STOP: &str =
    "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const USAGE: &str = "data: {\"id\":\"c1\",\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1}}\n\n";
const DONE: &str = "data: [DONE]\n\n";
