//! What a response says of the request that it answers.
//!
//! A Response object repeats most of its request (`instructions`, `tools`, `temperature`, …), in each event that carries one. All of
//! it is spelled once, when the request is read, and copied from there.

use std::collections::BTreeSet;

use bytes::Bytes;

/// The part of a Response object that is known before the upstream answers, and what else of the request its reply depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The response's `id`, with its prefix `resp_`. The ids of its items are made of what follows the prefix.
    pub response_id: Box<str>,
    /// `created_at`: seconds since 1970.
    pub created_at: u64,
    /// `model`, where the upstream names none.
    pub model: Box<str>,
    /// `service_tier`, where the upstream names none that a client would know.
    pub service_tier: Box<str>,
    /// The other members that repeat the request, as JSON on one line without the braces around them: `"background":false,…,"user":null`.
    /// None of `id`, `object`, `created_at`, `completed_at`, `status`, `error`, `incomplete_details`, `model`, `output`, `service_tier` and
    /// `usage` is among them.
    pub members: Bytes,
    /// Names of the custom tools that the upstream was told of as functions with one string argument `input`.
    pub custom_tools: BTreeSet<Box<str>>,
}

/// What a request that says nothing is answered with, in the order of the names: every member that Open Responses requires is there.
const DEFAULTS: &[u8] = b"\"background\":false,\"frequency_penalty\":0,\"instructions\":null,\"max_output_tokens\":null,\
\"max_tool_calls\":null,\"metadata\":{},\"parallel_tool_calls\":true,\"presence_penalty\":0,\"previous_response_id\":null,\
\"prompt_cache_key\":null,\"reasoning\":{\"effort\":null,\"summary\":null},\"safety_identifier\":null,\"store\":true,\
\"temperature\":1,\"text\":{\"format\":{\"type\":\"text\"}},\"tool_choice\":\"auto\",\"tools\":[],\"top_logprobs\":0,\"top_p\":1,\
\"truncation\":\"disabled\",\"user\":null";

impl Echo {
    /// Of a request that says nothing but `model`.
    #[must_use]
    pub fn new(response_id: &str, created_at: u64, model: &str) -> Self {
        Echo {
            response_id: response_id.into(),
            created_at,
            model: model.into(),
            service_tier: "auto".into(),
            members: Bytes::from_static(DEFAULTS),
            custom_tools: BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_has_the_interfaces_defaults() {
        let echo = Echo::new("resp_1", 7, "m");
        let members = format!("{{{}}}", String::from_utf8(echo.members.to_vec()).unwrap());
        let members: serde_json::Value = serde_json::from_str(&members).unwrap();
        assert_eq!(members["tools"], serde_json::json!([]));
        assert_eq!(members["temperature"], serde_json::json!(1));
        assert_eq!(members["instructions"], serde_json::Value::Null);
    }
}
