"""Counters and durations of the server in Prometheus' text format 0.0.4.

Labels are methods, outcomes and status codes of the server's own tables, so their number is bounded. They never
contain the content of a request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histogram's buckets, in seconds."""


class Metrics:
    """The counts of one server."""

    def __init__(self) -> None:
        self._requests = Counter[tuple[str, str]]()  # by method and outcome
        self._refusals = Counter[int]()  # by status code
        self._buckets: dict[str, list[int]] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._events = Counter[str]()
        self.open_streams = 0

    def request(self, method: str, outcome: str, seconds: float) -> None:
        """Count a request of a method with its outcome: `ok`, `error` or `unknown`."""
        self._requests[method, outcome] += 1
        buckets = self._buckets.setdefault(method, [0] * (len(BUCKETS_S) + 1))
        buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self._seconds[method] += seconds

    def refusal(self, status: int) -> None:
        """Count an HTTP request that was refused before its method ran."""
        self._refusals[status] += 1

    def sent_event(self, name: str) -> None:
        """Count an event that a reader of a stream got."""
        self._events[name] += 1

    def text(self, gauges: Iterable[tuple[str, str, float]]) -> str:
        """Return all metrics, with gauges as (name, help, value)."""
        lines: list[str] = []
        _family(lines, "nexus_requests_total", "Requests by method and outcome.", "counter")
        for (method, outcome), count in sorted(self._requests.items()):
            lines.append(f'nexus_requests_total{{method="{method}",outcome="{outcome}"}} {count}')
        _family(lines, "nexus_request_seconds", "Duration of requests by method.", "histogram")
        for method, counts in sorted(self._buckets.items()):
            total = 0
            for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), counts, strict=True):
                total += count
                lines.append(f'nexus_request_seconds_bucket{{method="{method}",le="{bound}"}} {total}')
            lines.append(f'nexus_request_seconds_sum{{method="{method}"}} {self._seconds[method]:.6f}')
            lines.append(f'nexus_request_seconds_count{{method="{method}"}} {total}')
        _family(lines, "nexus_http_refusals_total", "HTTP requests refused before a method ran, by status.", "counter")
        lines += [f'nexus_http_refusals_total{{status="{code}"}} {n}' for code, n in sorted(self._refusals.items())]
        _family(lines, "nexus_stream_events_total", "Events sent to readers of streams, by type.", "counter")
        lines += [f'nexus_stream_events_total{{type="{name}"}} {n}' for name, n in sorted(self._events.items())]
        for name, text, value in (*gauges, ("nexus_open_streams", "Streams that are open.", self.open_streams)):
            _family(lines, name, text, "gauge")
            lines.append(f"{name} {value:g}")
        return "\n".join(lines) + "\n"


def _family(lines: list[str], name: str, text: str, kind: str) -> None:
    lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
