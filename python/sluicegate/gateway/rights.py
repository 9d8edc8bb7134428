"""Who may do what: the one place that says so, for every path by which something can be asked.

The front, the application, the runs of background responses and any other ASGI server ask here, for what is
forwarded and for what is done to stored responses. (The admin API has tokens of its own: `admin.access`.)
"""

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from sluicegate._core import Excess
from sluicegate.admission import Caller, Holder, Keyring
from sluicegate.gateway.endpoints import RELAYED
from sluicegate.routing import Model, ModelTable


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not. `gateway.errors.refused` words it."""

    reason: Literal[
        "missing_key", "unknown_key", "keys_unavailable", "expired_key", "revoked_key", "removed_key",
        "caller_disabled", "endpoint_not_allowed", "missing_model", "unknown_model", "model_not_allowed",
        "needs_credentials", "unpriced", "limit", "limits_unavailable",
    ]  # fmt: skip
    name: str = ""
    """The model, or the endpoint, that was asked for, where that is the reason."""
    excess: Excess | None = None
    """The limit, where that is the reason."""


MISSING_KEY = Refusal("missing_key")
UNKNOWN_KEY = Refusal("unknown_key")
KEYS_UNAVAILABLE = Refusal("keys_unavailable")
MISSING_MODEL = Refusal("missing_model")

CREDENTIALS = ("authorization", "x-api-key")
"""The headers that `forward_authorization` passes on."""

RUN = "run_response"
"""The gateway runs what was taken on in the background: it has no request of a client's own."""

_RESPONSES = "responses"

RIGHTS: Mapping[str, str | None] = {
    **{name: name for name in RELAYED.values()},
    "get_response": _RESPONSES,
    "list_input_items": _RESPONSES,
    "cancel_response": _RESPONSES,
    "delete_response": _RESPONSES,
    RUN: _RESPONSES,
    "models": None,
}
"""By action, the endpoint of which `endpoints` must allow it; None: whoever may call may do it. A path of the
operator's own is its own right."""


class Rights:
    """What one configuration, with the keys of the database, says of them. Any thread."""

    __slots__ = ("_keys", "_models", "_owners_by_credentials", "_wall")

    def __init__(
        self,
        keys: Keyring,
        models: ModelTable,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._keys = keys
        self._models = models
        self._wall = wall
        self._owners_by_credentials = keys.is_open and models.passes_credentials

    @property
    def unknown_key(self) -> Refusal:
        """What a key is refused with that nobody knows: it may be good where not all keys could be read."""
        return UNKNOWN_KEY if self._keys.is_whole else KEYS_UNAVAILABLE

    def by_key(self, digest: bytes | None, presented: bool) -> Caller | Refusal:
        """The caller whose key has this SHA-256. `presented`: there was one, of whatever form."""
        return self._keys.caller(digest) or (self.unknown_key if presented else MISSING_KEY)

    def by_work(self, owner: str, key_id: str | None) -> Holder:
        """The caller whose stored work this is, as `Keyring.holder` has it."""
        return self._keys.holder(owner, key_id, self._wall())

    def authorize(self, who: Caller | Holder | Refusal, action: str) -> Caller | Refusal:
        """`who`, where it may do `action`: one of `RIGHTS`, or the name of a path of the operator's own."""
        if not isinstance(who, Caller):
            if isinstance(who, Refusal):
                return who
            if who.gone is not None:
                return KEYS_UNAVAILABLE if who.gone == "unknown_key" else Refusal(who.gone)
            who = who.caller
        if who.expires is not None and self._wall() >= who.expires:
            return Refusal("expired_key")
        if who.disabled:
            return Refusal("caller_disabled")
        if who.endpoints:
            right = RIGHTS.get(action, action)
            if right is not None and not who.may_call(right):
                return Refusal("endpoint_not_allowed", right)
        return who

    def model(self, caller: Caller, name: str | None) -> Model | Refusal:
        """The model that `caller` asks for by `name`."""
        if not name:
            return MISSING_MODEL
        model = self._models.find(name)
        if model is None:
            return Refusal("unknown_model", name)
        if caller.models and not caller.may_use(model.name):
            return Refusal("model_not_allowed", name)
        return model

    def model_without_client(self, caller: Caller, name: str | None) -> Model | Refusal:
        """As `model`, for what runs while no client is there: its credentials are not, either."""
        model = self.model(caller, name)
        if isinstance(model, Model) and not model.own_account:
            return Refusal("needs_credentials", model.name)
        return model

    @property
    def tells_credentials_apart(self) -> bool:
        """Whether stored responses belong to the credentials that a client sends: where no key is needed, and
        an upstream gets the clients' own."""
        return self._owners_by_credentials

    def owner(self, caller: Caller, headers: Mapping[str, str]) -> str:
        """To whom the stored responses belong that `caller` makes, reads, and continues, with these headers:
        those of `CREDENTIALS` are needed where `tells_credentials_apart`.
        """
        if caller.owner or not self._owners_by_credentials:
            return caller.owner
        sent = [headers.get(name) for name in CREDENTIALS]
        if not any(sent):
            return ""
        # No header has a NUL in it.
        text = b"owner of responses" + b"\0".join((each or "").encode("latin-1", "replace") for each in sent)
        return f"credentials:{hashlib.sha256(text).hexdigest()[:32]}"

    def upstream(self, caller: Caller, name: str, endpoint: str) -> Model | Refusal | None:
        """What stands for the upstream `name`, to which `endpoint` leads whatever model is asked for; None
        where the configuration has none.

        Whoever may use certain models only could use any there: their rights must name the endpoint.
        """
        if caller.models and not caller.endpoints:
            return Refusal("endpoint_not_allowed", endpoint)
        return self._models.upstream(name)
