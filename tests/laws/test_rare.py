"""Sessions that broke a law once, each found among tens of thousands and made as small as it goes."""

from __future__ import annotations

from collections import Counter

import pytest

from laws.scripts import Script, Step
from laws.session import run
from nexus.types.message import Image, Message, Note, Text, ToolCall, ToolResult

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ASKED = Step("ask")
FOUND = (Text("found"),)
SAID = Message("assistant", (Text("ok"),), "m9")


def answering(*parts: Note | ToolResult) -> Step:
    return Step("raw", messages=(Message("user", parts), SAID))


def answered(call_id: str) -> tuple[Message, Message]:
    call = ToolCall(call_id, "read_file", "{}")
    return Message("assistant", (call,)), Message("tool", (ToolResult(call_id, FOUND),))


PICTURED = {
    "a message pinned that a cut left out, before images become notes": (
        Step("ask", 1),
        *[ASKED] * 9,
        Step("ask", 2, 11),
    ),
}

RARE = {
    "an assistant's message of nothing, then results": (
        Step("ask", 0, 6),
        ASKED,
        Step("pin"),
        Step("mark"),
        Step("raw", messages=(Message("assistant", (), "m9"),)),
        Step("answer"),
    ),
    "a request of nothing but the moment, beside a picture": (
        *[ASKED] * 10,
        answering(ToolResult("a", (Image("image/png", PIXEL, "", 1, 1),), "read_file"), Note("moment", "ok")),
    ),
    "a request of nothing but memory": (*[ASKED] * 5, answering(Note("memory", "ok"))),
    "a first task whose text is its note's": (
        Step("raw", messages=(Message("user", (Text("0"), Note("memory", "0"))),)),
        *[ASKED] * 5,
    ),
    "a request of nothing but the moment, and a blank": (
        *[ASKED] * 5,
        Step(
            "raw",
            messages=(
                Message("user", (Text(""), Note("moment", "ok"))),
                Message("assistant", (ToolCall("a", "read_file", '{"path": "x"}'),), "m9"),
            ),
        ),
    ),
    "a pinned call whose result comes twice": (
        Step("ask", 2),
        Step("pin", 0, 1),
        Step("answer", 0, 7),
        ASKED,
        ASKED,
    ),
    "a picture that is pinned": (Step("ask", 15), *[ASKED] * 4, Step("pin")),
    "results of a pinned call that a summary covers": (
        *[Step("answer", 251, 9)] * 2,
        Step("pin", 130, 144),
        *[Step("mark", 38, 180)] * 2,
        Step("answer", 14, 7),
    ),
    "a late result under the id that the second of two calls is shown with": (
        ASKED,
        Step("mark"),
        Step("raw", messages=(*answered("a"), *answered("a"), Message("tool", (ToolResult("a_2", FOUND),)))),
    ),
}


@pytest.mark.parametrize("steps", PICTURED.values(), ids=PICTURED)
def test_a_session_with_pictures_that_broke_a_law_once_keeps_it(steps: tuple[Step, ...]) -> None:
    figures: Counter[str] = Counter()
    run(Script("gpt-4o", 600, "oldest_first", None, 0, steps, 1), figures)
    assert figures["examples"] == 1


@pytest.mark.parametrize("steps", RARE.values(), ids=RARE)
@pytest.mark.parametrize("budget", [300, 3_900])
def test_a_session_that_broke_a_law_once_keeps_it(steps: tuple[Step, ...], budget: int) -> None:
    figures: Counter[str] = Counter()
    run(Script("gpt-4o", budget, "oldest_first", None, 1, steps), figures)
    assert figures["examples"] == 1
