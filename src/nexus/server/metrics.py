"""Counts and durations of the server, in Prometheus' text format.

Labels are methods, outcomes, status codes and types of the server's own tables, so their number is bounded. They never
contain the content of a request.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from nexus.server.tenants import Tenants
from nexus.server.usage import Count, ModelCounts

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histogram's buckets, in seconds."""


_MODEL_METRICS: dict[Count, tuple[str, str, tuple[str, ...]]] = {
    "calls": ("nexus_model_calls", "Calls of models with a reply, summaries included.", ("model",)),
    "tokens": ("nexus_model_tokens", "Tokens by kind: input, cache_read, cache_write, output.", ("model", "kind")),
    "cost": ("nexus_model_cost_usd", "Cost of the calls in USD, at list prices.", ("model",)),
    "errors": ("nexus_model_errors", "Failed tries of model calls by kind.", ("model", "kind")),
    "cuts": ("nexus_cuts", "Contexts that omitted or truncated messages anew.", ("model",)),
    "compactions": ("nexus_compactions", "Stored compactions by the writer of the summary.", ("writer",)),
}
"""Name, description and labels of each count of model calls."""


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

    def text(self, tenants: Tenants, tenant: str) -> bytes:
        """Return all metrics, with the current number of tenants, sessions and requests, and the models of one tenant."""
        tenants_now = tenants.tenants()
        self._open_tenants.set(len(tenants_now))
        self._sessions.set(sum(tenant.broker.session_count for tenant in tenants_now))
        self._open_requests.set(sum(tenant.users for tenant in tenants_now))
        of_models = CollectorRegistry()
        of_models.register(_TenantModels(tenants.counts, tenant))
        return generate_latest(self._registry) + generate_latest(of_models)


class _TenantModels:
    """Metrics of a tenant's model calls."""

    def __init__(self, counts: ModelCounts, tenant: str) -> None:
        self._counts = counts
        self._tenant = tenant

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with their values."""
        for count, (name, text, labels) in _MODEL_METRICS.items():
            family = CounterMetricFamily(name, text, labels=("tenant", *labels))
            for values, number in sorted(self._counts.of(self._tenant, count).items()):
                family.add_metric((self._tenant, *values), number)
            yield family
        share = GaugeMetricFamily(
            "nexus_prompt_cache_share",
            "Part of the prompts' tokens that came from the provider's cache, since the start.",
            labels=("tenant", "model"),
        )
        prompts: Counts[str] = Counts()
        tokens = self._counts.of(self._tenant, "tokens")
        for (model, kind), number in tokens.items():
            prompts[model] += int(number) if kind != "output" else 0
        for model, number in sorted(prompts.items()):
            if number:
                share.add_metric((self._tenant, model), tokens[model, "cache_read"] / number)
        yield share
