"""Recorded sessions as clients send them: the whole list with every call, or only its newest part."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nexus
from engine.mirror.clients import stored_messages
from nexus.interop.detect import read
from nexus.interop.importing import import_transcript
from nexus.types.message import Message
from support.validity import CHECKS

BUDGET = 16_000
SESSIONS = tuple(f"session_{number:02d}.jsonl" for number in range(1, 11))


@pytest.mark.parametrize("file", SESSIONS)
@pytest.mark.parametrize("window", [None, 40])
def test_calls_of_real_sessions_stay_in_one_session_and_are_stored_once(
    file: str, window: int | None, data: Path, record_property: Callable[[str, object], None]
) -> None:
    messages = imported_messages(data / "claude_code" / file)
    calls = 0
    with nexus.open(ledger=":memory:", model="claude-sonnet-4-5") as nx:
        for end in range(1, len(messages)):
            if messages[end].role != "assistant" or messages[end - 1].role == "assistant":
                continue
            try:
                ctx = nx.mirror(copy.deepcopy(shown(messages, end, window)), window=window is not None, budget=BUDGET)
            except nexus.BudgetTooSmall:
                continue
            assert CHECKS["anthropic"](ctx.to_anthropic()) == []
            assert ctx.token_budget.used.total <= BUDGET
            reply = tuple(messages[end : reply_end(messages, end)])
            nx.record(ctx, nexus.AgentResult(reply))
            calls += 1
        assert len(nx.sessions()) == 1
        assert stored_messages(nx) <= 1.1 * len(messages)
    record_property("figures", {"calls with whole lists" if window is None else "calls with the newest part": calls})


def imported_messages(file: Path) -> list[Message]:
    with nexus.open(ledger=":memory:") as nx:
        import_transcript(nx, next(iter(read(file))), "s")
        return [message for message in nx.history("s") if message.role != "system"]


def shown(messages: list[Message], end: int, window: int | None) -> list[Any]:
    """What the client sends: everything, or the newest turns of about `window` messages."""
    if window is None or end <= window:
        return messages[:end]
    starts = [n for n in range(end - window, end - 10) if messages[n].role == "user"]
    return messages[starts[0] if starts else end - window : end]


def reply_end(messages: list[Message], start: int) -> int:
    return next((n for n in range(start, len(messages)) if messages[n].role != "assistant"), len(messages))
