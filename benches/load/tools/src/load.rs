//! The load generator: opens a plan's connections, marks its window, and reports what was measured.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::{sleep, sleep_until, timeout};

use crate::check::Wrongs;
use crate::client::Client;
use crate::histogram::Histogram;
use crate::plan::Plan;

/// What all connections together have seen so far.
pub(crate) struct Totals {
    tokens: Cell<u64>,
    bytes: Cell<u64>,
    opened: Cell<u64>,
    exchanges: Cell<u64>,
    reconnects: Cell<u64>,
    wrongs: RefCell<Wrongs>,
    failures: RefCell<BTreeMap<String, u64>>,
    first: RefCell<Histogram>,
    gaps: RefCell<Histogram>,
    durations: RefCell<Histogram>,
}

impl Totals {
    fn new() -> Self {
        Self {
            tokens: Cell::new(0),
            bytes: Cell::new(0),
            opened: Cell::new(0),
            exchanges: Cell::new(0),
            reconnects: Cell::new(0),
            wrongs: RefCell::default(),
            failures: RefCell::default(),
            first: RefCell::new(Histogram::new()),
            gaps: RefCell::new(Histogram::new()),
            durations: RefCell::new(Histogram::new()),
        }
    }

    /// Body bytes arrived.
    pub(crate) fn received(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
    }

    /// A reply's first event arrived, this long after its request.
    pub(crate) fn opened_first(&self, after: Duration) {
        self.opened.set(self.opened.get() + 1);
        self.first.borrow_mut().record(after);
    }

    /// A token arrived, this long after the one before it.
    pub(crate) fn token(&self, gap: Option<Duration>) {
        self.tokens.set(self.tokens.get() + 1);
        if let Some(gap) = gap {
            self.gaps.borrow_mut().record(gap);
        }
    }

    /// A reply ended, this long after its request.
    pub(crate) fn finished(&self, after: Duration) {
        self.exchanges.set(self.exchanges.get() + 1);
        self.durations.borrow_mut().record(after);
    }

    pub(crate) fn reconnected(&self) {
        self.reconnects.set(self.reconnects.get() + 1);
    }

    pub(crate) fn wrong(&self, wrongs: &Wrongs) {
        self.wrongs.borrow_mut().add(wrongs);
    }

    fn failed(&self, reason: String) {
        *self.failures.borrow_mut().entry(reason).or_default() += 1;
    }
}

/// Carries out the plan; writes marks and the result to `output`, one JSON object a line.
pub(crate) async fn run(plan: Plan, output: &mut impl Write) -> io::Result<()> {
    let totals = Rc::new(Totals::new());
    let begun = Instant::now();
    let connections: Vec<_> = (0..plan.connections)
        .map(|tag| {
            tokio::task::spawn_local(connection(plan.clone(), tag, begun, Rc::clone(&totals)))
        })
        .collect();
    let aborts: Vec<_> = connections
        .iter()
        .map(tokio::task::JoinHandle::abort_handle)
        .collect();
    let all = async {
        for connection in connections {
            connection.await.ok();
        }
    };
    let finished = timeout(Duration::from_secs_f64(plan.limit_seconds), async {
        tokio::join!(all, window(&plan, &totals, begun, output)).1
    })
    .await;
    let unfinished = aborts
        .iter()
        .filter(|connection| !connection.is_finished())
        .count();
    for connection in aborts {
        connection.abort();
    }
    for _ in 0..unfinished {
        totals.failed("unfinished at the time limit".to_owned());
    }
    finished.unwrap_or(Ok(()))?;
    result(&totals, begun.elapsed(), output)
}

async fn connection(plan: Plan, tag: u32, begun: Instant, totals: Rc<Totals>) {
    if plan.ramp > 0.0 {
        sleep_until((begun + Duration::from_secs_f64(f64::from(tag) / plan.ramp)).into()).await;
    }
    let (request, expectation) = plan.request(tag);
    let mut client = Client::new(plan.address, request, plan.stream, expectation);
    for _ in 0..plan.exchanges {
        if begun.elapsed().as_secs_f64() >= plan.seconds {
            return;
        }
        if let Err(failure) = client.exchange(&totals).await {
            totals.failed(failure.to_string());
            // A proxy that refuses would otherwise be asked a million times.
            sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn window(
    plan: &Plan,
    totals: &Totals,
    begun: Instant,
    output: &mut impl Write,
) -> io::Result<()> {
    if plan.window_seconds <= 0.0 {
        return Ok(());
    }
    while totals.opened.get() < u64::from(plan.connections) {
        sleep(Duration::from_millis(5)).await;
    }
    sleep(Duration::from_secs_f64(plan.settle_seconds)).await;
    mark("window_start", totals, begun, output)?;
    sleep(Duration::from_secs_f64(plan.window_seconds)).await;
    mark("window_end", totals, begun, output)
}

fn mark(name: &str, totals: &Totals, begun: Instant, output: &mut impl Write) -> io::Result<()> {
    let line = json!({
        "mark": name,
        "tokens": totals.tokens.get(),
        "finished": totals.exchanges.get(),
        "seconds": begun.elapsed().as_secs_f64(),
    });
    writeln!(output, "{line}")?;
    output.flush()
}

fn result(totals: &Totals, elapsed: Duration, output: &mut impl Write) -> io::Result<()> {
    let seconds = elapsed.as_secs_f64();
    #[expect(clippy::cast_precision_loss)]
    let rate = |count: u64| count as f64 / seconds;
    let line = json!({
        "mark": "result",
        "seconds": seconds,
        "exchanges": totals.exchanges.get(),
        "tokens": totals.tokens.get(),
        "bytes": totals.bytes.get(),
        "exchanges_per_second": rate(totals.exchanges.get()),
        "tokens_per_second": rate(totals.tokens.get()),
        "bytes_per_second": rate(totals.bytes.get()),
        "reconnects": totals.reconnects.get(),
        "wrongs": *totals.wrongs.borrow(),
        "failures": *totals.failures.borrow(),
        "first_event_ms": totals.first.borrow().summary(),
        "gap_ms": totals.gaps.borrow().summary(),
        "duration_ms": totals.durations.borrow().summary(),
    });
    writeln!(output, "{line}")?;
    output.flush()
}
