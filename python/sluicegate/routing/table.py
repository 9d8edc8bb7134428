"""From the configuration to upstreams, routes and models, made once a configuration."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sluicegate._core import ChatTarget, Deadlines, MessagesTarget, ResponsesTarget, Route, Upstream
from sluicegate.config import Config, ModelConfig, UpstreamConfig
from sluicegate.errors import ConfigurationError, ConfigurationFault
from sluicegate.routing.model import Model

LONGEST_UNLISTED = 256
"""Characters of a name that only a client knows."""


class ModelTable:
    """The models a gateway serves, by public name, in the order of the configuration.

    Upstreams that are the same in `before` are taken over, with their connections. `unlisted` names those
    that any other model is forwarded to, in this order: nobody knows yet what they serve. Raises
    `ConfigurationError` with all upstreams that cannot be used.
    """

    def __init__(
        self, config: Config, before: "ModelTable | None" = None, unlisted: Sequence[str] = ()
    ) -> None:
        self._upstreams: dict[str, tuple[UpstreamConfig, Upstream]] = {}
        upstreams: dict[str, Upstream] = {}
        kept = {} if before is None else before._upstreams
        faults: list[ConfigurationFault] = []
        for name, upstream in config.upstreams.items():
            if name in kept and kept[name][0] == upstream and not _reads_files(upstream):
                upstreams[name] = kept[name][1]
                continue
            try:
                upstreams[name] = _upstream(name, upstream)
            except ConfigurationError as error:
                faults += [replace(fault, path=f"upstreams.{name}") for fault in error.faults]
        if faults:
            raise ConfigurationError(faults)
        self._upstreams = {name: (config.upstreams[name], made) for name, made in upstreams.items()}
        self._models = {name: _model(name, model, upstreams) for name, model in config.models.items()}
        self._unlisted = tuple((upstreams[name], _prefix(config.upstreams[name])) for name in unlisted)

    def get(self, name: str) -> Model | None:
        """The model of that name."""
        return self._models.get(name)

    def find(self, name: str) -> Model | None:
        """The model of that name, or one made for the upstreams that have not listed theirs yet."""
        return self._models.get(name) or self._unlisted_model(name)

    def _unlisted_model(self, name: str) -> Model | None:
        if len(name) > LONGEST_UNLISTED or not name.isprintable():
            return None
        routes = tuple(
            Route(upstream, name.removeprefix(prefix))
            for upstream, prefix in self._unlisted
            if name.startswith(prefix) and name != prefix
        )
        return Model(name, routes, listed=False) if routes else None

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    def __len__(self) -> int:
        return len(self._models)


def _upstream(name: str, config: UpstreamConfig) -> Upstream:
    headers = [
        (header.lower().encode("ascii"), value.get_secret_value().encode("latin-1"))
        for header, value in config.headers.items()
    ]
    deadlines = config.deadlines
    return Upstream(
        name,
        config.base_url,
        headers=headers,
        api_key=None if config.api_key is None else config.api_key.get_secret_value().encode("ascii"),
        x_api_key=config.messages.auth == "x-api-key",
        serves=config.api,
        chat=ChatTarget(
            instructions_role=config.chat.instructions_role,
            reasoning_field=config.chat.reasoning_field,
            max_tokens_field=config.chat.max_tokens_field,
            late_system=config.chat.late_system,
            effort_ceiling=config.chat.effort_ceiling,
            thinking_off=config.chat.thinking_off,
            omit=config.chat.omit,
        ),
        responses=ResponsesTarget(
            takes_reasoning=config.responses.takes_reasoning, omit=config.responses.omit
        ),
        messages=MessagesTarget(
            max_tokens=config.messages.max_tokens,
            thinking=config.messages.thinking,
            signed=config.messages.signed,
            inline_system=config.messages.inline_system,
            cache=config.messages.cache,
            rest=config.messages.rest,
            omit=config.messages.omit,
        ),
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


def _prefix(config: UpstreamConfig) -> str:
    return "" if config.discover is None else config.discover.prefix


def _reads_files(config: UpstreamConfig) -> bool:
    # Certificates are replaced in place, under the same name.
    return config.ca_file is not None or config.client_cert_file is not None


def _client_certificate(config: UpstreamConfig) -> tuple[str, str] | None:
    if config.client_cert_file is None or config.client_key_file is None:
        return None
    return config.client_cert_file, config.client_key_file


def _model(name: str, config: ModelConfig, upstreams: Mapping[str, Upstream]) -> Model:
    reply_model = name if config.reply_model == "public" else None
    routes = tuple(
        Route(
            upstreams[route.upstream],
            route.model,
            reply_model=reply_model,
            drain=(route.on_client_leave or config.on_client_leave) == "drain",
        )
        for route in config.routes
    )
    return Model(name, routes)
