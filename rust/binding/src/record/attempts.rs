//! What a record says where an upstream was asked.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sluicegate_core::usage::Usage;
use sluicegate_relay::{FaultKind, Outcome, Reason, Try};

use super::line::Line;
use crate::upstream::seconds;

/// What there is to tell where an upstream was asked. Times are seconds.
#[derive(Default, FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct Attempts {
    #[pyo3(item("attempts"))]
    pub(super) count: u32,
    #[pyo3(default)]
    pub(super) upstream: String,
    #[pyo3(default)]
    pub(super) upstream_model: String,
    #[pyo3(default)]
    pub(super) upstream_request_id: Option<String>,
    #[pyo3(default, from_py_with = tries_given)]
    pub(super) tries: Vec<Try>,
    #[pyo3(default, from_py_with = fault_given)]
    pub(super) fault: Option<FaultKind>,
    #[pyo3(default)]
    pub(super) left_out: Vec<String>,
    #[pyo3(default)]
    pub(super) finish_reason: Option<String>,
    #[pyo3(default)]
    pub(super) streamed: bool,
    #[pyo3(default)]
    pub(super) time_to_first_token: Option<f64>,
    #[pyo3(default)]
    pub(super) inter_token_latency: Option<f64>,
    #[pyo3(default)]
    pub(super) longest_gap: Option<f64>,
    #[pyo3(default)]
    pub(super) client_blocked: f64,
    #[pyo3(default)]
    pub(super) input_tokens: Option<u64>,
    #[pyo3(default)]
    pub(super) cached_input_tokens: Option<u64>,
    #[pyo3(default)]
    pub(super) cache_write_tokens: Option<u64>,
    #[pyo3(default)]
    pub(super) output_tokens: Option<u64>,
    #[pyo3(default)]
    pub(super) reasoning_tokens: Option<u64>,
    #[pyo3(default)]
    pub(super) estimated: bool,
    #[pyo3(default)]
    pub(super) implausible: bool,
    #[pyo3(default)]
    pub(super) cost: Option<String>,
    #[pyo3(default)]
    pub(super) upstream_cost: Option<String>,
    #[pyo3(item("priced"), default, from_py_with = negated)]
    pub(super) unpriced: bool,
    #[pyo3(default)]
    pub(super) events: u64,
    #[pyo3(default)]
    pub(super) malformed: u64,
    #[pyo3(default)]
    pub(super) bytes_in: u64,
    #[pyo3(default)]
    pub(super) bytes_out: u64,
}

impl Attempts {
    pub(super) fn of(outcome: &Outcome) -> Self {
        let usage = outcome.usage.as_ref();
        let tokens = |count: fn(&Usage) -> Option<u64>| usage.and_then(count);
        let streamed = outcome.streamed;
        let of_stream = |time: Option<f64>| time.filter(|_| streamed);
        let owned = |text: &Option<Box<str>>| text.as_deref().map(String::from);
        Attempts {
            count: outcome.attempts,
            upstream: outcome.upstream.to_string(),
            upstream_model: outcome.upstream_model.to_string(),
            upstream_request_id: owned(&outcome.upstream_request_id),
            tries: outcome.tries.clone(),
            fault: outcome.fault.as_ref().map(|fault| fault.kind),
            left_out: outcome
                .left_out
                .iter()
                .map(|part| String::from(&**part))
                .collect(),
            finish_reason: owned(&outcome.finish_reason),
            streamed,
            time_to_first_token: of_stream(outcome.first_token.map(|time| time.as_secs_f64())),
            inter_token_latency: of_stream(inter_token_latency(outcome)),
            longest_gap: of_stream(outcome.longest_gap.map(|time| time.as_secs_f64())),
            client_blocked: outcome.client_blocked.as_secs_f64(),
            // 0 stands for an input of which there is no estimate, so that what was counted can be priced.
            input_tokens: tokens(|usage| usage.input_tokens)
                .filter(|input| *input > 0 || !outcome.estimated),
            cached_input_tokens: tokens(|usage| usage.cached_input_tokens),
            cache_write_tokens: tokens(|usage| usage.cache_write_tokens),
            output_tokens: tokens(|usage| usage.output_tokens),
            reasoning_tokens: tokens(|usage| usage.reasoning_tokens),
            estimated: outcome.estimated,
            implausible: usage.is_some_and(|usage| usage.implausible),
            cost: outcome.cost.as_ref().map(|cost| cost.total()),
            upstream_cost: usage.and_then(|usage| owned(&usage.upstream_cost)),
            unpriced: outcome.unpriced,
            events: outcome.events,
            malformed: outcome.malformed,
            bytes_in: outcome.bytes_in,
            bytes_out: outcome.bytes_out,
        }
    }

    /// The attempt whose fault is `fault`.
    pub(super) fn last_failed(&self) -> Option<&Try> {
        self.fault?;
        self.tries.last().filter(|tried| tried.fault.is_some())
    }

    pub(super) fn write(&self, line: &mut Line) {
        line.text("upstream", &self.upstream);
        line.text("upstream_model", &self.upstream_model);
        line.number("attempts", self.count);
        line.flag("streamed", self.streamed);
        line.text_of("upstream_request_id", self.upstream_request_id.as_deref());
        if let Some(fault) = self.fault {
            line.text("fault", fault.as_str());
            // What the kind of a fault leaves open: the upstream's status, and why there was no connection.
            match self.last_failed() {
                Some(Try {
                    fault: Some(FaultKind::Status),
                    status: Some(status),
                    ..
                }) => line.number("fault_status", *status),
                Some(tried) => line.text_of("fault_reason", tried.reason.map(Reason::as_str)),
                None => {}
            }
        }
        if self.tries.len() > 1 {
            self.write_tries(line);
        }
        if !self.left_out.is_empty() {
            line.0.key("left_out");
            line.0.open(b'[');
            for part in &self.left_out {
                line.0.text(part);
            }
            line.0.close(b']');
        }
        line.text_of("finish_reason", self.finish_reason.as_deref());
        if self.streamed {
            line.seconds_of("time_to_first_token", self.time_to_first_token);
            line.seconds_of("inter_token_latency", self.inter_token_latency);
            line.seconds_of("longest_gap", self.longest_gap);
        }
        if self.client_blocked > 0.0 {
            line.seconds("client_blocked_seconds", self.client_blocked);
        }
        line.number_of("input_tokens", self.input_tokens);
        line.number_of("cached_input_tokens", self.cached_input_tokens);
        line.number_of("cache_write_tokens", self.cache_write_tokens);
        line.number_of("output_tokens", self.output_tokens);
        line.number_of("reasoning_tokens", self.reasoning_tokens);
        line.flag_where("estimated", self.estimated);
        line.flag_where("implausible", self.implausible);
        line.text_of("cost", self.cost.as_deref());
        line.text_of("upstream_cost", self.upstream_cost.as_deref());
        line.flag_where("unpriced", self.unpriced);
        line.number_of("events", Some(self.events).filter(|&events| events > 0));
        line.number_of("malformed", Some(self.malformed).filter(|&count| count > 0));
        line.number("bytes_in", self.bytes_in);
        line.number("bytes_out", self.bytes_out);
    }

    fn write_tries(&self, line: &mut Line) {
        line.0.key("failed_attempts");
        line.0.open(b'[');
        for (tried, fault) in self.failed() {
            line.0
                .text(&format!("{}: {}", tried.upstream, fault.as_str()));
        }
        line.0.close(b']');
        line.0.key("tries");
        line.0.open(b'[');
        for tried in &self.tries {
            line.0.open(b'{');
            line.text("upstream", &tried.upstream);
            line.text("upstream_model", &tried.model);
            line.text_of("fault", tried.fault.map(FaultKind::as_str));
            line.number_of("status", tried.status);
            line.text_of("reason", tried.reason.map(Reason::as_str));
            line.seconds("began", tried.began.as_secs_f64());
            line.seconds("duration", tried.took.as_secs_f64());
            line.0.close(b'}');
        }
        line.0.close(b']');
    }

    /// The attempts that failed, but for the one whose fault is `fault`.
    pub(super) fn failed(&self) -> impl Iterator<Item = (&Try, FaultKind)> {
        let without_last = usize::from(self.last_failed().is_some());
        let earlier = self.tries.len().saturating_sub(without_last);
        let tries = self.tries.iter().take(earlier);
        tries.filter_map(|tried| Some((tried, tried.fault?)))
    }
}

/// The mean gap between the events that bore tokens, in seconds, without the time in which the client took nothing.
fn inter_token_latency(outcome: &Outcome) -> Option<f64> {
    let gaps = outcome
        .token_events
        .checked_sub(1)
        .filter(|&gaps| gaps > 0)?;
    #[allow(clippy::cast_precision_loss)] // 2^53 tokens.
    Some(outcome.gaps.as_secs_f64() / gaps as f64)
}

type Given = (
    String,
    String,
    Option<String>,
    Option<u16>,
    Option<String>,
    f64,
    f64,
);

fn fault_named(name: &str) -> PyResult<FaultKind> {
    let named = FaultKind::ALL
        .into_iter()
        .find(|kind| kind.as_str() == name);
    named.ok_or_else(|| PyValueError::new_err("no such kind of fault"))
}

fn negated(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!given.extract::<bool>()?)
}

fn fault_given(given: &Bound<'_, PyAny>) -> PyResult<Option<FaultKind>> {
    let name: Option<String> = given.extract()?;
    name.as_deref().map(fault_named).transpose()
}

fn tries_given(given: &Bound<'_, PyAny>) -> PyResult<Vec<Try>> {
    let tries: Vec<Given> = given.extract()?;
    tries.into_iter().map(try_given).collect()
}

fn try_given((upstream, model, fault, status, reason, began, took): Given) -> PyResult<Try> {
    let reason = reason.map(|name| {
        let named = Reason::ALL
            .into_iter()
            .find(|reason| reason.as_str() == name);
        named.ok_or_else(|| PyValueError::new_err("no such reason"))
    });
    Ok(Try {
        upstream: upstream.into(),
        model: model.into(),
        fault: fault.as_deref().map(fault_named).transpose()?,
        status,
        reason: reason.transpose()?,
        began: seconds("began", Some(began))?.unwrap_or_default(),
        took: seconds("took", Some(took))?.unwrap_or_default(),
    })
}
