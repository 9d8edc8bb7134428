//! How an exchange ended.
//!
//! Names are shared and not copied: a record is dropped on another thread than the one that made it, and what is freed
//! there costs more.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::pricing::Cost;
use sluicegate_core::usage::Usage;

use crate::copies::NotCopied;
use crate::director::Pricing;
use crate::fault::{Fault, FaultKind};
use crate::reason::Reason;
use crate::upstream::Route;

/// One attempt. Times count from the exchange's beginning.
#[derive(Debug, Clone)]
pub struct Try {
    /// The upstream's configured name.
    pub upstream: Arc<str>,
    /// Its name of the model.
    pub model: Arc<str>,
    /// Why it failed; `None` for one that served.
    pub fault: Option<FaultKind>,
    /// The upstream's status, where there was one.
    pub status: Option<u16>,
    /// Why its connection failed, where the fault's kind does not tell.
    pub reason: Option<Reason>,
    /// When it began.
    pub began: Duration,
    /// How long it took.
    pub took: Duration,
}

impl Try {
    pub(crate) fn begun(route: &Route, began: Duration) -> Self {
        Self {
            upstream: route.upstream.name.clone(),
            model: route.model.clone(),
            fault: None,
            status: None,
            reason: None,
            began,
            took: Duration::ZERO,
        }
    }

    pub(crate) fn failed(&mut self, fault: &Fault, took: Duration) {
        self.fault = Some(fault.kind);
        self.status = fault.status;
        self.reason = fault.reason;
        self.took = took;
    }

    /// The exchange is over; `whole`: how long it took. A fault noted by [`failed`](Self::failed) stays.
    pub(crate) fn settled(&mut self, fault: Option<&Fault>, status: Option<u16>, whole: Duration) {
        if self.fault.is_none() {
            self.fault = fault.map(|fault| fault.kind);
            self.status = status;
            self.took = whole.saturating_sub(self.began);
        }
    }
}

/// The record of one exchange. Times count from its request's arrival.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The status the client got; 499 where it left before one was sent.
    pub status: u16,
    /// The upstream that served, or was tried last.
    pub upstream: Arc<str>,
    /// The upstream's name of the model.
    pub upstream_model: Arc<str>,
    /// Attempts made.
    pub attempts: u32,
    /// The client was sent an event stream.
    pub streamed: bool,
    /// What is charged: the last value that the upstream gave, and what stands in place of what it has not said.
    pub usage: Option<Usage>,
    /// The first finish reason of the reply.
    pub finish_reason: Option<Box<str>>,
    /// Also set where the client got a success status: a stream that broke off, an error event inside it.
    pub fault: Option<Fault>,
    /// The client left before the end.
    pub client_left: bool,
    /// Events with data from the upstream.
    pub events: u64,
    /// Payloads that were not JSON.
    pub malformed: u64,
    /// Events with text, reasoning or a tool call, as far as they were recognised.
    pub token_events: u64,
    /// Body bytes from the upstream.
    pub bytes_in: u64,
    /// Body bytes to the client.
    pub bytes_out: u64,
    /// First body byte.
    pub first_byte: Option<Duration>,
    /// First text, reasoning or tool call.
    pub first_token: Option<Duration>,
    /// The last of them.
    pub last_token: Option<Duration>,
    /// The longest time between two reads that bore tokens, without that in which the client took nothing.
    pub longest_gap: Option<Duration>,
    /// The sum of these times.
    pub gaps: Duration,
    /// How long the upstream was not read because the client took nothing.
    pub client_blocked: Duration,
    /// The whole exchange.
    pub duration: Duration,
    /// The parts of the request that were not sent to the upstream, and that its answer does not depend on.
    pub left_out: Vec<Box<str>>,
    /// The upstream's `x-request-id`.
    pub upstream_request_id: Option<Box<str>>,
    /// Each attempt, in order.
    pub tries: Vec<Try>,
    /// The `code` of an error that was answered without asking anybody.
    pub code: Option<&'static str>,
    /// The upstream had the whole request, or had begun to reply, and did not refuse it or fail then.
    pub accepted: bool,
    /// Something of the usage is not what the upstream said: output was counted from events, or input estimated.
    pub estimated: bool,
    /// The input is an estimate.
    pub estimated_input: bool,
    /// The `code` of the gateway's own error that the client was answered with once attempts had failed.
    pub answered: Option<Box<str>>,
    /// What it cost, where the pricing is known here.
    pub cost: Option<Box<Cost>>,
    /// The name of the prices that the cost was looked for in.
    pub price_id: Option<Arc<str>>,
    /// There was usage, or an estimate of it, and no known cost.
    pub unpriced: bool,
    /// The client took nothing for too long and was cut.
    pub stalled: bool,
    /// Why there is no copy of a reply that was to be copied, and that may be whole.
    pub not_copied: Option<NotCopied>,
}

impl Outcome {
    /// Settle what was used, and what it cost. `estimate`: of the input, where the request has one; `counts`: a whole
    /// reply says its usage; `by_client`: the client has ended it, by leaving or by the time that it gave.
    ///
    /// What the upstream has said of a whole reply holds. Of one that was cut off, or says nothing, the events that
    /// bore output are counted, where they are more; and the estimate stands for an input that nobody has told, where
    /// the upstream had accepted the request, unless it failed before any output.
    pub(crate) fn bill(
        &mut self,
        pricing: &Pricing,
        estimate: Option<u64>,
        counts: bool,
        by_client: bool,
    ) {
        let cut_off = self.finish_reason.is_none() && (self.client_left || self.fault.is_some());
        let known = self.usage.as_ref();
        let (input, output) = known.map_or((None, None), |usage| {
            // A preview may say 0 until the input is counted.
            let input = usage.input_tokens.filter(|input| *input > 0 || !cut_off);
            (input, usage.output_tokens)
        });
        let counted = self.token_events;
        let counts_output =
            (output.is_none() || cut_off) && counted > output.unwrap_or(0) && self.events > 0;
        let implausible = known.is_some_and(|usage| usage.implausible);
        let owed = self.accepted && (by_client || self.fault.is_none() || counted > 0);
        let charged = estimate.filter(|_| owed && (counts || cut_off || implausible));
        self.estimated_input = input.is_none() && charged.is_some();
        self.estimated = counts_output || self.estimated_input;
        if self.estimated {
            let output = if counts_output {
                counted
            } else {
                output.unwrap_or(0)
            };
            let usage = self.usage.take().unwrap_or_default();
            self.usage = Some(Usage {
                input_tokens: input.or(charged).or(Some(0)),
                output_tokens: Some(output),
                reasoning_tokens: usage.reasoning_tokens.map(|tokens| tokens.min(output)),
                ..usage
            });
        }
        let (Some(usage), Pricing::Rates(rates)) = (&self.usage, pricing) else {
            return;
        };
        let (cost, _) = rates.charge(usage);
        self.price_id = rates.id().cloned();
        self.unpriced = cost.is_none();
        self.cost = cost.map(Box::new);
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_core::pricing::{self, CostStyle, Rates, Tariff};

    use super::*;

    /// One millionth of a dollar for a token of input, four for one of output.
    fn rates() -> Pricing {
        let mut texts = [None; 11];
        (texts[0], texts[4]) = (Some("0.000001"), Some("0.000004"));
        let tariff = Arc::new(Tariff::new(Rates::parse(&texts).unwrap(), Vec::new()));
        Pricing::Rates(Arc::new(pricing::Pricing::new(
            Some(tariff),
            CostStyle::OpenRouter,
        )))
    }

    fn no_rates() -> Pricing {
        Pricing::Rates(Arc::new(pricing::Pricing::new(None, CostStyle::OpenRouter)))
    }

    fn usage(input: Option<u64>, output: Option<u64>) -> Usage {
        Usage {
            input_tokens: input,
            output_tokens: output,
            ..Usage::default()
        }
    }

    /// A stream of which seven tokens were seen before its client left.
    fn cut_off() -> Outcome {
        Outcome {
            status: 200,
            client_left: true,
            streamed: true,
            events: 8,
            token_events: 7,
            ..Outcome::default()
        }
    }

    /// Whether something is estimated, the output that is charged, what it cost, and whether that is not known.
    fn billed(
        mut outcome: Outcome,
        pricing: &Pricing,
    ) -> (bool, Option<u64>, Option<Box<str>>, bool) {
        let by_client = outcome.client_left;
        outcome.bill(pricing, None, true, by_client);
        let output = outcome.usage.and_then(|usage| usage.output_tokens);
        let cost = outcome.cost.map(|cost| cost.total().into());
        (outcome.estimated, output, cost, outcome.unpriced)
    }

    /// What is charged where the input is estimated to be 500 tokens.
    fn charged(mut outcome: Outcome, counts: bool) -> Option<(Option<u64>, Option<u64>, bool)> {
        let by_client = outcome.client_left;
        outcome.bill(&rates(), Some(500), counts, by_client);
        let usage = outcome.usage?;
        let cost = (usage.input_tokens?, usage.output_tokens.unwrap_or(0));
        let total = format!("{:.6}", (cost.0 + 4 * cost.1) as f64 / 1e6);
        let total = total.trim_end_matches('0').trim_end_matches('.');
        assert_eq!(
            outcome.cost?.total(),
            total,
            "it is priced as it is charged"
        );
        assert!(outcome.estimated || !outcome.estimated_input);
        Some((
            usage.input_tokens,
            usage.output_tokens,
            outcome.estimated_input,
        ))
    }

    #[test]
    fn an_input_that_nobody_told_is_charged_by_its_estimate_once_it_was_accepted() {
        let accepted = Outcome {
            accepted: true,
            ..cut_off()
        };
        assert_eq!(
            charged(accepted.clone(), true),
            Some((Some(500), Some(7), true))
        );
        assert_eq!(
            charged(accepted.clone(), false),
            Some((Some(500), Some(7), true))
        );
        let silent = Outcome {
            status: 499,
            client_left: true,
            accepted: true,
            ..Outcome::default()
        };
        assert_eq!(
            charged(silent.clone(), true),
            Some((Some(500), Some(0), true))
        );
        let unsent = Outcome {
            accepted: false,
            ..silent
        };
        assert_eq!(charged(unsent, true), None);
        let mut late = Outcome {
            status: 504,
            accepted: true,
            fault: Some(Fault::new(FaultKind::TotalTimeout, "up")),
            ..Outcome::default()
        };
        assert_eq!(
            charged(late.clone(), true),
            None,
            "the upstream was too slow"
        );
        late.bill(&rates(), Some(500), true, true);
        let paid = late.usage.and_then(|usage| usage.input_tokens);
        assert_eq!(paid, Some(500), "the client gave it no time");
        let broken = Outcome {
            client_left: false,
            fault: Some(Fault::new(FaultKind::Truncated, "up")),
            ..accepted.clone()
        };
        assert_eq!(charged(broken, true), Some((Some(500), Some(7), true)));
        let preview = |input| Outcome {
            usage: Some(usage(Some(input), Some(1))),
            ..accepted.clone()
        };
        assert_eq!(charged(preview(0), true), Some((Some(500), Some(7), true)));
        assert_eq!(charged(preview(90), true), Some((Some(90), Some(7), false)));
    }

    #[test]
    fn a_whole_reply_without_usage_is_charged_for_its_input_where_such_replies_have_one() {
        let whole = Outcome {
            status: 200,
            accepted: true,
            finish_reason: Some("stop".into()),
            ..Outcome::default()
        };
        assert_eq!(
            charged(whole.clone(), true),
            Some((Some(500), Some(0), true))
        );
        assert_eq!(charged(whole.clone(), false), None, "speech has no tokens");
        let said = |usage| Outcome {
            usage: Some(usage),
            ..whole.clone()
        };
        let told = said(usage(Some(0), Some(0)));
        assert_eq!(charged(told, true), Some((Some(0), Some(0), false)));
        let made_up = said(Usage {
            implausible: true,
            ..usage(None, Some(3))
        });
        let expected = Some((Some(500), Some(3), true));
        assert_eq!(charged(made_up.clone(), true), expected);
        assert_eq!(charged(made_up, false), expected);
    }

    #[test]
    fn usage_that_was_reported_is_priced() {
        let outcome = Outcome {
            usage: Some(usage(Some(100), Some(3))),
            finish_reason: Some("stop".into()),
            ..cut_off()
        };
        let whole = Outcome {
            client_left: false,
            ..outcome.clone()
        };
        let expected = (false, Some(3), Some("0.000112".into()), false);
        assert_eq!(billed(whole, &rates()), expected);
        assert_eq!(
            billed(outcome, &rates()),
            expected,
            "it had finished before its client left"
        );
    }

    #[test]
    fn a_client_that_leaves_pays_for_what_was_counted() {
        let expected = (true, Some(7), Some("0.000028".into()), false);
        assert_eq!(billed(cut_off(), &rates()), expected);
        let broken = Outcome {
            client_left: false,
            fault: Some(Fault::new(FaultKind::Truncated, "up")),
            ..cut_off()
        };
        assert_eq!(billed(broken, &rates()), expected);
    }

    #[test]
    fn a_preview_of_usage_is_raised_to_what_was_counted() {
        let preview = |output| Outcome {
            usage: Some(usage(Some(100), output)),
            ..cut_off()
        };
        let raised = (true, Some(7), Some("0.000128".into()), false);
        assert_eq!(billed(preview(Some(1)), &rates()), raised);
        assert_eq!(billed(preview(None), &rates()), raised);
        let told = (false, Some(9), Some("0.000136".into()), false);
        assert_eq!(
            billed(preview(Some(9)), &rates()),
            told,
            "more was reported than seen"
        );
    }

    #[test]
    fn a_whole_reply_without_usage_is_estimated_too() {
        let silent = Outcome {
            client_left: false,
            finish_reason: Some("stop".into()),
            ..cut_off()
        };
        assert_eq!(
            billed(silent, &rates()),
            (true, Some(7), Some("0.000028".into()), false)
        );
    }

    #[test]
    fn a_whole_reply_is_not_counted_where_it_says_its_usage() {
        let merged = Outcome {
            client_left: false,
            finish_reason: Some("stop".into()),
            usage: Some(usage(Some(10), Some(2))),
            ..cut_off()
        };
        assert_eq!(
            billed(merged, &rates()),
            (false, Some(2), Some("0.000018".into()), false)
        );
    }

    #[test]
    fn zero_tokens_are_not_unknown_tokens() {
        let zero = Outcome {
            usage: Some(usage(Some(0), Some(0))),
            ..Outcome::default()
        };
        assert_eq!(
            billed(zero, &rates()),
            (false, Some(0), Some("0".into()), false)
        );
        assert_eq!(
            billed(Outcome::default(), &rates()),
            (false, None, None, false),
            "nothing was used"
        );
    }

    #[test]
    fn what_has_no_price_is_said_to_have_none() {
        assert_eq!(billed(cut_off(), &no_rates()), (true, Some(7), None, true));
        let reported = Outcome {
            usage: Some(usage(Some(10), Some(5))),
            finish_reason: Some("stop".into()),
            ..Outcome::default()
        };
        assert_eq!(
            billed(reported.clone(), &no_rates()),
            (false, Some(5), None, true)
        );
        // A price policy that is asked gives the cost later.
        assert_eq!(
            billed(reported, &Pricing::Asked),
            (false, Some(5), None, false)
        );
        assert_eq!(
            billed(cut_off(), &Pricing::Asked),
            (true, Some(7), None, false)
        );
    }

    #[test]
    fn what_a_try_failed_with_stays() {
        let mut tried = Try {
            upstream: "up".into(),
            model: "theirs".into(),
            fault: None,
            status: None,
            reason: None,
            began: Duration::from_secs(1),
            took: Duration::ZERO,
        };
        let mut failed = tried.clone();
        // It may have taken no time that the clock can tell.
        failed.failed(&Fault::new(FaultKind::Untranslatable, "up"), Duration::ZERO);
        failed.settled(None, Some(499), Duration::from_secs(5));
        assert_eq!(
            (failed.fault, failed.status),
            (Some(FaultKind::Untranslatable), None)
        );
        tried.settled(None, Some(200), Duration::from_secs(5));
        assert_eq!(
            (tried.status, tried.took),
            (Some(200), Duration::from_secs(4))
        );
    }
}
