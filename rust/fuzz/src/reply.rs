//! However a reply is cut, the client gets the same bytes and the gateway learns the same.

use arbitrary::Arbitrary;
use bytes::Bytes;
use sluicegate_core::api::Api;
use sluicegate_core::cost::Members;
use sluicegate_core::error::Error;
use sluicegate_core::pipeline::{Facts, Pipeline, Pricer, ReplyPlan};
use sluicegate_core::protocols::ClientProtocol;
use sluicegate_core::usage::Usage;

use super::Cut;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    api: u8,
    client_streams: bool,
    hide_usage_chunk: bool,
    rename: bool,
    cut: Cut<'a>,
}

struct Tokens;

impl Pricer for Tokens {
    fn price(&mut self, usage: &Usage) -> Option<Members> {
        Members::parse(format!("\"cost\":{}", usage.total_tokens()?))
    }
}

fn pass(plan: &ReplyPlan, reads: &[Bytes]) -> (Vec<u8>, Facts, Option<Error>) {
    let mut pipeline = Pipeline::new(plan.clone());
    let mut out = Vec::new();
    let mut error = None;
    for read in reads {
        error = pipeline.feed(read.clone(), &mut Tokens, &mut out).err();
        if error.is_some() {
            break;
        }
    }
    if error.is_none() {
        error = pipeline.finish(&mut Tokens, &mut out).err();
    }
    if error.is_some() {
        pipeline.fail("upstream_error", "failed", "it failed", &mut out);
    }
    (out.concat(), pipeline.facts().clone(), error)
}

/// Checks the property on one input.
pub fn check(input: &[u8]) {
    let Some(input) = super::read::<Input<'_>>(input) else {
        return;
    };
    let apis = [
        Api::Chat,
        Api::Completions,
        Api::Embeddings,
        Api::Responses,
        Api::Messages,
    ];
    let mut plan = ReplyPlan::new(
        apis[usize::from(input.api) % apis.len()],
        input.client_streams,
    );
    // The high bit is free: a field of its own would shift every seed.
    plan.upstream.declared_stream = input.api >= 0x80;
    if let ClientProtocol::Chat(usage) | ClientProtocol::Completions(usage) =
        &mut plan.client.protocol
    {
        usage.hide = input.hide_usage_chunk;
    }
    plan.client.reply_model = input.rename.then(|| "public".into());
    let whole = pass(&plan, &input.cut.whole());
    assert_eq!(pass(&plan, &input.cut.reads()), whole);
    assert_eq!(pass(&plan, &input.cut.bytewise()), whole);
}
