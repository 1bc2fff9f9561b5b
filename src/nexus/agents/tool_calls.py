"""Tool calls of a turn: run at the same time, each result stored as it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from nexus.engine.async_engine import AsyncTurn
from nexus.errors import BadEvent, IdempotencyConflict
from nexus.ledger.lease import shielded
from nexus.models.tracing import tool_span
from nexus.types.message import Message, Text, ToolCall, ToolResult
from nexus.types.stream_events import Sink, ToolState, ToolStatus

RunCall: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
"""Runs one call. Whatever goes wrong is a result with `is_error`."""

PREVIEW_CHARS = 200
"""Characters of arguments and results in a `tool_status`."""


RESULTS_AT_ONCE = 16
"""Results in one transaction, at most: other sessions wait for it."""


def run_first(run: RunCall, calls: Sequence[ToolCall], limit: int) -> RunCall:
    """Return a function that runs the first calls of a reply; the results of the others say that they were not run."""
    first_ids = {call.id for call in calls[:limit]}
    reason = f"not run: a reply may make {limit} calls, and this one made {len(calls)} (ask for the rest again)"

    async def run_or_refuse(call: ToolCall) -> ToolResult:
        if call.id in first_ids:
            return await run(call)
        return error_result(call, reason)

    return run_or_refuse


async def run_calls(calls: Sequence[ToolCall], run: RunCall, turn: AsyncTurn, sink: Sink) -> list[Message]:
    """Run the calls of a reply at the same time, and return their results in the order of the calls.

    All that ran is stored before this returns or raises.
    """
    storing = _ResultStorage(turn)
    tasks = [asyncio.ensure_future(_run_call(call, run, storing, sink)) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await shielded(storing.end())
        raise


async def _run_call(call: ToolCall, run: RunCall, storage: _ResultStorage, sink: Sink) -> Message:
    sink(ToolStatus(call.id, call.name, "started", call.arguments[:PREVIEW_CHARS]))
    status: ToolState = "failed"
    text = "canceled"
    try:
        with tool_span(call) as traced:
            result = await run(call)
            if result.is_error:
                traced.fail("tool_error")
        stored = storage.add(result)
        status = "failed" if result.is_error else "completed"
        text = text_of_result(result)
        try:
            await shielded(stored)  # a cancellation does not stop it
        except Exception as error:
            status = "failed"
            text = str(error)
            raise
        return Message("tool", (result,))
    finally:
        sink(ToolStatus(call.id, call.name, status, text[:PREVIEW_CHARS]))


class _ResultStorage:
    """Stores the results of a reply in the order in which they come: those that wait meanwhile in one transaction."""

    def __init__(self, turn: AsyncTurn) -> None:
        self._turn = turn
        self._waiting: list[tuple[ToolResult, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, result: ToolResult) -> asyncio.Future[None]:
        """Have a result stored; the future ends when it is, with the error if it cannot be."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((result, stored))
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._store())
        return stored

    async def end(self) -> None:
        """Wait until no result waits."""
        if self._task is not None:
            await self._task

    async def _store(self) -> None:
        while self._waiting:
            batch = self._waiting[:RESULTS_AT_ONCE]
            del self._waiting[:RESULTS_AT_ONCE]
            try:
                await self._turn.results(*(result for result, _ in batch))
            except (BadEvent, IdempotencyConflict):  # because of one of them
                for result, stored in batch:
                    _settle(stored, await _error_of(self._turn.results(result)))
            except Exception as error:  # noqa: BLE001 - raised where the call runs
                for _, stored in batch:
                    _settle(stored, error)
            else:
                for _, stored in batch:
                    _settle(stored, None)


async def _error_of(work: Awaitable[object]) -> Exception | None:
    try:
        await work
    except Exception as error:  # noqa: BLE001 - raised where the call runs
        return error
    return None


def _settle(stored: asyncio.Future[None], error: Exception | None) -> None:
    if stored.done():
        return
    if error is None:
        stored.set_result(None)
    else:
        stored.set_exception(error)
        stored.exception()  # nobody may wait for it any more


def text_of_result(result: ToolResult) -> str:
    """Return the text of a result."""
    return "\n".join(part.text for part in result.content if isinstance(part, Text))


def error_result(call: ToolCall, text: str) -> ToolResult:
    """Return a failed result."""
    return ToolResult(call.id, (Text(text),), call.name, is_error=True)
