//! A stream of the Responses interface that is made anew: see [`translated`](super::translated).

use arbitrary::Arbitrary;
use sluicegate_core::api::Api;
use sluicegate_core::pipeline::ReplyPlan;

use super::{Cut, translated};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    client_streams: bool,
    rename: bool,
    cut: Cut<'a>,
}

/// Checks the properties on one input.
pub fn check(input: &[u8]) {
    let Some(input) = super::read::<Input<'_>>(input) else {
        return;
    };
    let mut plan = ReplyPlan::new(Api::Responses, input.client_streams);
    plan.upstream.repair = true;
    plan.client.protocol = translated::asked();
    plan.client.reply_model = input.rename.then(|| "public".into());
    translated::check(&plan, &input.cut);
}
