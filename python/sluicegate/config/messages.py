"""How an upstream's Messages API (Anthropic's) is spoken to."""

from typing import Literal

from pydantic import Field

from sluicegate.config.members import MembersConfig
from sluicegate.config.values import Positive

CountTokens = Literal["forward", "estimate", "off"]
Thinking = Literal["adaptive", "budget", "none"]
Cache = Literal["off", "5m", "1h"]
Rest = Literal["pass", "drop"]


class MessagesConfig(MembersConfig):
    """How requests to the Messages API are put to a server, and how input tokens are counted for it."""

    count_tokens: CountTokens | None = Field(
        default=None,
        description="What becomes of `POST /v1/messages/count_tokens`. forward: the server counts; estimate: "
        "a quarter of the bytes of all text, which a client may take for the truth; off: 404, after which "
        "clients estimate for themselves; null: forward where it has the Messages API, otherwise off.",
    )
    max_tokens: Positive = Field(
        default=8192,
        description="The bound on output tokens where a client gives none: the API requires one.",
    )
    thinking: Thinking = Field(
        default="adaptive",
        description="How an effort of reasoning is put. adaptive: as an effort (Anthropic's models from 4.6 "
        "on); budget: as a number of tokens (the models before); none: not at all.",
    )
    signed: bool = Field(
        default=True,
        description="The server checks signatures: only reasoning that it has signed itself goes back to it. "
        "false: for servers that do not (vLLM, llama.cpp, Ollama).",
    )
    inline_system: bool = Field(
        default=False,
        description="The server takes messages of the system's between others; false: their text goes into "
        "the user's next message.",
    )
    cache: Cache = Field(
        default="off", description="How long the server is asked to keep prompts in its cache."
    )
    rest: Rest = Field(
        default="pass",
        description="Members of requests that the gateway does not know. pass: they are sent; drop: they are "
        "not, for a server that refuses them (Anthropic).",
    )
