"""Prometheus figures: what the core's status says, and what this server counts itself. The registry is its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from bot.checks import Link
    from bot.duet import Status

METHODS = frozenset({"GET", "HEAD", "POST", "DELETE"})


@dataclass(frozen=True, slots=True)
class Counted:
    """A counter of the core: the name it counts under, and how Prometheus is told."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


# By the first word of a name in `Status.counts`; the words after it are the labels' values.
COUNTED: Mapping[str, Counted] = {
    "turns": Counted("duet_turns", "Turns settled", ("platform", "outcome")),
    "duplicates": Counted("duet_duplicate_deliveries", "Deliveries of a turn heard before", ("platform",)),
    "model_errors": Counted("duet_model_errors", "Model calls that failed", ("kind",)),
    "tokens": Counted("duet_tokens", "Tokens of model calls", ("direction",)),
    "commands": Counted("duet_commands", "Commands that ended", ("ended",)),
}


class Metrics:
    """Counts requests, and gives the page that Prometheus reads."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._requests = Counter(
            "duet_http_requests", "HTTP requests", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "duet_http_request_seconds", "Time to the whole reply", ("route",), registry=self._registry
        )

    def note_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request under its route's pattern; made-up methods share one label."""
        self._requests.labels(method if method in METHODS else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def render(self, status: Status, links: Mapping[str, Link], *, open_streams: int) -> tuple[bytes, str]:
        """Give the page and its content type."""
        core = CollectorRegistry(auto_describe=False)
        core.register(_Told(status, links, open_streams))
        return generate_latest(core) + generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4


class _Told(Collector):
    """The core's status, as metric families."""

    def __init__(self, status: Status, links: Mapping[str, Link], open_streams: int) -> None:
        self._status = status
        self._links = links
        self._open_streams = open_streams

    def collect(self) -> Iterator[Metric]:
        status, counts = self._status, self._status.counts
        yield _gauge("duet_documents", "Documents in the Codex", status.documents)
        yield _gauge("duet_turns_running", "Turns that this process works on", status.turns_running)
        yield _gauge("duet_turns_waiting", "Turns heard and not begun", counts.get("heard", 0))
        yield _gauge("duet_queue_age_seconds", "Age of the oldest turn not begun", (status.queue_age_ms or 0) / 1000)
        yield _gauge("duet_outbox_age_seconds", "Age of the oldest part not posted", (status.outbox_age_ms or 0) / 1000)
        yield _gauge("duet_sandbox_rooms", "Rooms that have a sandbox now", counts.get("sandbox_rooms", 0))
        yield _gauge("duet_http_streams", "Event streams open now", self._open_streams)
        seconds = SummaryMetricFamily("duet_turn_seconds", "Time from hearing a turn to its answer")
        seconds.add_metric((), counts.get("settled_turns", 0), counts.get("settled_ms", 0) / 1000)
        yield seconds
        yield from self._of_links()
        yield from self._counters()

    def _of_links(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("duet_platform_up", "Whether a platform is connected", labels=("platform",))
        again = CounterMetricFamily("duet_reconnects", "Connections to a platform made again", labels=("platform",))
        for name, link in sorted(self._links.items()):
            up.add_metric((name,), float(link.is_up))
            again.add_metric((name,), link.reconnects)
        yield from (up, again)

    def _counters(self) -> Iterator[Metric]:
        for word, counted in COUNTED.items():
            family = CounterMetricFamily(counted.name, counted.help, labels=counted.labels)
            for name, value in sorted(self._status.counts.items()):
                first, *labels = name.split("/")
                if first == word and labels and len(labels) == len(counted.labels):
                    family.add_metric(labels, value)
            yield family


def _gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help, value=value)
