"""Many sessions of one broker at once, with a model whose calls fail in all the ways that streams fail."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("openai")

from benchmarks.agents import run_broker
from benchmarks.conversations import served

SESSIONS, TURNS = 60, 3


def test_sessions_at_once_lose_double_and_cross_nothing_when_first_tries_fail() -> None:
    with served(faults=True) as url:
        result = asyncio.run(run_broker(url, SESSIONS, TURNS))
    assert result.wrong == ()
    assert result.overflows >= SESSIONS // 10
