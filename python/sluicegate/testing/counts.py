"""Token counts of a reply, and the usage objects that APIs and dialects make of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sluicegate.testing.dialects import Traits
from sluicegate.testing.script import Script
from sluicegate.testing.speech import Speech


@dataclass(frozen=True, slots=True)
class Counts:
    """Input includes cached tokens and cache writes; output includes reasoning."""

    input: int
    cached: int
    cache_write: int
    output: int
    reasoning: int
    input_audio: int
    output_audio: int

    def spoken(self, tokens: int) -> "Counts":
        """The running total after so many tokens, reasoning first."""
        output = min(tokens, self.output)
        return replace(self, output=output, reasoning=min(output, self.reasoning))


def count(script: Script, speeches: Sequence[Speech]) -> Counts:
    usage = script.usage
    reasoning = usage.reasoning_tokens
    if reasoning is None:
        reasoning = sum(len(speech.reasoning) for speech in speeches)
    output = usage.output_tokens
    if output is None:
        output = reasoning + sum(speech.output_tokens for speech in speeches)
    return Counts(
        input=usage.input_tokens,
        cached=usage.cached_tokens,
        cache_write=usage.cache_write_tokens,
        output=output,
        reasoning=reasoning,
        input_audio=usage.input_audio_tokens,
        output_audio=usage.output_audio_tokens,
    )


def chat_usage(script: Script, counts: Counts) -> dict[str, Any]:
    """Of chat and completions, in the script's dialect."""
    traits = script.wire
    completion = counts.output if traits.reasoning_in_output else counts.output - counts.reasoning
    usage: dict[str, Any] = {
        "prompt_tokens": counts.input,
        "completion_tokens": completion,
        "total_tokens": counts.input + counts.output,
    }
    if script.usage.details:
        usage |= _details(traits, counts)
    if traits.x_groq:
        usage |= {"queue_time": 0.0312, "prompt_time": 0.0011, "completion_time": 0.025, "total_time": 0.0261}
    if traits.cumulative_message:
        usage["search_context_size"] = "low"
    return usage | dict(script.usage.extra)


def _details(traits: Traits, counts: Counts) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if traits.cached_as != "none":
        prompt = {"cached_tokens": counts.cached, "audio_tokens": counts.input_audio}
        if counts.cache_write:
            prompt["cache_write_tokens"] = counts.cache_write
        details["prompt_tokens_details"] = prompt
    if traits.cached_as == "deepseek":
        details["prompt_cache_hit_tokens"] = counts.cached
        details["prompt_cache_miss_tokens"] = counts.input - counts.cached
    if traits.reasoning_as == "details":
        details["completion_tokens_details"] = {
            "reasoning_tokens": counts.reasoning,
            "audio_tokens": counts.output_audio,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        }
    elif traits.reasoning_as == "flat":
        details["reasoning_tokens"] = counts.reasoning
    return details


def responses_usage(script: Script, counts: Counts) -> dict[str, Any]:
    usage: dict[str, Any] = {"input_tokens": counts.input}
    if script.usage.details:
        cached = {"cached_tokens": counts.cached, "cache_write_tokens": counts.cache_write}
        usage["input_tokens_details"] = cached
    usage["output_tokens"] = counts.output
    if script.usage.details:
        usage["output_tokens_details"] = {"reasoning_tokens": counts.reasoning}
    usage["total_tokens"] = counts.input + counts.output
    return usage | dict(script.usage.extra)


def messages_usage(script: Script, counts: Counts) -> dict[str, Any]:
    """Anthropic's: cache reads and writes stand beside `input_tokens`, not within."""
    usage: dict[str, Any] = {
        "input_tokens": counts.input - counts.cached - counts.cache_write,
        "cache_creation_input_tokens": counts.cache_write,
        "cache_read_input_tokens": counts.cached,
    }
    if script.usage.details:
        written = {"ephemeral_5m_input_tokens": counts.cache_write, "ephemeral_1h_input_tokens": 0}
        usage["cache_creation"] = written
    usage["output_tokens"] = counts.output
    if script.usage.details and counts.reasoning:
        usage["output_tokens_details"] = {"thinking_tokens": counts.reasoning}
    return usage | dict(script.usage.extra)
