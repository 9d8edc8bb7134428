"""Who may ask the admin API: by bearer token, and under which names it may be asked."""

import hashlib
import hmac
import re
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

from sluicegate.config import AdminRole

FAILURES = 5
"""Wrong tokens of one address within `FAILURE_SECONDS`, after which further ones are answered with 429."""
FAILURE_SECONDS = 60.0

SOCKET = "socket"
"""Whoever has opened the Unix socket."""

# Addresses whose failures are remembered; those that were heard of longest ago go first.
_MOST_ADDRESSES = 10_000
# An IPv6 network of this size is one customer's.
_IPV6_NETWORK = 64

# RFC 9110, section 7.2; names as they are, without percent signs.
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{1,253}))(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Identity:
    """Whoever asks."""

    name: str
    role: AdminRole

    @property
    def actor(self) -> str:
        """For the audit."""
        return self.name if self.name == SOCKET else f"token:{self.name}"

    @property
    def may_operate(self) -> bool:
        return self.role == "operate"


class Tokens:
    """The tokens that are accepted. Only their digests are kept."""

    def __init__(self, tokens: Iterable[tuple[str, Identity]]) -> None:
        self._known = [(_digest(token), identity) for token, identity in tokens]

    def identify(self, presented: str) -> Identity | None:
        """Whose token this is. It takes the same time whichever it is, if any."""
        digest = _digest(presented)
        found = None
        for known, identity in self._known:
            if hmac.compare_digest(known, digest):
                found = identity
        return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class Failures:
    """Who has presented wrong tokens lately.

    Only wrong tokens are held against an address: operators may share it with whoever guesses, and a token is
    too long to be guessed.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """Seconds that whoever sends a wrong token from this address is told to wait; 0: none."""
        times = self._times.get(_network(address))
        if times is None or len(times) < FAILURES:
            return 0.0
        return max(0.0, times[0] + FAILURE_SECONDS - self._clock())

    def add(self, address: str) -> None:
        """This address has presented a wrong token."""
        network = _network(address)
        times = self._times.setdefault(network, deque(maxlen=FAILURES))
        times.append(self._clock())
        self._times.move_to_end(network)
        while len(self._times) > _MOST_ADDRESSES:
            self._times.popitem(last=False)


def _network(address: str) -> str:
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(ip_network((parsed, _IPV6_NETWORK), strict=False))
    return address


class HostRule:
    """The names by which the API may be asked: a page of another site cannot make a browser use any other.

    That site's own name may be made to lead here (DNS rebinding), and then stands in `Host`.
    """

    def __init__(self, address: str, names: Iterable[str]) -> None:
        """`address`: what is listened on. An address that stands for all lets any address pass: no name does
        lead to one.
        """
        self._address = ip_address(address)
        self._names = {name.lower() for name in names}
        if self._address.is_loopback or self._address.is_unspecified:
            self._names.add("localhost")

    def accepts(self, host: str) -> bool:
        """Whether a request with this `Host` is one for us."""
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found["v6"] or found["name"].lower()
        if name in self._names:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return self._address.is_unspecified or address == self._address
