//! Sums of rows: by day and what reports group by, and by the people behind callers.

use std::collections::BTreeMap;

use crate::ledger::{
    CALLER, CALLER_ID, FAULT, KEY_ID, LedgerRow, MODEL, Source, TEAM, UPSTREAM, UPSTREAM_MODEL,
    USER_ID,
};
use crate::record::Counts;

/// A sum that would not fit stays at this: what an upstream makes up must not keep other rows from being added.
pub const MOST: u64 = 1 << 62;

/// The fault of a request that its client did not want to wait for any longer.
const CLIENT_TIMEOUT: &str = "client_timeout";

/// What the sums of a day are kept by, beside the day.
const KEYS: [usize; 6] = [CALLER_ID, KEY_ID, TEAM, MODEL, UPSTREAM, UPSTREAM_MODEL];

/// Requests, and of these: failed, client_left, interrupted, estimated, unpriced. Then the tokens, and the cost.
const DAY_SUMS: usize = 6 + Counts::COUNT + 1;

/// A line of sums: the number of its day, the texts of its key, and its sums.
pub type Line<'a, const TEXTS: usize, const SUMS: usize> =
    (usize, [&'a str; TEXTS], Sums<'a, SUMS>);

/// The sums of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums<'a, const SUMS: usize> {
    /// The name that the caller had last.
    pub caller: Option<&'a str>,
    /// Each at most [`MOST`].
    pub values: [u64; SUMS],
}

fn grouped<'a, const TEXTS: usize, const SUMS: usize>(
    rows: impl Iterator<Item = (usize, [&'a str; TEXTS], Option<&'a str>, [u64; SUMS])>,
) -> Vec<Line<'a, TEXTS, SUMS>> {
    let mut lines = BTreeMap::new();
    for (day, key, caller, more) in rows {
        let line = lines.entry((day, key)).or_insert(Sums {
            caller: None,
            values: [0; SUMS],
        });
        line.caller = caller;
        for (sum, more) in line.values.iter_mut().zip(more) {
            *sum = sum.saturating_add(more).min(MOST);
        }
    }
    let lines = lines.into_iter();
    lines.map(|((day, key), sums)| (day, key, sums)).collect()
}

fn is_first_run(row: &LedgerRow) -> bool {
    row.opening.run == Some(1)
}

/// The sums that these rows add to each day, in the order of their keys: the number of the day that is given with each
/// row, then caller_id, key_id, team, model, upstream and upstream_model, where what is not known is empty.
///
/// They are requests, failed, client_left, interrupted, estimated, unpriced, each kind of tokens, and the cost. A run
/// after the first counts its tokens, and no request. What its client did not want to wait for any longer is not among
/// the failed ones, which count in no limit of requests.
pub fn by_day<'a>(
    rows: impl Iterator<Item = (usize, &'a LedgerRow)>,
) -> Vec<Line<'a, 6, DAY_SUMS>> {
    grouped(rows.map(|(day, row)| {
        let result = row.result();
        let mut sums = [0; DAY_SUMS];
        let counted = [
            is_first_run(row),
            result == "failed" && row.text(FAULT) != Some(CLIENT_TIMEOUT),
            result == "client_left",
            result == "interrupted",
            row.source == Source::Estimated,
            row.source != Source::None && row.closing.cost.is_none(),
        ]
        .map(u64::from);
        let tokens = row.usage.values().into_iter();
        let amounts = tokens
            .chain([row.closing.cost])
            .map(Option::unwrap_or_default);
        for (sum, value) in sums.iter_mut().zip(counted.into_iter().chain(amounts)) {
            *sum = value;
        }
        let key = KEYS.map(|at| row.text(at).unwrap_or_default());
        (day, key, row.text(CALLER), sums)
    }))
}

/// The sums that these rows add to each day of the people behind callers, in the order of their keys: the number of
/// the day, the caller_id and the user_id. They are requests, input, output and the cost.
pub fn by_user<'a>(rows: impl Iterator<Item = (usize, &'a LedgerRow)>) -> Vec<Line<'a, 2, 4>> {
    grouped(rows.filter_map(|(day, row)| {
        let user = row.text(USER_ID).filter(|user| !user.is_empty())?;
        let sums = [
            u64::from(is_first_run(row)),
            row.usage.input.unwrap_or(0),
            row.usage.output.unwrap_or(0),
            row.closing.cost.unwrap_or(0),
        ];
        let key = [row.text(CALLER_ID).unwrap_or_default(), user];
        Some((day, key, row.text(CALLER), sums))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Closing, Opening};
    use crate::texts::Texts;

    fn row(model: &str, user: Option<&str>, output: u64, cost: Option<u64>) -> LedgerRow {
        let mut texts: Texts = [None::<&str>; UPSTREAM_MODEL + 1].into_iter().collect();
        texts.set(MODEL, Some(model));
        texts.set(USER_ID, user);
        texts.set(CALLER, Some(&format!("named for {output}")));
        let opening = Opening {
            run: Some(1),
            ..Opening::default()
        };
        let closing = Closing {
            cost,
            ..Closing::default()
        };
        let usage = Counts {
            output: Some(output),
            ..Counts::default()
        };
        LedgerRow::new(
            1,
            opening,
            closing,
            (usage, Source::Upstream),
            texts,
            vec![],
        )
    }

    #[test]
    fn lines_are_in_the_order_of_their_keys() {
        let rows = [
            (1, row("a", None, 1, None)),
            (0, row("b", None, 2, Some(5))),
            (0, row("a", None, 3, None)),
            (0, row("b", None, 4, None)),
        ];
        let lines = by_day(rows.iter().map(|(day, row)| (*day, row)));
        let found: Vec<_> = lines
            .iter()
            .map(|(day, key, sums)| (*day, key[3], sums.caller, sums.values))
            .collect();
        let values = |requests, unpriced, output, cost| {
            let mut values = [0; DAY_SUMS];
            (values[0], values[5], values[10], values[16]) = (requests, unpriced, output, cost);
            values
        };
        let expected = [
            (0, "a", Some("named for 3"), values(1, 1, 3, 0)),
            (0, "b", Some("named for 4"), values(2, 1, 6, 5)),
            (1, "a", Some("named for 1"), values(1, 1, 1, 0)),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_later_run_counts_no_request() {
        let mut again = row("a", Some("u"), 2, Some(3));
        again.opening.run = Some(2);
        again.interrupted = true;
        let rows = [row("a", Some("u"), 1, Some(3)), again];
        let [(_, _, sums)] = &by_day(rows.iter().map(|row| (0, row)))[..] else {
            unreachable!("they have one key");
        };
        assert_eq!(sums.values[..6], [1, 0, 0, 1, 0, 0]);
        let [(_, key, sums)] = &by_user(rows.iter().map(|row| (0, row)))[..] else {
            unreachable!("they have one key");
        };
        assert_eq!((key, sums.values), (&["", "u"], [1, 0, 3, 6]));
    }

    #[test]
    fn people_whom_nobody_names_have_no_sums() {
        let rows = [row("a", None, 1, None), row("a", Some(""), 1, None)];
        assert!(by_user(rows.iter().map(|row| (0, row))).is_empty());
    }

    #[test]
    fn a_sum_stays_at_its_bound() {
        let mut rows = vec![row("a", None, 1, None); 3];
        for row in &mut rows {
            row.closing.cost = Some(MOST - 1);
        }
        let lines = by_day(rows.iter().map(|row| (0, row)));
        assert_eq!(lines[0].2.values[16], MOST);
    }
}
