"""What an upstream is given back of the reasoning in an earlier turn."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from matrix.replies import Api


class Returned(NamedTuple):
    text: str = ""
    signature: str | None = None


NOTHING = Returned()


def returned(upstream: Api, body: Mapping[str, Any]) -> Returned:
    """Of a request as the upstream got it."""
    match upstream:
        case "chat":
            [message] = [one for one in body["messages"] if one["role"] == "assistant"]
            details = message["reasoning_details"]
            assert "".join(one["text"] for one in details) == message["reasoning_content"]
            return Returned(message["reasoning_content"], *(one["signature"] for one in details))
        case "responses":
            items = [item for item in body["input"] if item.get("type") == "reasoning"]
            texts = [part["text"] for item in items for part in item.get("content") or ()]
            return Returned("".join(texts), *(item.get("encrypted_content") for item in items))
        case "messages":
            [turn] = [one["content"] for one in body["messages"] if one["role"] == "assistant"]
            blocks = [block for block in turn if block["type"] == "thinking"]
            return Returned(
                "".join(block["thinking"] for block in blocks), *(block.get("signature") for block in blocks)
            )
