//! What a request's tokens cost: exact, and unknown where a price is missing.
//!
//! Amounts are whole numbers of 10^-scale USD, 256 bits wide. The configuration allows prices of 24 digits on either
//! side of the point, per million tokens, and counts have 64 bits: every such cost fits. What does not fit is unknown.
//! `sluicegate.pricing` does the same in Python, and a property test compares the two.

mod cost;
mod rates;

use std::sync::Arc;

pub use cost::{Cost, CostStyle, MOST_COST};
pub use rates::{RateError, Rates, Tariff};

use crate::cost::Members;
use crate::usage::Usage;

/// How the replies of one route are priced: by which tariff, and how they say so.
///
/// ```
/// use std::sync::Arc;
/// use sluicegate_core::pricing::{CostStyle, Pricing, Rates, Tariff};
/// use sluicegate_core::usage::Usage;
///
/// let mut rates = [None; 11];
/// (rates[0], rates[4]) = (Some("0.000001"), Some("0.000002"));
/// let tariff = Tariff::new(Rates::parse(&rates)?, Vec::new());
/// let pricing = Pricing::new(Some(Arc::new(tariff)), CostStyle::Cocoon);
///
/// let usage = Usage { input_tokens: Some(14), output_tokens: Some(7), ..Usage::default() };
/// let (cost, members) = pricing.price(&usage);
/// assert_eq!(cost.unwrap().total(), "0.000028");
/// let shown = b"\"prompt_total_cost\":14,\"completion_total_cost\":14,\"total_cost\":28";
/// assert_eq!(members.unwrap().as_bytes(), shown);
/// # Ok::<(), sluicegate_core::pricing::RateError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pricing {
    tariff: Option<Arc<Tariff>>,
    style: CostStyle,
    id: Option<Arc<str>>,
}

impl Pricing {
    /// Without a tariff every cost is unknown.
    #[must_use]
    pub fn new(tariff: Option<Arc<Tariff>>, style: CostStyle) -> Self {
        Pricing {
            tariff,
            style,
            id: None,
        }
    }

    /// The same under a name, by which the prices are found again.
    #[must_use]
    pub fn named(mut self, id: Arc<str>) -> Self {
        self.id = Some(id);
        self
    }

    /// The name of the prices; none where there are none.
    #[must_use]
    pub fn id(&self) -> Option<&Arc<str>> {
        self.id.as_ref()
    }

    /// What `usage` cost, and the members that its object gains: those of an unknown cost where it is not known, none
    /// where the style adds none.
    #[must_use]
    pub fn price(&self, usage: &Usage) -> (Option<Cost>, Option<Members>) {
        self.shown(self.cost(usage))
    }

    /// The same of what is charged: a cost that is above [`MOST_COST`] is not known.
    #[must_use]
    pub fn charge(&self, usage: &Usage) -> (Option<Cost>, Option<Members>) {
        let cost = self.cost(usage);
        self.shown(cost.filter(|cost| cost.in_picodollars().is_some()))
    }

    fn shown(&self, cost: Option<Cost>) -> (Option<Cost>, Option<Members>) {
        match cost {
            Some(cost) => (Some(cost), cost.members(self.style)),
            None => (None, self.style.unknown()),
        }
    }

    /// What `usage` cost; none where it is not known.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> Option<Cost> {
        self.tariff.as_ref()?.cost(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pricing: &Pricing, usage: &Usage) -> (Option<String>, Option<Vec<u8>>) {
        let (cost, members) = pricing.price(usage);
        (
            cost.map(|cost| cost.total()),
            members.map(|members| members.as_bytes().to_vec()),
        )
    }

    #[test]
    fn an_unknown_cost_is_null_and_never_zero() {
        let base = Rates::parse(&[None; 11]).unwrap();
        let unpriced = Arc::new(Tariff::new(base, Vec::new()));
        let usage = Usage {
            input_tokens: Some(1),
            ..Usage::default()
        };
        for tariff in [None, Some(unpriced)] {
            for (style, members) in [
                (CostStyle::OpenRouter, Some("\"cost\":null")),
                (
                    CostStyle::Cocoon,
                    Some(
                        "\"prompt_total_cost\":null,\"completion_total_cost\":null,\"total_cost\":null",
                    ),
                ),
                (CostStyle::None, None),
            ] {
                let pricing = Pricing::new(tariff.clone(), style);
                let members = members.map(|members| members.as_bytes().to_vec());
                assert_eq!(shown(&pricing, &usage), (None, members));
            }
        }
    }

    #[test]
    fn the_style_none_knows_the_cost_and_shows_none() {
        let mut rates = [Some("2"); 11];
        rates[10] = None;
        let base = Rates::parse(&rates).unwrap();
        let tariff = Arc::new(Tariff::new(base, Vec::new()));
        let usage = Usage {
            input_tokens: Some(3),
            ..Usage::default()
        };
        let pricing = Pricing::new(Some(tariff), CostStyle::None);
        assert_eq!(shown(&pricing, &usage), (Some("6".to_owned()), None));
    }
}
