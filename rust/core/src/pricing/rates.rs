//! From token counts to money: which token is billed at which rate.

use std::fmt;

use ethnum::U256;

use super::cost::{Cost, MILLIONTHS, Parts, power_of_ten};
use crate::usage::Usage;

/// The largest power of ten that 256 bits hold.
const MAX_SCALE: usize = 77;

type Rate = Option<U256>;

/// Why a text is no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateError {
    /// It is not digits, or digits with a point between them.
    NotDecimal,
    /// It has more digits than can be held, by itself or beside the other rates.
    TooManyDigits,
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RateError::NotDecimal => "a rate is not a plain decimal number, 0 or more",
            RateError::TooManyDigits => "a rate has too many digits",
        })
    }
}

impl std::error::Error for RateError {}

/// USD per token, and for the request itself. A request that needs a rate that is not there has no known cost.
///
/// Rates for reasoning, audio and images are never needed: such tokens cost what text costs until a rate says
/// otherwise; nor is a price of the request.
#[derive(Clone, Debug)]
pub struct Rates {
    /// All rates are whole numbers of 10^-scale; from 6 to 77.
    scale: usize,
    input: Rate,
    cached_input: Rate,
    cache_write: Rate,
    cache_write_1h: Rate,
    output: Rate,
    reasoning: Rate,
    input_audio: Rate,
    input_image: Rate,
    output_audio: Rate,
    output_image: Rate,
    per_request: Rate,
}

impl Rates {
    /// Reads USD per token as plain decimal numbers (`0.000001`), None being "not known", for: input that no cache
    /// had a part in, input read from a cache, input written to one, input written to one for an hour, output,
    /// reasoning, audio input, image input, audio output, image output; and USD for each request.
    ///
    /// # Errors
    ///
    /// Where a text is no such number, or the rates cannot be held exactly.
    pub fn parse(texts: &[Option<&str>; 11]) -> Result<Self, RateError> {
        let mut read = [None; 11];
        let mut scale = MILLIONTHS;
        for (slot, text) in read.iter_mut().zip(texts) {
            *slot = text.map(decimal).transpose()?;
            scale = slot.map_or(scale, |(_, own)| scale.max(own));
        }
        let mut rates = [None; 11];
        for (rate, slot) in rates.iter_mut().zip(read) {
            if let Some((number, own)) = slot {
                let whole = number.checked_mul(power_of_ten(scale - own));
                *rate = Some(whole.ok_or(RateError::TooManyDigits)?);
            }
        }
        let [
            input,
            cached_input,
            cache_write,
            cache_write_1h,
            output,
            reasoning,
            input_audio,
            input_image,
            output_audio,
            output_image,
            per_request,
        ] = rates;
        Ok(Rates {
            scale,
            input,
            cached_input,
            cache_write,
            cache_write_1h,
            output,
            reasoning,
            input_audio,
            input_image,
            output_audio,
            output_image,
            per_request,
        })
    }

    /// Every input token is billed once and every output token once, whatever the report: a part that claims more than
    /// what is left of its whole is cut to that.
    fn cost(&self, usage: &Usage) -> Option<Cost> {
        let tokens = usage.input_tokens?;
        let cached = usage.cached_input_tokens.unwrap_or(0).min(tokens);
        let uncached = tokens - cached;
        let written = usage.cache_write_tokens.unwrap_or(0).min(uncached);
        let written_1h = usage.cache_write_1h_tokens.unwrap_or(0).min(written);
        let input = by_medium(
            uncached - written,
            self.input,
            [
                (usage.input_audio_tokens, self.input_audio),
                (usage.input_image_tokens, self.input_image),
            ],
        )?;

        let produced = usage.output_tokens.unwrap_or(0);
        let reasoned = usage.reasoning_tokens.unwrap_or(0).min(produced);
        let reasoning = amount(reasoned, self.reasoning.or(self.output))?;
        let output = by_medium(
            produced - reasoned,
            self.output,
            [
                (usage.output_audio_tokens, self.output_audio),
                (usage.output_image_tokens, self.output_image),
            ],
        )?;
        let parts = Parts {
            input,
            cached_input: amount(cached, self.cached_input)?,
            cache_write: amount(written - written_1h, self.cache_write)?
                .checked_add(amount(written_1h, self.cache_write_1h)?)?,
            output: output.checked_add(reasoning)?,
            reasoning,
            request: self.per_request.unwrap_or(U256::ZERO),
        };
        Cost::new(self.scale, parts)
    }
}

/// A model's rates, and those that replace them for a whole request with more input than a threshold.
#[derive(Clone, Debug)]
pub struct Tariff {
    base: Rates,
    tiers: Vec<(u64, Rates)>,
}

impl Tariff {
    /// `tiers`: input tokens, cached ones included, above which the rates hold; the highest threshold first.
    #[must_use]
    pub fn new(base: Rates, tiers: Vec<(u64, Rates)>) -> Self {
        Tariff { base, tiers }
    }

    /// What `usage` costs; None where it is not known.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> Option<Cost> {
        let tokens = usage.input_tokens.unwrap_or(0);
        let reached = self.tiers.iter().find(|(above, _)| tokens > *above);
        reached.map_or(&self.base, |(_, rates)| rates).cost(usage)
    }
}

fn amount(tokens: u64, rate: Rate) -> Option<U256> {
    if tokens == 0 {
        return Some(U256::ZERO);
    }
    rate?.checked_mul(tokens.into())
}

/// What `tokens` cost of which some are not text: each medium as (tokens, rate), in the order in which they are taken.
fn by_medium(mut tokens: u64, text: Rate, media: [(Option<u64>, Rate); 2]) -> Option<U256> {
    let mut total = U256::ZERO;
    for (count, rate) in media {
        if let (Some(count), Some(_)) = (count, rate) {
            let count = count.min(tokens);
            tokens -= count;
            total = total.checked_add(amount(count, rate)?)?;
        }
    }
    total.checked_add(amount(tokens, text)?)
}

/// The number `text` as (a whole number, its scale), without zeros at the end of the fraction.
fn decimal(text: &str) -> Result<(U256, usize), RateError> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) {
        return Err(RateError::NotDecimal);
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > MAX_SCALE {
        return Err(RateError::TooManyDigits);
    }
    let mut digits = whole.bytes().chain(fraction.bytes());
    let number = digits.try_fold(U256::ZERO, |number, digit| {
        number
            .checked_mul(U256::new(10))?
            .checked_add(U256::from(digit - b'0'))
    });
    Ok((number.ok_or(RateError::TooManyDigits)?, fraction.len()))
}

#[cfg(test)]
mod tests;
