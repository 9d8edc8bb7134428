//! What one run of the load generator does, as the orchestrator writes it: one JSON object.

use std::net::SocketAddr;

use serde::Deserialize;

use crate::check::Expectation;
use crate::script::Script;

/// One run. Every connection sends its exchanges one after the other.
#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    pub(crate) address: SocketAddr,
    #[serde(default = "default_path")]
    pub(crate) path: String,
    #[serde(default = "default_model")]
    pub(crate) model: String,
    /// Sent as a bearer token.
    #[serde(default)]
    pub(crate) key: Option<String>,
    /// Ask for event streams; else for JSON replies.
    pub(crate) stream: bool,
    pub(crate) connections: u32,
    /// Exchanges on each connection.
    pub(crate) exchanges: u32,
    /// No exchange begins later than this, seconds.
    #[serde(default = "unbounded")]
    pub(crate) seconds: f64,
    /// The run is ended after this, seconds; what is under way then counts as failed.
    pub(crate) limit_seconds: f64,
    /// Exchanges begun a second over all connections, however long they take; 0: each when the one before has ended.
    #[serde(default)]
    pub(crate) pace: f64,
    /// Connections opened a second; 0: all at once.
    #[serde(default)]
    pub(crate) ramp: f64,
    /// Once every stream is open: wait `settle_seconds`, mark, wait `window_seconds`, mark again. 0: no marks.
    #[serde(default)]
    pub(crate) settle_seconds: f64,
    #[serde(default)]
    pub(crate) window_seconds: f64,
    pub(crate) tokens: u32,
    #[serde(default = "default_content_bytes")]
    pub(crate) content_bytes: usize,
    /// Tokens a second on each stream; 0: as fast as they come.
    #[serde(default)]
    pub(crate) rate: f64,
    /// The prompt is padded to this many bytes.
    #[serde(default)]
    pub(crate) prompt_bytes: usize,
    #[serde(default)]
    pub(crate) expect_cost: bool,
    #[serde(default)]
    pub(crate) probes: Option<Probes>,
}

/// Short streams that begin while all others are open, from the window's first mark to its second.
#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub(crate) struct Probes {
    pub(crate) connections: u32,
    pub(crate) tokens: u32,
    /// From the beginning of a connection's exchange to that of its next, where that one has ended.
    pub(crate) every_seconds: f64,
}

fn default_path() -> String {
    "/v1/chat/completions".to_owned()
}

fn default_model() -> String {
    "bench".to_owned()
}

fn default_content_bytes() -> usize {
    64
}

fn unbounded() -> f64 {
    f64::INFINITY
}

impl Plan {
    /// What a probe's connection does: the same requests with few tokens, and as fast as they come.
    pub(crate) fn probing(&self, probes: &Probes) -> Self {
        Self {
            tokens: probes.tokens,
            rate: 0.0,
            prompt_bytes: 0,
            ..self.clone()
        }
    }

    /// The request of connection `tag` as it goes on the wire, and what its reply must hold.
    pub(crate) fn request(&self, tag: u32) -> (Vec<u8>, Expectation) {
        let script = Script {
            tag,
            tokens: self.tokens,
            content_bytes: self.content_bytes,
            rate: self.rate,
        };
        let prompt = script.prompt(self.prompt_bytes);
        let prompt_bytes = prompt.len() as u64;
        let mut body = serde_json::json!({
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "stream": self.stream,
            "max_tokens": self.tokens,
        });
        if self.stream && self.path != crate::http::MESSAGES {
            body["stream_options"] = serde_json::json!({"include_usage": true});
        }
        let body = body.to_string();
        let authorization = self
            .key
            .as_deref()
            .map(|key| format!("authorization: Bearer {key}\r\n"))
            .unwrap_or_default();
        let mut wire = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: */*\r\n\
             user-agent: sluicegate-bench-load\r\n{authorization}content-length: {}\r\n\r\n",
            self.path,
            self.address,
            body.len()
        )
        .into_bytes();
        wire.extend_from_slice(body.as_bytes());
        (
            wire,
            Expectation {
                tag,
                tokens: self.tokens,
                prompt_bytes,
                cost: self.expect_cost,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_and_padded() {
        let plan: Plan = serde_json::from_value(serde_json::json!({
            "address": "127.0.0.1:1", "stream": true, "connections": 1, "exchanges": 1, "limit_seconds": 1,
            "tokens": 4, "prompt_bytes": 1000,
        }))
        .unwrap();
        let (wire, expectation) = plan.request(9);
        assert_eq!((expectation.tag, expectation.prompt_bytes), (9, 1000));
        let head = crate::http::request_head(&wire).unwrap().unwrap();
        assert_eq!(
            head.body,
            crate::http::Body::Length((wire.len() - head.length) as u64)
        );
        let body: serde_json::Value = serde_json::from_slice(&wire[head.length..]).unwrap();
        assert_eq!(body["stream_options"]["include_usage"], true);
        assert_eq!(
            Script::read(body["messages"][0]["content"].as_str().unwrap()).tokens,
            4
        );
    }
}
