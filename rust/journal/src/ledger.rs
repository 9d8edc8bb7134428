//! From a record to a row of the ledger: how its request ended, what it used, and what is in which column.

use crate::record::{
    Attempt, CLOSING_TEXTS, Closing, Counts, Ending, OPENING_TEXTS, Opening, Row, Seen,
};

/// No request has that many tokens. A count that an upstream made up must not make a sum of honest rows overflow, so
/// what is above is not known.
pub const MOST_TOKENS: u64 = 100_000_000_000;

/// No request costs that much: 10,000 USD, in 10^-12 USD.
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
const FAULT: usize = text("fault");
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
    pub texts: Vec<Option<Box<str>>>,
    /// Each attempt, where there were several.
    pub attempts: Vec<Attempt>,
    /// A count was above its bound: what was charged for it is not known either.
    made_up: bool,
}

impl From<Row> for LedgerRow {
    fn from(row: Row) -> Self {
        let (id, opening, mut texts) = (row.id, row.opening, row.texts);
        match row.ending {
            Ending::Closed {
                numbers,
                usage,
                texts: closing,
                attempts,
            } => {
                let mut closing = closing.into_iter();
                for (at, text) in closing.by_ref().take(REPLACING).enumerate() {
                    set(&mut texts, UPSTREAM + at, text);
                }
                texts.extend(closing);
                let known = usage.values().iter().any(Option::is_some);
                let source = match (numbers.estimated, known) {
                    (Some(1), _) => Source::Estimated,
                    (_, true) => Source::Upstream,
                    (_, false) => Source::None,
                };
                Self::new(id, opening, numbers, (usage, source), texts, attempts)
            }
            Ending::Interrupted(seen) => {
                let used = what_was_used(&seen);
                let closing = Closing {
                    attempts: Some(seen.attempts),
                    bytes_in: Some(seen.bytes_in),
                    token_events: Some(seen.token_events),
                    first_token: seen.first_token,
                    streamed: Some((opening.streamed == Some(1) && seen.bytes_in > 0).into()),
                    ..Closing::default()
                };
                if let Some((upstream, model)) = seen.moved {
                    set(&mut texts, UPSTREAM, Some(upstream));
                    set(&mut texts, UPSTREAM + 1, Some(model));
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

fn set(texts: &mut [Option<Box<str>>], at: usize, text: Option<Box<str>>) {
    if let Some(place) = texts.get_mut(at) {
        *place = text;
    }
}

/// Of a reply that nobody saw the end of: what its upstream said where that was all of it, else what was counted.
fn what_was_used(seen: &Seen) -> (Counts, Source) {
    match seen.usage {
        Some(usage) if seen.whole => (usage, Source::Upstream),
        None if seen.token_events == 0 => (Counts::default(), Source::None),
        usage => {
            let usage = usage.unwrap_or_default();
            let counted = Counts {
                input: usage.input.or(Some(0)),
                output: Some(seen.token_events),
                reasoning: usage.reasoning.map(|count| count.min(seen.token_events)),
                ..usage
            };
            (counted, Source::Estimated)
        }
    }
}

impl LedgerRow {
    /// A row of which somebody saw the end. `texts`: in the order of [`TEXTS`]; those that are missing are not known.
    #[must_use]
    pub fn new(
        id: u128,
        opening: Opening,
        closing: Closing,
        (usage, source): (Counts, Source),
        mut texts: Vec<Option<Box<str>>>,
        attempts: Vec<Attempt>,
    ) -> Self {
        texts.resize(TEXT_COUNT, None);
        for text in texts.iter_mut().flatten() {
            if text.contains('\0') {
                *text = text.replace('\0', "\u{fffd}").into();
            }
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
            set(&mut self.texts, PRICE_ID, None);
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
        set(&mut self.texts, PRICE_ID, Some(price_id.into()));
        if let Some(costs) = costs {
            self.set_costs(costs.map(Some));
        }
        self.bound_cost();
    }

    pub(crate) fn text(&self, at: usize) -> Option<&str> {
        self.texts.get(at)?.as_deref()
    }

    /// The id of the price that it was charged by.
    #[must_use]
    pub fn price_id(&self) -> Option<&str> {
        self.text(PRICE_ID)
    }

    /// The public name of its model, and its upstream's.
    #[must_use]
    pub fn models(&self) -> (Option<&str>, Option<&str>) {
        (self.text(MODEL), self.text(UPSTREAM_MODEL))
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
mod tests {
    use super::*;

    fn row(change: impl FnOnce(&mut LedgerRow)) -> LedgerRow {
        let closing = Closing {
            status: Some(200),
            ..Closing::default()
        };
        let used = (Counts::default(), Source::None);
        let mut row = LedgerRow::new(1, Opening::default(), closing, used, vec![], vec![]);
        change(&mut row);
        row
    }

    fn failed(fault: &str, status: u64) -> LedgerRow {
        row(|row| {
            row.closing.status = Some(status);
            row.texts[FAULT] = Some(fault.into());
        })
    }

    #[test]
    fn results() {
        let with_status = |status| row(|row| row.closing.status = status);
        let left = |background| {
            row(|row| {
                row.closing.client_left = Some(1);
                row.opening.background = background;
            })
        };
        let cases = [
            (row(|_| ()), "ok"),
            (with_status(None), "ok"),
            (with_status(Some(404)), "refused"),
            (with_status(Some(503)), "failed"),
            (row(|row| row.interrupted = true), "interrupted"),
            (left(Some(0)), "client_left"),
            (left(Some(1)), "cancelled"),
            (
                row(|row| row.texts[FINISH_REASON] = Some("abort".into())),
                "failed",
            ),
            (failed("status", 400), "refused"),
            (failed("status", 408), "failed"),
            (failed("status", 429), "failed"),
            (failed("status", 502), "failed"),
            (failed("untranslatable", 400), "refused"),
            (failed("truncated", 200), "failed"),
            (failed("truncated", 400), "failed"),
        ];
        for (row, result) in cases {
            assert_eq!(row.result(), result, "{row:?}");
        }
    }

    #[test]
    fn what_the_upstream_says_in_the_end_takes_the_place_of_what_was_asked() {
        let texts = |names: &[&str]| names.iter().map(|name| Some((*name).into())).collect();
        let row = Row {
            id: 1,
            opening: Opening::default(),
            texts: texts(&OPENING_TEXTS),
            ending: Ending::Closed {
                numbers: Closing::default(),
                usage: Counts::default(),
                texts: texts(&[
                    "a", "b", "price_id", "id", "cost", "reason", "fault", "code",
                ]),
                attempts: Vec::new(),
            },
        };
        let row = LedgerRow::from(row);
        let said = TEXTS.iter().zip(&row.texts);
        let said: Vec<_> = said
            .filter(|(name, text)| text.as_deref() != Some(name))
            .map(|(name, text)| (*name, text.as_deref()))
            .collect();
        let expected = [
            ("upstream", Some("a")),
            ("upstream_model", Some("b")),
            ("upstream_request_id", Some("id")),
            ("upstream_cost", Some("cost")),
            ("finish_reason", Some("reason")),
        ];
        assert_eq!(said, expected);
    }

    fn interrupted(seen: Seen) -> LedgerRow {
        LedgerRow::from(Row {
            id: 1,
            opening: Opening {
                streamed: Some(1),
                ..Opening::default()
            },
            texts: vec![None; OPENING_TEXTS.len()],
            ending: Ending::Interrupted(seen),
        })
    }

    #[test]
    fn usage_of_what_nobody_saw_the_end_of() {
        let nothing = interrupted(Seen::default());
        assert_eq!(
            (nothing.usage, nothing.source),
            (Counts::default(), Source::None)
        );
        assert_eq!(nothing.closing.streamed, Some(0));
        let usage = Counts {
            output: Some(3),
            reasoning: Some(9),
            ..Counts::default()
        };
        let seen = Seen {
            token_events: 5,
            bytes_in: 1,
            usage: Some(usage),
            whole: true,
            moved: Some(("b".into(), "n".into())),
            ..Seen::default()
        };
        let whole = interrupted(seen.clone());
        assert_eq!((whole.usage, whole.source), (usage, Source::Upstream));
        assert_eq!(whole.closing.streamed, Some(1));
        assert_eq!(whole.text(UPSTREAM), Some("b"));
        assert_eq!(whole.models().1, Some("n"));
        let counted = interrupted(Seen {
            whole: false,
            ..seen
        });
        let expected = Counts {
            input: Some(0),
            output: Some(5),
            reasoning: Some(5),
            ..usage
        };
        assert_eq!(
            (counted.usage, counted.source),
            (expected, Source::Estimated)
        );
    }

    #[test]
    fn each_column_is_there_once() {
        let mut names: Vec<_> = columns().iter().map(|column| column.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(TEXTS.iter().all(|name| names.contains(name)));
    }

    #[test]
    fn numbers_stay_within_what_a_database_takes() {
        let row = row(|row| row.closing.duration = Some(u64::MAX - 1));
        let columns = columns();
        let found = columns.iter().find(|column| column.name == "duration");
        let value = found.map(|column| Values::of(&row).get(*column));
        assert_eq!(value, Some(Value::Number(i64::MAX)));
    }
}
