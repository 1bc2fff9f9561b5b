"""Traces of commands that run agents: sent to the collector that OpenTelemetry's own variables name."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import click

from nexus.errors import install_command

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SERVICE = "nexus"


def send_traces() -> None:
    """Send this process's spans to a collector, if `OTEL_EXPORTER_OTLP_ENDPOINT` or its variant for traces is set.

    What keeps them from being sent is a warning on standard error: a command does not fail for it.
    """
    url = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), "")
    if not url or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        click.echo(f"traces not sent: {error} ({install_command('otel')})", err=True)
        return
    if urlsplit(url).scheme not in ("http", "https"):
        click.echo(f"traces not sent: {_ENDPOINTS[1]} is no http or https URL", err=True)
        return
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return  # set up by the program that started this one
    is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    provider = TracerProvider(resource=Resource.create({} if is_named else {"service.name": _SERVICE}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
