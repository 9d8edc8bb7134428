//! Finding what one payload reports about usage. Only the real places count: what a model wrote, in a string or deeper,
//! is no usage.

use std::ops::Range;

use crate::json::cursor::Cursor;
use crate::json::node::Node;
use crate::json::scan::{Fault, Kind, MAX_DEPTH, Value};
use crate::json::string;

use super::counts::{Count, Counts};
use super::dialect::meaning;
use super::values;

/// An object in which counts are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Within {
    /// The payload itself.
    Payload,
    /// The usage object.
    Usage,
    /// `prompt_tokens_details` and its like.
    InputDetails,
    /// `completion_tokens_details` and its like.
    OutputDetails,
    /// `usage.cache_creation`
    CacheCreation,
    /// `usage.cost`
    Cost,
    /// `usage.tokens`
    Tokens,
    /// `usage.billed_units`
    BilledUnits,
    /// `meta`
    Meta,
    /// `x_groq`
    XGroq,
    /// `timings`
    Timings,
    /// `usageMetadata`
    UsageMetadata,
}

/// What a member means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Its value is a count.
    Count(Count),
    /// Its value is an object with more of them.
    Object(Within),
    /// Its value is what the upstream charges, in the unit that the name gives.
    Cost(&'static str),
    /// Its value is a list of usage objects, one for each run of the model.
    Runs,
}

/// What one payload reports. Positions are in that payload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// The numbers.
    pub(crate) counts: Counts,
    /// The usage object itself; where there are several, the one at the usual place.
    pub(crate) object: Option<Value>,
    /// The number that the upstream charges, and the name of the member, which gives its unit.
    pub(crate) cost: Option<(Range<usize>, &'static str)>,
    /// Something was counted outside of `object`.
    pub(crate) elsewhere: bool,
}

impl Report {
    /// Whether nothing was reported.
    pub(crate) fn is_empty(&self) -> bool {
        self.cost.is_none() && self.counts.is_empty()
    }

    /// Passes over a member's value and takes in what it counts, if its name means anything within `within`.
    ///
    /// Numbers that are no unsigned 64-bit integers, and other values where a number should be, count nothing.
    pub(crate) fn read_member(
        &mut self,
        cursor: &mut Cursor<'_>,
        text: &[u8],
        within: Within,
        key: Value,
    ) -> Result<(), Fault> {
        match meaning_of(within, key.content(text)) {
            // An envelope: what is inside has to be found, not only read.
            Some(Meaning::Object(Within::XGroq)) => {
                cursor.members(|cursor, key| self.read_member(cursor, text, Within::XGroq, key))?;
            }
            Some(Meaning::Object(inner)) => {
                let value = cursor.skip()?;
                if value.kind != Kind::Object {
                    return Ok(());
                }
                let is_usual = within == Within::Payload || self.object.is_none();
                if inner == Within::Usage && is_usual {
                    self.elsewhere |= self.object.is_some();
                    self.object = Some(value);
                } else {
                    self.elsewhere = true;
                }
                self.read_object(text, value, inner);
            }
            Some(Meaning::Count(count)) => {
                self.elsewhere = true;
                if let Some(value) = cursor.skip()?.as_u64(text) {
                    self.counts.set(count, value);
                }
            }
            Some(Meaning::Cost(_) | Meaning::Runs) | None => {
                cursor.skip()?;
            }
        }
        Ok(())
    }

    /// Takes in what an object that was read as JSON before counts.
    fn read_object(&mut self, text: &[u8], object: Value, within: Within) {
        if read_counts(text, object, within, &mut self.counts) {
            places(text, object, within, &mut |meaning, value| match meaning {
                Meaning::Cost(name) if value.kind == Kind::Number => {
                    self.cost = Some((value.range(), name));
                }
                Meaning::Runs => self.counts.merge(&runs(text, value)),
                _ => {}
            });
        }
    }
}

/// Sets the counts that an object holds. Returns whether it holds more than counts: what the upstream charges, or the
/// model's runs.
fn read_counts(text: &[u8], object: Value, within: Within, counts: &mut Counts) -> bool {
    if let Some(says_more) = values::read(object.bytes(text), within, counts) {
        return says_more;
    }
    // simd-json refuses what JSON's grammar allows: numbers beyond every double, and lone surrogates.
    for (count, range) in counted(text, object, within) {
        if let Some(value) = unsigned(text, range) {
            counts.set(count, value);
        }
    }
    true
}

/// The sums over the model's runs, where what is billed is their sum.
fn runs(text: &[u8], list: Value) -> Counts {
    let mut sums = Counts::default();
    for run in Node::new(text, list).elements() {
        match run.filled("type") {
            Some(b"compaction" | b"message") => {
                let mut counts = Counts::default();
                read_counts(text, run.value(), Within::Usage, &mut counts);
                sums.add_run(&counts);
            }
            Some(b"fallback_message") => return Counts::default(),
            _ => {}
        }
    }
    sums
}

/// Where an object, one that was read as JSON before, holds counts that are unsigned integers, in their order.
pub(crate) fn counted(text: &[u8], object: Value, within: Within) -> Vec<(Count, Range<usize>)> {
    let mut counted = Vec::new();
    places(text, object, within, &mut |meaning, value| {
        if let Meaning::Count(count) = meaning
            && value.as_u64(text).is_some()
        {
            counted.push((count, value.range()));
        }
    });
    counted
}

fn unsigned(text: &[u8], range: Range<usize>) -> Option<u64> {
    std::str::from_utf8(text.get(range)?).ok()?.parse().ok()
}

/// Calls `found` with the meaning and place of each value in the object that has a meaning.
fn places(text: &[u8], object: Value, within: Within, found: &mut dyn FnMut(Meaning, Value)) {
    let bytes = object.bytes(text);
    let place = |value: Value| Value {
        start: value.start + object.start,
        end: value.end + object.start,
        ..value
    };
    // The object was read before: there is no fault in it, and its depth was bounded.
    let _ = Cursor::new(bytes, MAX_DEPTH).members(|cursor, key| {
        let value = place(cursor.skip()?);
        match meaning_of(within, key.content(bytes)) {
            // A call for each level that has a name of its own: at most four deep, whatever the text holds.
            Some(Meaning::Object(inner)) => places(text, value, inner, found),
            Some(Meaning::Cost(_)) if value.kind == Kind::Object => {
                places(text, value, Within::Cost, found);
            }
            Some(meaning) => found(meaning, value),
            None => {}
        }
        Ok(())
    });
}

fn meaning_of(within: Within, key: &[u8]) -> Option<Meaning> {
    if key.contains(&b'\\') {
        meaning(within, string::decode(key).as_bytes())
    } else {
        meaning(within, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    fn read(object: &str) -> Report {
        let text = format!("{{\"usage\":{object}}}");
        let text = text.as_bytes();
        let mut report = Report::default();
        Cursor::new(text, 64)
            .members(|cursor, key| report.read_member(cursor, text, Within::Payload, key))
            .unwrap();
        report
    }

    /// The same, by place alone.
    fn by_place(object: &str) -> Counts {
        let value = crate::json::scan::document(object.as_bytes(), 64).unwrap();
        let mut counts = Counts::default();
        for (count, range) in counted(object.as_bytes(), value, Within::Usage) {
            counts.set(count, unsigned(object.as_bytes(), range).unwrap());
        }
        counts
    }

    #[test]
    fn what_simd_json_refuses_is_counted_all_the_same() {
        for object in [
            r#"{"prompt_tokens":14,"x":1e999}"#,
            r#"{"prompt_tokens":14,"completion_tokens":1e999}"#,
            r#"{"x":"\ud800","prompt_tokens":14}"#,
            r#"{"\ud800":0,"prompt_tokens":14}"#,
        ] {
            let report = read(object);
            assert_eq!(report.counts.get(Count::Prompt), Some(14), "{object}");
            assert_eq!(report.counts.get(Count::Completion), None, "{object}");
        }
    }

    #[test]
    fn a_charge_is_found_where_it_is() {
        for (object, number, name) in [
            (r#"{"cost":0.50}"#, "0.50", "cost"),
            (r#"{"co\u0073t": 1e-7}"#, "1e-7", "cost"),
            (
                r#"{"cost":{"total_cost":3,"request_cost":1}}"#,
                "3",
                "cost.total_cost",
            ),
            (r#"{"cost_in_usd_ticks":12}"#, "12", "cost_in_usd_ticks"),
        ] {
            let text = format!("{{\"usage\":{object}}}");
            let (range, found) = read(object).cost.unwrap();
            assert_eq!((&text[range], found), (number, name));
        }
        assert_eq!(read(r#"{"cost":"1"}"#).cost, None);
    }

    fn usage() -> impl Strategy<Value = Json> {
        let number = prop_oneof![
            (0..100u64).prop_map(|n| json!(n)),
            any::<u64>().prop_map(|n| json!(n)),
            any::<i64>().prop_map(|n| json!(n)),
            Just(json!(1.5)),
            Just(json!(null)),
            "[a-z\\\\\"]{0,4}".prop_map(|text| json!(text)),
        ];
        let name = || {
            prop::sample::select(vec![
                "prompt_tokens",
                "completion_tokens",
                "total_tokens",
                "input_tokens",
                "cached_tokens",
                "reasoning_tokens",
                "cache_read_input_tokens",
                "ephemeral_1h_input_tokens",
                "num_cached_tokens",
                "other",
            ])
        };
        let inside = prop::sample::select(vec![
            "prompt_tokens_details",
            "output_tokens_details",
            "cache_creation",
            "tokens",
            "cost",
            "other_details",
        ]);
        let object = move |value: BoxedStrategy<Json>| {
            proptest::collection::vec((name(), value), 0..5).prop_map(|members| {
                Json::Object(
                    members
                        .into_iter()
                        .map(|(k, v)| (k.to_owned(), v))
                        .collect(),
                )
            })
        };
        let details = prop_oneof![
            object(number.clone().boxed()),
            Just(json!([{"prompt_tokens": 1}]))
        ];
        (
            object(number.boxed()),
            proptest::collection::vec((inside, details), 0..3),
        )
            .prop_map(|(mut usage, details)| {
                for (name, value) in details {
                    usage[name] = value;
                }
                usage
            })
    }

    proptest! {
        #[test]
        fn both_readings_agree(usage in usage(), pretty in any::<bool>()) {
            let text = if pretty { format!("{usage:#}") } else { usage.to_string() };
            prop_assert_eq!(read(&text).counts, by_place(&text));
        }
    }
}
