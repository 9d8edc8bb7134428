"""What the policies that choose among routes get to see of a request."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from sluicegate.config.quantities import fault
from sluicegate.config.section import Section
from sluicegate.config.values import header_name

# Each is looked up, and copied, for every request.
MOST_HEADERS = 16

_SECRET = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})


def _shown(name: str) -> str:
    name = header_name(name)
    if name.lower() in _SECRET:
        raise fault("header", f"{name} carries a secret", "policies know the caller without it")
    return name


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    if len({name.lower() for name in names}) != len(names):
        raise fault("header", "names one header twice", "case makes no difference in header names")
    if len(names) > MOST_HEADERS:
        raise fault(
            "header", f"names more than {MOST_HEADERS} headers", "each is looked for in every request"
        )
    return names


ShownHeader = Annotated[str, AfterValidator(_shown)]
ShownHeaders = Annotated[tuple[ShownHeader, ...], AfterValidator(_once)]


class RoutingConfig(Section):
    """What policies see of a request beside its model, size and user. What is not wanted costs nothing."""

    headers: ShownHeaders = Field(
        default=(), description="Of the client's, at most 16; a value of more than 1 KiB is not shown."
    )
    affinity: bool = Field(
        default=False,
        description="Work out which conversation a request belongs to, for policies of one's own: by "
        "`prompt_cache_key`, else by model, tools, instructions and the messages up to the user's first. The "
        "policy `affinity` has it worked out whatever this says.",
    )
    affinity_header: ShownHeader | None = Field(
        default=None, description="Goes before all that, where a request has it: x-session-id."
    )

    @model_validator(mode="after")
    def _header_has_a_use(self) -> Self:
        if self.affinity_header is not None and not self.affinity:
            raise fault(
                "affinity",
                "names an `affinity_header`, and `affinity` is off",
                "say `affinity: true`",
                lacks=("affinity",),
            )
        return self
