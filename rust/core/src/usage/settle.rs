//! From the reported counts to the normal form. Whether a count is included in its total (cached tokens in the input,
//! reasoning in the output) is decided here only.

use super::counts::{Count, Counts};
use super::{Dialect, MOST_TOKENS, Usage};

/// Whether a total includes one of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inclusion {
    /// The total includes it.
    Inside,
    /// It comes in addition to the total.
    Beside,
    /// It comes in addition, unless `total_tokens` is the sum without it.
    BesideUnlessTotalSaysInside,
}

/// What has to be known of a dialect in advance, because its numbers do not always say it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Anthropic's cache counts, to the input.
    pub(super) cache: Inclusion,
    /// Reasoning, to the output.
    pub(super) reasoning: Inclusion,
    /// What the total has beyond input and output is reasoning that is named nowhere.
    pub(super) unexplained_total_is_reasoning: bool,
}

/// The first that is not zero, else the first that was reported.
fn first_of<const N: usize>(counts: [Option<u64>; N]) -> Option<u64> {
    let reported = || counts.iter().copied().flatten();
    reported()
        .find(|&count| count != 0)
        .or_else(|| reported().next())
}

fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
    }
}

/// The normal form of `counts`, the upstream's cost aside. None where nothing was counted.
pub(crate) fn settle(counts: &Counts, dialect: Option<Dialect>) -> Option<Usage> {
    if counts.is_empty() {
        return None;
    }
    let mut implausible = counts.are_implausible();
    let summed = counts.summed();
    let counts = summed.as_ref().unwrap_or(counts);
    let get = |count| counts.get(count);
    let timed_input = sum(get(Count::Evaluated), get(Count::Reused));
    let mut input = first_of([
        sum(get(Count::Prompt), get(Count::ToolPrompt)),
        get(Count::Input),
        get(Count::BilledInput),
        timed_input,
    ]);
    let mut output = first_of([
        get(Count::Completion),
        get(Count::Output),
        get(Count::BilledOutput),
        get(Count::Predicted),
    ])
    .or(get(Count::OutputSoFar));
    if input.is_none() && output.is_none() {
        // Of rankings, which write nothing (vLLM, Jina).
        input = get(Count::Total);
    }

    let created = first_of([
        get(Count::CacheCreation),
        sum(get(Count::CacheCreation5m), get(Count::CacheCreation1h)),
    ]);
    let named_cache = sum(get(Count::CacheRead), created);
    let part_cache = sum(get(Count::Cached), get(Count::CacheWrite));
    if cache_is_beside(counts, input, output, named_cache.unwrap_or(0), dialect) {
        input = sum(input, named_cache);
    } else if input.is_some() && part_cache > input {
        // A part cannot be larger than its whole.
        input = sum(input, part_cache);
    }

    let mut reasoning = first_of([get(Count::Reasoning), get(Count::Thoughts)]);
    if get(Count::Reasoning).is_some_and(|reasoning| reasoning != 0) {
        if reasoning_is_beside(
            input,
            output,
            reasoning.unwrap_or(0),
            get(Count::Total),
            dialect,
        ) {
            output = sum(output, reasoning);
        }
    } else if get(Count::Thoughts).is_some_and(|thoughts| thoughts != 0) {
        output = sum(output, get(Count::Thoughts));
    } else if dialect.is_some_and(|dialect| dialect.rules().unexplained_total_is_reasoning) {
        let known = sum(input, output).unwrap_or(0);
        let hidden = get(Count::Total).unwrap_or(0).saturating_sub(known);
        if hidden > 0 && input.is_some() {
            reasoning = Some(hidden);
            output = sum(output, Some(hidden));
        }
    }

    // Each part may be plausible, and their sum not.
    for sum in [&mut input, &mut output, &mut reasoning] {
        implausible |= sum.take_if(|sum| *sum > MOST_TOKENS).is_some();
    }
    Some(Usage {
        input_tokens: input,
        cached_input_tokens: first_of([
            get(Count::Cached),
            get(Count::CacheRead),
            get(Count::Reused),
        ]),
        cache_write_tokens: first_of([get(Count::CacheWrite), created]),
        cache_write_1h_tokens: get(Count::CacheCreation1h),
        output_tokens: output,
        reasoning_tokens: reasoning,
        input_audio_tokens: get(Count::InputAudio),
        output_audio_tokens: get(Count::OutputAudio),
        input_image_tokens: get(Count::InputImage),
        output_image_tokens: get(Count::OutputImage),
        upstream_cost: None,
        upstream_cost_field: None,
        implausible,
    })
}

/// Whether what is cached under Anthropic's names comes in addition to the input. Gateways use these names both ways:
/// with OpenAI's inclusion beside `prompt_tokens`, with Anthropic's beside `input_tokens`
/// (`envoyproxy/ai-gateway#2350`).
fn cache_is_beside(
    counts: &Counts,
    input: Option<u64>,
    output: Option<u64>,
    cache: u64,
    dialect: Option<Dialect>,
) -> bool {
    if cache == 0 {
        return false;
    }
    // A part cannot be larger than its whole.
    if cache > input.unwrap_or(0) {
        return true;
    }
    match dialect.map(|dialect| dialect.rules().cache) {
        Some(Inclusion::Inside) => return false,
        Some(_) => return true,
        None => {}
    }
    let sum = input.unwrap_or(0).saturating_add(output.unwrap_or(0));
    match counts.get(Count::Total) {
        Some(total) if total == sum => false,
        Some(total) if total == sum.saturating_add(cache) => true,
        _ => counts.get(Count::Prompt).is_none(),
    }
}

/// Whether `reasoning`, which is not zero, comes in addition to the output.
fn reasoning_is_beside(
    input: Option<u64>,
    output: Option<u64>,
    reasoning: u64,
    total: Option<u64>,
    dialect: Option<Dialect>,
) -> bool {
    if reasoning > output.unwrap_or(0) {
        return true;
    }
    let sum = input.unwrap_or(0).saturating_add(output.unwrap_or(0));
    let total_says = match total {
        Some(total) if total == sum => Some(Inclusion::Inside),
        Some(total) if total == sum.saturating_add(reasoning) => Some(Inclusion::Beside),
        _ => None,
    };
    match (dialect.map(|dialect| dialect.rules().reasoning), total_says) {
        (Some(Inclusion::Beside), _) => true,
        (_, Some(said)) => said == Inclusion::Beside,
        (Some(Inclusion::BesideUnlessTotalSaysInside), None) => true,
        (Some(Inclusion::Inside) | None, None) => false,
    }
}
