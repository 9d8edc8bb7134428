"""What is known of deployments' health, for the log and for metrics."""

from collections import Counter
from collections.abc import Callable, Iterator
from threading import Lock

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sluicegate.routing import ModelTable, State
from sluicegate.telemetry import Log

_STATES = tuple(state for state in State if state is not State.FULL)


class DeploymentReport(Collector):
    """Logs each change once, counts it, and shows the states of now when somebody asks for metrics."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.models: Callable[[], ModelTable] | None = None
        """What is served now. Any thread."""
        self._changes: Counter[tuple[str, State, str]] = Counter()
        self._probes: Counter[tuple[str, str]] = Counter()
        # The deciding thread and the event loop count; while a scrape reads nothing changes.
        self._lock = Lock()

    def changed(self, name: str, state: State, reason: str, seconds: float) -> None:
        """A deployment (`upstream/model`), or an upstream, is left alone, or usable again. Any thread."""
        with self._lock:
            self._changes[name, state, reason] += 1
        about = {"deployment" if "/" in name else "upstream": name}
        if state is State.USABLE:
            self._log.info("restored", **about)
            return
        tell = self._log.info if state is State.RESTING else self._log.warning
        tell(state.value, **about, reason=reason, seconds=round(seconds, 3))

    def probed(self, upstream: str, result: str) -> None:
        """A probe has ended: `ok` or `failed`. Any thread."""
        with self._lock:
            self._probes[upstream, result] += 1

    def collect(self) -> Iterator[Metric]:
        """For prometheus-client."""
        with self._lock:
            changes, probes = [*self._changes.items()], [*self._probes.items()]
        ejections = CounterMetricFamily(
            "sluicegate_ejections",
            "How often an upstream, or a deployment (upstream/model), was left alone because it failed.",
            labels=("deployment", "reason"),
        )
        rests = CounterMetricFamily(
            "sluicegate_rests",
            "How often a deployment began to be left alone because it is too busy, or refuses us.",
            labels=("deployment", "reason"),
        )
        for (name, state, reason), count in changes:
            if state is State.EJECTED:
                ejections.add_metric((name, reason), count)
            elif state in (State.RESTING, State.REFUSING):
                rests.add_metric((name, reason), count)
        probed = CounterMetricFamily(
            "sluicegate_probes", "Active probes. result: ok or failed.", labels=("upstream", "result")
        )
        for labels, count in probes:
            probed.add_metric(labels, count)
        yield from (ejections, rests, probed)
        if self.models is not None:
            yield from _now(self.models())


def _now(models: ModelTable) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "sluicegate_deployment_state",
        "1 for the state that a deployment is in: usable, ejected, half_open, resting, refusing or "
        "taken_off.",
        labels=("deployment", "state"),
    )
    breakers = GaugeMetricFamily(
        "sluicegate_breaker_open",
        "1 while the upstream is not handed requests of the model as usual.",
        labels=("model", "upstream"),
    )
    retries = CounterMetricFamily(
        "sluicegate_retries",
        "Tries after a first one, by what the one before failed with.",
        labels=("model", "reason"),
    )
    refused = CounterMetricFamily(
        "sluicegate_retries_refused",
        "Tries that the model's budget did not pay for.",
        labels=("model",),
    )
    now = models.fleet.clock()
    known: dict[str, State] = {}
    for group in models.groups:
        by_upstream: dict[str, bool] = {}
        for deployment in group.deployments:
            state = known.get(deployment.name)
            if state is None:
                state = known[deployment.name] = deployment.state(now)
            usable = state is State.USABLE
            by_upstream[deployment.upstream] = by_upstream.get(deployment.upstream, False) or usable
        if not group.name:
            continue
        for upstream, usable in by_upstream.items():
            breakers.add_metric((group.name, upstream), 0 if usable else 1)
        for reason, count in [*group.budget.retries.items()]:
            retries.add_metric((group.name, reason), count)
        refused.add_metric((group.name,), group.budget.refused)
    for name, state in known.items():
        for each in _STATES:
            states.add_metric((name, each.value), 1 if each is state else 0)
    yield from (states, breakers, retries, refused)
