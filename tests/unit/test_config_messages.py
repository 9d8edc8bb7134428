"""What a wrong configuration is answered with: the whole text, for each case in `tests/corpus/config`."""

import re
from pathlib import Path

import pytest

from sluicegate.config import check_file

CASES = Path(__file__).parents[1] / "corpus" / "config" / "wrong.txt"


def cases() -> list[tuple[str, str, str]]:
    """(name, the file's text, what is said of it), of `=== name`, the file, `---`, the messages."""
    found = re.findall(
        r"^=== (.*)\n((?:.*\n)*?)---\n((?:.+\n)*)", CASES.read_text(encoding="utf-8"), re.MULTILINE
    )
    return [(str(name), str(text), str(said)) for name, text, said in found]


def said(file: Path) -> str:
    report = check_file(file, {})
    warnings = [f"warning: {warning}" for warning in report.warnings]
    return "".join(f"{line}\n" for line in (*map(str, report.faults), *warnings))


def test_every_case_is_read() -> None:
    names = [name for name, _, _ in cases()]
    assert len(names) == len(set(names)) == CASES.read_text(encoding="utf-8").count("=== ")
    assert len(names) >= 40


@pytest.mark.parametrize(("name", "text", "expected"), cases(), ids=lambda value: value[:40])
def test_a_wrong_configuration_is_told_what_is_wrong(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    file = tmp_path / f"gateway{Path(name).suffix}"
    file.write_text(text, encoding="utf-8")
    assert said(file) == expected
    assert expected


# === right ones ===

RIGHT = """\
server: {drain_seconds: 30s, max_body_bytes: 64MB, bounds: {idle_seconds: 1.5m, head_bytes: 16 KiB}}
upstreams:
  local:
    base_url: http://127.0.0.1:8000/v1
    deadlines: {connect: 500ms, first_token: "${FIRST}", total: 2H}
models: {tiny: local}
responses: {retention_seconds: 7d, max_bytes: 1tib}
"""


def test_times_and_sizes_may_have_units(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(RIGHT)
    config = check_file(file, {"FIRST": "90s"}).config
    assert config is not None
    server, deadlines = config.server, config.upstreams["local"].deadlines
    assert (server.drain_seconds, server.max_body_bytes) == (30.0, 64_000_000)
    assert (server.bounds.idle_seconds, server.bounds.head_bytes) == (90.0, 16384)
    assert (deadlines.connect, deadlines.first_token, deadlines.total) == (0.5, 90.0, 7200.0)
    assert (config.responses.retention_seconds, config.responses.max_bytes) == (604800.0, 1024**4)
