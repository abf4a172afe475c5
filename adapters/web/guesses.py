"""Wrong tokens, counted by address: guessing is slowed, and what is remembered stays small whatever comes."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass, field

MAX_WRONG = 10
WINDOW_S = 60
MAX_ADDRESSES = 1_024
IPV6_PREFIX = 64  # what one customer gets: each of its addresses is nobody else's


class TooManyGuesses(Exception):
    """This address has shown too many wrong tokens; it may try again after `retry_after_s`."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"too many wrong tokens; try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


@dataclass(slots=True)
class Guesses:
    """How many tokens each address got wrong in its present minute. Times are milliseconds."""

    _windows: OrderedDict[str, tuple[int, int]] = field(default_factory=OrderedDict)

    def wait_s(self, address: str, now_ms: int) -> int:
        """Give how long this address has to wait; 0 where it may try."""
        began_ms, wrong = self._window(_network(address), now_ms)
        return 0 if wrong < MAX_WRONG else max(1, WINDOW_S - (now_ms - began_ms) // 1000)

    def note_wrong(self, address: str, now_ms: int) -> bool:
        """Count a wrong token; say whether it was the last that this address may show for now."""
        network = _network(address)
        began_ms, wrong = self._window(network, now_ms)
        self._windows[network] = began_ms, wrong + 1
        if len(self._windows) > MAX_ADDRESSES:
            self._windows.popitem(last=False)
        return wrong + 1 == MAX_WRONG

    def _window(self, network: str, now_ms: int) -> tuple[int, int]:
        """Give when the present minute began and what was wrong in it; one that is over, or to come, is forgotten."""
        began_ms, wrong = self._windows.get(network, (now_ms, 0))
        if 0 <= now_ms - began_ms < WINDOW_S * 1000:
            return began_ms, wrong
        del self._windows[network]
        return now_ms, 0


def _network(address: str) -> str:
    """Give what counts as one: an IPv4 address, or the network of an IPv6 one."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, IPV6_PREFIX), strict=False))
    return str(getattr(found, "ipv4_mapped", None) or found)
