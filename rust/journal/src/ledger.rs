//! From a record to a row of the ledger: how its request ended, what it used, and what is in which column.

use crate::record::{
    Attempt, CLOSING_TEXTS, Closing, Counts, Ending, OPENING_TEXTS, Opening, Row, Seen,
};
use crate::texts::Texts;

/// No request has more tokens of one kind: what upstreams say is held against the same bound before it comes here, and
/// this is for what somebody puts into the journal's files. No sum of honest rows overflows, so.
pub const MOST_TOKENS: u64 = 100_000_000;

/// No request costs more: 10,000 USD, in 10^-12 USD.
pub const MOST_COST: u64 = 10_000 * 1_000_000_000_000;

/// Of the texts that a record is closed with, the first so many take the place of opening texts: the upstream, and its
/// name of the model.
const REPLACING: usize = 2;
const TEXT_COUNT: usize = OPENING_TEXTS.len() + CLOSING_TEXTS.len() - REPLACING;

/// The names of a row's texts, in order.
pub const TEXTS: [&str; TEXT_COUNT] = {
    let mut names = [""; TEXT_COUNT];
    let mut at = 0;
    while at < TEXT_COUNT {
        names[at] = if at < OPENING_TEXTS.len() {
            OPENING_TEXTS[at]
        } else {
            CLOSING_TEXTS[at - OPENING_TEXTS.len() + REPLACING]
        };
        at += 1;
    }
    names
};

/// Numbers of a record that are yes or no.
pub const FLAGS: [&str; 4] = ["background", "streamed", "client_left", "estimated"];

/// Where a text of this name is in [`TEXTS`].
const fn text(name: &str) -> usize {
    let mut at = 0;
    while at < TEXT_COUNT && !same(TEXTS[at], name) {
        at += 1;
    }
    assert!(at < TEXT_COUNT);
    at
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

pub(crate) const CALLER_ID: usize = text("caller_id");
pub(crate) const CALLER: usize = text("caller");
pub(crate) const KEY_ID: usize = text("key_id");
pub(crate) const TEAM: usize = text("team");
pub(crate) const USER_ID: usize = text("user_id");
pub(crate) const MODEL: usize = text("model");
pub(crate) const UPSTREAM: usize = text("upstream");
pub(crate) const UPSTREAM_MODEL: usize = text("upstream_model");
const PRICE_ID: usize = text("price_id");
pub(crate) const FAULT: usize = text("fault");
const FINISH_REASON: usize = text("finish_reason");

/// Whose word the usage of a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The upstream's.
    Upstream,
    /// What was counted here.
    Estimated,
    /// Nobody's: none is known.
    None,
}

impl Source {
    /// As the ledger has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Estimated => "estimated",
            Self::None => "none",
        }
    }
}

/// A record as the ledger has it, whether or not anybody saw its end. No text in it has a NUL, which PostgreSQL does
/// not take, and no count is above its bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerRow {
    /// A UUID, version 7.
    pub id: u128,
    /// What it was opened with.
    pub opening: Opening,
    /// How it ended, as far as somebody saw it.
    pub closing: Closing,
    /// What was used.
    pub usage: Counts,
    /// Whose word that is.
    pub source: Source,
    /// Nobody saw its end.
    pub interrupted: bool,
    /// In the order of [`TEXTS`].
    pub texts: Texts,
    /// Each attempt, where there were several.
    pub attempts: Vec<Attempt>,
    /// A count was above its bound: what was charged for it is not known either.
    made_up: bool,
}

impl From<Row> for LedgerRow {
    fn from(row: Row) -> Self {
        let (id, opening, opened) = (row.id, row.opening, &row.texts);
        match row.ending {
            Ending::Closed {
                numbers,
                usage,
                texts: closed,
                attempts,
            } => {
                let mut texts = Texts::with_capacity(TEXT_COUNT, opened.bytes() + closed.bytes());
                for at in 0..UPSTREAM {
                    texts.push(opened.get(at));
                }
                for text in closed.iter() {
                    texts.push(text);
                }
                let known = usage.values().iter().any(Option::is_some);
                let source = match (numbers.estimated, known) {
                    (Some(1), _) => Source::Estimated,
                    (_, true) => Source::Upstream,
                    (_, false) => Source::None,
                };
                Self::new(id, opening, numbers, (usage, source), texts, attempts)
            }
            Ending::Interrupted(seen) => {
                let used = what_was_used(&seen, opening.estimated_input);
                let closing = Closing {
                    attempts: Some(seen.attempts),
                    bytes_in: Some(seen.bytes_in),
                    token_events: Some(seen.token_events),
                    first_token: seen.first_token,
                    streamed: Some((opening.streamed == Some(1) && seen.bytes_in > 0).into()),
                    ..Closing::default()
                };
                let mut texts = row.texts;
                if let Some((upstream, model)) = seen.moved {
                    texts.set(UPSTREAM, Some(&upstream));
                    texts.set(UPSTREAM + 1, Some(&model));
                }
                let row = Self::new(id, opening, closing, used, texts, Vec::new());
                Self {
                    interrupted: true,
                    ..row
                }
            }
        }
    }
}

/// Of a reply that nobody saw the end of: what its upstream said where that was all of it, else what was counted, and
/// `estimate` in place of an input that nobody has told. Before the upstream had the request, nothing was used.
fn what_was_used(seen: &Seen, estimate: Option<u64>) -> (Counts, Source) {
    let usage = seen.usage.unwrap_or_default();
    let told = usage.input.filter(|input| *input > 0 || seen.whole);
    let input = told.or(estimate.filter(|_| seen.usage.is_some()));
    if seen.whole && input == told {
        return (usage, Source::Upstream);
    }
    let output = match usage.output {
        Some(output) if seen.whole => output,
        output => seen.token_events.max(output.unwrap_or(0)),
    };
    if input.is_none() && output == 0 {
        return (Counts::default(), Source::None);
    }
    let used = Counts {
        input: input.or(Some(0)),
        output: Some(output),
        reasoning: usage.reasoning.map(|count| count.min(output)),
        ..usage
    };
    (used, Source::Estimated)
}

impl LedgerRow {
    /// A row of which somebody saw the end. `texts`: in the order of [`TEXTS`]; those that are missing are not known.
    #[must_use]
    pub fn new(
        id: u128,
        opening: Opening,
        closing: Closing,
        (usage, source): (Counts, Source),
        mut texts: Texts,
        attempts: Vec<Attempt>,
    ) -> Self {
        if texts.contains('\0') {
            let clean = texts
                .iter()
                .map(|text| Some(text?.replace('\0', "\u{fffd}")));
            texts = clean.collect();
        }
        while texts.count() < TEXT_COUNT {
            texts.push(None);
        }
        let counts = usage.values();
        let possible = Counts::of(counts.map(|count| count.filter(|count| *count <= MOST_TOKENS)));
        let mut row = Self {
            id,
            opening,
            closing,
            usage: possible,
            source,
            interrupted: false,
            texts,
            attempts,
            made_up: possible != usage,
        };
        row.bound_cost();
        row
    }

    /// What was charged for counts or a cost that somebody made up is not known.
    fn bound_cost(&mut self) {
        if self.made_up || self.closing.cost.is_some_and(|cost| cost > MOST_COST) {
            self.set_costs([None; 6]);
            self.texts.set(PRICE_ID, None);
        }
    }

    fn set_costs(&mut self, costs: [Option<u64>; 6]) {
        let closing = &mut self.closing;
        [
            closing.cost,
            closing.cost_input,
            closing.cost_cached_input,
            closing.cost_cache_write,
            closing.cost_output,
            closing.cost_reasoning,
        ] = costs;
    }

    /// Say by which price it is charged and, where that is known, what it costs.
    pub fn charge(&mut self, price_id: &str, costs: Option<[u64; 6]>) {
        self.texts.set(PRICE_ID, Some(price_id));
        if let Some(costs) = costs {
            self.set_costs(costs.map(Some));
        }
        self.bound_cost();
    }

    pub(crate) fn text(&self, at: usize) -> Option<&str> {
        self.texts.get(at)
    }

    /// The id of the price that it was charged by.
    #[must_use]
    pub fn price_id(&self) -> Option<&str> {
        self.text(PRICE_ID)
    }

    /// The public name of its model, its upstream's, and the upstream's own name.
    #[must_use]
    pub fn models(&self) -> (Option<&str>, Option<&str>, Option<&str>) {
        (
            self.text(MODEL),
            self.text(UPSTREAM_MODEL),
            self.text(UPSTREAM),
        )
    }

    /// Microseconds since 1970.
    #[must_use]
    pub fn started_at(&self) -> u64 {
        self.opening.started_at.unwrap_or(0)
    }

    /// How the request ended: `ok`, `failed`, `refused` by its upstream, `client_left` or, of a run of a background
    /// response, `cancelled`; `interrupted` where the gateway did not live to see it.
    #[must_use]
    pub fn result(&self) -> &'static str {
        if self.interrupted {
            return "interrupted";
        }
        if self.closing.client_left == Some(1) {
            return match self.opening.background {
                Some(1) => "cancelled",
                _ => "client_left",
            };
        }
        let status = self.closing.status.unwrap_or(0);
        let Some(fault) = self.text(FAULT) else {
            return match status {
                500.. => "failed",
                400.. => "refused",
                // vLLM ends a request that its engine gave up with this, under status 200 (vllm#57082).
                _ if self.text(FINISH_REASON) == Some("abort") => "failed",
                _ => "ok",
            };
        };
        // A client is told 429 and 408 for its upstream's sake.
        let blames_client = matches!(fault, "status" | "untranslatable")
            && (400..500).contains(&status)
            && !matches!(status, 408 | 429);
        if blames_client { "refused" } else { "failed" }
    }
}

/// A column of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Id,
    StartedAt,
    Result,
    Source,
    Opening(usize),
    Closing(usize),
    Usage(usize),
    Flag(usize),
    Text(usize),
    Background,
}

/// What a row has in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// It is not known.
    Unknown,
    /// The row's id.
    Id(u128),
    /// Yes or no.
    Flag(bool),
    /// What a database takes, and no count reaches.
    Number(i64),
    /// A text.
    Text(&'a str),
}

/// What a database takes, and no count reaches.
#[must_use]
pub fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The columns that a row has by itself, in order: all but the day, and what writes it.
#[must_use]
pub fn columns() -> Vec<Column> {
    // What only says how the row came about is not in the ledger.
    const LEFT_OUT: [&str; 3] = ["estimated", "fault_status", "token_events"];
    let mut columns = Vec::new();
    let mut add = |name, place| columns.push(Column { name, place });
    add("id", Place::Id);
    add("started_at", Place::StartedAt);
    add("background", Place::Background);
    add("result", Place::Result);
    add("usage_source", Place::Source);
    for (at, name) in Opening::NAMES.iter().enumerate() {
        if !matches!(*name, "started_at" | "background" | "streamed") {
            add(name, Place::Opening(at));
        }
    }
    for (at, name) in TEXTS.iter().enumerate() {
        add(name, Place::Text(at));
    }
    for (at, name) in Closing::NAMES.iter().enumerate() {
        if FLAGS.contains(name) && !LEFT_OUT.contains(name) {
            add(name, Place::Flag(at));
        } else if !LEFT_OUT.contains(name) {
            add(name, Place::Closing(at));
        }
    }
    for (at, name) in Counts::NAMES.iter().enumerate() {
        add(name, Place::Usage(at));
    }
    columns
}

/// The values of one row, by column.
pub struct Values<'a> {
    row: &'a LedgerRow,
    opening: [Option<u64>; Opening::COUNT],
    closing: [Option<u64>; Closing::COUNT],
    usage: [Option<u64>; Counts::COUNT],
}

impl<'a> Values<'a> {
    /// Those of `row`.
    #[must_use]
    pub fn of(row: &'a LedgerRow) -> Self {
        Self {
            row,
            opening: row.opening.values(),
            closing: row.closing.values(),
            usage: row.usage.values(),
        }
    }

    /// The text that `row` has in `column`.
    #[must_use]
    pub fn text(row: &LedgerRow, column: Column) -> Option<&str> {
        match column.place {
            Place::Result => Some(row.result()),
            Place::Source => Some(row.source.as_str()),
            Place::Text(at) => row.text(at),
            _ => None,
        }
    }

    /// What is in `column`.
    #[must_use]
    pub fn get(&self, column: Column) -> Value<'a> {
        let value = match column.place {
            Place::Id => return Value::Id(self.row.id),
            Place::StartedAt => Some(self.row.started_at()),
            Place::Background => return Value::Flag(self.row.opening.background == Some(1)),
            Place::Result | Place::Source | Place::Text(_) => {
                return Self::text(self.row, column).map_or(Value::Unknown, Value::Text);
            }
            Place::Flag(at) => {
                return Value::Flag(self.closing.get(at).copied().flatten() == Some(1));
            }
            Place::Opening(at) => self.opening.get(at).copied().flatten(),
            Place::Closing(at) => self.closing.get(at).copied().flatten(),
            Place::Usage(at) => self.usage.get(at).copied().flatten(),
        };
        value.map_or(Value::Unknown, |value| Value::Number(number(value)))
    }
}

#[cfg(test)]
mod tests;
