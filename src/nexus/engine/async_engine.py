"""The engine for asynchronous programs: each operation runs on a thread of its own pool, never on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from nexus.context import AssembledContext
from nexus.engine import Engine, EngineOptions, open_engine
from nexus.engine.turn import Turn, turn_of
from nexus.ledger.store import LedgerStore
from nexus.providers.errors.failures import FailureKind
from nexus.text.as_received import ReceivedFormat
from nexus.types.ledger_entries import Committed
from nexus.types.message import Image, Message, ToolCall, ToolResult
from nexus.types.request import Event
from nexus.types.settings import CallArguments
from nexus.types.validation import check_options

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 1
"""Threads of an engine. Assembly is bound by the interpreter's lock: more threads only make the event loop wait."""


class AsyncEngine:
    """An `Engine` whose operations are awaited. Use `nexus.open_async` in `async with`.

    Attributes:
        engine: The engine itself, whose methods block. `run` calls them on this engine's threads.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="nexus engine")

    async def run(self, function: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
        """Call a blocking function on one of the engine's threads and await its result."""
        call = partial(copy_context().run, function, *args, **options)  # its spans are the caller's
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def warm(self) -> None:
        """Load tokenizer, tables and plugins before the first call; see `Engine.warm`."""
        await self.run(self.engine.warm)

    async def assemble(
        self,
        event: str | Event | Iterable[Message],
        *,
        session: str | None = None,
        images: Sequence[Image] = (),
        **options: Unpack[CallArguments],
    ) -> AssembledContext:
        """Assemble the context of the next call; see `Engine.assemble`."""
        return await self.run(partial(self.engine.assemble, event, session=session, images=images, **options))

    async def mirror(
        self,
        messages: Sequence[Any],
        *,
        scope: str = "",
        conversation: str = "",
        window: bool | None = None,
        provider: ReceivedFormat | None = None,
        reserve: int = 0,
        pins: Sequence[int] = (),
        **options: Unpack[CallArguments],
    ) -> AssembledContext:
        """Assemble the context for a program that has the whole message list; see `Engine.mirror`."""
        place = {"scope": scope, "conversation": conversation, "window": window}
        mirror = partial(self.engine.mirror, messages, **place)
        return await self.run(partial(mirror, provider=provider, reserve=reserve, pins=pins, **options))

    async def record(self, ctx: AssembledContext, reply: object) -> Committed:
        """Record a reply; see `Engine.record`."""
        return await self.run(self.engine.record, ctx, reply)

    async def begin(
        self,
        event: str | Event | Iterable[Message],
        *,
        session: str | None = None,
        images: Sequence[Image] = (),
        **options: Unpack[CallArguments],
    ) -> AsyncTurn:
        """Store an event and return its turn; see `Engine.begin`."""
        begin = partial(self.engine.begin, event, session=session, images=images, **options)
        return AsyncTurn(self, await self.run(begin))

    async def current_turn(self, session: str, **options: Unpack[CallArguments]) -> AsyncTurn | None:
        """Return the session's open turn, None if it is closed; see `Engine.current_turn`."""
        turn = await self.run(partial(self.engine.current_turn, session, **options))
        if turn is not None:
            return AsyncTurn(self, turn)
        return None

    def turn_of(self, ctx: AssembledContext) -> AsyncTurn:
        """Return the turn whose next call a context is for; see `nexus.engine.turn.turn_of`. It reads no ledger."""
        return AsyncTurn(self, turn_of(self.engine, ctx))

    async def history(self, session: str) -> list[Message]:
        """Return every message of a session; see `Engine.history`."""
        return await self.run(self.engine.history, session)

    async def close(self) -> None:
        """Close the ledger, after the operations that are under way."""
        await self.run(self.engine.close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


class AsyncTurn:
    """A `Turn` whose operations are awaited.

    Attributes:
        turn: The turn itself, whose methods block.
    """

    def __init__(self, nx: AsyncEngine, turn: Turn) -> None:
        self._nx = nx
        self.turn = turn

    async def assemble(self, **changes: Unpack[CallArguments]) -> AssembledContext:
        """Assemble the context of the turn's next call; see `Turn.assemble`."""
        return await self._nx.run(partial(self.turn.assemble, **changes))

    async def record(self, reply: object, ctx: AssembledContext | None = None) -> Committed:
        """Store a reply; see `Turn.record`."""
        return await self._nx.run(self.turn.record, reply, ctx)

    async def result(
        self, call_id: str, content: str | ToolResult | Message, *, name: str = "", is_error: bool = False
    ) -> Committed:
        """Store the result of one tool call; see `Turn.result`."""
        return await self._nx.run(self.turn.result, call_id, content, name=name, is_error=is_error)

    async def results(self, *results: ToolResult | Message) -> Committed:
        """Store results of several calls in one transaction; see `Turn.results`."""
        return await self._nx.run(self.turn.results, *results)

    async def calls(self) -> tuple[ToolCall, ...]:
        """Return the turn's tool calls that wait for a result; see `Turn.calls`."""
        return await self._nx.run(lambda: self.turn.calls)

    async def is_open(self) -> bool:
        """Return True if a call, a result or the end of the turn is still to come; see `Turn.is_open`."""
        return await self._nx.run(lambda: self.turn.is_open)

    async def complete(self) -> Committed:
        """End the turn without another reply; see `Turn.complete`."""
        return await self._nx.run(self.turn.complete)

    async def fail(self, kind: FailureKind, text: str, *, partial: object = None) -> Committed:
        """End the turn as failed; see `Turn.fail`."""
        return await self._nx.run(self.turn.fail, kind, text, partial=partial)

    async def fail_if_open(self, kind: FailureKind, text: str, *, partial: object = None) -> bool:
        """End the turn as failed, unless it has ended; see `Turn.fail_if_open`."""
        return await self._nx.run(self.turn.fail_if_open, kind, text, partial=partial)

    async def cancel(self, *, partial: object = None) -> Committed:
        """End the turn as interrupted; see `Turn.cancel`."""
        return await self._nx.run(self.turn.cancel, partial=partial)


class _Opening:
    """An asynchronous engine to be opened, by `await` or by `async with`."""

    def __init__(self, opener: Callable[[], Engine]) -> None:
        self._opener = opener
        self._engine: AsyncEngine | None = None

    async def _open(self) -> AsyncEngine:
        return AsyncEngine(await asyncio.to_thread(self._opener))

    def __await__(self) -> Generator[Any, None, AsyncEngine]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncEngine:
        self._engine = await self._open()
        return self._engine

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._engine is not None:
            await self._engine.close()


def open_async(
    workspace: str | Path | None = None,
    *,
    ledger: str | Path | LedgerStore | None = None,
    **options: Unpack[EngineOptions],
) -> _Opening:
    """Open an engine for an asynchronous program: `async with nexus.open_async(…) as nx`. Arguments as of `nexus.open`."""
    check_options("open_async", options, EngineOptions, "workspace ledger")
    return _Opening(partial(open_engine, workspace, ledger=ledger, **options))
