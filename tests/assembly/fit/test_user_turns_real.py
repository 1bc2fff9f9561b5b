"""Real sessions: after many cuts or compactions, every user turn is shown, or counted among those that are not."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import nexus
from nexus.assembly.fit.excerpts import is_user_turn
from nexus.assembly.fit.pins import excerpt_text
from nexus.assembly.record import with_sizes
from nexus.interop.detect import read
from nexus.types.message import Message
from support.validity import CHECKS

DATA = Path(os.environ.get("NEXUS_DATA", Path(__file__).parents[4] / "shared" / "data")) / "claude_code_long"
UNSHOWN = re.compile(r"([\d,]+) (?:of the user's turns (?:is|are)|more user turns are) not shown")
HEAD_CHARS = 30
EVERY = 7
"""A call after so many stored messages, so that sessions are cut at many places."""


def stored_messages(path: Path) -> list[Message]:
    transcript = max(read(path), key=lambda one: len(one.steps))
    return [message for step in transcript.steps for message in step.messages if message.has_content()]


@pytest.mark.parametrize("compact", [False, True], ids=["cuts", "compactions"])
@pytest.mark.parametrize("budget", [3_000, 6_000, 16_000])
@pytest.mark.parametrize("number", [12, 14, 16, 18])
def test_every_user_turn_is_shown_or_counted(number: int, budget: int, compact: bool) -> None:
    path = DATA / f"session_{number}.jsonl"
    if not path.exists():
        pytest.fail(f"{path} is missing: get the data files, or set NEXUS_DATA to their folder")
    changes = 0
    turns: list[str] = []
    with nexus.open(ledger=":memory:", model="gpt-4o", calibrate=False) as nx:
        for at, message in enumerate(stored_messages(path)):
            if message.role == "user" and is_user_turn(message) and message.text().strip():
                turns.append(excerpt_text(message)[:HEAD_CHARS])
            nx.ledger.append("s", with_sizes((message,), nx.counter), starts_turn=message.role == "user")
            if at % EVERY or message.role != "assistant" or next(message.calls(), None) is not None:
                continue
            ctx = nx.assemble("and now?", session="s", profile="bare", budget=budget)
            if compact and ctx.token_budget.used.total > budget * 3 // 4:
                changes += bool(nx.compact("s", profile="bare", budget=budget, trigger="context_limit"))
                ctx = nx.assemble("and now?", session="s", profile="bare", budget=budget)
            changes += ctx.cut is not None
            assert CHECKS["openai"](ctx.to_openai()) == []
            nx.record(ctx, nexus.AgentResult((nexus.assistant("On it."),)))
            turns.append("and now?")
            texts = "\n".join(one.text() for one in ctx.messages)
            missing = [turn for turn in turns if turn not in texts]
            counts = [
                int(count.replace(",", "")) for one in ctx.history.opening for count in UNSHOWN.findall(one.text())
            ]
            assert len(missing) <= (counts or [0])[0], missing
    assert changes
