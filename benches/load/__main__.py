"""`python -m benches.load`: run every proxy through every scenario, interleaved, and report."""

import argparse
import json
import os
import platform
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benches.load.gates import gated_scenarios, gates_table, missed
from benches.load.measure import Bench, Measurement
from benches.load.perf import Perf
from benches.load.processes import StartError
from benches.load.proxies import DIRECT, PEERS, PROXIES, SLUICEGATE, Proxy
from benches.load.proxies.model import REPOSITORY, install
from benches.load.report import BASELINE, Results, markdown, number
from benches.load.scenarios import SCENARIOS, Scenario
from benches.load.tool import Mock, Tool, build

_RESULTS = Path(__file__).parent / "results"
_PROFILES = REPOSITORY / "target" / "bench-perf"
# Two descriptors a held stream in the proxy, and room for pools; each other process needs half of that.
_DESCRIPTORS = 8192


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.load", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs, one round unless --rounds is given")
    parser.add_argument("--rounds", type=int, help="each proxy once a round, in rotating order (default 3)")
    parser.add_argument(
        "--proxies",
        type=_names([proxy.name for proxy in PROXIES]),
        default=[proxy.name for proxy in PEERS],
        help="comma-separated, or all; nginx is always with them",
    )
    parser.add_argument(
        "--scenarios",
        type=_names([scenario.name for scenario in SCENARIOS]),
        default=sorted(gated_scenarios()),
        help="comma-separated, or all; left out: what the gates need",
    )
    parser.add_argument("--threads", type=int, default=1, help="that serve requests, of each proxy")
    parser.add_argument("--quiet-cores", type=float, default=0.25, help="CPU that others may use meanwhile")
    parser.add_argument(
        "--patience",
        type=float,
        default=180.0,
        help="seconds in all to wait for that, and to measure again without it; 0: neither",
    )
    parser.add_argument(
        "--perf",
        action="store_true",
        help="one round of sluicegate, or of --proxies, under perf: where its CPU goes, and no figures",
    )
    parser.add_argument("--nice", type=int, default=0, help="priority of all processes; below 0 needs root")
    parser.add_argument("--output", type=Path, help="where results go, without a suffix")
    parser.add_argument("--tool", type=Path, help="the built load tool; left out: cargo builds it")
    parser.add_argument("--list", action="store_true", help="show proxies and scenarios")
    parser.add_argument(
        "--install",
        nargs="?",
        type=_names([proxy.name for proxy in PROXIES if proxy.requirement]),
        const=[proxy.name for proxy in PEERS if proxy.requirement],
        help="put peers into environments of their own (default: those measured by default), and stop",
    )
    return parser.parse_args()


def _names(known: Sequence[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        if text == "all":
            return list(known)
        named = text.split(",")
        if unknown := [name for name in named if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not among {', '.join(known)}")
        return named

    return names


def main() -> int:
    arguments = _arguments()
    if arguments.install:
        for proxy in PROXIES:
            if proxy.name in arguments.install and proxy.find() is None:
                install(proxy)
        return 0
    if arguments.list:
        _show()
        return 0
    proxies = _chosen(arguments)
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in arguments.scenarios]
    _raise_descriptor_limit()
    # So that `with` blocks end what they started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    tool = Tool(arguments.tool or build(), arguments.nice)
    with Mock(tool) as mock:
        if arguments.perf:
            return _profiled(arguments, tool, mock, proxies, scenarios)
        return _compared(arguments, tool, mock, proxies, scenarios)


def _compared(
    arguments: argparse.Namespace,
    tool: Tool,
    mock: Mock,
    proxies: Sequence[Proxy],
    scenarios: Sequence[Scenario],
) -> int:
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    conditions = _conditions(arguments, proxies, rounds)
    output = arguments.output or _RESULTS / f"{conditions['date']}{'-quick' if arguments.quick else ''}"
    output.parent.mkdir(parents=True, exist_ok=True)
    measurements: list[Measurement] = []
    bench = Bench(
        tool,
        mock,
        threads=arguments.threads,
        quick=arguments.quick,
        quiet_cores=arguments.quiet_cores,
        patience_seconds=0.0 if arguments.quick else arguments.patience,
    )
    for number_of_round in range(rounds):
        for scenario in scenarios:
            for proxy in _order(proxies, number_of_round):
                if _says_something(proxy, scenario):
                    measurements += _measured(bench, proxy, scenario, number_of_round)
        _write(output, measurements, conditions)
    results = Results(measurements)
    print(_report(results, conditions))
    for gate in missed(results, conditions["cores"]):
        print(f"missed: {gate.title}", file=sys.stderr)
    return 1 if results.voids() else 0


def _profiled(
    arguments: argparse.Namespace,
    tool: Tool,
    mock: Mock,
    proxies: Sequence[Proxy],
    scenarios: Sequence[Scenario],
) -> int:
    for scenario in scenarios:
        for proxy in proxies:
            if not _says_something(proxy, scenario):
                continue
            perf = Perf(_PROFILES / f"{proxy.name}-{scenario.name}")
            bench = Bench(
                tool,
                mock,
                threads=arguments.threads,
                quick=arguments.quick,
                quiet_cores=arguments.quiet_cores,
                patience_seconds=0.0,
                profiler=perf.watch,
            )
            _measured(bench, proxy, scenario, 0)
            print(perf.report())
    return 0


def _says_something(proxy: Proxy, scenario: Scenario) -> bool:
    if proxy is DIRECT:
        return scenario.direct
    return scenario.name not in proxy.too_slow_for and (scenario.only is None or proxy.name in scenario.only)


def _order(proxies: Sequence[Proxy], round_number: int) -> list[Proxy]:
    """Rotated by one each round, so that none is always measured after the same neighbour's heat."""
    everyone = [DIRECT, *proxies]
    turn = round_number % len(everyone)
    return everyone[turn:] + everyone[:turn]


def _measured(bench: Bench, proxy: Proxy, scenario: Scenario, round_number: int) -> list[Measurement]:
    try:
        one = bench.measure(proxy, scenario, round_number)
    except StartError as error:
        print(f"{proxy.name}: {error}", file=sys.stderr, flush=True)
        return []
    cost = f"{number(one.cpu_us)} µs a {scenario.unit}" if one.cpu_us is not None else ""
    cost = cost or f"{one.first_p50 or 0:.3f} ms to the first chunk"
    shares = [one.proxy_cpu_share, one.mock_cpu_share, one.load_cpu_share, one.other_cpu_share]
    cores = " ".join(f"{share:.2f}" for share in shares)
    note = f"VOID: {one.void}" if one.void else "overloaded" if one.overloaded else ""
    print(
        f"round {round_number + 1}  {scenario.name:17} {proxy.name:11} {cost:24} "
        f"{number(one.units_per_second):>9}/s  cores (proxy, mock, load, others): {cores}  {note}",
        file=sys.stderr,
        flush=True,
    )
    return [one]


def _chosen(arguments: argparse.Namespace) -> list[Proxy]:
    """The named proxies that are installed, and the baseline; under perf no more than is asked for.

    Raises SystemExit where one of them must not be measured.
    """
    names = set(arguments.proxies)
    if arguments.perf:
        names = {SLUICEGATE.name} if names == {proxy.name for proxy in PEERS} else names
    else:
        names.add(BASELINE)
    chosen = []
    for proxy in PROXIES:
        if proxy.name not in names:
            continue
        if proxy.find() is None:
            how = f" (--install {proxy.name})" if proxy.requirement else ""
            print(f"{proxy.name}: not installed, left out{how}", file=sys.stderr)
            continue
        if refusal := proxy.refusal():
            if not arguments.quick:
                raise SystemExit(f"{proxy.name}: {refusal}")
            print(f"{proxy.name}: {refusal}", file=sys.stderr)
        chosen.append(proxy)
    return chosen


def _show() -> None:
    for proxy in PROXIES:
        found = proxy.find()
        print(f"proxy     {proxy.name:18} {'not installed' if found is None else proxy.version(found)}")
    for scenario in SCENARIOS:
        print(f"scenario  {scenario.name:18} {scenario.title}")


def _raise_descriptor_limit() -> None:
    """Children inherit it. Raises SystemExit where the hard limit is too low to hold 2,000 streams."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _DESCRIPTORS:
        raise SystemExit(
            f"at most {hard} open files are allowed, {_DESCRIPTORS} are needed: raise `ulimit -Hn`"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _conditions(arguments: argparse.Namespace, proxies: Sequence[Proxy], rounds: int) -> dict[str, Any]:
    processor = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "processor": processor,
        "kernel": platform.release(),
        "rounds": rounds,
        "threads": arguments.threads,
        "quick": arguments.quick,
        "nice": arguments.nice,
        "versions": {proxy.name: proxy.version(found) for proxy in proxies if (found := proxy.find())},
    }


def _report(results: Results, conditions: dict[str, Any]) -> str:
    return markdown(results, conditions, gates_table(results, conditions["cores"]))


def _write(output: Path, measurements: Sequence[Measurement], conditions: dict[str, Any]) -> None:
    """After every round, so that a long run that is interrupted is not lost."""
    results = Results(measurements)
    report = {"conditions": conditions, "measurements": [one.as_dict() for one in measurements]}
    output.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    output.with_suffix(".md").write_text(_report(results, conditions))
    try:
        from benches.load.plot import draw
    except ImportError:
        print("matplotlib is not installed: no plot", file=sys.stderr)
    else:
        draw(results, output.with_suffix(".png"))


if __name__ == "__main__":
    raise SystemExit(main())
