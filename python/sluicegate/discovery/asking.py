"""Asking an upstream for its models: `GET …/models`, as OpenAI's and Anthropic's APIs have it.

It bills nothing.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit

from sluicegate.config import UpstreamConfig, profile
from sluicegate.discovery.fetching import Endpoint, FetchFailed, Reply, fetch

ASK_SECONDS = 2.0
ANTHROPIC_VERSION = "2023-06-01"
MAX_MODELS = 2_000
MAX_NAME = 256
"""Characters; a longer name is left out of the list."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What an upstream serves, in its own order. `base_url` is where its endpoints were found."""

    base_url: str
    models: tuple[str, ...]
    owner: str = ""
    """The first `owned_by` of the list: vLLM, SGLang and llama.cpp put their own name there."""


@dataclass(frozen=True, slots=True)
class NoListing:
    """Why there is no list. `reason` is for people, and holds nothing that the upstream sent."""

    kind: Literal["unreachable", "unauthorized", "no_list"]
    reason: str


async def ask(upstream: UpstreamConfig, seconds: float = ASK_SECONDS) -> Listing | NoListing:
    """The models of `upstream`, or why there is no list; `seconds` for each of at most two requests.

    Sent are the upstream's own key and headers, never a client's. Where there is no list at `base_url`, it is
    looked for below `/v1`, and the other way round for a URL without a path or with that one: a server's root
    may have endpoints of the same names that are not OpenAI's (llama.cpp's `/embeddings`). What a profile has
    as the server's URL is not doubted. A bare array at
    the root is llms.py's list: it serves OpenAI's API below `/v1`, and answers `/v1/models` with a page.
    """
    answer: Listing | NoListing | None = None
    for base_url in _places(upstream):
        try:
            reply = await fetch(
                endpoint_at(upstream, base_url + upstream.paths.get("/v1/models", "/models")), seconds
            )
        except FetchFailed as error:
            return answer or NoListing("unreachable", str(error))
        found = _read(reply, base_url)
        if isinstance(found, Listing) or found.kind != "no_list":
            return found
        answer = answer or found
    return answer or NoListing("no_list", "has no URL to ask")


def _places(upstream: UpstreamConfig) -> tuple[str, ...]:
    base_url = upstream.base_url
    if base_url == profile(upstream.profile).base_url:
        return (base_url,)
    path = _path(base_url)
    if path == "/v1":
        return (base_url, base_url.removesuffix("/v1"))
    if path.endswith("/v1"):
        return (base_url,)
    below = f"{base_url}/v1"
    return (base_url, below) if path else (below, base_url)


def _path(base_url: str) -> str:
    return urlsplit(base_url).path.rstrip("/")


def endpoint_at(upstream: UpstreamConfig, url: str) -> Endpoint:
    """How `upstream` is asked for what is at `url`: by its own key and headers, and its way to connect."""
    headers = {name: value.get_secret_value() for name, value in upstream.headers.items()}
    headers |= key_headers(upstream)
    certificate = None
    if upstream.client_cert_file is not None and upstream.client_key_file is not None:
        certificate = upstream.client_cert_file, upstream.client_key_file
    if upstream.query:
        url += f"{'&' if '?' in url else '?'}{urlencode(upstream.query)}"
    return Endpoint(url, headers, upstream.socket, upstream.ca_file, certificate)


def key_headers(upstream: UpstreamConfig) -> dict[str, str]:
    """What carries the upstream's own key, and tells Anthropic's API that it is meant."""
    only_messages = upstream.api == ("messages",)
    headers = {"anthropic-version": ANTHROPIC_VERSION} if only_messages else {}
    if upstream.api_key is not None:
        key = upstream.api_key.get_secret_value()
        name = upstream.key_header or ("x-api-key" if only_messages else "authorization")
        headers[name] = f"Bearer {key}" if name == "authorization" else key
    return headers


def _read(reply: Reply, base_url: str) -> Listing | NoListing:
    if reply.status in (401, 403):
        return NoListing("unauthorized", f"wants a key, or another one ({reply.status})")
    if reply.status != 200:
        return NoListing("no_list", f"answered {reply.status} to GET /models")
    try:
        document = json.loads(reply.body)
    except (ValueError, RecursionError):
        return NoListing("no_list", "has no list of models: its reply is not JSON")
    entries = document.get("data") if isinstance(document, dict) else document
    if not isinstance(entries, list):
        return NoListing("no_list", "has no list of models: its reply has no `data`")
    models = tuple(dict.fromkeys(_names(entries)))[:MAX_MODELS]
    owners = (entry.get("owned_by") for entry in entries if isinstance(entry, dict))
    owner = next((owner for owner in owners if isinstance(owner, str)), "")
    bare_at_root = isinstance(document, list) and not _path(base_url)
    return Listing(f"{base_url}/v1" if bare_at_root else base_url, models, owner[:MAX_NAME])


def _names(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        name = entry.get("id") if isinstance(entry, dict) else None
        if isinstance(name, str) and may_be_a_name(name):
            yield name


def may_be_a_name(name: str) -> bool:
    """Whether a model may be called so: what a configuration's names may be, within `MAX_NAME`."""
    return 0 < len(name) <= MAX_NAME and name == name.strip() and name.isprintable()
