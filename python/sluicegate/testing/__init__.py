"""The scripted upstream: an inference server that does what a test tells it to, misbehaviour included.

    async with ScriptedUpstream(Script(tokens=5, faults=(Fault(action="reset", events=3),))) as upstream:
        ...  # point a gateway or a client at upstream.base_url

It needs the standard library only, speaks HTTP/1.1 on raw sockets, and can break a reply at any byte.
`sluicegate mock` runs it from the command line.
"""

from sluicegate.testing.dialects import DIALECTS, DialectName, Traits, UsagePlacement
from sluicegate.testing.reading import ScriptError, script_from, script_from_json
from sluicegate.testing.records import Record, Records
from sluicegate.testing.script import Fault, Framing, Script, Step, ToolCall, UsageScript, body, raw
from sluicegate.testing.server import DEFAULT_PORT, ScriptedUpstream, run_mock

__all__ = [
    "DEFAULT_PORT",
    "DIALECTS",
    "DialectName",
    "Fault",
    "Framing",
    "Record",
    "Records",
    "Script",
    "ScriptError",
    "ScriptedUpstream",
    "Step",
    "ToolCall",
    "Traits",
    "UsagePlacement",
    "UsageScript",
    "body",
    "raw",
    "run_mock",
    "script_from",
    "script_from_json",
]
