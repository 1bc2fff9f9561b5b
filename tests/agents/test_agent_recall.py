"""`recall` in long sessions: its own searches are no hits, and a page that it opens is shown whole."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import nexus
from nexus.agents.tools import ToolContext
from nexus.agents.tools.history import HistoryTools
from nexus.assembly.fit.view import LARGEST_PART, size_class
from nexus.engine import Engine, available_tokens
from nexus.tokens.message_tokens import text_tokens_json
from nexus.types.message import Message, Text, ToolCall, ToolResult

NEEDLE = "the calibration constant of sensor Q7 is zeta-1731"


def recall(nx: Engine, **arguments: str) -> str:
    result = HistoryTools(ToolContext(nx, "main")).recall(**arguments)
    return "\n".join(part.text for part in result.content if isinstance(part, Text))


def turn(nx: Engine, question: str, *replies: Message) -> None:
    nx.record(nx.assemble(question, session="main", profile="bare"), nexus.AgentResult(replies))


def searched(text: str) -> tuple[Message, Message]:
    """A search with a text next to the call, and its result."""
    call = ToolCall("r1", "recall", '{"query": "vault code word"}')
    return nexus.assistant(text, call), Message("tool", (ToolResult("r1", (Text("vault code word"),), "recall"),))


@pytest.mark.parametrize(("text", "is_hit"), [("I search for it.", False), ("The vault has a code word.", True)])
def test_recall_finds_a_reply_that_searches_only_by_its_text(text: str, *, is_hit: bool) -> None:
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx:
        turn(nx, "The vault code word is amber.", nexus.assistant("Noted."))
        turn(nx, "What was it?", *searched(text), nexus.assistant("Amber."))
        found = re.findall(r"^\d+\.\d+ \(turn (\d+)", recall(nx, query="vault code word"), re.MULTILINE)
        assert sorted(found) == (["1", "2"] if is_hit else ["1"])


@pytest.mark.parametrize("window", [4_096, 12_000, 32_000, 200_000])
@pytest.mark.parametrize(
    "line",
    [
        lambda number: f"2026-03-01T12:{number % 60:02}:07.{number:05}Z GET /v1/items/{number * 7919 % 99991} 304",
        lambda number: f"数据库管理员昨天晚上决定重新建立索引{number}。担当者は索引を作り直しました。",
        lambda number: f"In line {number} the planner reads the index and the worker writes the report.",
    ],
    ids=["log", "CJK", "prose"],
)
def test_page_with_the_words_is_not_shortened_by_a_cut(window: int, line: Callable[[int], str]) -> None:
    lines = [*map(line, range(2_000)), NEEDLE, *map(line, range(2_000, 4_000))]
    call = nexus.assistant("", ToolCall("c1", "fetch", "{}"))
    result = Message("tool", (ToolResult("c1", (Text("\n".join(lines)),), "fetch"),))
    limits = {"local": {"context_tokens": window, "max_input_tokens": window}}
    with nexus.open(ledger=":memory:", model="local", models=limits) as nx:
        turn(nx, "Fetch it.", call, result, nexus.assistant("Done."))
        page = recall(nx, reference="c1", query="calibration constant sensor Q7")
        assert NEEDLE in page
        assert text_tokens_json(page, nx.counter) <= size_class(available_tokens(nx, session="main")) // LARGEST_PART
