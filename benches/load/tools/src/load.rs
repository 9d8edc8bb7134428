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
use crate::plan::{Plan, Probes};

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
    transits: RefCell<Histogram>,
    /// Whether transits are recorded: in a plan with a window, only between its marks.
    in_window: Cell<bool>,
    gaps: RefCell<Histogram>,
    durations: RefCell<Histogram>,
}

impl Totals {
    fn new(in_window: bool) -> Self {
        Self {
            in_window: Cell::new(in_window),
            transits: RefCell::new(Histogram::new()),
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

    /// A token arrived, this long after the one before it, and this long after the mock wrote it.
    pub(crate) fn token(&self, gap: Option<Duration>, transit: Option<Duration>) {
        self.tokens.set(self.tokens.get() + 1);
        if let Some(transit) = transit.filter(|_| self.in_window.get()) {
            self.transits.borrow_mut().record(transit);
        }
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
    let totals = Rc::new(Totals::new(plan.window_seconds <= 0.0));
    let probed = Rc::new(Totals::new(false));
    let begun = Instant::now();
    let mut connections: Vec<_> = (0..plan.connections)
        .map(|tag| {
            tokio::task::spawn_local(connection(plan.clone(), tag, begun, Rc::clone(&totals)))
        })
        .collect();
    if let Some(probes) = &plan.probes {
        connections.extend((0..probes.connections).map(|number| {
            let (totals, probed) = (Rc::clone(&totals), Rc::clone(&probed));
            tokio::task::spawn_local(probe(plan.clone(), probes.clone(), number, totals, probed))
        }));
    }
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
    result(&totals, &probed, begun.elapsed(), output)
}

async fn connection(plan: Plan, tag: u32, begun: Instant, totals: Rc<Totals>) {
    if plan.ramp > 0.0 {
        sleep_until((begun + Duration::from_secs_f64(f64::from(tag) / plan.ramp)).into()).await;
    }
    let (request, expectation) = plan.request(tag);
    let mut client = Client::new(plan.address, request, plan.stream, expectation);
    if plan.exchanges == 1 {
        client.only_once();
    }
    for number in 0..plan.exchanges {
        if plan.pace > 0.0 {
            let before = f64::from(number) * f64::from(plan.connections) + f64::from(tag);
            sleep_until((begun + Duration::from_secs_f64(before / plan.pace)).into()).await;
        }
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

/// One connection of probes. `totals` says when the window is; what the probes see goes to `probed`.
async fn probe(plan: Plan, probes: Probes, number: u32, totals: Rc<Totals>, probed: Rc<Totals>) {
    if plan.window_seconds <= 0.0 {
        return;
    }
    let (request, expectation) = plan.probing(&probes).request(plan.connections + number);
    let mut client = Client::new(plan.address, request, plan.stream, expectation);
    while !totals.in_window.get() {
        sleep(Duration::from_millis(5)).await;
    }
    let begun = Instant::now();
    let every = probes.every_seconds;
    let phase = every * f64::from(number) / f64::from(probes.connections);
    for turn in 0u32.. {
        let due = begun + Duration::from_secs_f64(phase + every * f64::from(turn));
        sleep_until(due.into()).await;
        if !totals.in_window.get() {
            return;
        }
        if let Err(failure) = client.exchange(&probed).await {
            probed.failed(failure.to_string());
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
    totals.in_window.set(true);
    sleep(Duration::from_secs_f64(plan.window_seconds)).await;
    totals.in_window.set(false);
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

fn result(
    totals: &Totals,
    probed: &Totals,
    elapsed: Duration,
    output: &mut impl Write,
) -> io::Result<()> {
    totals.wrong(&probed.wrongs.borrow());
    for (reason, count) in probed.failures.borrow().iter() {
        let mut failures = totals.failures.borrow_mut();
        *failures.entry(format!("probe: {reason}")).or_default() += count;
    }
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
        "probe_first_event_ms": probed.first.borrow().summary(),
        "transit_ms": totals.transits.borrow().summary(),
        "gap_ms": totals.gaps.borrow().summary(),
        "duration_ms": totals.durations.borrow().summary(),
    });
    writeln!(output, "{line}")?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use serde_json::Value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::{LocalSet, spawn_local};

    use super::*;
    use crate::mock;

    /// Carries out a plan against what `serve` spawns; the marks and the result.
    fn carry_out(serve: impl AsyncFnOnce() -> SocketAddr, changes: Value) -> Vec<Value> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        LocalSet::new().block_on(&runtime, async {
            let mut plan = json!({
                "address": serve().await, "stream": true, "connections": 3, "exchanges": 2,
                "limit_seconds": 20.0, "tokens": 5,
            });
            plan.as_object_mut()
                .unwrap()
                .extend(changes.as_object().unwrap().clone());
            let mut output = Vec::new();
            run(serde_json::from_value(plan).unwrap(), &mut output)
                .await
                .unwrap();
            output
                .split(|&byte| byte == b'\n')
                .filter_map(|line| serde_json::from_slice(line).ok())
                .collect()
        })
    }

    async fn upstream() -> SocketAddr {
        let listener = mock::listen().unwrap();
        let address = listener.local_addr().unwrap();
        spawn_local(mock::serve(listener));
        address
    }

    /// Answers whatever it is sent with the same bytes, and closes.
    async fn canned(reply: String) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        spawn_local(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                assert!(connection.read(&mut [0; 65536]).await.unwrap() > 0);
                connection.write_all(reply.as_bytes()).await.unwrap();
            }
        });
        address
    }

    fn wrongs(result: &Value) -> u64 {
        result["wrongs"]
            .as_object()
            .unwrap()
            .values()
            .filter_map(Value::as_u64)
            .sum()
    }

    #[test]
    fn streams_arrive_whole_and_are_counted() {
        let lines = carry_out(upstream, json!({}));
        let result = lines.last().unwrap();
        assert_eq!(
            (result["exchanges"].as_u64(), result["tokens"].as_u64()),
            (Some(6), Some(30))
        );
        assert_eq!((wrongs(result), &result["failures"]), (0, &json!({})));
        assert_eq!(result["gap_ms"]["count"], 24);
        assert_eq!(result["first_event_ms"]["count"], 6);
        assert_eq!(result["transit_ms"]["count"], 30);
        assert_eq!(result["probe_first_event_ms"], Value::Null);
    }

    #[test]
    fn json_replies_and_large_prompts_arrive_whole() {
        let lines = carry_out(upstream, json!({"stream": false, "prompt_bytes": 1 << 20}));
        let result = lines.last().unwrap();
        assert_eq!((result["exchanges"].as_u64(), wrongs(result)), (Some(6), 0));
    }

    #[test]
    fn a_cost_that_is_expected_and_missing_is_a_fault() {
        let lines = carry_out(upstream, json!({"expect_cost": true}));
        assert_eq!(lines.last().unwrap()["wrongs"]["without_cost"], 6);
    }

    #[test]
    fn the_window_is_marked_while_all_streams_are_open() {
        let changes = json!({
            "exchanges": 1, "tokens": 40, "rate": 100.0, "ramp": 100.0, "settle_seconds": 0.05, "window_seconds": 0.1,
        });
        let lines = carry_out(upstream, changes);
        let names: Vec<_> = lines
            .iter()
            .map(|line| line["mark"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["window_start", "window_end", "result"]);
        assert_eq!(
            (lines[0]["finished"].as_u64(), lines[1]["finished"].as_u64()),
            (Some(0), Some(0))
        );
        assert!(lines[1]["tokens"].as_u64() > lines[0]["tokens"].as_u64());
        assert_eq!(lines[2]["tokens"], 120);
    }

    #[test]
    fn probes_begin_in_the_window_and_transits_are_counted_there() {
        let changes = json!({
            "exchanges": 1, "tokens": 60, "rate": 100.0, "window_seconds": 0.2,
            "probes": {"connections": 2, "tokens": 1, "every_seconds": 0.02},
        });
        let lines = carry_out(upstream, changes);
        let [start, end, result] = lines.as_slice() else {
            panic!("{lines:?}");
        };
        assert_eq!((wrongs(result), &result["failures"]), (0, &json!({})));
        let in_window = end["tokens"].as_u64().unwrap() - start["tokens"].as_u64().unwrap();
        assert_eq!(result["transit_ms"]["count"], in_window);
        assert!(result["transit_ms"]["max"].as_f64().unwrap() < 20_000.0);
        assert!(result["probe_first_event_ms"]["count"].as_u64() > Some(0));
        assert_eq!(
            (&result["tokens"], &result["exchanges"]),
            (&json!(180), &json!(3))
        );
    }

    #[test]
    fn a_probe_that_fails_makes_the_run_void() {
        let changes = json!({
            "exchanges": 1, "tokens": 60, "rate": 100.0, "window_seconds": 0.2, "expect_cost": true,
            "probes": {"connections": 1, "tokens": 1, "every_seconds": 0.05},
        });
        let lines = carry_out(upstream, changes);
        let result = lines.last().unwrap();
        let probes = result["probe_first_event_ms"]["count"].as_u64().unwrap();
        assert_eq!(result["wrongs"]["without_cost"], 3 + probes);
    }

    #[test]
    fn a_refusal_a_cut_and_silence_are_failures() {
        let failures = |reply: &str, changes: Value| {
            let reply = reply.to_owned();
            let lines = carry_out(async move || canned(reply).await, changes);
            lines.last().unwrap()["failures"].clone()
        };
        let once = json!({"connections": 1, "exchanges": 1});
        let refusal = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(failures(refusal, once.clone()), json!({"status 503": 1}));
        let cut = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\ndata:";
        assert_eq!(
            failures(cut, once.clone()),
            json!({"broken off: unexpected end of file": 1})
        );
        let empty = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(failures(empty, once), json!({"not an event stream": 1}));
        let slow = json!({"connections": 2, "exchanges": 1, "tokens": 100, "rate": 1.0, "limit_seconds": 0.2});
        let lines = carry_out(upstream, slow);
        assert_eq!(
            lines.last().unwrap()["failures"],
            json!({"unfinished at the time limit": 2})
        );
    }

    #[test]
    fn a_proxy_that_loses_an_event_is_caught() {
        let event = |number: u32| {
            format!(
                "data: {{\"choices\":[{{\"delta\":{{\"content\":\"bench~00000000~{number:08}~{number:020}~\"}}}}]}}\n\n"
            )
        };
        let body = [
            event(0),
            event(1),
            event(3),
            event(4),
            "data: [DONE]\n\n".to_owned(),
        ]
        .concat();
        let reply = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let lines = carry_out(
            async move || canned(reply).await,
            json!({"connections": 1, "exchanges": 1}),
        );
        assert_eq!(lines.last().unwrap()["wrongs"]["lost"], 1);
    }
}
