"""The text that people see when the gateway listens. The log has the same facts for programs."""

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sluicegate.config import GENERIC, UpstreamConfig
from sluicegate.discovery import Listing, NoListing, key_variable
from sluicegate.responses import store_faults, store_path

if TYPE_CHECKING:
    from sluicegate.config import Config
    from sluicegate.server.running import Ready

SHOWN_MODELS = 5
_DAY = 24 * 3600
_HOUR = 3600


def banner(ready: "Ready") -> str:
    """Address, models, what was found out about each upstream, what is kept, and a request to try."""
    models = list(ready.config.models)
    lines = [
        "",
        f"sluicegate listens on {ready.url}: OpenAI's clients take {ready.url}/v1, Anthropic's {ready.url}",
        "",
        f"  models     {_models(models)}",
        *_upstreams(ready),
        *_storage(ready.config),
        "",
        *_try(ready, models),
        "",
    ]
    return "\n".join(lines)


def _models(models: Sequence[str]) -> str:
    if not models:
        return "none are known yet: any name is forwarded"
    more = f" and {len(models) - SHOWN_MODELS} more" if len(models) > SHOWN_MODELS else ""
    return ", ".join(models[:SHOWN_MODELS]) + more


def _upstreams(ready: "Ready") -> Iterator[str]:
    label = "upstreams"
    for name, upstream in ready.config.upstreams.items():
        said = _answer(ready, name)
        yield f"  {label:10} {name}: {upstream.base_url}{said}"
        label = ""


def _answer(ready: "Ready", name: str) -> str:
    upstream = ready.config.upstreams[name]
    if upstream.discover is None:
        return ""
    answer = ready.answers.get(name)
    if isinstance(answer, Listing):
        counted = f"{len(answer.models)} model{'' if len(answer.models) == 1 else 's'}"
        return (
            f" ({counted})" if upstream.profile == GENERIC else f" ({counted}; profile: {upstream.profile})"
        )
    if answer is None:
        return " (has not answered yet)"
    return f" ({_reason(answer, upstream)})"


def _reason(answer: NoListing, upstream: UpstreamConfig) -> str:
    if answer.kind == "unauthorized" and upstream.api_key is None:
        variable = key_variable(upstream) or "VARIABLE"
        return f"{answer.reason}: add `--key-env {variable}` after its --upstream, or `api_key` in a file"
    if answer.kind == "unreachable":
        return f"{answer.reason}: it is asked again every 5 s"
    return answer.reason


def _storage(config: "Config") -> Iterator[str]:
    responses = config.responses
    if not responses.store:
        yield "  prompts    are not kept"
        return
    for fault in store_faults(responses):
        yield f"  prompts    cannot be kept: {fault.path} {fault.message}"
        return
    path = store_path(responses)
    where = "in PostgreSQL" if path is None else f"in {path}"
    yield f"  prompts    of /v1/responses are kept for {_time(responses.retention_seconds)} {where},"
    yield "             unless a request says `store: false`. To keep none: `serve --no-store`, or"
    yield "             `responses: {store: false}` in a file. Other endpoints' are never kept."


def _time(seconds: float) -> str:
    for unit, name in ((_DAY, "days"), (_HOUR, "hours")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} seconds"


def _try(ready: "Ready", models: Sequence[str]) -> Iterator[str]:
    model = next((name for name in models if "embed" not in name.lower()), None) or next(iter(models), None)
    body = json.dumps(
        {
            "model": model or "MODEL",
            "stream": True,
            "messages": [{"role": "user", "content": "Say hello"}],
        },
        ensure_ascii=False,
    )
    if model is None:
        yield "Try it (with the name of a model in place of MODEL):"
    elif ready.config.needs_keys:
        yield "Try it (with a key in place of KEY):"
    else:
        yield "Try it:"
    key = " -H 'authorization: Bearer KEY'" if ready.config.needs_keys else ""
    # One listens on these, and connects to others.
    url = ready.url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    yield f"  curl -N {url}/v1/chat/completions{key} -H 'content-type: application/json' \\"
    yield f"    -d {shlex.quote(body)}"
