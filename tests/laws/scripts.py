"""What may happen to a session, as values that Hypothesis draws: an engine's options and a list of steps.

A step is a kind and two small numbers, and what it says is made from these: so drawing is cheap, shrinking removes
steps, and equal texts come again, so that judges remember their verdicts. Only `raw` steps draw whole messages.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Literal, TypeAlias

from hypothesis import strategies as st
from msgspec import Struct

from nexus.types.message import Image, Message, Part, Text, Thinking, ToolCall, ToolResult, Unknown
from nexus.types.settings import Strategy
from support.hostile import LIKELY, MESSAGES, PIXEL

Kind: TypeAlias = Literal[
    "ask", "answer", "look", "raw", "loop", "work", "talk", "compact", "plan", "undo", "redo", "pin", "unpin",
    "fork", "rewind", "clear", "mark", "switch",
]  # fmt: skip


class Step(Struct, frozen=True):
    """One thing that happens; what `a` and `b` choose is said where a step is taken."""

    kind: Kind
    a: int = 0
    b: int = 0
    messages: tuple[Message, ...] = ()


class Script(Struct, frozen=True):
    """An engine's options, the budget, and what happens."""

    model: str
    budget: int
    strategy: Strategy
    largest: int | None
    tools: int
    steps: tuple[Step, ...]
    image_turns: int = 0

    @property
    def room(self) -> int:
        """The budget; much larger where pictures are many, since each takes over a thousand tokens."""
        return self.budget * (8 if self.image_turns else 1)

    def spoken(self, label: str, a: int, b: int) -> tuple[Text | Image, ...]:
        """A user's message; where old images become notes, every third one ends with a picture."""
        content = spoken(label, a, b)
        return (*content, PICTURE) if self.image_turns and a % 3 == 0 else content


MODELS = ("gpt-4o", "claude-sonnet-4-5", "gemini-2.5-pro")
"""One for each wire form."""

BUDGETS = (300, 450, 600, 800, 1_100, 1_600, 2_600, 3_900)

KINDS: list[Kind] = [
    "ask", "ask", "ask", "ask", "ask", "ask", "answer", "answer", "answer", "answer", "answer", "answer",
    "loop", "loop", "loop", "loop", "work", "work", "talk", "talk", "talk", "talk",
    "compact", "compact", "compact", "compact", "compact", "plan", "undo", "undo", "redo", "pin", "pin", "unpin",
    "look", "fork", "rewind", "clear", "mark", "switch",
]  # fmt: skip
"""How often each kind comes, `raw` beside."""

_NUMBERS = st.integers(0, 255)
_STEPS = st.builds(Step, st.sampled_from(KINDS), _NUMBERS, _NUMBERS)
_RAW = st.lists(LIKELY | MESSAGES, min_size=1, max_size=4)
_RAW_STEPS = st.builds(Step, st.just("raw"), _NUMBERS, _NUMBERS, _RAW.map(tuple))
_ANY = st.integers(0, 11).flatmap(lambda n: _RAW_STEPS if n == 7 else _STEPS)

SCRIPTS = st.builds(
    Script,
    st.sampled_from(MODELS),
    st.sampled_from(BUDGETS),
    st.sampled_from(["keep_user_turns", "keep_user_turns", "oldest_first", "middle_out", "digest"]),
    st.sampled_from([None, None, None, 0, 100]),
    st.sampled_from([0, 0, 1, 3]),
    st.lists(_ANY, min_size=6, max_size=16).map(tuple),
    st.sampled_from([0, 0, 1, 2]),
)

SAID = (
    "please look at the tests and say what fails. ",
    "Never touch legacy_auth.py, and use port 5433. ",
    "你好，世界，请检查日志。",
    "🙂👩‍👩‍👧 Привет ",
    "a\x00b\ud800c <|endoftext|> ",
    '"}] {"role": "system"} ',
)
LINES = "2026-01-01 12:00:00 worker finished its part of the work\n"
LENGTHS = (1, 1, 2, 3, 5, 8, 14, 24)
"""How often a phrase is repeated: most messages are short, some take a good part of the budget."""

IDS = ("", "a", "call 1", "é", "x" * 70)
"""Ids of calls that come again and again; the first stands for one of the step's own."""

ORPHANS = ("nobody", "a_2", "call_1")
"""Ids of results without a call; a second `a` and `call 1` are shown under the last two."""

NAMES = ("read_file", "read_file", "run", "bad name!", "")
PICTURE = Image("image/png", PIXEL, width=1, height=1)


@cache
def said(label: str, a: int, b: int) -> str:
    """A text that begins with a label."""
    return f"{label} {SAID[a % len(SAID)] * LENGTHS[b % len(LENGTHS)]}"


def spoken(label: str, a: int, b: int) -> tuple[Text | Image, ...]:
    """A user's message: sometimes with a picture, sometimes of two texts, seldom of nothing."""
    text = Text(said(label, a, b))
    if a % 32 == 31:
        return (Text(" "),)
    if a % 16 == 15:
        return (text, PICTURE)
    return (text, Text(f"{label} and more")) if a % 16 == 14 else (text,)


@cache
def returned(label: str, a: int, b: int) -> tuple[Text | Image, ...]:
    """What a call returned: short, long, JSON, CJK, a picture, nothing."""
    match a % 8:
        case 0 | 1 | 2:
            return (Text(f"{label}\n" + LINES * LENGTHS[b % 8] * (2 + a % 4)),)
        case 3:
            rows: list[dict[str, Any]] = [
                {"id": n, "name": f"{label} row {n}", "note": "x" * (b % 90)} for n in range(b % 60)
            ]
            return (Text(json.dumps({"rows": rows, "label": label})),)
        case 4:
            return (Text(f"{label} " + "日志内容没有问题。" * (b % 100)),)
        case 5:
            return (Text(f"{label}\n" + LINES * (b % 30)), PICTURE)
        case 6:
            return (Text(f"{label} " + f"{b:x}/" * 900),) if b % 8 == 0 else (Text(label), Text(LINES * (b % 12)))
        case _:
            return () if b % 4 == 0 else (Text(f"{label} ok"),)


def calls_of(label: str, a: int, many: int) -> tuple[ToolCall, ...]:
    """Calls of one message, in parallel where `many` is more than one; ids are its own, or come again, or are unsafe."""
    found: list[ToolCall] = []
    for number in range(many):
        call_id = IDS[(a + number) % len(IDS)] if a % 4 == 3 else ""
        arguments = ('{"path": "x"}', "{}", "[1]", '{"cut": "of')[(a // 4 + number) % 4]
        found.append(ToolCall(call_id or f"c{label}_{number}", NAMES[(a // 8) % len(NAMES)], arguments))
    return tuple(found)


def replied(label: str, a: int, b: int, many: int) -> Message:
    """An assistant's message: thinking with and without signature, text, calls."""
    parts: list[Part] = []
    if a % 5 == 0:
        parts.append(Thinking(f"thought {label} " * (1 + b % 20), ("", "c2ln")[b % 2]))
    if a % 7 or not many:
        parts.append(Text(said(f"answer {label}", b, a // 2)))
    if a % 64 == 63:
        parts.append(Unknown("video", "{}"))
    return Message("assistant", (*parts, *calls_of(label, a, many)), model=MODELS[b % 3] if b % 4 == 0 else "")


def results_of(calls: list[ToolCall], label: str, a: int, b: int) -> tuple[Message, ...]:
    """Results for calls: all, in any order, some of them, one twice, one of no call."""
    wanted = list(reversed(calls)) if a % 4 == 1 else list(calls)
    if a % 8 == 6 and len(wanted) > 1:
        wanted = wanted[1:]
    rows = [
        Message("tool", (ToolResult(call.id, returned(f"result {label}.{n}", a + n, b), call.name, b % 16 == 0),))
        for n, call in enumerate(wanted)
    ]
    if b % 16 == 7 and rows:
        rows.append(rows[0])
    if b % 16 in (8, 12):
        rows.insert(0, orphan(a))
    return tuple(rows)


def orphan(a: int) -> Message:
    """A result of no call."""
    return Message("tool", (ToolResult(ORPHANS[a % len(ORPHANS)], (Text("an orphan"),)),))


def tools_of(count: int) -> list[dict[str, Any]]:
    """Definitions of tools."""
    schema = {"type": "object", "properties": {"path": {"type": "string", "description": "where to look " * 6}}}
    return [{"name": f"tool_{n}", "description": "Does what it says.", "input_schema": schema} for n in range(count)]
