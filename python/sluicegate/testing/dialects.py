"""How upstreams differ on the chat wire: a table of traits, each seen in source code or recordings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

DialectName = Literal[
    "openai",
    "azure",
    "bedrock",
    "deepseek",
    "gemini",
    "groq",
    "llamacpp",
    "mistral",
    "ollama",
    "openrouter",
    "perplexity",
    "sglang",
    "tensorrt",
    "transformers",
    "vllm",
    "xai",
]
UsagePlacement = Literal["asked", "always", "twice", "finish", "second_finish", "running", "preview", "none"]
"""Where usage stands in a stream.

- `asked`: a last chunk with `choices: []`, where `stream_options.include_usage` asks for it;
- `always`: the same chunk, asked for or not;
- `twice`: that chunk two times;
- `finish`: on the chunk with the finish reason (Groq also sends the last chunk where asked);
- `second_finish`: on a second finish chunk, after a first one without it (OpenRouter);
- `running`: the total so far on every chunk, and the last chunk as with `asked`;
- `preview`: a first chunk with `choices: []` and one token of output counted, then as `always`;
- `none`: nowhere, not in a document either.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """One dialect of chat completions. The defaults are OpenAI's own."""

    placement: UsagePlacement = "asked"
    nulls: Literal["never", "asked", "always"] = "asked"
    """When chunks without usage say `"usage": null`."""
    reasoning_field: Literal["reasoning_content", "reasoning", "content_parts", "think_tags"] = (
        "reasoning_content"
    )
    """`content_parts`: `content` is a list of parts (Mistral); `think_tags`: `<think>` in the content."""
    reasoning_in_output: bool = True
    """False: `completion_tokens` leaves reasoning out, `total_tokens` has it (xAI, Perplexity)."""
    role_chunk: bool = True
    refusal_null: bool = True
    """`"refusal": null` on the role chunk."""
    role_everywhere: bool = False
    finish_null: bool = True
    """`"finish_reason": null` before the end; False: the key is absent until then."""
    logprobs_null: bool = True
    finish_apart: bool = True
    """False: the finish reason rides on the last chunk that has content (Mistral, Moonshot)."""
    tool_index: Literal["count", "absent", "zero"] = "count"
    tool_whole: bool = False
    """A tool call in one chunk, not in pieces."""
    tool_finish: str = "tool_calls"
    tool_name_everywhere: bool = False
    """NVIDIA NIM: the whole name in each piece."""
    filter_preamble: bool = False
    """Azure: a first chunk without id and choices, with `prompt_filter_results`."""
    cumulative_message: bool = False
    """Perplexity: each chunk has the message so far beside its delta, the last is `chat.completion.done`."""
    x_groq: bool = False
    timings: bool = False
    cached_as: Literal["details", "deepseek", "none"] = "details"
    reasoning_as: Literal["details", "flat", "none"] = "details"
    nil_deltas: bool = False
    """DeepSeek: `reasoning_content: null` beside content and the other way round."""
    line_ending: Literal["lf", "crlf"] = "lf"
    trailing_space: bool = False
    done: bool = True
    processing_comment: bool = False
    """OpenRouter: `: OPENROUTER PROCESSING` before the first event."""
    system_fingerprint: str | None = "fp_mock000001"


DIALECTS: Mapping[DialectName, Traits] = {
    "openai": Traits(),
    "azure": Traits(filter_preamble=True),
    "bedrock": Traits(),
    "deepseek": Traits(
        refusal_null=False, placement="finish", nulls="always", cached_as="deepseek", nil_deltas=True
    ),
    "gemini": Traits(
        placement="running",
        nulls="never",
        role_chunk=False,
        role_everywhere=True,
        tool_index="absent",
        tool_whole=True,
        tool_finish="stop",
        logprobs_null=False,
        reasoning_as="none",
        system_fingerprint=None,
    ),
    "groq": Traits(
        refusal_null=False, placement="finish", nulls="never", reasoning_field="reasoning", x_groq=True
    ),
    "llamacpp": Traits(
        refusal_null=False, nulls="never", timings=True, logprobs_null=False, reasoning_as="none"
    ),
    "mistral": Traits(
        refusal_null=False,
        placement="finish",
        nulls="never",
        reasoning_field="content_parts",
        tool_index="absent",
        tool_whole=True,
        finish_apart=False,
        logprobs_null=False,
        reasoning_as="none",
        system_fingerprint=None,
    ),
    "ollama": Traits(
        nulls="never",
        reasoning_field="reasoning",
        role_chunk=False,
        role_everywhere=True,
        tool_whole=True,
        logprobs_null=False,
        cached_as="none",
        reasoning_as="none",
        system_fingerprint="fp_ollama",
    ),
    "openrouter": Traits(
        placement="second_finish",
        nulls="never",
        reasoning_field="reasoning",
        role_chunk=False,
        role_everywhere=True,
        logprobs_null=False,
        processing_comment=True,
        system_fingerprint=None,
    ),
    "perplexity": Traits(
        placement="running",
        nulls="never",
        reasoning_field="think_tags",
        reasoning_in_output=False,
        role_chunk=False,
        role_everywhere=True,
        cumulative_message=True,
        logprobs_null=False,
        cached_as="none",
        reasoning_as="flat",
        line_ending="crlf",
        done=False,
        system_fingerprint=None,
    ),
    "sglang": Traits(refusal_null=False, nulls="never", reasoning_as="flat", system_fingerprint=None),
    "tensorrt": Traits(refusal_null=False, nulls="never", trailing_space=True, system_fingerprint=None),
    "transformers": Traits(
        refusal_null=False,
        placement="finish",
        nulls="never",
        logprobs_null=False,
        reasoning_as="none",
        done=False,
    ),
    "vllm": Traits(
        refusal_null=False,
        nulls="never",
        reasoning_field="reasoning",
        reasoning_as="none",
        system_fingerprint=None,
    ),
    "xai": Traits(
        nulls="never",
        reasoning_in_output=False,
        role_chunk=False,
        finish_null=False,
        logprobs_null=False,
    ),
}
