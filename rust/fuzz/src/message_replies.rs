//! A reply of the Messages interface for another's client, and the other way round: see
//! [`translated`](super::translated). What a client of Messages is sent has the grammar of a message.

use arbitrary::Arbitrary;
use sluicegate_core::api::Api;
use sluicegate_core::pipeline::ReplyPlan;
use sluicegate_core::protocols::{ClientProtocol, ClientSide, UpstreamSide};

use super::{Cut, message, translated};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    sides: u8,
    client_streams: bool,
    cut: Cut<'a>,
}

/// Checks the properties on one input.
pub fn check(input: &[u8]) {
    let Some(input) = super::read::<Input<'_>>(input) else {
        return;
    };
    let (upstream, client) = match input.sides % 5 {
        0 => (Api::Messages, Api::Chat),
        1 => (Api::Messages, Api::Responses),
        2 => (Api::Messages, Api::Messages),
        3 => (Api::Chat, Api::Messages),
        _ => (Api::Responses, Api::Messages),
    };
    let mut client = ClientSide::new(client, input.client_streams);
    if let ClientProtocol::Responses(_) = client.protocol {
        client.protocol = translated::asked();
    }
    let upstream = UpstreamSide {
        repair: true,
        ..UpstreamSide::new(upstream)
    };
    let is_message = client.api() == Api::Messages && client.streams;
    let sent = translated::check(&ReplyPlan::between(client, upstream), &input.cut);
    if is_message {
        message::check_grammar(&sent);
    }
}
