"""Counts and durations of a proxy's calls, in Prometheus' text format.

Labels are clients, formats and outcomes of this package's own tables, and a bounded number of models. They never have the
content of a request.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from nexus.proxy.reports import CallReport

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

MAX_MODELS = 50
OTHER = "other"
_MODEL_CHARS = 80
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the histograms' buckets, in seconds."""


class ProxyMetrics:
    """The metrics of one proxy."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._models = set[str]()
        self._calls = Counter(
            "nexus_proxy_calls", "Calls of models by outcome.", ("client", "format", "outcome"), registry=registry
        )
        self._errors = Counter(
            "nexus_proxy_errors", "Calls without a whole answer, by HTTP status.", ("status",), registry=registry
        )
        self._unrecorded = Counter("nexus_proxy_unrecorded_calls", "Calls that are not recorded.", registry=registry)
        self._tokens = Counter(
            "nexus_proxy_tokens",
            "Tokens by kind: input, cache_read, cache_write, output.",
            ("model", "kind"),
            registry=registry,
        )
        self._misses = Counter(
            "nexus_proxy_cache_misses",
            "Calls that did not read the last prompt of their conversation from the cache, by cause.",
            ("cause",),
            registry=registry,
        )
        self._cost = Counter("nexus_proxy_cost_usd", "Cost in USD, at list prices.", ("model",), registry=registry)
        self._added_s = Histogram(
            "nexus_proxy_added_seconds", "Time before a request is sent.", buckets=_BUCKETS_S, registry=registry
        )

    def add(self, report: CallReport) -> None:
        """Count a call that has ended."""
        self._calls.labels(report.client, report.format, report.outcome).inc()
        self._added_s.observe(report.added_ms / 1_000)
        if report.error:
            self._errors.labels(report.status).inc()
        if not report.session and not report.no_text:
            self._unrecorded.inc()
        if report.usage is None:
            return
        model = self._name(report.model)
        usage = report.usage
        cached = usage.cache_read_tokens + usage.cache_write_tokens
        amounts = {
            "input": max(usage.input_tokens - cached, 0),
            "cache_read": usage.cache_read_tokens,
            "cache_write": usage.cache_write_tokens,
            "output": usage.output_tokens,
        }
        for kind, tokens in amounts.items():
            self._tokens.labels(model, kind).inc(tokens)
        if report.cache is not None and report.cache.cause:
            self._misses.labels(report.cache.cause).inc()
        if report.cost_usd is not None:
            self._cost.labels(model).inc(report.cost_usd)

    def text(self) -> bytes:
        """Return all metrics."""
        return generate_latest(self._registry)

    def _name(self, model: str) -> str:
        """Return a model's name as a label: ASCII, and one of a bounded number."""
        name = model.encode("ascii", "backslashreplace").decode()[:_MODEL_CHARS]
        if name not in self._models and len(self._models) >= MAX_MODELS:
            return OTHER
        self._models.add(name)
        return name
