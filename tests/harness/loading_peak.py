"""`python -m harness.loading_peak FOLDER`: how much memory it takes to load something large that is stored.

Writes JSON: `stored`, the bytes of a conversation; `taken`, the room that was taken for it; `peak`, by how
many bytes this process grew at most while the conversation was put in front of a request.
"""

import asyncio
import json
import re
import sys
from pathlib import Path

from harness.stored_stand import MODEL, OWNER, sse, upstream_events, worker
from sluicegate._core import ResponsesRequest
from sluicegate.config import StoreConfig

SIZE = 20_000_000


def status(name: str) -> int:
    """Bytes, of a line of `/proc/self/status` in kB."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def forget_peak() -> None:
    """`VmHWM` begins anew (proc(5), `clear_refs`)."""
    Path("/proc/self/clear_refs").write_text("5")


async def measure(folder: str) -> dict[str, int]:
    async with worker(None, StoreConfig(path=f"{folder}/responses.db")) as store:
        store.store_live_reply(
            owner=OWNER,
            model=MODEL,
            request_id="test",
            request=b'{"model":"%b","input":"%b"}' % (MODEL.encode(), b"x" * SIZE),
            reply=sse(*upstream_events(reply_id="resp_large")),
            streamed=True,
        )
        chain = await store.conversation("resp_large", OWNER)
        await asyncio.gather(*store._storing)
        asked = ResponsesRequest(b'{"model":"m","input":"Hi","previous_response_id":"resp_large"}')
        forget_peak()
        before = status("VmRSS")
        with store.hold(OWNER) as hold:
            await hold.take(chain.size)
            items = await store.context(chain, OWNER, hold)
            changed = await asyncio.to_thread(asked.with_input_prefix, items, hold.share)
            assert changed.size > SIZE
            return {
                "stored": chain.size,
                "taken": store._loading.room.taken,
                "peak": status("VmHWM") - before,
            }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(measure(sys.argv[1]))))
