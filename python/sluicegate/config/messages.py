"""How an upstream's Messages API (Anthropic's) is spoken to."""

from typing import Literal

from pydantic import Field

from sluicegate.config.section import Section

KeyHeader = Literal["x-api-key", "bearer"]
CountTokens = Literal["forward", "estimate", "off"]


class MessagesConfig(Section):
    """How requests to the Messages API are put to a server, and how input tokens are counted for it."""

    auth: KeyHeader = Field(
        default="x-api-key",
        description="How requests to its Messages API carry `api_key`: x-api-key: in the header of this name "
        "(Anthropic); bearer: as `Authorization: Bearer …` (vLLM).",
    )
    count_tokens: CountTokens | None = Field(
        default=None,
        description="What becomes of `POST /v1/messages/count_tokens`. forward: the server counts; estimate: "
        "a quarter of the bytes of all text, which a client may take for the truth; off: 404, after which "
        "clients estimate for themselves; null: forward where it has the Messages API, otherwise off.",
    )
