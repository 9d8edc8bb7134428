"""The tables of the documentation name everything that they are about."""

import json
import re

from fakes.records import full_record
from harness.tree import ROOT
from sluicegate.catalogue import CATALOGUE
from sluicegate.gateway.endpoints import RELAYED
from sluicegate.telemetry import Metrics, RequestRecord

DOCS = ROOT / "docs"


def code_in(page: str) -> set[str]:
    """What stands between backquotes in a page, word by word."""
    spans = re.findall(r"`([^`\n]+)`", (DOCS / page).read_text())
    return {word for span in spans for word in re.split(r"[\s,]+", span)}


async def test_every_metric_is_named() -> None:
    _, text = await Metrics().render()
    families = re.findall(r"^# TYPE (sluicegate_\w+) ", text.decode(), re.MULTILINE)
    # What prometheus-client adds to each counter of its own.
    families = [name for name in families if not name.endswith("_created")]
    assert len(families) > 10
    assert set(families) - code_in("metrics-and-log.md") == set()


def test_every_field_of_a_requests_line_is_named() -> None:
    limited = RequestRecord(
        "r", "chat_completions", 502, "failed", 0.5, requested_model="m", attempts=1, fault="status",
        tries=[("u", "m", "status", 429, None, 0.0, 0.1)],
    )  # fmt: skip
    lines = [json.loads(record.line("now", "info")) for record in (full_record(), limited)]
    fields = {name for line in lines for name in line}
    assert len(fields) > 35
    # Every line of the log has these.
    assert fields - {"time", "level", "event"} - code_in("metrics-and-log.md") == set()


def test_every_endpoint_is_named() -> None:
    text = (DOCS / "clients.md").read_text()
    assert [path for path in RELAYED if f"POST {path}`" not in text] == []


def test_every_error_code_is_named() -> None:
    assert set(CATALOGUE) - code_in("errors.md") == set()
