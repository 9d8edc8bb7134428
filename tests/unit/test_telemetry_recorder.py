"""Records reach every sink, whatever one of them does."""

import json
import os

from sluicegate.telemetry import Log, Recorder, RequestRecord


def test_a_sink_that_breaks_keeps_no_record_from_the_others() -> None:
    read, write = os.pipe()
    log = Log(write)
    first: list[RequestRecord] = []
    last: list[RequestRecord] = []

    def breaks(record: RequestRecord) -> None:
        raise ZeroDivisionError("sk-secret")

    recorder = Recorder((first.append, breaks, last.append), log)
    record = RequestRecord("r-1", "chat_completions", 200, "ok", 0.5)
    recorder.record(record)
    log.close()
    os.close(write)
    with os.fdopen(read) as file:
        [line] = [json.loads(text) for text in file]
    assert first == last == [record]
    assert (line["event"], line["request_id"]) == ("record_lost", "r-1")
    assert "ZeroDivisionError" in line["error"]
    assert "sk-secret" not in json.dumps(line)
