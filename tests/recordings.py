"""Recorded streams of real providers, where `SLUICEGATE_CORPUS` points to them, and what each is to give."""

import json
import os
from pathlib import Path
from typing import Any

CORPUS = os.environ.get("SLUICEGATE_CORPUS")
APIS = {
    "chat.completions": "chat",
    "completions": "completions",
    "responses": "responses",
    "anthropic.messages": "messages",
}


def listed(name: str) -> list[dict[str, Any]]:
    if CORPUS is None:
        return []
    return [json.loads(line) for line in (Path(CORPUS) / name).read_text().splitlines()]


def recording(entry: dict[str, Any]) -> bytes:
    assert CORPUS is not None
    return Path(CORPUS, str(entry["file"])).read_bytes()


def normal_form(entry: dict[str, Any]) -> dict[str, int | None]:
    """The recording's usage, as the normal form has it: input includes cached, output includes reasoning."""
    norm = entry.get("usage_norm") or {}
    if entry["api"] == "anthropic.messages":
        beside = (norm.get("cache_read") or 0) + (norm.get("cache_creation") or 0)
        return {
            "input_tokens": None if norm.get("input") is None else norm["input"] + beside,
            "cached_input_tokens": norm.get("cache_read"),
            "cache_write_tokens": norm.get("cache_creation"),
            "output_tokens": norm.get("output"),
        }
    output, reasoning = norm.get("output"), norm.get("reasoning")
    # xAI leaves reasoning out of the output, and so do two hosts of Gemini.
    if reasoning and output is not None and ("/xai/chat" in entry["file"] or reasoning > output):
        output += reasoning
    form = {"input_tokens": norm.get("input"), "output_tokens": output, "reasoning_tokens": reasoning}
    # llama.cpp says what it had cached in its timings only.
    return form if "/llama.cpp/" in entry["file"] else {**form, "cached_input_tokens": norm.get("cached")}
