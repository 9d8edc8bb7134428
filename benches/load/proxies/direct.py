"""No proxy at all: what added latency is measured against, and how fast both ends are by themselves."""

from collections.abc import Sequence

from benches.load.proxies.model import Proxy, Setup


def _command(_program: str, _setup: Setup) -> Sequence[str]:
    raise NotImplementedError("nothing stands between the load generator and the mock")


DIRECT = Proxy(name="direct", find=lambda: "", command=_command, version=lambda _: "")
