"""OpenTelemetry spans of calls that go through a proxy: names, sizes and costs, and no text."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from urllib.parse import urlsplit

from nexus.models.tracing import Span, continued_trace, proxied_span
from nexus.proxy.reports import CallReport

_PROVIDERS = {"responses": "openai"}
"""Whose formats they are, where the name is another one."""


@contextmanager
def call_span(report: CallReport, parent: str) -> Generator[None]:
    """Trace a call for the block; `parent` is the client's `traceparent`, empty without one.

    What became of the call is read from its report at the end.
    """
    if not report.format:  # no call of a model
        yield
        return
    provider = _PROVIDERS.get(report.format, report.format)
    host = urlsplit(report.upstream).hostname or ""
    failure: Exception | None = None
    with (
        continued_trace(parent),
        proxied_span(report.model, provider, report.conversation, report.id, host) as traced,
    ):
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised behind the span, which has the report's word for it
            failure = error
        _finish(traced, report, failure)
    if failure is not None:
        raise failure


def _finish(traced: Span, report: CallReport, failure: Exception | None) -> None:
    traced.set(
        {
            "http.response.status_code": report.status or None,
            "gen_ai.response.time_to_first_chunk": report.first_byte_ms / 1_000 or None,
            "nexus.client": report.client,
            "nexus.mode": report.mode,
            "nexus.outcome": report.outcome,
            "nexus.budget": report.budget or None,
            "nexus.omitted": report.omitted or None,
            "nexus.context.tokens": report.tokens or None,
            "nexus.session": report.session or None,
            "nexus.cost_usd": report.cost_usd,
        }
    )
    if report.usage is not None:
        traced.usage(report.usage)
    if report.cache is not None and report.cache.cause:
        traced.set({"nexus.cache.miss": report.cache.cause})
    if report.outcome == "refused":
        traced.fail("refused")
    elif report.status >= 400:
        traced.fail(str(report.status))
    elif report.error:
        traced.fail(report.error.partition(":")[0].replace(" ", "_"))
    elif failure is not None:
        traced.fail(type(failure).__name__)
