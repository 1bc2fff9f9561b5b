"""A scripted model client, and a check of the laws of a turn's events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from nexus import AgentResult, ToolCall, assistant
from nexus.context import AssembledContext
from nexus.models import ModelReply
from nexus.types.request import TokenUsage
from nexus.types.stream_events import (
    CompactionEnd,
    CompactionStart,
    Reasoning,
    Retry,
    StreamEnd,
    StreamError,
    StreamEvent,
    StreamStart,
    Token,
    ToolStatus,
)


def said(text: str, *calls: ToolCall, thinking: str = "", cost: float | None = 0.001) -> list[Any]:
    """The items of a reply: its tokens by word, then the reply."""
    message = assistant(text, *calls)
    result = AgentResult((message,), TokenUsage(10, 5), "tool_use" if calls else "end_turn", model="gpt-4o")
    pieces = [Token(piece) for piece in text.split(" ")] if text else []
    spaced = [Token(f" {piece.text}") if number else piece for number, piece in enumerate(pieces)]
    return [*([Reasoning(thinking)] if thinking else []), *spaced, ModelReply(result, cost)]


class ScriptedClient:
    """Yields the items of each step in turn; an exception is raised, a number of seconds slept, an event awaited."""

    def __init__(self, *steps: Sequence[Any]) -> None:
        self.steps = list(steps)
        self.contexts: list[AssembledContext] = []

    async def stream(self, ctx: AssembledContext) -> AsyncGenerator[Any]:
        self.contexts.append(ctx)
        for item in self.steps.pop(0):
            await asyncio.sleep(item if isinstance(item, (int, float)) else 0)
            if isinstance(item, BaseException):
                raise item
            if isinstance(item, asyncio.Event):
                await item.wait()
            elif not isinstance(item, (int, float)):
                yield item


class Scenario:
    """Answers each call by a function of its context."""

    def __init__(self, answer: Callable[[AssembledContext], list[Any]]) -> None:
        self._answer = answer
        self.sessions: list[str] = []

    async def stream(self, ctx: AssembledContext) -> AsyncGenerator[Any]:
        self.sessions.append(ctx.session_label)
        await asyncio.sleep(0)
        for item in self._answer(ctx):
            if isinstance(item, BaseException):
                raise item
            if isinstance(item, int):
                await asyncio.sleep(item)
            else:
                yield item


def check_laws(events: Sequence[StreamEvent]) -> None:
    """One start, one end, an end for every tool and compaction."""
    assert isinstance(events[0], StreamStart)
    assert isinstance(events[-1], (StreamEnd, StreamError))
    assert sum(isinstance(event, (StreamStart, StreamEnd, StreamError)) for event in events) == 2
    open_tools: dict[str, str] = {}
    compacting = 0
    for event in events:
        if isinstance(event, ToolStatus):
            if event.status == "started":
                assert event.call_id not in open_tools
                open_tools[event.call_id] = event.name
            else:
                assert open_tools.pop(event.call_id) == event.name
        compacting += isinstance(event, CompactionStart) - isinstance(event, CompactionEnd)
        assert compacting in (0, 1)
    assert (open_tools, compacting) == ({}, 0)


def streamed_text(events: Sequence[StreamEvent]) -> str:
    """The joined tokens, without those that a retry withdrew."""
    settled, open_ = "", ""
    for event in events:
        match event:
            case Token():
                open_ += event.text
            case Retry():
                open_ = ""
            case ToolStatus(status="started"):
                settled, open_ = settled + open_, ""
            case _:
                pass
    return settled + open_
