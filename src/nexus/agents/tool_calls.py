"""Tool calls of a turn: run at the same time, each result stored as it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from nexus.engine.async_engine import AsyncTurn
from nexus.models.tracing import tool_span
from nexus.types.message import Message, Text, ToolCall, ToolResult
from nexus.types.stream_events import Sink, ToolState, ToolStatus

RunCall: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
"""Runs one call. Whatever goes wrong is a result with `is_error`."""

PREVIEW_CHARS = 200
"""Characters of arguments and results in a `tool_status`."""


async def run_calls(calls: Sequence[ToolCall], run: RunCall, turn: AsyncTurn, sink: Sink) -> list[Message]:
    """Run the calls of a reply at the same time, and return their results in the order of the calls."""
    tasks = [asyncio.ensure_future(_run_call(call, run, turn, sink)) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _run_call(call: ToolCall, run: RunCall, turn: AsyncTurn, sink: Sink) -> Message:
    sink(ToolStatus(call.id, call.name, "started", call.arguments[:PREVIEW_CHARS]))
    status: ToolState = "failed"
    text = "canceled"
    try:
        with tool_span(call) as traced:
            result = await run(call)
            if result.is_error:
                traced.fail("tool_error")
        storing = asyncio.ensure_future(turn.result(call.id, result))
        status = "failed" if result.is_error else "completed"
        text = text_of_result(result)
        try:
            await asyncio.shield(storing)  # a cancellation does not stop it
        except Exception as error:
            status = "failed"
            text = str(error)
            raise
        return Message("tool", (result,))
    finally:
        sink(ToolStatus(call.id, call.name, status, text[:PREVIEW_CHARS]))


def text_of_result(result: ToolResult) -> str:
    """Return the text of a result."""
    return "\n".join(part.text for part in result.content if isinstance(part, Text))


def error_result(call: ToolCall, text: str) -> ToolResult:
    """Return a failed result."""
    return ToolResult(call.id, (Text(text),), call.name, is_error=True)
