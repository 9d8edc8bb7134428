"""What `tests/corpus` holds, as bytes: event streams, usage in every dialect, completions."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from harness.tree import ROOT, tracked

CORPUS = ROOT / "tests" / "corpus"
BOM = b"\xef\xbb\xbf"


# === event streams ===


@dataclass(frozen=True)
class StreamCase:
    name: str
    bom: bool
    raw: tuple[bytes, ...]
    """The whole raw events."""
    tail: bytes
    terminator: bytes
    events: tuple[tuple[str, str, str], ...]
    """Name, data and id; without what the tail gives."""

    @property
    def stream(self) -> bytes:
        return (BOM if self.bom else b"") + b"".join(self.raw) + self.tail


@cache
def stream_cases() -> tuple[StreamCase, ...]:
    cases = json.loads((CORPUS / "sse_cases.json").read_text())["cases"]
    return tuple(
        StreamCase(
            name=case["name"],
            bom=case["bom"],
            raw=tuple(event.encode("latin-1") for event in case["raw"]),
            tail=case["tail"].encode("latin-1"),
            terminator=case["terminator"].encode("latin-1"),
            events=tuple((event["name"], event["data"], event["id"]) for event in case["events"]),
        )
        for case in cases
    )


# === usage ===


@dataclass(frozen=True)
class UsageCase:
    name: str
    api: str
    dialect: str | None
    payloads: tuple[str, ...]
    usage: dict[str, Any] | None

    def stream(self, ending: str = "\n") -> bytes:
        lines = [payload.replace("\n", f"{ending}data: ") for payload in self.payloads]
        return "".join(f"data: {line}{ending}{ending}" for line in lines).encode()

    @property
    def documents(self) -> bytes:
        return "\n".join(self.payloads).encode() + b"\n"


@cache
def usage_cases() -> tuple[UsageCase, ...]:
    return tuple(
        UsageCase(
            name=case["name"],
            api=case["api"],
            dialect=case.get("dialect"),
            payloads=tuple(
                payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
                for payload in case["payloads"]
            ),
            usage=case["usage"],
        )
        for case in json.loads((CORPUS / "usage_cases.json").read_text())
    )


# === completions ===


@dataclass(frozen=True)
class Completion:
    name: str
    stream: bytes
    completion: bytes


def completions(folder: str) -> list[Completion]:
    return [
        Completion(path.stem, path.read_bytes(), path.with_suffix(".json").read_bytes().rstrip())
        for path in tracked(f"tests/corpus/{folder}/*.sse")
    ]


# === reads ===


def cut(stream: bytes, places: Sequence[int]) -> list[bytes]:
    """`stream` as reads that end at `places`, taken modulo its length."""
    ends = sorted({place % (len(stream) + 1) for place in places} | {len(stream)})
    return [stream[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def reads(stream: bytes, size: int) -> list[bytes]:
    return [stream[start : start + size] for start in range(0, len(stream), size)]
