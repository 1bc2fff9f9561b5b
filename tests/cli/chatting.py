"""Chats in a pseudo-terminal with the scripted model server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import nexus
from cli.terminal import Terminal

MODEL = "gpt-4o"
PROMPT = f"{MODEL} · context"
"""The line below the input: the chat waits for a message."""

Start: TypeAlias = Callable[..., Terminal]


def turns(folder: Path, session: str = "main") -> list[tuple[str, list[str]]]:
    """The turns of a session: status, and the texts of their messages."""
    with nexus.open(folder) as nx:
        entries = nx.ledger.entries(session)
        return [
            (turn.status, [row.message.text() for e in entries if e.turn == turn.number for row in e.rows])
            for turn in nx.ledger.turns(session)
        ]
