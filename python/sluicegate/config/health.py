"""When a deployment is left alone, how requests are tried again, and how upstreams are probed."""

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from sluicegate.config.quantities import fault
from sluicegate.config.section import Section
from sluicegate.config.values import Delay, Patience, Positive, ProbePath, no_bool

Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False), BeforeValidator(no_bool)]
# A budget of 10 is ten retries for each request: it bounds nothing any more.
Ratio = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False), BeforeValidator(no_bool)]
# The relay ends an exchange after so many attempts.
Attempts = Annotated[int, Field(ge=1, le=32), BeforeValidator(no_bool)]


class HealthConfig(Section):
    """When an upstream, or a model of it, is not asked for a while."""

    enabled: bool = Field(
        default=True, description="false: everything is asked at any time, whatever it has done before."
    )
    consecutive: Positive = Field(default=5, description="Ejected after so many failures in a row.")
    failed_share: Share = Field(
        default=0.5, description="Or once this share of what ended within `window` has failed."
    )
    of_at_least: Positive = Field(
        default=20, description="Of fewer than so many requests within `window` no share is taken."
    )
    window: Patience = Field(default=30.0, description="How far back the share looks.")
    eject: Patience = Field(
        default=5.0,
        description="How long the first time, within a fifth; each further ejection lasts twice as long.",
    )
    eject_at_most: Patience = Field(
        default=10.0,
        description="The longest, within a fifth, of what fails at once: to try it again costs a client "
        "little.",
    )
    eject_timeouts_at_most: Patience = Field(
        default=300.0,
        description="The longest of what fails by a deadline, where that is longer: each try has a client "
        "wait for all of it.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.eject > self.eject_at_most:
            raise fault(
                "eject",
                "has an `eject` above `eject_at_most`",
                "the first ejection is the shortest",
                lacks=("eject", "eject_at_most"),
            )
        return self


class ProbeConfig(Section):
    """How an upstream is asked whether it is there, beside the requests of clients."""

    path: ProbePath = Field(
        default="/models",
        description="What is asked for, below `base_url`: `GET`, with the upstream's own key. Any status "
        "below 500 says that it is there.",
    )
    every: Patience = Field(default=10.0, description="Seconds from one probe to the next.")


class RetryConfig(Section):
    """How often a request is tried, and how many tries all requests of the model may add."""

    attempts: Attempts | None = Field(
        default=None,
        description="How many tries a request has at most, the first one included; null: as many as the "
        "model has routes. With more, the last deployment is tried again where that may help.",
    )
    budget: Ratio = Field(
        default=0.2,
        description="How many tries each request adds to what may be spent, within 10 s, on tries that may "
        "well fail again. Three a second are always free, and so is a deployment that serves.",
    )
    backoff: tuple[Delay, Delay] = Field(
        default=(0.1, 2.0),
        description="The pause before the same deployment is tried again: at most the first of these times, "
        "doubling each time up to the second. Another deployment is tried at once.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        shortest, longest = self.backoff
        if shortest > longest:
            raise fault(
                "backoff", "has a `backoff` that ends below its beginning", "the shorter time comes first"
            )
        return self
