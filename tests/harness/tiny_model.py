"""A language model of two dozen words, made on the spot, that llama.cpp loads as any other.

It is a bigram model in a Llama's clothes. Each token's embedding has a single one, in the dimension of the
state that the token leaves the model in; the only layer adds nothing; the output matrix holds, for each
state, how likely each token is to follow. So it says what is written here:

- greedily (temperature 0): `REASONING`, where the prompt turned thinking on, then `ANSWER`, then its end;
- with a temperature: it skips and repeats words, and still ends by itself;
- with `ignore_eos`: the same words over and over;
- with `CALL_BIAS`: a call of `TOOL_NAME` with `TOOL_ARGUMENTS` in place of the answer;
- the same where tools are offered and the last message, but for the system's, is a user's with `CALL_WORD`
  in it: then the prompt ends in a token that only a call follows. So whoever gives the tool's result gets the
  answer;
- where that message has `ENDLESS_WORD` in it: `ENDLESS` over and over, up to the limit of tokens, whatever
  the sampling.

A word is one token, so streams have one word a chunk. Prompts are read byte by byte, one token each.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

ANSWER = " the river runs under a stone bridge and small boats carry red apples home before café closes"
REASONING = " so maybe first check then wait"
TOOL_NAME = "get_weather"
TOOL_ARGUMENTS = '{"city": "Rome"}'
CALL_WORD = "weather"
ENDLESS = " onwards"
ENDLESS_WORD = "forever"

CONTEXT = 131_072

_END, _THINK, _END_THINK, _DECIDE = "<|im_end|>", "<think>", "</think>", "<decide>"
_GO_ON = "<go_on>"
_CALL_START = "<tool_call>"


def _call(name: str, arguments: str) -> tuple[str, ...]:
    """The tokens of a call whose arguments are an object with one string."""
    key, _, rest = arguments.partition(': "')
    return (
        _CALL_START,
        f'\n{{"name": "{name}", "arguments": ',
        f'{key}: "',
        rest.removesuffix('"}'),
        '"}',
        "}\n",
        "</tool_call>",
    )


# Logits. What is not named is so unlikely that a reply never has half a character in it. `_NEXT` leaves the
# other words a chance at llama.cpp's usual sampling: temperature 0.8, and nothing below 5 % of the likeliest.
_NEVER = -30.0
_UNASKED = -12.0
_RARELY = 0.0
_SOMETIMES = 1.0
_NEXT = 2.0
_ALWAYS = 40.0

# The form that Qwen and Hermes models are prompted in: llama.cpp tells from a template how tool calls look.
TEMPLATE = """\
{%- if tools %}{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- "You may call these functions:\\n<tools>" }}
{%- for tool in tools %}{{- "\\n" + (tool | tojson) }}{%- endfor %}
{{- "\\n</tools>\\nA call is a JSON object within <tool_call></tool_call>:\\n<tool_call>\\n" }}
{{- '{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}
{%- set ns = namespace(asked=false, endless=false) %}
{%- for message in messages %}
{%- if message.role != 'system' %}
{%- set ns.asked = message.role == 'user' and CALL_WORD in message.content %}
{%- set ns.endless = message.role == 'user' and ENDLESS_WORD in message.content %}{%- endif %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}{{- '<|im_start|>assistant\\n' }}
{%- if message.reasoning_content %}{{- '<think>' + message.reasoning_content + '</think>' }}{%- endif %}
{%- if message.content %}{{- message.content }}{%- endif %}
{%- for tool_call in message.tool_calls or [] %}
{%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
{{- '\\n<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' }}
{%- if tool_call.arguments is string %}{{- tool_call.arguments }}
{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}{{- '}\\n</tool_call>' }}{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if tools and ns.asked %}{{- '<decide>' }}
{%- elif ns.endless %}{{- '<go_on>' }}
{%- elif enable_thinking is defined and enable_thinking %}{{- '<think>' }}{%- endif %}{%- endif %}""".replace(
    "CALL_WORD", f"'{CALL_WORD}'"
).replace("ENDLESS_WORD", f"'{ENDLESS_WORD}'")


def _words(text: str) -> list[str]:
    return [f" {word}" for word in text.split()]


@dataclass(frozen=True, slots=True)
class Token:
    """`text` as the vocabulary has it: a SentencePiece model's, where U+2581 stands for a space."""

    text: str
    kind: gguf.TokenType


def _vocabulary(call: tuple[str, ...]) -> Iterator[Token]:
    yield Token("<unk>", gguf.TokenType.UNKNOWN)
    for text in ("<|im_start|>", _END):
        yield Token(text, gguf.TokenType.CONTROL)
    for byte in range(256):
        yield Token(f"<0x{byte:02X}>", gguf.TokenType.BYTE)
    for word in _words(REASONING) + _words(ANSWER):
        yield Token(word.replace(" ", "\u2581"), gguf.TokenType.NORMAL)
    for text in (_THINK, _END_THINK, _DECIDE, *call, _GO_ON):
        yield Token(text, gguf.TokenType.USER_DEFINED)
    yield Token(ENDLESS.replace(" ", "\u2581"), gguf.TokenType.NORMAL)


def _ids(tokens: tuple[Token, ...]) -> dict[str, int]:
    return {token.text.replace("\u2581", " "): number for number, token in enumerate(tokens)}


CALL_BIAS = {str(_ids(tuple(_vocabulary((_CALL_START,))))[_CALL_START]): 20}
"""A `logit_bias` that makes the answer one tool call."""


@dataclass(frozen=True, slots=True)
class TinyModel:
    """The model, in no file's format. Its other weights are zeros, those of its norms ones.

    `embedding`, `output`: token by state.
    """

    tokens: tuple[Token, ...]
    embedding: "np.ndarray[tuple[int, int], np.dtype[np.float32]]"
    output: "np.ndarray[tuple[int, int], np.dtype[np.float32]]"
    start: int
    end: int
    """The tokens at the beginning and at the end of a message."""

    @property
    def width(self) -> int:
        return self.embedding.shape[1]


def tiny_model(tool_name: str = TOOL_NAME, tool_arguments: str = TOOL_ARGUMENTS) -> TinyModel:
    """`tool_arguments` are an object with one string."""
    call = _call(tool_name, tool_arguments)
    tokens = tuple(_vocabulary(call))
    ids = _ids(tokens)
    states = _states(ids, call)
    width = -(-(max(states.values()) + 1) // 32) * 32
    embedding = np.zeros((len(tokens), width), np.float32)
    for number in range(len(tokens)):
        embedding[number, states.get(number, 0)] = 1
    # A vector with a single one is scaled by the norm before the output to sqrt(width).
    output = _output(ids, call, states, width) / np.sqrt(width, dtype=np.float32)
    return TinyModel(tokens, embedding, output, ids["<|im_start|>"], ids[_END])


def _states(ids: dict[str, int], call: tuple[str, ...]) -> dict[int, int]:
    """The dimension of each token that leaves the model in a state of its own; all others share the first."""
    own = [*_words(REASONING), *_words(ANSWER), _THINK, _DECIDE, *call, _GO_ON, ENDLESS]
    return {ids[text]: state for state, text in enumerate(own, 1)}


def _output(
    ids: dict[str, int], call: tuple[str, ...], states: dict[int, int], width: int
) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    """What follows: token by state, logits."""
    follows = np.full((len(ids), width), _NEVER, np.float32)
    answer = [ids[word] for word in _words(ANSWER)]
    reasoning = [ids[word] for word in _words(REASONING)]
    for start, words, end in (
        (0, answer, ids[_END]),
        (states[ids[_THINK]], reasoning, ids[_END_THINK]),
    ):
        visited = [start, *(states[word] for word in words)]
        for state, following in zip(visited, (*words, end), strict=True):
            follows[[*words, end], state] = _RARELY
            follows[following, state] = _NEXT
        # What comes where the end is not allowed.
        follows[words[0], visited[-1]] = _SOMETIMES
    # Only instead of an answer: what is said while thinking is not read as a call.
    follows[ids[call[0]], 0] = _UNASKED
    said = (_DECIDE, *call, _END)
    for this, then in itertools.pairwise(said):
        follows[ids[then], states[ids[this]]] = _ALWAYS
    for this in (_GO_ON, ENDLESS):
        follows[ids[ENDLESS], states[ids[this]]] = _ALWAYS
    return follows


def write_tiny_model(path: Path, *, tool_name: str = TOOL_NAME, tool_arguments: str = TOOL_ARGUMENTS) -> None:
    """Write the model to `path`, in the GGUF format, with all that it needs: 0.4 MB."""
    model = tiny_model(tool_name, tool_arguments)
    width = model.width
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(width)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(width)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(len(model.tokens))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token.text for token in model.tokens])
    writer.add_token_scores([0.0] * len(model.tokens))
    writer.add_token_types([token.kind for token in model.tokens])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(model.start)
    writer.add_eos_token_id(model.end)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)
    writer.add_tensor("token_embd.weight", model.embedding)
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    writer.add_tensor("output.weight", model.output)
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", np.ones(width, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((width, width), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
