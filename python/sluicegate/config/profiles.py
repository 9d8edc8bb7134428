"""Profiles: what is known of kinds of servers, as settings of an upstream.

Each is a file in `sluicegate/profiles`, named as the profile is.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, WithJsonSchema

from sluicegate.config.apis import spelled
from sluicegate.config.quantities import fault
from sluicegate.config.section import Section
from sluicegate.config.source import read

GENERIC = "generic"
"""The profile of an upstream that names none: it sets nothing, and a list of models may choose another."""

_FOLDER = Path(__file__).parents[1] / "profiles"

NAMES = tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


class Profile(Section):
    """One kind of server. `settings` are those of an upstream, which are overridden by the upstream's own."""

    name: str
    title: str
    about: str
    address: str | None = None
    """Where its base URL is each user's own: its form, with capitals for what is to be filled in."""
    key_variable: str | None = None
    """The environment variable that its own clients take the key from."""
    owned_by: tuple[str, ...] = ()
    """What its list of models says as `owned_by`, in lower case, where that tells what it is."""
    litellm: tuple[str, ...] = ()
    """What LiteLLM has in front of the names of its models."""
    recordings: tuple[str, ...] = ()
    """Providers of recorded streams that it is tested with."""
    settings: Mapping[str, Any] = Field(default={})
    deviations: tuple[str, ...] = ()
    """What it does otherwise than the API that it serves, or than one would expect, in sentences."""

    @property
    def base_url(self) -> str | None:
        """The usual one."""
        url = self.settings.get("base_url")
        return url if isinstance(url, str) else None

    @property
    def is_hosted(self) -> bool:
        """Whether it is one server for everybody, which wants a key."""
        return self.key_variable is not None and (self.base_url or "").startswith("https:")

    @property
    def apis(self) -> str:
        """What it serves, as a file would have it."""
        api = self.settings.get("api", "chat")
        return api if isinstance(api, str) else spelled(tuple(api))

    @property
    def example(self) -> str:
        """The settings of an upstream that has it."""
        lines = [f"profile: {self.name}"]
        if self.base_url is None:
            lines.append(f"base_url: {self.address or 'http://127.0.0.1:8000/v1'}")
        if self.key_variable is not None and (self.is_hosted or self.address is not None):
            lines.append(f'api_key: "${{{self.key_variable}}}"')
        return "\n".join(lines)

    def under(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The settings with `own` in place of those that it names; of mappings member by member."""
        return _merged(self.settings, own)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        under = below.get(name)
        if isinstance(under, Mapping) and isinstance(value, Mapping):
            merged[name] = _merged(under, value)
        else:
            merged[name] = value
    return merged


@cache
def profile(name: str) -> Profile:
    """The profile of this name. Raises `KeyError` where there is none."""
    if name not in NAMES:
        raise KeyError(name)
    source = read(_FOLDER / f"{name}.yaml")
    if source.faults:
        raise ValueError(f"the profile {name}: {source.faults[0]}")
    return Profile.model_validate({"name": name, **source.data})


@cache
def profiles() -> tuple[Profile, ...]:
    """All of them, by name."""
    return tuple(profile(name) for name in NAMES)


def profile_at(url: str) -> Profile | None:
    """The hosted server that has this address."""
    host = _host(url)
    return next((one for one in profiles() if one.is_hosted and _host(one.base_url or "") == host), None)


def profile_of_owner(owner: str) -> Profile | None:
    """The kind of server that says `owned_by: OWNER` of its models."""
    return next((one for one in profiles() if owner.lower() in one.owned_by), None)


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _known(name: str) -> str:
    if name not in NAMES:
        from sluicegate.config.nearest import close_to

        hint = close_to(name, list(NAMES)) or f"known: {', '.join(NAMES)}"
        raise fault("profile", "is no profile", hint)
    return name


ProfileName = Annotated[
    str, AfterValidator(_known), WithJsonSchema({"anyOf": [{"enum": [*NAMES]}, {"pattern": r"\$\{"}]})
]
