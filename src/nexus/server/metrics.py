"""Counts and durations of the server, in Prometheus' text format.

Labels are methods, outcomes, status codes and types of the server's own tables, so their number is bounded. They never
contain the content of a request.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from nexus.server.tenants import Tenants

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histogram's buckets, in seconds."""


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "nexus_requests", "Requests by method and outcome.", ("method", "outcome"), registry=registry
        )
        self._seconds = Histogram(
            "nexus_request_seconds",
            "Duration of requests by method.",
            ("method",),
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._refusals = Counter(
            "nexus_http_refusals", "HTTP requests refused before a method ran.", ("status",), registry=registry
        )
        self._events = Counter(
            "nexus_stream_events", "Events sent to readers of streams.", ("type",), registry=registry
        )
        self.open_streams = Gauge("nexus_open_streams", "Streams that are open.", registry=registry)
        self._open_tenants = Gauge("nexus_open_tenants", "Tenants that are open.", registry=registry)
        self._sessions = Gauge("nexus_busy_sessions", "Sessions in which a turn runs or waits.", registry=registry)
        self._open_requests = Gauge("nexus_open_requests", "Requests and streams under way.", registry=registry)

    def request(self, method: str, outcome: str, seconds: float) -> None:
        """Count a request of a method with its outcome, `ok` or `error`."""
        self._requests.labels(method, outcome).inc()
        self._seconds.labels(method).observe(seconds)

    def refusal(self, status: int) -> None:
        """Count an HTTP request that was refused before its method ran."""
        self._refusals.labels(status).inc()

    def sent_events(self, types: Iterable[str]) -> None:
        """Count the events that a reader of a stream got."""
        for name, count in Counts(types).items():
            self._events.labels(name).inc(count)

    def text(self, tenants: Tenants) -> bytes:
        """Return all metrics, with the current number of tenants, sessions and requests."""
        tenants_now = tenants.tenants()
        self._open_tenants.set(len(tenants_now))
        self._sessions.set(sum(tenant.broker.session_count for tenant in tenants_now))
        self._open_requests.set(sum(tenant.users for tenant in tenants_now))
        return generate_latest(self._registry)
