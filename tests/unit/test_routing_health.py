"""When a deployment is left alone, and how it comes back."""

from collections.abc import Sequence
from random import Random

import pytest

from fakes.health import BAD, GOOD, LEFT, LOST, REFUSED, Midway, Notes, Stand, busy, verdict
from sluicegate.config import HealthConfig
from sluicegate.routing.health import TRIAL_SECONDS, Breaker, Health, State
from sluicegate.routing.verdict import TIMEOUTS, Effect, Verdict


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_five_failures_in_a_row_eject(stand: Stand) -> None:
    stand.end(BAD, 4)
    stand.end(GOOD)
    stand.end(BAD, 4)
    assert stand.may()
    stand.end(BAD)
    usable = stand.one.usable(stand.now)
    assert (usable.yes, usable.why, usable.until) == (False, State.EJECTED, stand.now + 5.0)
    assert stand.may(stand.two)
    assert stand.notes.changes == [("up/one", State.EJECTED, "why", 5.0)]


def test_half_of_twenty_within_the_window_eject(stand: Stand) -> None:
    for _ in range(9):
        stand.end(BAD)
        stand.end(GOOD)
    assert stand.may()
    stand.end(GOOD)
    stand.end(BAD)
    assert not stand.may()


def test_failures_before_the_window_do_not_count(stand: Stand) -> None:
    for _ in range(9):
        stand.end(BAD)
        stand.end(GOOD)
    stand.now += 31.0
    for _ in range(5):
        stand.end(GOOD)
        stand.end(BAD)
    assert stand.may()


def test_what_cannot_be_reached_is_the_whole_upstream(stand: Stand) -> None:
    stand.end(LOST, 3)
    stand.end(LOST, 2, of=stand.two)
    assert not stand.may()
    assert not stand.may(stand.two)
    assert [change[0] for change in stand.notes.changes] == ["up"]


def test_an_answer_of_any_kind_shows_that_the_upstream_is_there(stand: Stand) -> None:
    stand.end(LOST, 4)
    stand.end(BAD, of=stand.two)
    stand.end(LOST, 4)
    assert stand.may()


def test_one_request_at_a_time_finds_out(stand: Stand) -> None:
    stand.end(BAD, 5)
    stand.now += 5.0
    assert stand.one.usable(stand.now).why is State.HALF_OPEN
    trial = stand.one.begin(stand.now)
    usable = stand.one.usable(stand.now)
    assert (usable.yes, usable.until) == (False, stand.now + TRIAL_SECONDS)
    stand.one.ended(GOOD, stand.now, trial)
    assert stand.may()
    assert stand.state() is State.USABLE


def test_a_trial_whose_client_leaves_is_given_back(stand: Stand) -> None:
    stand.end(BAD, 5)
    stand.now += 5.0
    trial = stand.one.begin(stand.now)
    stand.one.ended(LEFT, stand.now, trial)
    assert stand.one.usable(stand.now).why is State.HALF_OPEN
    assert stand.may()


def test_a_trial_that_lasts_does_not_keep_others_from_trying(stand: Stand) -> None:
    stand.end(BAD, 5)
    stand.now += 5.0
    first = stand.one.begin(stand.now)
    stand.now += TRIAL_SECONDS
    assert stand.may()
    second = stand.one.begin(stand.now)
    assert not stand.may()
    stand.one.ended(GOOD, stand.now, first)
    assert stand.may()
    stand.one.ended(BAD, stand.now, second)
    assert stand.may()


def test_a_trial_ends_with_its_first_output(stand: Stand) -> None:
    stand.end(BAD, 5)
    stand.end(LOST, 5, of=stand.two)
    stand.now += 6.0
    trial = stand.one.begin(stand.now)
    stand.one.first_output(stand.now, trial)
    assert stand.may()
    assert stand.may(stand.two)
    assert stand.one.weight(stand.now) == 0.1
    assert [change[1] for change in stand.notes.changes[2:]] == [State.USABLE, State.USABLE]
    # From here on it is an attempt like others: its end is one failure, and no ejection again.
    stand.one.ended(BAD, stand.now)
    assert stand.may()
    stand.end(BAD, 4)
    assert not stand.may()


def test_first_output_that_comes_late_says_nothing_of_another_ejection(stand: Stand) -> None:
    stand.end(BAD, 5)
    stand.now += 5.0
    first = stand.one.begin(stand.now)
    stand.now += TRIAL_SECONDS
    stand.one.ended(GOOD, stand.now, stand.one.begin(stand.now))
    stand.end(BAD, 4)
    stand.one.first_output(stand.now, first)
    stand.end(BAD)
    assert stand.state() is State.EJECTED, "it counted as no success in between"


TOO_LATE = verdict(Effect.FAILURE, "first_token_timeout")
SHORT = (5.0, *7 * [10.0])
LONG = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0)


@pytest.mark.parametrize(("bad", "periods"), [(BAD, SHORT), (LOST, SHORT), (busy(), SHORT), (TOO_LATE, LONG)])
def test_a_trial_that_fails_doubles_the_time(stand: Stand, bad: Verdict, periods: Sequence[float]) -> None:
    stand.end(bad if bad is TOO_LATE else BAD, 5)
    for period in periods:
        usable = stand.one.usable(stand.now)
        assert not usable.yes
        assert usable.until == pytest.approx(stand.now + period)
        stand.now += period
        assert stand.may()
        stand.end(bad)
        # What cannot be reached has a breaker of its own, which one failure does not open.
    assert len([change for change in stand.notes.changes if change[0] == "up/one"]) == 9


@pytest.mark.parametrize("reason", sorted(TIMEOUTS))
def test_what_costs_a_client_its_deadline_is_tried_ever_more_rarely(reason: str) -> None:
    stand = Stand()
    for period in (5.0, 10.0, 20.0):
        stand.end(verdict(Effect.FAILURE, reason), 5)
        assert stand.one.usable(stand.now).until == pytest.approx(stand.now + period)
        stand.now += period
    # It fails at once again: the time is short at once, and grows from there.
    for period in (10.0, 10.0):
        stand.end(BAD)
        assert stand.one.usable(stand.now).until == pytest.approx(stand.now + period)
        stand.now += period
    stand.end(TOO_LATE)
    assert stand.one.usable(stand.now).until == pytest.approx(stand.now + 20.0)


def test_timeouts_are_never_left_alone_for_less_than_others() -> None:
    stand = Stand(HealthConfig(consecutive=1, eject=60.0, eject_at_most=60.0, eject_timeouts_at_most=10.0))
    stand.end(TOO_LATE)
    assert stand.one.usable(stand.now).until == stand.now + 60.0


def test_five_minutes_of_health_undo_one_doubling() -> None:
    stand = Stand(HealthConfig(eject_at_most=300.0))

    def ejected_for() -> float:
        stand.end(BAD, 5)
        period = stand.one.usable(stand.now).until - stand.now
        stand.now += period
        stand.end(GOOD)
        assert stand.may()
        return period

    assert [ejected_for(), ejected_for(), ejected_for()] == [5.0, 10.0, 20.0]
    stand.now += 299.0
    assert ejected_for() == 40.0
    stand.now += 600.0
    assert ejected_for() == 20.0
    stand.now += 3600.0
    assert ejected_for() == 5.0


def test_a_period_is_within_a_fifth() -> None:
    periods = set()
    for seed in range(200):
        breaker = Breaker("up", HealthConfig(consecutive=1), Random(seed), Notes())
        breaker.failed(1000.0, "why", trial=False)
        periods.add(breaker.until - 1000.0)
    assert 4.0 <= min(periods) < 4.2
    assert 5.8 < max(periods) <= 6.0


def test_what_began_before_an_ejection_changes_nothing_after_it(stand: Stand) -> None:
    early = [stand.one.begin(stand.now) for _ in range(4)]
    stand.end(BAD, 5)
    until = stand.one.usable(stand.now).until
    for ended, trial in zip((GOOD, BAD, LEFT, REFUSED), early, strict=True):
        stand.one.ended(ended, stand.now, trial)
    assert stand.one.usable(stand.now) == (False, State.EJECTED, until)


def test_being_tried_before_its_time_makes_it_no_longer(stand: Stand) -> None:
    stand.end(BAD, 5)
    until = stand.one.usable(stand.now).until
    stand.now += 1.0
    for ended in (BAD, REFUSED, LEFT):
        stand.end(ended)
        assert stand.one.usable(stand.now).until == until
    stand.end(GOOD)
    assert stand.may()


def test_load_comes_back_over_ten_seconds(stand: Stand) -> None:
    assert stand.one.weight(stand.now) == 1.0
    stand.end(BAD, 5)
    stand.now += 5.0
    stand.end(GOOD)
    weights = []
    for _ in range(7):
        weights.append(stand.one.weight(stand.now))
        stand.now += 2.0
    assert weights == pytest.approx([0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    assert stand.two.weight(stand.now) == 1.0


def test_who_is_busy_rests_until_the_later_of_two_times(stand: Stand) -> None:
    first, second = stand.one.begin(stand.now), stand.one.begin(stand.now)
    stand.one.ended(busy(20.0), stand.now, first)
    stand.now += 1.0
    stand.one.ended(busy(5.0), stand.now, second)
    assert stand.one.usable(stand.now) == (False, State.RESTING, 1020.0)
    assert stand.may(stand.two)
    stand.now = 1020.0
    assert stand.may()
    assert stand.notes.changes == [("up/one", State.RESTING, "429", 20.0)]


def test_being_busy_counts_for_the_share_and_not_in_a_row(stand: Stand) -> None:
    for _ in range(19):
        stand.end(busy(0.5))
        stand.now += 0.5
    assert stand.state() is State.USABLE
    stand.end(busy(0.0))
    assert stand.state() is State.EJECTED


def test_who_refuses_us_is_asked_less_and_less_often(stand: Stand) -> None:
    for period in (60.0, 120.0, 240.0, 480.0, 600.0, 600.0):
        stand.end(REFUSED, 3)
        assert stand.one.usable(stand.now) == (False, State.REFUSING, stand.now + period)
        stand.now += period
        assert stand.state() is State.HALF_OPEN
    stand.end(GOOD)
    assert stand.state() is State.USABLE
    assert stand.one.weight(stand.now) == 1.0
    assert [change[1:] for change in stand.notes.changes] == [
        (State.REFUSING, "401", 60.0), (State.USABLE, "", 0.0),
    ]  # fmt: skip
    stand.end(REFUSED)
    assert stand.one.usable(stand.now).until == stand.now + 60.0
    assert stand.notes.changes[-1] == ("up/one", State.REFUSING, "401", 60.0)


def test_of_several_hindrances_the_longest_holds(stand: Stand) -> None:
    stand.end(LOST, 5)
    stand.now += 1.0
    stand.one.ended(busy(60.0), stand.now, 0)
    assert stand.one.usable(stand.now) == (False, State.RESTING, 1061.0)
    assert stand.two.usable(stand.now) == (False, State.EJECTED, 1005.0)
    assert stand.state() is State.EJECTED
    stand.now = 1061.0
    assert stand.one.usable(stand.now).why is State.HALF_OPEN


def test_a_trial_may_be_of_the_deployment_and_of_its_upstream(stand: Stand) -> None:
    stand.end(BAD, 5)
    stand.end(LOST, 5, of=stand.two)
    stand.now += 6.0
    trial = stand.one.begin(stand.now)
    assert not stand.may(stand.two)
    stand.one.ended(GOOD, stand.now, trial)
    assert stand.may()
    assert stand.may(stand.two)


def test_a_probe_ejects_and_what_it_finds_well_is_only_tried(stand: Stand) -> None:
    stand.reach.eject(stand.now, "probe")
    assert stand.state() is State.EJECTED
    until = stand.one.usable(stand.now).until
    stand.now += 1.0
    stand.reach.eject(stand.now, "probe")
    assert stand.one.usable(stand.now).until == until
    stand.reach.may_be_back(stand.now)
    assert stand.state() is State.HALF_OPEN
    assert stand.may()
    stand.reach.eject(stand.now, "probe")
    assert stand.one.usable(stand.now).until == pytest.approx(stand.now + 10.0)


def test_a_good_probe_does_not_mend_a_refusal(stand: Stand) -> None:
    stand.end(REFUSED)
    stand.one.own.may_be_back(stand.now)
    assert stand.state() is State.REFUSING


def test_nothing_is_left_alone_where_that_is_not_wanted() -> None:
    stand = Stand(HealthConfig(enabled=False, consecutive=1))
    for ended in (BAD, LOST, REFUSED, busy(60.0)):
        stand.end(ended, 40)
    stand.reach.eject(stand.now, "probe")
    assert stand.may()
    assert stand.state() is State.USABLE
    assert not stand.notes.changes


def test_the_watcher_is_told_whenever_something_else_may_be_asked() -> None:
    """What may be asked changes by itself only when `until` is over; for all else there is a move."""
    random = Random(20261122)
    stand = Stand(HealthConfig(consecutive=2, of_at_least=5, eject=2.0, eject_at_most=9.0, window=3.0))
    healths = (stand.one, stand.two)
    verdicts = [GOOD, GOOD, BAD, LOST, LEFT, REFUSED, busy(), busy(4.0)]
    open_attempts: list[tuple[Health, int]] = []
    for _ in range(20_000):
        before = [health.usable(stand.now) for health in healths]
        moves, at = stand.notes.moves, stand.now
        match random.randrange(5):
            case 4 if open_attempts:
                health, trial = open_attempts[place := random.randrange(len(open_attempts))]
                health.first_output(stand.now, trial)
                open_attempts[place] = health, 0
            case 0:
                health = random.choice(healths)
                open_attempts.append((health, health.begin(stand.now)))
            case 1 if open_attempts:
                health, trial = open_attempts.pop(random.randrange(len(open_attempts)))
                health.ended(random.choice(verdicts), stand.now, trial)
            case 2:
                random.choice((stand.reach.may_be_back, lambda now: stand.reach.eject(now, "p")))(stand.now)
            case _:
                stand.now += random.random() * 3
        if stand.notes.moves == moves:
            for health, known in zip(healths, before, strict=True):
                if stand.now < known.until:
                    assert health.usable(stand.now).yes == known.yes, (at, stand.now, known)


class Reference:
    """What `Breaker` does, of a list of all that has happened."""

    def __init__(self, settings: HealthConfig) -> None:
        self.settings = settings
        self.ended: list[tuple[int, bool, bool]] = []
        self.open = False
        self.until = 0.0
        self.trial_since: float | None = None
        self.period = settings.eject / 2
        self.closed_at = 0.0

    def usable(self, now: float) -> bool:
        busy = self.trial_since is not None and now < self.trial_since + TRIAL_SECONDS
        return not self.open or (now >= self.until and not busy)

    def begin(self, now: float) -> bool:
        busy = self.trial_since is not None and now < self.trial_since + TRIAL_SECONDS
        if not self.open or busy:
            return False
        self.trial_since = now
        return True

    def end(self, now: float, effect: Effect, trial: bool, late: bool = False) -> None:
        if self.open:
            if not trial:
                return
            self.trial_since = None
            if effect is Effect.SUCCESS:
                self.open, self.closed_at, self.ended = False, now, []
            elif effect is not Effect.NOTHING and now >= self.until:
                self._eject(now, late)
            return
        if effect is Effect.NOTHING:
            return
        number = int(now * 10 / self.settings.window)
        self.ended.append((number, effect is not Effect.SUCCESS, effect is not Effect.BUSY))
        if effect is Effect.SUCCESS:
            return
        in_a_row = 0
        for _, failed, counts in reversed(self.ended):
            if not failed:
                break
            in_a_row += counts
        recent = [failed for slice_, failed, _ in self.ended if slice_ > number - 10]
        enough = len(recent) >= self.settings.of_at_least
        if (effect is Effect.FAILURE and in_a_row >= self.settings.consecutive) or (
            enough and sum(recent) >= self.settings.failed_share * len(recent)
        ):
            for _ in range(int((now - self.closed_at) / 300)):
                self.period = max(self.period / 2, self.settings.eject / 2)
            self._eject(now, late)

    def _eject(self, now: float, late: bool) -> None:
        most = self.settings.eject_at_most
        if late and self.settings.eject_timeouts_at_most > most:
            most = self.settings.eject_timeouts_at_most
        self.period = min(2 * self.period, most)
        self.open, self.until, self.trial_since = True, now + self.period, None


@pytest.mark.parametrize("seed", range(20))
def test_a_breaker_does_as_its_reference_does(seed: int) -> None:
    random = Random(seed)
    settings = HealthConfig(
        consecutive=random.choice((1, 3, 5)),
        failed_share=random.choice((0.25, 0.5, 0.9)),
        of_at_least=random.choice((1, 8, 20)),
        window=random.choice((2.0, 30.0)),
        eject=random.choice((0.5, 5.0)),
        eject_at_most=random.choice((5.0, 30.0, 300.0)),
        eject_timeouts_at_most=random.choice((5.0, 300.0)),
    )
    breaker = Breaker("up", settings, Midway(), Notes())
    reference = Reference(settings)
    now = 5000.0
    attempts: list[tuple[bool, bool]] = []
    failing = 0.3
    opened = 0
    for _ in range(4000):
        now += random.choice((0.0, 0.01, 0.3, 2.0, 2.0, 40.0, 400.0)) * random.random()
        assert breaker.usable(now).yes == reference.usable(now)
        assert breaker.open == reference.open
        opened += breaker.open
        if random.random() < 0.02:
            failing = random.choice((0.0, 0.3, 0.5, 1.0))
        if random.random() < 0.5 or not attempts:
            attempts.append((breaker.try_it(now), reference.begin(now)))
            continue
        trial, expected = attempts.pop(random.randrange(len(attempts)))
        assert trial == expected
        effect = Effect.SUCCESS
        late = random.random() < 0.4
        if random.random() < failing:
            effect = random.choice((Effect.FAILURE, Effect.BUSY))
        elif random.random() < 0.1:
            effect = Effect.NOTHING
        if effect is Effect.SUCCESS:
            breaker.succeeded(now, trial=trial)
        elif effect is Effect.NOTHING:
            if trial:
                breaker.give_back()
        else:
            in_a_row = effect is Effect.FAILURE
            breaker.failed(now, "504" if late else "why", trial=trial, in_a_row=in_a_row)
        reference.end(now, effect, trial, late)
    assert 0 < opened < 4000


def test_whoever_says_that_it_is_well_ends_what_it_was_left_alone_for() -> None:
    stand = Stand()
    one = stand.one
    for _ in range(5):
        one.ended(BAD, stand.now)
    for _ in range(5):
        stand.two.ended(LOST, stand.now)
    assert one.state(stand.now) is State.EJECTED
    assert stand.reach.state(stand.now) is State.EJECTED
    moves = stand.notes.moves
    one.restore(stand.now)
    assert one.usable(stand.now).yes
    assert stand.two.usable(stand.now).yes, "its upstream is well, too"
    assert one.weight(stand.now) == 1.0
    assert stand.notes.moves > moves
    one.ended(busy(30.0), stand.now)
    assert one.state(stand.now) is State.RESTING
    one.restore(stand.now)
    assert one.usable(stand.now).yes
