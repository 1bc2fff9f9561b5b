"""Events of a running turn, in the order in which they happen.

A turn's events obey four laws: they begin with one `stream_start` and end with one `stream_end` or `stream_error`; the
joined `token` texts are the stored text of the turn, without the texts that a `retry` withdrew; every tool that started
completes or fails; every compaction that started ends. As JSON, `type` is an event's name.

`agents/agent.py` makes start, end and error, `agents/tool_calls.py` the states of tools, `providers/streams.py` texts and
thinking, `models/client.py` and `agents/loop.py` retries, `engine/overflow_recovery.py` compactions. `agents/event_order.py`
holds them to the laws, and ends tools and compactions that a turn left open. `agents/program.py` makes those of an engine in
another program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.types.request import TokenUsage

ToolState: TypeAlias = Literal["started", "completed", "failed"]


class StreamStart(Struct, frozen=True, tag="stream_start"):
    """A turn begins to run."""

    session: str
    turn: int
    model: str = ""
    provider: str = ""


class Token(Struct, frozen=True, tag="token"):
    """The next piece of the reply's text."""

    text: str


class Reasoning(Struct, frozen=True, tag="reasoning"):
    """The next piece of the model's thinking."""

    text: str


class Retry(Struct, frozen=True, tag="retry"):
    """A call of the model failed and is made again. It withdraws the tokens and the reasoning of the failed call."""

    kind: str
    """Kind of the failure (`nexus.failure_of`)."""
    text: str
    """The error, for people."""
    delay_s: float = 0.0
    """Seconds until the next call."""


class ToolStatus(Struct, frozen=True, tag="tool_status"):
    """A tool call started, completed or failed."""

    call_id: str
    name: str
    status: ToolState
    text: str = ""
    """The arguments of a call that started; the beginning of its result afterward."""


class CompactionStart(Struct, frozen=True, tag="compaction_start"):
    """Old messages are being replaced by a summary or left out, because the next call would not fit."""

    reason: str = ""


class CompactionEnd(Struct, frozen=True, tag="compaction_end"):
    """The compaction ended. Tokens are the prompt's, before and after."""

    tokens_before: int = 0
    tokens_after: int = 0
    method: str = ""
    """Name of the model that wrote the summary, or `extractive`; empty if nothing was stored."""
    problem: str = ""
    """Why a model's summary was rejected."""


class StreamEnd(Struct, frozen=True, tag="stream_end"):
    """The turn is complete and stored."""

    stop_reason: str = ""
    usage: TokenUsage = TokenUsage()
    cost_usd: float | None = None
    """Cost at list prices; None for a model without prices."""
    calls: int = 1
    """Number of calls of a model."""


class StreamError(Struct, frozen=True, tag="stream_error"):
    """The turn failed. What had arrived is stored with it."""

    kind: str
    """Kind of the failure (`nexus.failure_of`)."""
    text: str
    """The error, for people."""
    retryable: bool = False


StreamEvent: TypeAlias = (
    StreamStart | Token | Reasoning | Retry | ToolStatus | CompactionStart | CompactionEnd | StreamEnd | StreamError
)

Sink: TypeAlias = Callable[[StreamEvent], None]
"""Takes the events of a turn, on the event loop. It must not block."""


def ignore_event(event: StreamEvent) -> None:
    """Take an event that nobody watches."""
