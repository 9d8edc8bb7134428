//! The numbers of usage objects, each dialect's in its own terms, and the rule by which newer ones are taken in.

use super::MOST_TOKENS;

/// A number that some dialect reports. The same quantity under another name, or with another relation to its whole, is
/// another count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// `prompt_tokens`: cached tokens are inside.
    Prompt,
    /// `input_tokens`: cached tokens are inside (Responses) or beside (Anthropic).
    Input,
    /// What tools have brought into the prompt, beside `Prompt`.
    ToolPrompt,
    Completion,
    Output,
    /// `Output` of a preview: a final count takes its place, also where that is zero.
    OutputSoFar,
    Total,
    /// Cached tokens that are a part of the prompt.
    Cached,
    CacheWrite,
    /// Cache reads under Anthropic's name.
    CacheRead,
    /// Cache writes under Anthropic's name.
    CacheCreation,
    CacheCreation5m,
    CacheCreation1h,
    Reasoning,
    /// Reasoning that is never a part of the completion.
    Thoughts,
    InputAudio,
    OutputAudio,
    InputImage,
    OutputImage,
    /// What was billed, where that may differ from what was used.
    BilledInput,
    BilledOutput,
    /// Prompt tokens that were computed, those found in the cache left out.
    Evaluated,
    /// Prompt tokens found in the cache, beside the computed ones.
    Reused,
    Predicted,
    /// Sums over the runs of the model that one reply took, under Anthropic's names: what is billed.
    SumInput,
    SumOutput,
    SumCacheRead,
    SumCacheCreation,
    SumCacheCreation5m,
    SumCacheCreation1h,
    SumReasoning,
}

const COUNTS: usize = Count::SumReasoning as usize + 1;

/// Each count that is summed over the runs of the model, and its sum.
const SUMS: [(Count, Count); 7] = [
    (Count::Input, Count::SumInput),
    (Count::Output, Count::SumOutput),
    (Count::CacheRead, Count::SumCacheRead),
    (Count::CacheCreation, Count::SumCacheCreation),
    (Count::CacheCreation5m, Count::SumCacheCreation5m),
    (Count::CacheCreation1h, Count::SumCacheCreation1h),
    (Count::Reasoning, Count::SumReasoning),
];

/// The counts of one or more usage objects. `None` is "not reported".
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    values: [Option<u64>; COUNTS],
}

impl Counts {
    /// What was reported as `count`, where that can be.
    pub(crate) fn get(&self, count: Count) -> Option<u64> {
        let value = self.values.get(count as usize).copied().flatten();
        value.filter(|value| *value <= MOST_TOKENS)
    }

    /// Whether some count cannot be.
    pub(crate) fn are_implausible(&self) -> bool {
        let mut reported = self.values.iter().flatten();
        reported.any(|value| *value > MOST_TOKENS)
    }

    /// Takes in a newer value: the last that is not zero stays, and zero differs from absent. Events are never summed,
    /// because totals are repeated and run on (`agno-agi/agno#6058`), and no zero takes back what an earlier event said
    /// (`envoyproxy/ai-gateway#2292`).
    pub(crate) fn set(&mut self, count: Count, value: u64) {
        if let Some(slot) = self.values.get_mut(count as usize)
            && (value != 0 || slot.is_none())
        {
            *slot = Some(value);
        }
    }

    /// Takes in newer counts, each by the rule of [`set`](Self::set).
    pub(crate) fn merge(&mut self, newer: &Counts) {
        for (slot, value) in self.values.iter_mut().zip(newer.values) {
            if let Some(value) = value
                && (value != 0 || slot.is_none())
            {
                *slot = Some(value);
            }
        }
    }

    /// Adds the counts of one run of the model to the sums of all.
    pub(crate) fn add_run(&mut self, run: &Counts) {
        for (count, sum) in SUMS {
            if let Some(value) = run.get(count)
                && let Some(slot) = self.values.get_mut(sum as usize)
            {
                *slot = Some(slot.unwrap_or(0).saturating_add(value));
            }
        }
    }

    /// The counts with the sums in the place of what they are sums of; None where there are no sums. Nothing else stays
    /// of those counts: what another event said of them is of one run alone.
    pub(crate) fn summed(&self) -> Option<Counts> {
        self.get(Count::SumInput).or(self.get(Count::SumOutput))?;
        let mut summed = self.clone();
        for (count, sum) in SUMS {
            if let Some(slot) = summed.values.get_mut(count as usize) {
                *slot = self.get(sum);
            }
        }
        Some(summed)
    }

    /// They are of an event whose usage is a preview.
    pub(crate) fn preview(&mut self) {
        let [output, so_far] = [Count::Output, Count::OutputSoFar].map(|count| count as usize);
        self.values.swap(output, so_far);
    }

    /// Whether nothing was reported.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.iter().all(Option::is_none)
    }
}
