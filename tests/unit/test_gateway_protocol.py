"""The protocol between the engines and the decider, in any order of what may happen.

Nothing is answered twice, nothing is left without an answer, and each request is recorded once.
"""

import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from fakes.front import Ended, FakeFault, FakeOutcome, FakeUsage, unforwarded
from sluicegate._core import Request, ResponsesRequest
from sluicegate.admission import key_digest
from sluicegate.config import load_data
from sluicegate.gateway import create_app, stored_errors
from sluicegate.gateway.decisions import Decider
from sluicegate.telemetry import Log, Recorder, RequestRecord

CONFIG: dict[str, Any] = {
    "keys": [{"name": "team", "key": "sk-team"}],
    "upstreams": {name: {"base_url": "http://127.0.0.1:1/v1"} for name in ("a", "b", "c")},
    "models": {
        "one": {"upstream": "a", "max_streams": 2},
        "three": ["a", "b", {"upstream": "c", "max_streams": 1}],
        "late": ["a", "b"],
    },
    "cost": {"genai_prices": False},
    "responses": {"path": "/nowhere"},
}
TEAM, _ = key_digest({b"authorization": b"Bearer sk-team"})

RETRIED = FakeFault("connect")
FINAL = FakeFault("status", status=400, body=b"{}")


class OwnPrices:
    def price(self, model: str, upstream_model: str, usage: Any) -> None:
        if model == "late":
            raise ZeroDivisionError
        return None


class BreakingPolicy:
    """Cannot rank more than two."""

    def rank(self, facts: Any, candidates: Any) -> Any:
        if len(candidates) > 2:
            raise ZeroDivisionError
        return candidates[::-1]


class Event:
    """What is answered once: `calls` are the answers, in order."""

    def __init__(self, exchange: "Exchange") -> None:
        self.exchange = exchange
        self.ticket = exchange.ticket
        self.calls: list[str] = []
        self.accepted = 0

    def _answered(self, kind: str) -> bool:
        self.calls.append(kind)
        if self.exchange.over or self.accepted:
            return False
        self.accepted += 1
        return True

    def reply(self, status: int, headers: Any, body: bytes) -> bool:
        taken = self._answered("reply")
        if taken:
            self.exchange.answered = status
        return taken


class Arrived(Event):
    def __init__(self, exchange: "Exchange", endpoint: str, model: str, key: Any, stream: bool) -> None:
        super().__init__(exchange)
        self.tag = None
        self.endpoint = endpoint
        self.upstream: str | None = None
        self.anthropic = False
        self.request_id = exchange.request_id
        self.key = key
        self.model = model
        self.stream = stream
        self.error = None
        previous = b',"previous_response_id":"resp_1"' if exchange.continues else b""
        body = b'{"model":"%s","input":"x"%s}' % (model.encode(), previous)
        self.request: Any = ResponsesRequest(body) if endpoint == "responses" else Request(body)

    def forward(self, route: Any, *, pricing: Any, last: bool, trial: bool, after: float, **_: Any) -> bool:
        taken = self._answered("forward")
        if taken:
            self.exchange.begin(route, last, trial)
        return taken


class Failed(Event):
    def __init__(self, exchange: "Exchange", fault: FakeFault) -> None:
        super().__init__(exchange)
        self.fault = fault
        self.attempts = len(exchange.routes)

    def attempt(self, route: Any, *, pricing: Any, last: bool, trial: bool, after: float) -> bool:
        taken = self._answered("attempt")
        if taken:
            self.exchange.begin(route, last, trial)
        return taken


class FirstOutput:
    def __init__(self, exchange: "Exchange") -> None:
        self.ticket = exchange.ticket


class PriceAsked(Event):
    usage = FakeUsage(input_tokens=1)

    def answer(self, members: bytes | None) -> bool:
        return self._answered("answer")


class Exchange:
    """What the engine knows of one request."""

    def __init__(self, ticket: int, continues: bool, stream: bool) -> None:
        self.ticket = ticket
        self.request_id = f"r-{ticket}"
        self.continues = continues
        self.stream = stream
        self.over = False
        """It has ended: no answer is taken any more."""
        self.running = False
        """An attempt is under way."""
        self.trial = False
        """It is one whose first output is still to be told."""
        self.routes: list[str] = []
        self.last = False
        self.answered: int | None = None

    def begin(self, route: Any, last: bool, trial: bool) -> None:
        assert not self.last, "nothing could follow"
        self.last = last
        self.trial = trial
        self.running = True
        self.routes.append(route.upstream.name)


class Protocol(RuleBasedStateMachine):
    tickets = Bundle("tickets")
    """Requests that have come and have not ended."""

    def __init__(self) -> None:
        super().__init__()
        self._null = os.open(os.devnull, os.O_WRONLY)
        self.log = Log(self._null)
        self.records: list[RequestRecord] = []
        self.queue: list[Any] = []
        self.events: list[Event] = []
        self.elsewhere: list[tuple[Any, int]] = []
        self.delivered: dict[int, Exchange] = {}
        """Requests that the decider knows of."""
        self.ended = 0
        self.count = 0
        app = create_app(load_data(CONFIG), log=self.log, prices=OwnPrices(), policy=BreakingPolicy())
        self.app = app
        self.state = app._state
        self.fleet = app._state.models.fleet
        self.state.recorder = Recorder((self._break, self.records.append), self.log)

        def elsewhere(call: Any, request: Any) -> None:
            self.elsewhere.append((call, call.arrived.ticket))

        self.decider = Decider(self.state, elsewhere, lambda *kept: None, lambda message: None)

    def _break(self, record: RequestRecord) -> None:
        raise ZeroDivisionError

    def teardown(self) -> None:
        """The process stops: every exchange ends."""
        for exchange in {event.ticket: event.exchange for event in self.events}.values():
            if not exchange.over:
                self._end(exchange, unforwarded(503, code="shutdown"))
        self.deliver(len(self.queue))
        for _ in range(len(self.elsewhere)):
            self.answer_late(0, False)
        assert self.decider.open == 0
        assert len(self.records) == self.ended
        assert len({record.request_id for record in self.records}) == self.ended
        assert set(self.state.metrics._streams.values()) <= {0}
        self.log.close()
        os.close(self._null)

    # === what the engines do ===

    @rule(
        target=tickets,
        endpoint=st.sampled_from(["chat_completions", "responses"]),
        model=st.sampled_from(["one", "three", "late", "unknown"]),
        known=st.sampled_from([True, True, True, False]),
        stream=st.booleans(),
        continues=st.booleans(),
    )
    def arrive(self, endpoint: str, model: str, known: bool, stream: bool, continues: bool) -> Exchange:
        self.count += 1
        exchange = Exchange(self.count, continues, stream)
        event = Arrived(exchange, endpoint, model, TEAM if known else b"?" * 32, stream)
        self.events.append(event)
        self.queue.append(event)
        return exchange

    @rule(exchange=tickets, fault=st.sampled_from([RETRIED, RETRIED, FINAL]))
    def fail(self, exchange: Exchange, fault: FakeFault) -> None:
        if exchange.running and not exchange.over:
            exchange.running = False
            event = Failed(exchange, fault)
            self.events.append(event)
            self.queue.append(event)

    @rule(exchange=tickets)
    def put_out(self, exchange: Exchange) -> None:
        if exchange.running and exchange.trial and not exchange.over:
            exchange.trial = False
            self.queue.append(FirstOutput(exchange))

    @rule(exchange=tickets)
    def ask_for_a_price(self, exchange: Exchange) -> None:
        if exchange.running and not exchange.over:
            event = PriceAsked(exchange)
            self.events.append(event)
            self.queue.append(event)

    @rule(exchange=consumes(tickets))
    def leave(self, exchange: Exchange) -> None:
        """The client leaves, at whatever moment."""
        attempts = len(exchange.routes)
        outcome = FakeOutcome(client_left=True, attempts=attempts, status=499)
        self._end(exchange, outcome if attempts else unforwarded(499, client_left=True))

    @rule(exchange=consumes(tickets))
    def complete(self, exchange: Exchange) -> None:
        """It ends by itself: answered, served, or because no decision came in time."""
        if exchange.answered is not None and not exchange.routes:
            self._end(exchange, unforwarded(exchange.answered))
        elif exchange.routes:
            self._end(exchange, FakeOutcome(attempts=len(exchange.routes), usage=FakeUsage(output_tokens=1)))
        else:
            self._end(exchange, unforwarded(503, code="undecided"))

    @rule()
    def refuse_at_the_head(self) -> None:
        """The front refuses by itself what never arrives."""
        self.count += 1
        exchange = Exchange(self.count, False, False)
        self._end(exchange, unforwarded(431, code="head_too_large"))

    def _end(self, exchange: Exchange, outcome: FakeOutcome) -> None:
        exchange.over = True
        exchange.running = False
        self.queue.append(
            Ended(exchange.ticket, None, "chat_completions", exchange.request_id, TEAM, "one", outcome)
        )

    # === what the decider's thread does ===

    @rule(count=st.integers(1, 8))
    def deliver(self, count: int) -> None:
        batch, self.queue = self.queue[:count], self.queue[count:]
        self.decider.handle(batch)
        for event in batch:
            if isinstance(event, Ended):
                self.ended += 1
                self.delivered.pop(event.ticket, None)
            elif isinstance(event, Arrived):
                self.delivered[event.ticket] = event.exchange

    @rule(place=st.integers(0, 5), refused=st.booleans())
    def answer_late(self, place: int, refused: bool) -> None:
        """What was found out elsewhere comes back, in any order."""
        if self.elsewhere:
            call, ticket = self.elsewhere.pop(place % len(self.elsewhere))
            answer: Any = stored_errors.store_unavailable() if refused else (None, None)
            self.decider.post(lambda: self.decider.answer(call, ticket, answer))

    @rule(unknown=st.booleans())
    def reload(self, unknown: bool) -> None:
        models = {"unknown": "b"} if unknown else {}
        self.app.reload(load_data({**CONFIG, "models": {**CONFIG["models"], **models}}))

    # === what always holds ===

    @invariant()
    def nothing_is_answered_twice(self) -> None:
        for event in self.events:
            assert event.accepted <= 1
            assert len(event.calls) <= 1

    @invariant()
    def nothing_is_left_without_an_answer(self) -> None:
        waiting = {ticket for _, ticket in self.elsewhere}
        queued = {id(event) for event in self.queue}
        for event in self.events:
            if not event.calls and not event.exchange.over:
                assert id(event) in queued or event.ticket in waiting

    @invariant()
    def each_end_is_recorded_once(self) -> None:
        assert len(self.records) == self.ended
        assert self.decider.open == len(self.delivered)

    @invariant()
    def streams_under_way_are_counted(self) -> None:
        under_way = sum(exchange.stream and bool(exchange.routes) for exchange in self.delivered.values())
        assert sum(self.state.metrics._streams.values()) == under_way

    @invariant()
    def each_deployment_has_what_it_was_handed(self) -> None:
        # An exchange whose answer came too late has its deployment until it ends.
        loads = {load.name: load for load in self.fleet._loads.values()}
        plans = [call.plan for call in self.decider._calls.values() if call.plan is not None]
        handed = [plan._deployment.name for plan in plans if plan._deployment is not None]
        assert {name: load.streams for name, load in loads.items()} == {
            name: handed.count(name) for name in loads
        }
        # The rest of what was delivered waits for an answer from elsewhere, or was refused.
        under_way = sum(bool(exchange.routes) for exchange in self.delivered.values())
        assert len(handed) >= under_way


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
