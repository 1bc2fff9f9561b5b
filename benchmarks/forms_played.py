"""Sessions played call by call in one form: the body of each call, with the session's times and a memory that grows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

import nexus
from benchmarks.bodies import Body, Remembered
from benchmarks.sessions import ROOT, Call, Session

TIMEZONE = "Europe/Lisbon"
AFTER_ANSWER_MS, AFTER_CALL_MS = 60_000, 5_000
"""How long a user takes to write and a tool to run, where the session does not say when it was."""

START_MS = 1_767_225_600_000
NOTE_EVERY = 20
"""Calls after which one line is added to the memory file."""

FRIEND = {"friends_profile": "Leads a team of three. Reads answers on a telephone, so the answer has to come first."}


class Form(Struct, frozen=True):
    """A row's name, its profile, what `nexus.open` is given for it, and whether it is sent to the local server too."""

    name: str
    profile: str
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    on_server: bool = True


FORMS = (
    Form("tagged", "tagged"),
    Form("tagged_stable", "tagged_stable"),
    Form("layered", "layered"),
    Form("repl", "repl"),
    Form("repl, clock in the system prompt", "repl", {"clock": "system"}),
    Form("workspace", "workspace", on_server=False),
    Form("turnlog", "turnlog", on_server=False),
)


class Sent(Struct, frozen=True):
    """One call: what was sent, and when."""

    body: Body
    at_ms: int


def play(session: Session, form: Form, model: str, counter: Remembered, *, budget: int | None = None) -> list[Sent]:
    """The bodies of a session's calls in a form, in the form of the model's provider, with the example's workspace.

    `budget` is the available tokens, by default those of the model's window. Raises BudgetTooSmall.
    """
    with TemporaryDirectory() as folder:
        root = Path(folder) / "agent"
        shutil.copytree(ROOT / "examples" / "agent", root)
        given: dict[str, Any] = {"timezone": TIMEZONE, **form.given}
        with nexus.open(root, ledger=":memory:", model=model, counter=counter, **given) as nx:
            return list(_played(nx, session.calls, form, root / "memory" / "MEMORY.md", budget))


def _played(nx: nexus.Engine, calls: Sequence[Call], form: Form, memory: Path, budget: int | None) -> Iterator[Sent]:
    wire = nx.resolve(nx.model).provider_format
    tools = json.loads((ROOT / "examples" / "tools.json").read_text("utf-8"))["tools"]
    for number, (call, at_ms) in enumerate(zip(calls, times_of(calls), strict=True), 1):
        event = replace(call.event, at_ms=at_ms)
        ctx = nx.assemble(event, profile=form.profile, tools=tools, budget=budget, user_profile=FRIEND)
        yield Sent(ctx.to_provider(wire), at_ms)
        nx.record(ctx, nexus.AgentResult(call.reply))
        if number % NOTE_EVERY == 0:
            text = memory.read_text("utf-8").rstrip()
            memory.write_text(
                f"{text}\n- Noted after call {number}: what was found is in the notes of that day.\n", "utf-8"
            )


def times_of(calls: Iterable[Call]) -> list[int]:
    """When each call is made: the session's own time, never before the last one, or a usual while after it."""
    times: list[int] = []
    for call in calls:
        last = times[-1] if times else START_MS
        pause = AFTER_CALL_MS if call.event.results else AFTER_ANSWER_MS
        known = call.event.at_ms
        times.append(max(known, last if times else 0) if known else last + pause)
    return times
