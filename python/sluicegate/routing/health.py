"""Which deployments may be handed a request now: what each has done so far decides.

Plain numbers with one owner, the thread that decides; the time is handed in. A scrape may read them
meanwhile.
"""

import math
from enum import StrEnum
from random import Random
from typing import NamedTuple, Protocol

from sluicegate.routing.verdict import TIMEOUTS, Effect, Verdict


class Settings(Protocol):
    """When to eject: the configuration's `health`."""

    @property
    def enabled(self) -> bool: ...
    @property
    def consecutive(self) -> int: ...
    @property
    def failed_share(self) -> float: ...
    @property
    def of_at_least(self) -> int: ...
    @property
    def window(self) -> float: ...
    @property
    def eject(self) -> float: ...
    @property
    def eject_at_most(self) -> float: ...
    @property
    def eject_timeouts_at_most(self) -> float: ...


class State(StrEnum):
    """What a deployment, or an upstream, is at the moment."""

    USABLE = "usable"
    EJECTED = "ejected"
    """Left alone because it failed."""
    HALF_OPEN = "half_open"
    """Tried with one request at a time."""
    RESTING = "resting"
    """Left alone because it asked for that, or because it is too busy and did not say for how long."""
    REFUSING = "refusing"
    """Left alone because it refuses our key, our account, or the model's name."""
    FULL = "full"
    """It has as many streams as it may have."""
    TAKEN_OFF = "taken_off"
    """An operator has taken it off."""


class Usable(NamedTuple):
    """Whether a deployment may be handed a request."""

    yes: bool
    why: State
    until: float
    """Where it may not: when that ends by itself, by the clock. Infinite where it may."""


YES = Usable(True, State.USABLE, math.inf)
FULL = Usable(False, State.FULL, math.inf)
TAKEN_OFF = Usable(False, State.TAKEN_OFF, math.inf)
TRIAL = Usable(True, State.HALF_OPEN, math.inf)


class Watcher(Protocol):
    """Told of changes, on the thread that decides. Must not block."""

    def moved(self) -> None:
        """What may be handed a request is not what it was."""
        ...

    def changed(self, name: str, state: State, reason: str, seconds: float) -> None:
        """An upstream or a deployment is left alone for so long, or is usable again."""
        ...


SLICES = 10
PERIOD_OF_HEALTH = 300.0
"""Seconds after which the next ejection is half as long."""
TRIAL_SECONDS = 30.0
"""A reply that takes so long is no reason to try nothing else: what it tells is then only waited for."""
WARM_UP = 10.0
"""Seconds in which load comes back after an ejection."""
LEAST_WEIGHT = 0.1
REFUSED_FIRST = 60.0
REFUSED_AT_MOST = 600.0
REST_FIRST = 1.0
"""Seconds for which one rests that is too busy, and does not say for how long."""
PERIOD_OF_SERVING = 30.0
"""Seconds after which the next such rest is half as long."""
JITTER = 0.2


class Window:
    """How many attempts of the last seconds have ended, and how many of them failed: in ten slices."""

    __slots__ = ("_ended", "_failed", "_seconds", "_slice")

    def __init__(self) -> None:
        self._seconds = 0.0
        self.clear()

    def clear(self) -> None:
        self._ended = [0] * SLICES
        self._failed = [0] * SLICES
        self._slice = 0

    def add(self, now: float, seconds: float, *, failed: bool) -> None:
        """An attempt has ended; `seconds`: what the window spans."""
        number = int(now * SLICES / seconds)
        if seconds != self._seconds:
            self.clear()
            self._seconds = seconds
        if number != self._slice:
            for passed in range(max(self._slice + 1, number - SLICES + 1), number + 1):
                self._ended[passed % SLICES] = self._failed[passed % SLICES] = 0
            self._slice = number
        self._ended[number % SLICES] += 1
        if failed:
            self._failed[number % SLICES] += 1

    def counts(self) -> tuple[int, int]:
        """How many ended, and how many of them failed."""
        return sum(self._ended), sum(self._failed)


class Breaker:
    """Leaves alone what fails, and then tries it with one request at a time.

    `name` is for whoever is told. Ejected after `consecutive` failures in a row, or where `failed_share` of
    at least `of_at_least` attempts in `window` failed: for `eject` doubled with each ejection, up to
    `eject_at_most` (`eject_timeouts_at_most` where it failed by a deadline), and a fifth more or less. Each
    five minutes of health undo one doubling. What is too busy, and does not say for how long, is left alone
    for a second, doubled where the request that then tries it is refused as well, up to `eject_at_most`.
    """

    __slots__ = (
        "__weakref__", "_in_a_row", "_period", "_random", "_refusals", "_rested", "_settings",
        "_trial_until", "_usable_since", "_warms_up", "_watcher", "_window", "name", "open", "until", "why",
    )  # fmt: skip

    def __init__(self, name: str, settings: Settings, random: Random, watcher: Watcher) -> None:
        self.name = name
        self._settings = settings
        self._random = random
        self._watcher = watcher
        self._window = Window()
        self._in_a_row = 0
        self._period = 0.0
        """How long the next ejection lasts, where that is longer than `eject`."""
        self._refusals = 0
        self._rested = 0.0
        """How long the last rest was, in seconds, where it did not say how long it should be."""
        self._usable_since = 0.0
        self._warms_up = False
        self._trial_until = 0.0
        self.open = False
        """Left alone, or being tried."""
        self.why = State.USABLE
        """EJECTED, RESTING or REFUSING while it is open."""
        self.until = 0.0
        """When it may be tried, while it is open."""

    def adopt(self, settings: Settings) -> None:
        """Go by these from now on. Any thread."""
        self._settings = settings

    @property
    def enabled(self) -> bool:
        return self._settings.enabled

    @property
    def fails(self) -> bool:
        """Whether its last attempts would have it ejected, where that is not switched off."""
        settings = self._settings
        if self._in_a_row >= settings.consecutive:
            return True
        ended, failed = self._window.counts()
        return ended >= settings.of_at_least and failed >= settings.failed_share * ended

    def usable(self, now: float) -> Usable:
        if self.open and not self._settings.enabled:
            # A reload has switched it off meanwhile.
            self.restore(now)
        if not self.open:
            return YES
        if now < self.until:
            return Usable(False, self.why, self.until)
        if now < self._trial_until:
            return Usable(False, State.HALF_OPEN, self._trial_until)
        return TRIAL

    def state(self, now: float) -> State:
        if not (self.open and self._settings.enabled):
            return State.USABLE
        return self.why if now < self.until else State.HALF_OPEN

    @property
    def warms_up(self) -> bool:
        """Whether its weight is not the whole yet."""
        return self._warms_up and not self.open

    def weight(self, now: float) -> float:
        """Of its full load, after an ejection: it grows from a tenth to 1."""
        if self.open or not self._warms_up:
            return 1.0
        share = (now - self._usable_since) / WARM_UP
        if share >= 1.0:
            self._warms_up = False
            return 1.0
        return max(LEAST_WEIGHT, share)

    def try_it(self, now: float) -> bool:
        """An attempt begins; whether it is the one that is to find out."""
        if not self.open or now < self._trial_until:
            return False
        self._trial_until = now + TRIAL_SECONDS
        self._watcher.moved()
        return True

    def give_back(self) -> None:
        """The attempt that was to find out has not."""
        self._trial_until = 0.0
        self._watcher.moved()

    def succeeded(self, now: float, *, trial: bool) -> None:
        if self.open:
            # What began before the ejection says nothing of how it is since.
            if trial:
                self._close(now)
            return
        self._in_a_row = 0
        self._refusals = 0
        self._window.add(now, self._settings.window, failed=False)

    def failed(self, now: float, reason: str, *, trial: bool, in_a_row: bool = True) -> None:
        """`in_a_row`: it counts as one of several failures in a row, and not only for the share."""
        if self.open:
            if trial:
                self._eject_again(now, reason)
            return
        self._window.add(now, self._settings.window, failed=True)
        self._in_a_row += in_a_row
        if self._settings.enabled and self.fails:
            self._eject(now, reason)

    def busy(self, now: float, reason: str, *, trial: bool) -> None:
        """It refused for now, and did not say for how long: no failure in a row, but one of the share."""
        if not self.open or self.why is not State.RESTING:
            self.failed(now, reason, trial=trial, in_a_row=False)
            if not self.open and self._settings.enabled:
                healthy = int((now - self._usable_since) / PERIOD_OF_SERVING)
                self._rest(now, self._rested / 2.0 ** (1 + min(healthy, 32)), reason)
        elif trial and now < self.until:
            # It was tried before its time, because there was nothing else.
            self.give_back()
        elif trial:
            self._rest(now, 2.0 * self._rested, reason)

    def refuses(self, now: float, reason: str, *, trial: bool) -> None:
        """It does not serve us, and will not before somebody changes something."""
        if not self._settings.enabled or (self.open and not trial):
            return
        if self.open and now < self.until:
            self.give_back()
            return
        first = self.why is not State.REFUSING
        period = min(REFUSED_FIRST * 2.0 ** min(self._refusals, 16), REFUSED_AT_MOST)
        self._refusals += 1
        self._leave_alone(now, period, State.REFUSING)
        if first:
            self._watcher.changed(self.name, State.REFUSING, reason, period)

    def eject(self, now: float, reason: str) -> None:
        """Whatever its requests say: it is known to be down."""
        if self.open:
            if self.state(now) is State.HALF_OPEN:
                self._eject_again(now, reason)
        elif self._settings.enabled:
            self._eject(now, reason)

    def may_be_back(self, now: float) -> None:
        """It is known to be there: it is tried at once."""
        if self.open and self.why is State.EJECTED:
            self.until = min(self.until, now)
            self._watcher.moved()

    def restore(self, now: float) -> None:
        """Somebody says that it is well: it is used at once, and nothing that was is held against it."""
        self._period = self._rested = 0.0
        if self.open:
            self._close(now)
        self._warms_up = False

    def recent(self) -> tuple[int, int]:
        """How many attempts of the last seconds have ended, and how many of them failed."""
        return self._window.counts()

    def _eject(self, now: float, reason: str) -> None:
        healthy = int((now - self._usable_since) / PERIOD_OF_HEALTH)
        self._period /= 2.0 ** min(healthy, 32)
        self._eject_for(now, reason)

    def _eject_again(self, now: float, reason: str) -> None:
        if now < self.until:
            # It was tried before its time, because there was nothing else: that makes its time no longer.
            self.give_back()
        else:
            self._eject_for(now, reason)

    def _eject_for(self, now: float, reason: str) -> None:
        settings = self._settings
        most = settings.eject_at_most
        if reason in TIMEOUTS:
            most = max(most, settings.eject_timeouts_at_most)
        period = min(max(settings.eject, self._period), most)
        self._period = 2.0 * period
        period *= self._random.uniform(1.0 - JITTER, 1.0 + JITTER)
        self._leave_alone(now, period, State.EJECTED)
        self._watcher.changed(self.name, State.EJECTED, reason, period)

    def _rest(self, now: float, period: float, reason: str) -> None:
        # It refuses at once, so that trying it costs little.
        self._rested = min(max(REST_FIRST, period), self._settings.eject_at_most)
        period = self._rested * self._random.uniform(1.0 - JITTER, 1.0 + JITTER)
        self._leave_alone(now, period, State.RESTING)
        self._watcher.changed(self.name, State.RESTING, reason, period)

    def _leave_alone(self, now: float, period: float, why: State) -> None:
        self.open = True
        self.why = why
        self.until = now + period
        self._trial_until = 0.0
        self._watcher.moved()

    def _close(self, now: float) -> None:
        self._warms_up = self.why is State.EJECTED
        self.open = False
        self.why = State.USABLE
        self._usable_since = now
        self._in_a_row = 0
        self._refusals = 0
        self._window.clear()
        self._watcher.moved()
        self._watcher.changed(self.name, State.USABLE, "", 0.0)


_OWN_TRIAL = 1
_REACH_TRIAL = 2


class Health:
    """One deployment's: its own breaker, its upstream's (`reach`), and how long it wants to rest."""

    __slots__ = ("_rest_reason", "_rest_until", "_watcher", "own", "reach")

    def __init__(self, own: Breaker, reach: Breaker, watcher: Watcher) -> None:
        self.own = own
        self.reach = reach
        """Of all deployments on one upstream: whether it can be reached."""
        self._watcher = watcher
        self._rest_until = 0.0
        self._rest_reason = ""

    @property
    def name(self) -> str:
        return self.own.name

    @property
    def rest_reason(self) -> str:
        """Why it rests, or rested last: the status."""
        return self._rest_reason

    @property
    def fails(self) -> bool:
        """Whether its last attempts would have it ejected, where that is not switched off."""
        return self.own.fails or self.reach.fails

    def asks_for_rest(self, now: float) -> bool:
        """Whether it rests because it said for how long: then nothing is sent there, whatever else there
        is."""
        return now < self._rest_until

    def usable(self, now: float) -> Usable:
        """Whether it may be handed a request. Of several hindrances, the one that lasts longest."""
        own, reach = self.own, self.reach
        if not (own.open or reach.open or self._rest_until):
            return YES
        worst = max(own.usable(now), reach.usable(now), key=_hindrance)
        if now < self._rest_until and own.enabled:
            rest = Usable(False, State.RESTING, self._rest_until)
            return max(rest, worst, key=_hindrance)
        self._rest_until = 0.0
        return worst

    def state(self, now: float) -> State:
        """For a metric; from any thread."""
        own, reach = self.own.state(now), self.reach.state(now)
        for state in (State.REFUSING, State.EJECTED):
            if state in (own, reach):
                return state
        if State.RESTING in (own, reach) or (now < self._rest_until and self.own.enabled):
            return State.RESTING
        return own if own is not State.USABLE else reach

    @property
    def warms_up(self) -> bool:
        return self.own.warms_up or self.reach.warms_up

    def weight(self, now: float) -> float:
        """What part of its load it should have: less than 1 for a while after an ejection."""
        return min(self.own.weight(now), self.reach.weight(now))

    def restore(self, now: float) -> None:
        """Somebody says that it is well, and its upstream is, too."""
        self._rest_until = 0.0
        self.own.restore(now)
        self.reach.restore(now)
        self._watcher.moved()

    def begin(self, now: float) -> int:
        """An attempt begins. What is returned goes to `ended`."""
        own, reach = self.own, self.reach
        if not (own.open or reach.open):
            return 0
        return own.try_it(now) * _OWN_TRIAL | reach.try_it(now) * _REACH_TRIAL

    def first_output(self, now: float, trial: int) -> None:
        """An attempt that was to find out has had its first output. `trial`: what its `begin` returned; from
        here on it is an attempt like others."""
        if trial & _OWN_TRIAL and self.own.open:
            self.own.succeeded(now, trial=True)
        if trial & _REACH_TRIAL and self.reach.open:
            self.reach.succeeded(now, trial=True)

    def ended(self, verdict: Verdict, now: float, trial: int = 0) -> None:
        """An attempt has ended. `trial`: what its `begin` returned."""
        own, reach = self.own, self.reach
        own_trial, reach_trial = bool(trial & _OWN_TRIAL), bool(trial & _REACH_TRIAL)
        effect = verdict.effect
        if effect is Effect.SUCCESS:
            own.succeeded(now, trial=own_trial)
            reach.succeeded(now, trial=reach_trial)
        elif effect is Effect.NOTHING:
            if own_trial:
                own.give_back()
            if reach_trial:
                reach.give_back()
        elif effect is Effect.UNREACHABLE:
            reach.failed(now, verdict.reason, trial=reach_trial)
            if own_trial:
                own.failed(now, verdict.reason, trial=True)
        else:
            # It answered, whatever it said.
            reach.succeeded(now, trial=reach_trial)
            if effect is Effect.FAILURE:
                own.failed(now, verdict.reason, trial=own_trial)
            elif effect is Effect.REFUSED:
                own.refuses(now, verdict.reason, trial=own_trial)
            elif verdict.wait:
                own.failed(now, verdict.reason, trial=own_trial, in_a_row=False)
                if own.enabled:
                    self._rest(now, verdict.wait, verdict.reason)
            else:
                if not self.asks_for_rest(now):
                    self._rest_reason = verdict.reason
                own.busy(now, verdict.reason, trial=own_trial)

    def _rest(self, now: float, seconds: float, reason: str) -> None:
        begins = now >= self._rest_until
        if now + seconds > self._rest_until:
            self._rest_until = now + seconds
            self._rest_reason = reason
            self._watcher.moved()
        if begins:
            self._watcher.changed(self.name, State.RESTING, reason, seconds)


def _hindrance(usable: Usable) -> tuple[bool, float, bool]:
    return not usable.yes, usable.until, usable.why is not State.USABLE
