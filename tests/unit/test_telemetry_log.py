"""The structured log: complete lines, whole, from any thread, and never in anybody's way."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.records import NASTY, full_record
from sluicegate.telemetry import Log, RequestRecord, lines, where
from sluicegate.telemetry.lines import LineWriter


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for fd in (read, write):
        try:
            os.close(fd)
        except OSError:
            continue


def written(log: Log, read: int, write: int) -> list[dict[str, Any]]:
    log.close()
    os.close(write)
    with os.fdopen(os.dup(read)) as file:
        return [json.loads(line) for line in file]


def record(**fields: Any) -> RequestRecord:
    base: dict[str, Any] = {
        "request_id": "r", "endpoint": "chat_completions", "status": 200, "result": "ok", "duration": 1.0,
        "model": "m", "upstream": "u", "upstream_model": "um", "attempts": 1,
    }  # fmt: skip
    return RequestRecord(**{**base, **fields})


def test_an_event_is_one_json_object_a_line(pipe: tuple[int, int]) -> None:
    log = Log(pipe[1])
    log.info("started", count=2, text="a\nb\u2028", nothing=None)
    log.error("failed")
    first, second = written(log, *pipe)
    assert first.pop("time").endswith("Z")
    assert first == {"level": "info", "event": "started", "count": 2, "text": "a\nb\u2028"}
    assert second["level"] == "error"


@pytest.mark.parametrize(
    ("level", "seen"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_what_is_below_the_level_is_left_out(pipe: tuple[int, int], level: Any, seen: list[str]) -> None:
    log = Log(pipe[1], level=level)
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    assert [line["level"] for line in written(log, *pipe)] == seen


def test_a_request_that_failed_is_a_warning(pipe: tuple[int, int]) -> None:
    log = Log(pipe[1], level="warning")
    log.request(record())
    log.request(record(result="failed", status=502))
    [line] = written(log, *pipe)
    assert (line["level"], line["status"]) == ("warning", 502)


def request_fields(record: RequestRecord) -> dict[str, Any]:
    fields = json.loads(record.line("now", "info"))
    assert isinstance(fields, dict)
    assert [fields.pop(name) for name in ("time", "level", "event")] == ["now", "info", "request"]
    return fields


def test_what_is_not_known_is_left_out_and_zero_is_kept() -> None:
    fields = request_fields(record(input_tokens=0))
    assert fields["input_tokens"] == 0
    assert "output_tokens" not in fields
    assert "cost" not in fields


def test_a_cost_is_told_as_exact_text() -> None:
    assert request_fields(record(cost="0.1234567890123456789"))["cost"] == "0.1234567890123456789"


def test_every_field_is_told_as_valid_json() -> None:
    assert request_fields(full_record()) == {
        "request_id": NASTY, "endpoint": "chat_completions", "status": 200, "result": "ok", "duration": 1.0,
        "id": NASTY, "caller": NASTY, "key_id": NASTY, "model": NASTY, "code": NASTY, "client_left": True,
        "stalled": True, "response_id": NASTY, "upstream": NASTY,
        "upstream_model": NASTY, "upstream_request_id": NASTY, "attempts": 3, "streamed": True,
        "fault": "reset", "fault_reason": "closed", "path": NASTY,
        "failed_attempts": [f"{NASTY}: connect", "b: status"],
        "tries": [
            {"upstream": NASTY, "upstream_model": NASTY, "fault": "connect", "reason": "dns",
             "began": 0.0, "duration": 0.5},
            {"upstream": "b", "upstream_model": "m", "fault": "status", "status": 503, "began": 0.5,
             "duration": 0.25},
            {"upstream": NASTY, "upstream_model": NASTY, "fault": "reset", "reason": "closed",
             "began": 0.75, "duration": 0.25},
        ],
        "left_out": [NASTY], "finish_reason": NASTY,
        "time_to_first_token": 0.123457, "inter_token_latency": 0.0, "longest_gap": 3600.0,
        "client_blocked_seconds": 1.5, "input_tokens": 1,
        "cached_input_tokens": 2, "cache_write_tokens": 3, "output_tokens": 4, "reasoning_tokens": 5,
        "estimated": True, "cost": "0.5", "upstream_cost": NASTY, "unpriced": True, "events": 6,
        "malformed": 7, "bytes_in": 8, "bytes_out": 9,
    }  # fmt: skip
    refused = record(model="", requested_model=NASTY, attempts=0, result="refused", status=404)
    assert request_fields(refused)["requested_model"] == NASTY
    assert "upstream" not in request_fields(refused)


def test_a_fault_says_why_where_its_kind_does_not() -> None:
    refused = record(fault="connect", tries=[("u", "m", "connect", None, "refused", 0.0, 0.1)], attempts=1)
    assert request_fields(refused)["fault_reason"] == "refused"
    limited = request_fields(
        record(fault="status", tries=[("u", "m", "status", 429, None, 0.0, 0.1)], attempts=1)
    )
    assert (limited["fault"], limited["fault_status"]) == ("status", 429)
    assert "fault_reason" not in limited
    broken = request_fields(
        record(fault="truncated", tries=[("u", "m", "truncated", 200, None, 0.0, 0.1)], attempts=1)
    )
    assert not {"fault_status", "fault_reason"} & broken.keys()


def test_a_request_on_a_console_is_told_too(pipe: tuple[int, int]) -> None:
    log = Log(pipe[1], console=True)
    log.request(record())
    log.close()
    os.close(pipe[1])
    with os.fdopen(os.dup(pipe[0])) as file:
        [line] = file
    assert "request_id=r endpoint=chat_completions status=200 result=ok" in line


def test_console_lines_are_for_people(pipe: tuple[int, int]) -> None:
    log = Log(pipe[1], console=True)
    log.info("started", models=2, path="/a b", empty="", break_="a\nb")
    log.close()
    os.close(pipe[1])
    with os.fdopen(os.dup(pipe[0])) as file:
        [line] = file
    assert line.partition(" ")[2] == 'info    started models=2 path="/a b" empty="" break_="a\\nb"\n'


def test_auto_is_json_where_nobody_watches(pipe: tuple[int, int]) -> None:
    log = Log.configured("info", "auto", pipe[1])
    log.info("started")
    assert written(log, *pipe)[0]["event"] == "started"


def test_auto_is_console_on_a_terminal() -> None:
    master, slave = os.openpty()
    log = Log.configured("info", "auto", slave)
    log.info("started")
    log.close()
    assert b" info    started" in os.read(master, 1000)
    os.close(master)
    os.close(slave)


def test_an_exceptions_place_is_named_and_not_its_text() -> None:
    try:
        int("sk-secret")
    except ValueError as error:
        place = where(error)
    assert place.startswith("ValueError at ")
    assert "sk-secret" not in place


# === the writer ===


def test_lines_of_many_threads_stay_whole(pipe: tuple[int, int]) -> None:
    log = Log(pipe[1])
    received: list[bytes] = []

    def read() -> None:
        while chunk := os.read(pipe[0], 65536):
            received.append(chunk)

    reader = threading.Thread(target=read)
    reader.start()

    def write(number: int) -> None:
        for _ in range(500):
            log.info("line", n=number, pad="x" * 300)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    os.close(pipe[1])
    reader.join(10)
    text = b"".join(received).decode().splitlines()
    assert len(text) == 2000
    for line in text:
        assert json.loads(line)["event"] == "line"


def test_a_write_to_a_pipe_never_splits_a_line(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []

    def write(fd: int, data: Any) -> int:
        writes.append(bytes(data))
        return len(data)

    monkeypatch.setattr("sluicegate.telemetry.lines.os.write", write)
    writer = LineWriter(pipe[1])
    for n in range(100):
        writer.write(b"%d " % n + b"x" * 500 + b"\n")
    writer.close()
    assert len(writes) < 100
    assert all(data.endswith(b"\n") and len(data) <= 4096 for data in writes)
    assert b"".join(writes).count(b"\n") == 100


def test_a_reader_that_does_not_read_holds_nobody_up(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_WAITING", 1000)
    writer = LineWriter(pipe[1])
    for _ in range(5000):
        writer.write(b"x" * 500 + b"\n")
    assert writer.dropped > 0
    writer.close(timeout=0.05)
    # Let the thread go that waits in `write`.
    while os.read(pipe[0], 1 << 20).count(b"\n") and writer._waiting:
        continue


def test_a_reader_that_is_gone_holds_nobody_up(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    writer = LineWriter(pipe[1])
    writer.write(b"lost\n")
    writer.close()
    assert writer.dropped == 1


def test_a_file_gets_every_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    writer = LineWriter(fd)
    for n in range(3000):
        writer.write(b"%d\n" % n)
    writer.close()
    writer.close()
    os.close(fd)
    assert path.read_bytes().splitlines() == [b"%d" % n for n in range(3000)]
    writer.write(b"late\n")
    assert writer.dropped == 1
