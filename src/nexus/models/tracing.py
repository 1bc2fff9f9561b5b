"""OpenTelemetry spans of turns, calls of models, tools and contexts, by the conventions for generative AI.

A program that has set up OpenTelemetry gets them; in any other one nothing is imported and nothing happens. Spans have
names, sizes and costs, but never the content of messages. The names are those of
https://github.com/open-telemetry/semantic-conventions-genai (in development); those of Nexus begin with `nexus.`.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from nexus.types.message import ToolCall
from nexus.types.request import AgentResult, TokenUsage

if TYPE_CHECKING:
    from opentelemetry.trace import Span as OpenTelemetrySpan

Value: TypeAlias = str | int | float | bool | list[str]
Kind: TypeAlias = Literal["internal", "client", "server"]

_PROVIDERS = {
    "amazon": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "xai": "x_ai",
}
"""The conventions' names of providers, where ours are others."""


class Span:
    """An operation under way. Without OpenTelemetry it does nothing."""

    def __init__(self, span: OpenTelemetrySpan | None = None) -> None:
        self._span = span

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        """Add attributes; values of None are left out."""
        if self._span is not None:
            self._span.set_attributes({name: value for name, value in attributes.items() if value is not None})

    def fail(self, kind: str) -> None:
        """Mark the operation as failed, with the kind of its error. Texts of errors may have secrets: they stay out."""
        if self._span is not None:
            from opentelemetry.trace import StatusCode

            self._span.set_attribute("error.type", kind)
            self._span.set_status(StatusCode.ERROR)

    def usage(self, usage: TokenUsage) -> None:
        """Add tokens as reported."""
        self.set(
            {
                "gen_ai.usage.input_tokens": usage.input_tokens or None,
                "gen_ai.usage.output_tokens": usage.output_tokens or None,
                "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens or None,
                "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens or None,
                "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens or None,
            }
        )

    def reply(self, result: AgentResult) -> None:
        """Add the usage and the end of a reply, or of a whole turn."""
        if self._span is None:
            return
        self.usage(result.usage)
        self.set(
            {
                "gen_ai.response.finish_reasons": [result.stop_reason] if result.stop_reason else None,
                "gen_ai.response.model": result.model or None,
                "nexus.cost_usd": result.cost_usd,
            }
        )


@contextmanager
def span(
    name: str, attributes: Mapping[str, Value | None], *, kind: Kind = "internal", is_current: bool = True
) -> Generator[Span]:
    """Trace the block. An exception marks it as failed with the name of its class.

    Args:
        name: Name of the operation, with few different values.
        attributes: What is known at the start; values of None are left out.
        kind: `client` for a request to another service, `server` for a request from outside.
        is_current: Spans within the block are its children. False in an asynchronous generator, whose context is its
            caller's.
    """
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        yield Span()
        return
    tracer = api.get_tracer("nexus")
    known = {key: value for key, value in attributes.items() if value is not None}
    inner = tracer.start_span(name, kind=api.SpanKind[kind.upper()], attributes=known)
    traced = Span(inner)
    try:
        if is_current:
            with api.use_span(inner, record_exception=False, set_status_on_exception=False):
                yield traced
        else:
            yield traced
    except GeneratorExit:  # the reader of a stream has what it wanted
        raise
    except BaseException as error:
        traced.fail(type(error).__name__)
        raise
    finally:
        inner.end()


@contextmanager
def turn_span(session: str, model: str, provider: str) -> Generator[Span]:
    """Trace a turn of an agent: all its calls of models and tools are its children."""
    attributes = {**_model_attributes("invoke_agent", session, model, provider), "gen_ai.agent.id": session}
    with span("invoke_agent", attributes) as traced:
        yield traced


@contextmanager
def model_span(session: str, model: str, provider: str, *, tokens: int, available: int) -> Generator[Span]:
    """Trace a call of a model.

    Args:
        session: The session's label.
        model: Name of the model.
        provider: Its provider.
        tokens: Size of the context.
        available: Tokens that the context may have.
    """
    operation = "chat"
    if provider == "gemini":
        operation = "generate_content"
    attributes = {
        **_model_attributes(operation, session, model, provider),
        "gen_ai.request.stream": True,
        "nexus.context.tokens": tokens,
        "nexus.context.available": available,
    }
    with span(f"{operation} {model}", attributes, kind="client", is_current=False) as traced:
        yield traced


@contextmanager
def proxied_span(model: str, provider: str, conversation: str, call_id: str, host: str) -> Generator[Span]:
    """Trace a call of a client's that goes through a proxy.

    Args:
        model: Name of the model.
        provider: Whose format the request has.
        conversation: The client's id of the conversation.
        call_id: The proxy's id of the call.
        host: Name of the server that it is sent to.
    """
    operation = "chat"
    if provider == "gemini":
        operation = "generate_content"
    attributes = {
        **_model_attributes(operation, conversation, model, provider),
        "server.address": host or None,
        "nexus.call.id": call_id,
    }
    with span(f"{operation} {model}".rstrip(), attributes, kind="client") as traced:
        yield traced


@contextmanager
def tool_span(call: ToolCall) -> Generator[Span]:
    """Trace a tool call."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
    }
    with span(f"execute_tool {call.name}", attributes) as traced:
        yield traced


def trace_parent() -> str:
    """Return the current span as a W3C `traceparent`, which another process or a later turn continues; empty if none."""
    if "opentelemetry.trace" not in sys.modules:
        return ""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")


@contextmanager
def continued_trace(parent: str) -> Generator[None]:
    """Make spans of the block children of a `traceparent`; of none if it is empty or invalid."""
    if "opentelemetry.trace" not in sys.modules:
        yield
        return
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": parent} if parent else {}
    token = context.attach(TraceContextTextMapPropagator().extract(carrier, context.Context()))
    try:
        yield
    finally:
        context.detach(token)


def _model_attributes(operation: str, session: str, model: str, provider: str) -> dict[str, Value | None]:
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider) or None,
        "gen_ai.request.model": model or None,
        "gen_ai.conversation.id": session or None,
    }
