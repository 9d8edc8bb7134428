//! The one report of each request: it ends with exactly one [`Ended`], whatever becomes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluicegate_core::pipeline::Pricer;
use sluicegate_relay::exchange::CLIENT_CLOSED_REQUEST;
use sluicegate_relay::{
    Copies, Deciding, Director, Fault, Next, NotCopied, Outcome, ReplyCopy, Tally,
};
use tokio::time::Instant;

use crate::asked::AskedRequest;
use crate::decisions::{About, Arrived, AskedPricer, Decisions, Ended, Event, Failed, RequestCopy};
use crate::refusal::Refusal;

/// The requests under way, counted.
#[derive(Clone, Default)]
pub(crate) struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    /// Count one more, unless there are `most` already.
    pub(crate) fn enter(&self, most: usize) -> Option<Entered> {
        let entered = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                (n < most).then_some(n + 1)
            });
        entered.ok().map(|_| Entered(Arc::clone(&self.0)))
    }
}

/// One request that is counted as long as this lives.
pub(crate) struct Entered(Arc<AtomicUsize>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How far a request has come.
enum Stage {
    /// Nobody who decides has heard of it.
    New,
    /// It waits for a decision, as the event of this number.
    Arrived(u64),
    Decided,
}

/// A request that has not been reported yet. Dropped before that, it is reported as one whose client has left, or, by a
/// panic, as one that we failed.
pub(crate) struct Report {
    pub(crate) about: Arc<About>,
    pub(crate) started: Instant,
    pub(crate) model: Option<Box<str>>,
    /// The client's request, where the reply is kept.
    request: Option<RequestCopy>,
    not_copied: Option<NotCopied>,
    decisions: Arc<Decisions>,
    stage: Stage,
    entered: Option<Entered>,
    done: bool,
}

impl Report {
    pub(crate) fn new(
        about: Arc<About>,
        started: Instant,
        decisions: Arc<Decisions>,
        entered: Option<Entered>,
    ) -> Self {
        Self {
            about,
            started,
            model: None,
            request: None,
            not_copied: None,
            decisions,
            stage: Stage::New,
            entered,
            done: false,
        }
    }

    pub(crate) fn decisions(&self) -> &Arc<Decisions> {
        &self.decisions
    }

    /// It has come, and is to be decided.
    pub(crate) fn arrive(&mut self, arrived: Arrived) {
        self.stage = Stage::Arrived(self.decisions.number(Event::Arrived(arrived)));
    }

    /// It has been decided.
    pub(crate) fn decided(&mut self) {
        self.stage = Stage::Decided;
    }

    /// The request was answered with an error of our own. `code`: set if the error did not come from the deciding
    /// thread.
    pub(crate) fn refused(mut self, status: u16, code: Option<&'static str>, bytes: usize) {
        let outcome = Outcome {
            status,
            code,
            bytes_out: bytes as u64,
            duration: self.started.elapsed(),
            ..Outcome::default()
        };
        self.end(outcome, None, None);
    }

    /// The reply is to be copied, and the request to be kept for it. False where there is no room for that.
    pub(crate) fn copy(&mut self, request: AskedRequest, copies: &Arc<Copies>) -> bool {
        match copies.share(request.size()) {
            Some(share) => self.request = Some(RequestCopy { request, share }),
            None => self.not_copied = Some(NotCopied::NoRoom),
        }
        self.request.is_some()
    }

    /// It is the application's now, which reports it.
    pub(crate) fn passed_on(mut self) {
        self.done = true;
    }

    fn end(
        &mut self,
        mut outcome: Outcome,
        kept: Option<ReplyCopy>,
        tally: Option<Box<dyn Tally>>,
    ) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        outcome.not_copied = outcome.not_copied.or(self.not_copied);
        let mut ended = Box::new(Ended {
            about: Arc::clone(&self.about),
            model: self.model.take(),
            outcome,
            kept,
            request: self.request.take(),
            tally,
            entered: None,
        });
        match self.stage {
            Stage::New if !self.decisions.records() => return,
            Stage::New | Stage::Decided => {}
            Stage::Arrived(number) => {
                ended.entered = self.entered.take();
                ended = match self.decisions.replace(number, ended) {
                    Ok(()) => return,
                    Err(ended) => ended,
                };
                ended.entered = None;
            }
        }
        self.decisions.push_for_later(Event::Ended(ended));
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        // Dropped by a panic, it is we who have left.
        let failed = std::thread::panicking();
        let outcome = Outcome {
            status: if failed { 500 } else { CLIENT_CLOSED_REQUEST },
            client_left: !failed,
            code: failed.then(|| Refusal::Internal.code()),
            duration: self.started.elapsed(),
            ..Outcome::default()
        };
        self.end(outcome, None, None);
    }
}

impl Director for Report {
    fn failed(&mut self, fault: &Fault, attempts: u32) -> Deciding<'_> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        self.decisions.push(Event::Failed(Failed {
            ticket: self.about.ticket,
            fault: fault.clone(),
            attempts,
            answer,
        }));
        let patience = self.decisions.patience();
        let about = Arc::clone(&self.about);
        Box::pin(async move {
            match tokio::time::timeout(patience, answered).await {
                Ok(Ok(next)) => next,
                Ok(Err(_)) => Next::Reply(about.error(Refusal::Internal)),
                Err(_) => Next::Reply(about.error(Refusal::Undecided)),
            }
        })
    }

    fn first_output(&mut self) {
        let event = Event::FirstOutput(self.about.ticket);
        self.decisions.push_for_later(event);
    }

    fn pricer(&self) -> Box<dyn Pricer + Send> {
        Box::new(AskedPricer {
            decisions: Arc::clone(&self.decisions),
            ticket: self.about.ticket,
        })
    }

    fn ended(&mut self, outcome: Outcome, copy: Option<ReplyCopy>, tally: Option<Box<dyn Tally>>) {
        self.end(outcome, copy, tally);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluicegate_core::error::{Error, ErrorKind};

    use super::*;
    use crate::facts::Facts;
    use crate::refusal::Form;

    /// A request that has come, of two that may be under way.
    fn arrived(decisions: &Arc<Decisions>, in_flight: &InFlight) -> Report {
        let about = Arc::new(About {
            ticket: decisions.next_ticket(),
            tag: None,
            endpoint: None,
            form: Form::OpenAi,
            request_id: "r".into(),
            key: None,
        });
        let entered = in_flight.enter(2);
        assert!(entered.is_some());
        let (answer, _) = tokio::sync::oneshot::channel();
        let decisions = Arc::clone(decisions);
        let mut report = Report::new(Arc::clone(&about), Instant::now(), decisions, entered);
        report.arrive(Arrived {
            about,
            size: 0,
            request: Err(Error::new(ErrorKind::TooDeep, 0)),
            facts: Facts::default(),
            answer,
        });
        report
    }

    fn ended(events: &[Event]) -> Vec<(u64, bool)> {
        let ended = |event: &Event| match event {
            Event::Ended(ended) => Some((ended.about.ticket, ended.outcome.client_left)),
            _ => None,
        };
        events.iter().filter_map(ended).collect()
    }

    #[test]
    fn a_request_that_is_left_before_it_is_decided_waits_without_its_body_and_counts() {
        let decisions = Arc::new(Decisions::new(Duration::ZERO));
        let in_flight = InFlight::default();
        let (first, second) = (
            arrived(&decisions, &in_flight),
            arrived(&decisions, &in_flight),
        );
        drop(second);
        assert!(in_flight.enter(2).is_none(), "its end has not been taken");
        drop(first);
        let events = decisions.take();
        assert_eq!(
            (events.len(), ended(&events)),
            (2, vec![(1, true), (2, true)])
        );
        assert!(in_flight.enter(1).is_none());
        drop(events);
        assert!(in_flight.enter(1).is_some());
    }

    #[test]
    fn one_whose_arrival_has_been_taken_ends_after_it_and_counts_no_longer() {
        let decisions = Arc::new(Decisions::new(Duration::ZERO));
        let in_flight = InFlight::default();
        let earlier = arrived(&decisions, &in_flight);
        let taken = decisions.take();
        assert!(matches!(&taken[..], [Event::Arrived(_)]));
        let later = arrived(&decisions, &in_flight);
        drop(earlier);
        assert!(in_flight.enter(2).is_some());
        let events = decisions.take();
        assert!(matches!(events[0], Event::Arrived(_)));
        assert_eq!((events.len(), ended(&events)), (2, vec![(1, true)]));
        let mut later = later;
        later.decided();
        drop(later);
        assert_eq!(ended(&decisions.take()), [(2, true)]);
        assert!(in_flight.enter(1).is_some());
    }

    #[test]
    fn what_ends_before_it_arrives_is_counted_only_where_too_much_waits() {
        let decisions = Arc::new(Decisions::new(Duration::ZERO));
        let in_flight = InFlight::default();
        let mut refused = 0;
        let events = loop {
            let mut report = arrived(&decisions, &in_flight);
            report.stage = Stage::New;
            drop(report);
            refused += 1;
            assert!(refused < 1 << 20, "it has no bound");
            if !decisions.records() {
                break decisions.take();
            }
        };
        let [.., Event::Unrecorded(unrecorded)] = &events[..] else {
            unreachable!("they were not counted")
        };
        assert!(*unrecorded >= 1);
        assert!(matches!(decisions.take()[..], []), "they are told of once");
    }
}
