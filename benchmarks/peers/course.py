"""The conversations that everybody is given: calls as OpenAI messages, and the Nexus events that they came from.

A course is made by Nexus itself under a budget that nothing exceeds: system, messages and order are the same for all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from msgspec import Struct

import nexus
from benchmarks.bodies import Remembered
from benchmarks.sessions import Call, Session
from benchmarks.workspace import write_workspace
from nexus.types.message import Text

MODEL = "gpt-4o"
NO_LIMIT = 100_000_000

Messages: TypeAlias = list[dict[str, Any]]


class Exchange(Struct, frozen=True):
    """One model call: what was new before it, what the model answered, and the call that both were made from."""

    event: Messages
    reply: Messages
    source: Call


class Course(Struct, frozen=True):
    """A conversation: its system message, its tools in OpenAI's form, its calls in order."""

    name: str
    system: str
    tools: Messages
    exchanges: tuple[Exchange, ...]


def course_of(session: Session, counter: Remembered) -> Course:
    """The session as a course. Raises AssertionError where a body does not go on from the one before it."""
    tools = tools_of(session.calls)
    exchanges: list[Exchange] = []
    before: Messages = []
    with TemporaryDirectory() as folder:
        root = write_workspace(Path(folder))
        with nexus.open(root, ledger=":memory:", model=MODEL, clock_ms=lambda: 1, counter=counter) as nx:
            for call in session.calls:
                ctx = nx.assemble(call.event, budget=NO_LIMIT, tools=tools)
                messages: Messages = ctx.to_openai()["messages"]
                nx.record(ctx, nexus.AgentResult(call.reply))
                if messages[: len(before)] != before:
                    raise AssertionError(f"{session.name}: a never-cut body does not begin with the one before")
                new = messages[len(before) or 1 :]
                answered = max((at for at, one in enumerate(new, 1) if one["role"] == "assistant"), default=0)
                if exchanges:
                    exchanges[-1] = Exchange(exchanges[-1].event, new[:answered], exchanges[-1].source)
                exchanges.append(Exchange(new[answered:], [], call))
                before = messages
    return Course(session.name, before[0]["content"], tools, tuple(exchanges))


def tools_of(calls: Iterable[Call]) -> Messages:
    """A definition for each tool that is called, with the arguments that were seen."""
    found: dict[str, set[str]] = {}
    for call in (asked for one in calls for message in one.reply for asked in message.calls()):
        found.setdefault(call.name, set()).update(json.loads(call.arguments or "{}"))
    return [_tool(name, sorted(found[name])) for name in sorted(found)]


def _tool(name: str, arguments: Sequence[str]) -> dict[str, Any]:
    properties = {argument: {"description": f"The {argument} of this call."} for argument in arguments}
    what = f"Runs {name} with the given arguments and returns what it printed."
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": what, "parameters": parameters}}


def said_by_user(call: Call) -> str:
    """The user's own text of a call; empty when it brings results of tools."""
    return "\n".join(part.text for part in call.event.content if isinstance(part, Text))
