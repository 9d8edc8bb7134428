"""From the configuration to upstreams, deployments and models, made once a configuration."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

from sluicegate._core import Upstream
from sluicegate.config import Config, ModelConfig, UpstreamConfig, alias_target
from sluicegate.errors import ConfigurationError, ConfigurationFault
from sluicegate.routing.choosing import make_policy
from sluicegate.routing.deployment import Deployment, Fleet, Load
from sluicegate.routing.model import PLAIN, Complain, Group, Model, silent
from sluicegate.routing.names import Wildcards
from sluicegate.routing.ordered import Ordered
from sluicegate.routing.policy import Policy
from sluicegate.routing.upstreams import make_upstream

LONGEST_UNLISTED = 256
"""Characters of a name that only a client knows."""

PASSED = "(passthrough)"
"""In place of a model, in the name of the deployment that has an upstream's other requests."""


class ModelTable:
    """The models a gateway serves, by public name, in the order of the configuration, then its aliases.

    Upstreams that are the same in `before` are taken over, with their connections; so are the counts of all
    deployments, and the policies of models that have the same one. `unlisted` names the upstreams that any
    other model is forwarded to, in this order: nobody knows yet what they serve. `matched`: names that a
    wildcard matches, and that somebody serves. `policy`: in place of all that the configuration names.
    `complain` is told of policies that raise. Raises `ConfigurationError` with all upstreams and policies
    that cannot be used.
    """

    def __init__(
        self,
        config: Config,
        before: "ModelTable | None" = None,
        unlisted: Sequence[str] = (),
        *,
        matched: Sequence[str] = (),
        policy: Policy | None = None,
        complain: Complain = silent,
        fleet: Fleet | None = None,
        random: Random | None = None,
    ) -> None:
        self.fleet: Fleet = fleet or (Fleet() if before is None else before.fleet)
        # Nothing secret depends on which deployment it is.
        self._random = random or Random()  # noqa: S311
        self._faults: list[ConfigurationFault] = []
        upstreams = self._make_upstreams(config, before)
        self._policies = self._make_policies(config, before, policy)
        if self._faults:
            raise ConfigurationError(self._faults)
        kept = {} if before is None else before._upstreams
        others = [name for name, made in upstreams.items() if name in kept and kept[name][1] is not made]
        self.fleet.adopt(config.health, others)
        self._upstreams: dict[str, tuple[UpstreamConfig, Upstream]] = {
            name: (config.upstreams[name], made) for name, made in upstreams.items()
        }
        self._groups = groups = {
            name: Group(
                name,
                _deployments(name, model, config, upstreams, self.fleet),
                self._policies[name][1],
                self.fleet,
                complain,
                retry=model.retry,
            )
            for name, model in config.models.items()
        }
        self._models = {name: Model(name, group) for name, group in groups.items() if "*" not in name}
        self._wildcards = Wildcards({name: group for name, group in groups.items() if "*" in name})
        self._aliases: dict[str, Model] = {}
        for alias in config.aliases:
            model = self._target(alias, config)
            if model is not None:
                self._aliases[alias] = Model(model.name, model.group, asked=alias, star=model.star)
        self._matched = tuple(name for name in dict.fromkeys(matched) if self._wildcards.find(name))
        self._unlisted = tuple((config.upstreams[name], upstreams[name]) for name in unlisted)
        self._passed = {
            name: self._standing_for(name, config, upstreams[name]) for name in config.passed_upstreams
        }
        # Of all names that nobody has listed, together: it must outlive the models that are made of them.
        self._unlisted_budget = self.fleet.budget("", PLAIN.budget)
        self._bound(groups.values())

    def get(self, name: str) -> Model | None:
        """The model of that name, which a configuration or an upstream's list has; an alias is one, too."""
        return self._models.get(name) or self._aliases.get(name)

    def find(self, name: str) -> Model | None:
        """The model of that name, of a wildcard that matches it, or one made for the upstreams that have not
        listed theirs yet."""
        return self.get(name) or self._matching(name) or self._unlisted_model(name)

    @property
    def passes_credentials(self) -> bool:
        """Whether an upstream gets the clients' own credentials."""
        return any(config.forward_authorization for config, _ in self._upstreams.values())

    def upstream(self, name: str) -> Model | None:
        """What stands for the upstream of that name, which a path leads to whatever model is asked for."""
        return self._passed.get(name)

    def __iter__(self) -> Iterator[Model]:
        """What clients may be shown: of wildcards only what somebody is known to serve."""
        yield from self._models.values()
        for name in self._matched:
            model = None if name in self._models or name in self._aliases else self._matching(name)
            if model is not None:
                yield model
        yield from self._aliases.values()

    @property
    def groups(self) -> Collection[Group]:
        """Of each model of the configuration, its deployments; and the one, without a model's name, that has
        the other requests of an upstream."""
        return [*self._groups.values(), *(model.group for model in self._passed.values())]

    @property
    def names(self) -> list[str]:
        """The names of the configuration; a wildcard has its `*`."""
        return list(self._groups)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _matching(self, name: str) -> Model | None:
        if not _may_be_a_name(name):
            return None
        found = self._wildcards.find(name)
        return None if found is None else Model(name, found[0], star=found[1])

    def _unlisted_model(self, name: str) -> Model | None:
        if not self._unlisted or not _may_be_a_name(name):
            return None
        deployments = [
            Deployment(
                upstream,
                name.removeprefix(_prefix(of)),
                self.fleet.load(f"{upstream.name}/*"),
                position=position,
                own_account=not of.forward_authorization,
            )
            for position, (of, upstream) in enumerate(self._unlisted)
            if name.startswith(_prefix(of)) and name != _prefix(of)
        ]
        # As the configuration's models are: a fallback does not change whose credentials are used.
        deployments = [each for each in deployments if each.own_account is deployments[0].own_account]
        if not deployments:
            return None
        return Model(name, Group(name, deployments, Ordered(), self.fleet, listed=False), listed=False)

    def _standing_for(self, name: str, config: Config, upstream: Upstream) -> Model:
        deployment = Deployment(
            upstream,
            "",
            self.fleet.load(f"{name}/{PASSED}"),
            own_account=not config.upstreams[name].forward_authorization,
            own_model=False,
        )
        group = Group("", [deployment], Ordered(), self.fleet, listed=False)
        return Model("", group, asked="", listed=False, upstream=name)

    def _target(self, alias: str, config: Config) -> Model | None:
        name = alias_target(alias, config.aliases)
        if name is None:
            return None
        return self._models.get(name) or self._matching(name)

    def _make_upstreams(self, config: Config, before: "ModelTable | None") -> dict[str, Upstream]:
        made: dict[str, Upstream] = {}
        kept = {} if before is None else before._upstreams
        for name, upstream in config.upstreams.items():
            if name in kept and kept[name][0] == upstream and not _reads_files(upstream):
                made[name] = kept[name][1]
                continue
            try:
                made[name] = make_upstream(name, upstream)
            except ConfigurationError as error:
                self._faults += [replace(fault, path=f"upstreams.{name}") for fault in error.faults]
        return made

    def _make_policies(
        self, config: Config, before: "ModelTable | None", given: Policy | None
    ) -> dict[str, tuple[object, Policy]]:
        """By model: what the configuration says of it, and the policy."""
        made: dict[str, tuple[object, Policy]] = {}
        kept = {} if before is None else before._policies
        for name, model in config.models.items():
            said = model.policy
            if given is not None:
                made[name] = said, given
            elif name in kept and kept[name][0] == said:
                made[name] = kept[name]
            else:
                try:
                    made[name] = said, make_policy(said, self.fleet.clock, self._random)
                except Exception as error:  # A user's own class may raise anything.
                    message = f"cannot be made: {type(error).__name__}: {error}"
                    self._faults.append(ConfigurationFault(f"models.{name}.policy", message, None))
        return made

    def _bound(self, groups: Iterable[Group]) -> None:
        bounds: dict[Load, set[int]] = {}
        for group in groups:
            for deployment in group.deployments:
                of_load = bounds.setdefault(deployment.load, set())
                if deployment.max_streams is not None:
                    of_load.add(deployment.max_streams)
        for load, numbers in bounds.items():
            load.bounds = frozenset(numbers)


def _deployments(
    name: str, model: ModelConfig, config: Config, upstreams: Mapping[str, Upstream], fleet: Fleet
) -> list[Deployment]:
    return [
        Deployment(
            upstreams[route.upstream],
            route.model,
            fleet.load(f"{route.upstream}/{route.model}"),
            position=position,
            weight=route.weight,
            tier=route.tier,
            max_streams=route.max_streams,
            public=name if model.reply_model == "public" else None,
            drain=(route.on_client_leave or model.on_client_leave) == "drain",
            own_account=not config.upstreams[route.upstream].forward_authorization,
        )
        for position, route in enumerate(model.routes)
    ]


def _may_be_a_name(name: str) -> bool:
    return len(name) <= LONGEST_UNLISTED and name.isprintable()


def _prefix(config: UpstreamConfig) -> str:
    return "" if config.discover is None else config.discover.prefix


def _reads_files(config: UpstreamConfig) -> bool:
    # Certificates are replaced in place, under the same name.
    return config.ca_file is not None or config.client_cert_file is not None
