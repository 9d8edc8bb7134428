//! A reply in another protocol than the client's: see [`translated`](super::translated).

use arbitrary::Arbitrary;
use sluicegate_core::api::Api;
use sluicegate_core::pipeline::ReplyPlan;
use sluicegate_core::protocols::{ClientProtocol, ClientSide, UpstreamSide};

use super::{Cut, translated};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    apis: u8,
    client_streams: bool,
    include_usage: bool,
    cut: Cut<'a>,
}

/// Checks the properties on one input.
pub fn check(input: &[u8]) {
    let Some(input) = super::read::<Input<'_>>(input) else {
        return;
    };
    let (upstream_api, client, harmony) = match input.apis % 5 {
        0 => (Api::Chat, Api::Responses, false),
        1 => (Api::Responses, Api::Chat, false),
        2 => (Api::Completions, Api::Responses, false),
        3 => (Api::Chat, Api::Responses, true),
        _ => (Api::Chat, Api::Chat, true),
    };
    let mut client = ClientSide::new(client, input.client_streams);
    match &mut client.protocol {
        ClientProtocol::Chat(usage) => usage.include = input.include_usage,
        protocol => *protocol = translated::asked(),
    }
    let upstream = UpstreamSide {
        harmony,
        ..UpstreamSide::new(upstream_api)
    };
    let plan = ReplyPlan::between(client, upstream);
    translated::check(&plan, &input.cut);
}
