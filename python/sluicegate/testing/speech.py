"""What the scripted upstream says: the words of a fixed text, the same for the same script, every time."""

import re
from dataclasses import dataclass
from itertools import cycle, islice

from sluicegate.testing.question import Question
from sluicegate.testing.script import Script, ToolCall

# Accents, a currency sign, quotation marks, a backslash, a line break, an emoji (four bytes of UTF-8, two
# UTF-16 units) and a model's own `"usage"` in its text: what careless readers of JSON and SSE stumble over.
PASSAGE = (
    "A sluice lets water through and keeps the flood out. At Köln the keeper lifts it by hand: a turn, a "
    'pause, a turn. "How much?" asks the skipper. "Five €, as ever."\nThe ledger in C:\\gate says '
    '{"usage": {"prompt_tokens": 1}} and nobody knows why 🌊 but every drop is counted, naïve or not, and '
    "every boat goes on its way before dark."
)
THOUGHT = "The skipper wants to pass; first the level, then the price, then the gate, and then the answer."

_WORD = re.compile(r"\s*\S+|\s+$")


def split_words(text: str) -> tuple[str, ...]:
    """Words with the white space before each; joined they are the text again."""
    return tuple(_WORD.findall(text))


_PASSAGE_WORDS = split_words(PASSAGE)
_THOUGHT_WORDS = split_words(THOUGHT)
_ASCII = PASSAGE.encode("ascii", "ignore").decode().replace("\n", " ").replace('"', "'").replace("\\", "/")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as it is sent: the script's, with its id and its arguments in pieces."""

    id: str
    name: str
    kind: str
    arguments: str
    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Speech:
    """All that one choice says, in order: reasoning, content (or a refusal), tool calls; a string a token."""

    reasoning: tuple[str, ...]
    content: tuple[str, ...]
    refusal: tuple[str, ...]
    calls: tuple[Call, ...]

    @property
    def output_tokens(self) -> int:
        """Reasoning not included; a piece of a call's arguments is a token, its name another."""
        return len(self.content) + len(self.refusal) + sum(1 + len(call.pieces) for call in self.calls)


def speech(script: Script, question: Question, choice: int) -> Speech:
    """What one choice says. Choices start at different places of the text, so that they can be told apart."""
    return Speech(
        reasoning=_tokens(_THOUGHT_WORDS, script.reasoning_tokens, choice),
        content=_content(script, choice),
        refusal=split_words(script.refusal) if script.refusal else (),
        calls=tuple(_call(call, question, choice, i) for i, call in enumerate(script.tool_calls)),
    )


def _content(script: Script, choice: int) -> tuple[str, ...]:
    if script.refusal:
        return ()
    if script.text is not None:
        return split_words(script.text)
    if script.chunk_bytes:
        size = script.chunk_bytes
        text = "".join(islice(cycle(_ASCII), choice, choice + size * script.tokens))
        return tuple(text[i : i + size] for i in range(0, len(text), size))
    return _tokens(_PASSAGE_WORDS, script.tokens, choice)


def _tokens(words: tuple[str, ...], count: int, choice: int) -> tuple[str, ...]:
    start = choice * 7 % len(words)
    spoken = list(islice(cycle(words), start, start + max(count, 0)))
    if spoken:
        spoken[0] = spoken[0].lstrip()
    for i in range(len(words) - start, len(spoken), len(words)):
        spoken[i] = f" {words[0]}"
    return tuple(spoken)


def _call(call: ToolCall, question: Question, choice: int, index: int) -> Call:
    size = max(call.piece, 1)
    return Call(
        id=call.id if call.id is not None else question.made_id("call_", choice, index),
        name=call.name,
        kind=call.kind,
        arguments=call.arguments,
        pieces=tuple(call.arguments[i : i + size] for i in range(0, len(call.arguments), size)),
    )
