"""From the configuration of an upstream to the upstream that the engines know."""

import json
from collections.abc import Iterator
from urllib.parse import urlencode

from sluicegate._core import (
    ChatTarget,
    Deadlines,
    MemberEdits,
    MessagesTarget,
    ResponsesTarget,
    Upstream,
)
from sluicegate.config import UpstreamConfig


def make_upstream(name: str, config: UpstreamConfig) -> Upstream:
    """Raises `ConfigurationError` where it cannot be used."""
    headers = [
        (header.lower().encode("ascii"), value.get_secret_value().encode("latin-1"))
        for header, value in config.headers.items()
    ]
    deadlines = config.deadlines
    return Upstream(
        name,
        config.base_url,
        paths=[*config.paths.items()],
        stream_paths=[*config.stream_paths.items()],
        query=urlencode(config.query),
        headers=headers,
        api_key=None if config.api_key is None else config.api_key.get_secret_value().encode("ascii"),
        key_header=config.key_header,
        serves=config.api,
        chat=ChatTarget(
            instructions_role=config.chat.instructions_role,
            reasoning_field=config.chat.reasoning_field,
            late_system=config.chat.late_system,
            effort_ceiling=config.chat.effort_ceiling,
            thinking_off=config.chat.thinking_off,
        ),
        responses=ResponsesTarget(takes_reasoning=config.responses.takes_reasoning),
        messages=MessagesTarget(
            max_tokens=config.messages.max_tokens,
            thinking=config.messages.thinking,
            signed=config.messages.signed,
            inline_system=config.messages.inline_system,
            cache=config.messages.cache,
            rest=config.messages.rest,
        ),
        edits=[*_edits(config)],
        repair=config.repair,
        harmony=config.format == "harmony",
        deadlines=Deadlines(
            connect=deadlines.connect,
            first_byte=deadlines.first_byte,
            first_token=deadlines.first_token,
            between_tokens=deadlines.between_tokens,
            total=deadlines.total,
        ),
        dialect=config.dialect,
        ask_usage=config.stream_options,
        streaming=config.streaming,
        forward_authorization=config.forward_authorization,
        forward_headers=config.forward_headers,
        reply_headers=config.reply_headers,
        http2=config.http2,
        socket=config.socket,
        ca_file=config.ca_file,
        client_certificate=_client_certificate(config),
        pool_idle_seconds=config.pool_idle_seconds,
        pool_max_idle=config.pool_max_idle,
    )


def _edits(config: UpstreamConfig) -> Iterator[tuple[str, MemberEdits]]:
    bounds = ("max_tokens", "max_completion_tokens")
    wanted = config.chat.max_tokens_field
    bound = [] if wanted is None else [(name, wanted) for name in bounds if name != wanted]
    for api, own, more in (
        ("chat", config.chat, bound),
        ("responses", config.responses, []),
        ("messages", config.messages, []),
    ):
        added = [(name, json.dumps(value)) for name, value in own.add.items()]
        yield api, MemberEdits(omit=own.omit, rename=[*own.rename.items(), *more], add=added)


def _client_certificate(config: UpstreamConfig) -> tuple[str, str] | None:
    if config.client_cert_file is None or config.client_key_file is None:
        return None
    return config.client_cert_file, config.client_key_file
