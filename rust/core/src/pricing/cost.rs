//! The cost of a request, and its members in the usage object.

use std::fmt::Write;
use std::ops::Range;
use std::str::FromStr;

use ethnum::U256;

use crate::cost::Members;

/// Decimal digits of a millionth: no scale is smaller than this.
pub(super) const MILLIONTHS: usize = 6;

/// Decimal digits of a trillionth, in which a ledger counts.
const PICO: usize = 12;

/// The most that a request is believed to cost, 10,000 USD, in 10^-12 USD. More is made up, and not known then.
pub const MOST_COST: u64 = 10_000 * 1_000_000_000_000;

/// The form in which a usage object shows its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostStyle {
    /// `cost` and `cost_details`, in USD, as OpenRouter does.
    OpenRouter,
    /// `prompt_total_cost`, `completion_total_cost` and `total_cost`: whole numbers of millionths of the currency.
    Cocoon,
    /// It does not say.
    None,
}

impl CostStyle {
    /// The members of a cost that is not known: null, never 0.
    #[must_use]
    pub fn unknown(self) -> Option<Members> {
        let names: &[&str] = match self {
            CostStyle::OpenRouter => &["cost"],
            CostStyle::Cocoon => &["prompt_total_cost", "completion_total_cost", "total_cost"],
            CostStyle::None => return None,
        };
        let mut draft = Draft::default();
        for name in names {
            draft.name(name);
            draft.text.push_str("null");
        }
        Some(draft.members())
    }
}

impl FromStr for CostStyle {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "openrouter" => Ok(CostStyle::OpenRouter),
            "cocoon" => Ok(CostStyle::Cocoon),
            "none" => Ok(CostStyle::None),
            _ => Err(()),
        }
    }
}

/// The parts of a cost, in whole numbers of 10^-scale USD. But for `reasoning`, which is inside `output`, they do not
/// overlap: `input` is input that no cache had a part in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) input: U256,
    pub(super) cached_input: U256,
    pub(super) cache_write: U256,
    pub(super) output: U256,
    pub(super) reasoning: U256,
    /// Of the request itself, whatever its tokens.
    pub(super) request: U256,
}

/// One request's cost in USD, exact.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    scale: usize,
    parts: Parts,
    /// All input: uncached, read from the cache and written to it.
    prompt: U256,
    total: U256,
}

impl Cost {
    /// Parts in whole numbers of 10^-`scale` USD, with `scale` from 6 to 77; None where their sum does not fit.
    pub(super) fn new(scale: usize, parts: Parts) -> Option<Self> {
        let prompt = parts
            .input
            .checked_add(parts.cached_input)?
            .checked_add(parts.cache_write)?;
        let total = prompt
            .checked_add(parts.output)?
            .checked_add(parts.request)?;
        Some(Cost {
            scale,
            parts,
            prompt,
            total,
        })
    }

    /// All of it in USD, as a plain decimal number.
    #[must_use]
    pub fn total(&self) -> String {
        let mut text = String::new();
        plain(&mut text, self.total, self.scale);
        text
    }

    /// All of it, then what uncached input, cached input, what was written to a cache, output, and reasoning (which is
    /// a part of output) cost, in whole numbers of 10⁻¹² USD: exact for prices of at most six decimals a million
    /// tokens, otherwise each rounded half up. A price of the request is in the whole only. None where one of them is
    /// above [`MOST_COST`].
    #[must_use]
    pub fn in_picodollars(&self) -> Option<[u64; 6]> {
        let Parts {
            input,
            cached_input,
            cache_write,
            output,
            reasoning,
            ..
        } = self.parts;
        let amounts = [
            self.total,
            input,
            cached_input,
            cache_write,
            output,
            reasoning,
        ];
        let unit = power_of_ten(self.scale.abs_diff(PICO));
        let mut whole = [0; 6];
        for (slot, amount) in whole.iter_mut().zip(amounts) {
            let amount = if self.scale > PICO {
                rounded(amount, unit)
            } else {
                amount.checked_mul(unit)?
            };
            let amount = u64::try_from(amount).ok();
            *slot = amount.filter(|amount| *amount <= MOST_COST)?;
        }
        Some(whole)
    }

    /// The members that a usage object gains; None where it gains none.
    ///
    /// `OpenRouter`: USD as plain decimal numbers. `Cocoon`: millionths, prompt, completion and the price of the
    /// request each rounded half up, the total being their sum.
    #[must_use]
    pub fn members(&self, style: CostStyle) -> Option<Members> {
        match style {
            CostStyle::OpenRouter => Some(self.openrouter()),
            CostStyle::Cocoon => Some(self.cocoon()),
            CostStyle::None => None,
        }
    }

    fn openrouter(&self) -> Members {
        let mut draft = Draft::default();
        draft.name("cost");
        plain(&mut draft.text, self.total, self.scale);
        draft.name("cost_details");
        for (name, amount) in [
            ("{\"input_cost\":", self.parts.input),
            (",\"cached_input_cost\":", self.parts.cached_input),
            (",\"cache_write_cost\":", self.parts.cache_write),
            (",\"output_cost\":", self.parts.output),
            (",\"reasoning_cost\":", self.parts.reasoning),
        ] {
            draft.text.push_str(name);
            plain(&mut draft.text, amount, self.scale);
        }
        // Most prices have none, and then the parts are those that readers know.
        if self.parts.request != U256::ZERO {
            draft.text.push_str(",\"request_cost\":");
            plain(&mut draft.text, self.parts.request, self.scale);
        }
        draft.text.push('}');
        draft.members()
    }

    fn cocoon(&self) -> Members {
        let prompt = millionths(self.prompt, self.scale);
        let completion = millionths(self.parts.output, self.scale);
        // It fits where the exact total does: what is rounded has lost a digit.
        let total = prompt
            .saturating_add(completion)
            .saturating_add(millionths(self.parts.request, self.scale));
        let mut draft = Draft::default();
        for (name, amount) in [
            ("prompt_total_cost", prompt),
            ("completion_total_cost", completion),
            ("total_cost", total),
        ] {
            draft.name(name);
            digits(&mut draft.text, amount, 1);
        }
        draft.members()
    }
}

/// Members that are being written.
struct Draft {
    text: String,
    names: Vec<Range<usize>>,
}

impl Default for Draft {
    fn default() -> Self {
        Draft {
            // What a usual cost takes: one allocation then.
            text: String::with_capacity(192),
            names: Vec::with_capacity(3),
        }
    }
}

impl Draft {
    /// Begins the next member.
    fn name(&mut self, name: &str) {
        self.text
            .push_str(if self.names.is_empty() { "\"" } else { ",\"" });
        let start = self.text.len();
        self.text.push_str(name);
        self.names.push(start..self.text.len());
        self.text.push_str("\":");
    }

    fn members(self) -> Members {
        Members::written(self.text, &self.names)
    }
}

/// Appends `amount` × 10^-`scale` without an exponent: those are legal JSON, but readers that are not JSON parsers
/// (spreadsheets, SQL) stumble over them.
fn plain(text: &mut String, amount: U256, scale: usize) {
    if amount == U256::ZERO {
        return text.push('0');
    }
    digits(text, amount, scale + 1);
    text.insert(text.len() - scale, '.');
    text.truncate(text.trim_end_matches('0').len());
    if text.ends_with('.') {
        text.pop();
    }
}

/// Appends `amount` with zeros in front where it has fewer digits than `least`.
fn digits(text: &mut String, amount: U256, least: usize) {
    // Writing to a string cannot fail. Nearly every amount is small, and then written several times faster.
    let _ = match u64::try_from(amount) {
        Ok(small) => write!(text, "{small:0least$}"),
        Err(_) => write!(text, "{amount:0least$}"),
    };
}

fn millionths(amount: U256, scale: usize) -> U256 {
    rounded(amount, power_of_ten(scale.saturating_sub(MILLIONTHS)))
}

/// `amount` in units, rounded half up, as all amounts are 0 or more.
fn rounded(amount: U256, unit: U256) -> U256 {
    // Nearly every amount is small, and then divided many times faster.
    let (size, rest) = match (u64::try_from(amount), u64::try_from(unit)) {
        (Ok(amount), Ok(unit)) => ((amount / unit).into(), (amount % unit).into()),
        _ => amount.div_rem(unit),
    };
    // Not twice the rest, which might not fit.
    if rest >= unit - rest { size + 1 } else { size }
}

/// 10^`exponent`, which is at most 77.
pub(super) fn power_of_ten(exponent: usize) -> U256 {
    const LARGEST: usize = 19;
    let power = U256::from(10_u64.pow(exponent.min(LARGEST) as u32));
    (LARGEST..exponent).fold(power, |power, _| power * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(scale: usize, input: u128, output: u128) -> Cost {
        let parts = Parts {
            input: input.into(),
            cached_input: U256::ZERO,
            cache_write: U256::ZERO,
            output: output.into(),
            reasoning: U256::ZERO,
            request: U256::ZERO,
        };
        Cost::new(scale, parts).unwrap()
    }

    #[test]
    fn amounts_are_plain_decimals() {
        for (scale, amount, text) in [
            (6, 0, "0"),
            (6, 1, "0.000001"),
            (6, 1_000_000, "1"),
            (6, 1_200_000_000, "1200"),
            (6, 1_234_567, "1.234567"),
            (12, 1, "0.000000000001"),
            (12, 1_000, "0.000000001"),
            (6, 10_u128.pow(30), "1000000000000000000000000"),
            (30, u128::MAX, "340282366.920938463463374607431768211455"),
        ] {
            assert_eq!(cost(scale, amount, 0).total(), text);
        }
        let mut text = String::new();
        plain(&mut text, U256::MAX, 77);
        assert_eq!(
            text,
            "1.15792089237316195423570985008687907853269984665640564039457584007913129639935"
        );
    }

    #[test]
    fn millionths_are_rounded_half_up_each_for_itself() {
        for (scale, prompt, completion, shown) in [
            (7, 105, 15, (11, 2, 13)),
            (8, 1049, 140, (10, 1, 11)),
            (6, 14, 7, (14, 7, 21)),
            (6, 0, 0, (0, 0, 0)),
            (77, 1, u128::MAX, (0, 0, 0)),
        ] {
            let members = cost(scale, prompt, completion).members(CostStyle::Cocoon);
            let (prompt, completion, total) = shown;
            let expected = format!(
                "\"prompt_total_cost\":{prompt},\"completion_total_cost\":{completion},\"total_cost\":{total}"
            );
            assert_eq!(members.unwrap().as_bytes(), expected.as_bytes());
        }
        assert_eq!(millionths(U256::MAX, 6), U256::MAX);
        assert_eq!(millionths(U256::MAX, 77), U256::from(1_157_921_u32));
    }

    #[test]
    fn a_ledger_counts_in_trillionths() {
        for (scale, prompt, completion, total) in [
            (6, 1, 2, Some(3_000_000)),
            (12, 5, 7, Some(12)),
            (13, 15, 4, Some(2)),
            (14, 149, 100, Some(2)),
            (6, 0, 0, Some(0)),
            (6, 9_999_999_999, 1, Some(MOST_COST)),
            (6, 10_000_000_000, 1, None),
            (6, u128::MAX, 0, None),
        ] {
            let amounts = cost(scale, prompt, completion).in_picodollars();
            assert_eq!(
                amounts.map(|amounts| amounts[0]),
                total,
                "{scale}, {prompt}"
            );
        }
        let amounts = cost(13, 15, 4).in_picodollars();
        assert_eq!(amounts, Some([2, 2, 0, 0, 0, 0]));
    }

    #[test]
    fn a_sum_that_does_not_fit_is_no_cost() {
        let most = Parts {
            input: U256::MAX,
            cached_input: U256::ZERO,
            cache_write: U256::ZERO,
            output: U256::ZERO,
            reasoning: U256::ZERO,
            request: U256::ZERO,
        };
        for scale in [6, 7, 77] {
            let cost = Cost::new(scale, most).unwrap();
            assert!(cost.members(CostStyle::Cocoon).is_some());
        }
        for more in [
            Parts {
                cached_input: U256::ONE,
                ..most
            },
            Parts {
                cache_write: U256::ONE,
                ..most
            },
            Parts {
                output: U256::ONE,
                ..most
            },
            Parts {
                request: U256::ONE,
                ..most
            },
        ] {
            assert!(Cost::new(6, more).is_none());
        }
    }

    #[test]
    fn what_is_written_here_is_what_would_be_read() {
        let amount = cost(9, 1_234_567_890, 5);
        for style in [CostStyle::OpenRouter, CostStyle::Cocoon] {
            for written in [amount.members(style).unwrap(), style.unknown().unwrap()] {
                let read = Members::parse(written.as_bytes().to_vec()).unwrap();
                assert!(read.is_like(&written));
            }
        }
    }

    #[test]
    fn styles_have_names() {
        for (name, style) in [
            ("openrouter", Ok(CostStyle::OpenRouter)),
            ("cocoon", Ok(CostStyle::Cocoon)),
            ("none", Ok(CostStyle::None)),
            ("", Err(())),
        ] {
            assert_eq!(name.parse(), style);
        }
    }
}
