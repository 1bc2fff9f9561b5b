"""Law of lists of several users: the model sees the client's list, and before a window its own earlier messages alone.

The model of who said what is a list for each conversation. Their words are from one small pool, so that conversations of
different users, clients and ids begin, end and repeat alike.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from laws.mutants import Mutant, broken_by

WORDS = ("hi", "hi there", "9 to 5.", "thanks")
LONG = tuple(f"{word} " * 60 for word in ("alpha", "beta", "gamma", "delta"))
NAMES: tuple[dict[str, Any], ...] = (
    {"scope": "shop"},
    {"scope": "shop", "principal": "ann"},
    {"scope": "shop", "principal": "bob"},
    {"scope": "cli", "principal": "ann"},
    {"principal": "ann"},
    {"window": True, "principal": "bob"},
    {"conversation": "c1", "principal": "ann"},
    {"conversation": "c2", "principal": "ann", "window": True},
    {"conversation": "c2", "scope": "shop", "window": True},
    {},
)
FOLDER = "<folder>\n" + "file " * 60
"""Beginning of a first message that a client writes anew; what follows it is another listing each time."""
CALLS = ("look", "call_1", "toolu_01a")
LONG_LINE = 200
"""Characters of a message that one of `LONG` has, and none of `WORDS`."""


class Step(NamedTuple):
    """What a client does: with which conversation, or names of a new one, and with which words."""

    action: str
    who: int = 0
    text: int = 0
    answer: int = 0
    engine: int = 0


ACTIONS = ["go on"] * 6 + ["slide", "slide", "slide", "edit", "remove", "retry", "new", "import", "long import"]
ACTIONS += ["no answer", "parallel", "result"]
ACTIONS += ["folder", "folder", "folder rewind", "folder import"]
STEPS = st.builds(
    Step, st.sampled_from(ACTIONS), st.integers(0, 9), st.integers(0, 7), st.integers(0, 10), st.integers(0, 1)
)


@dataclass
class Conversation:
    """A client's list, every list of it that was stored, with its reply and what was put back, and the newest by session."""

    names: dict[str, Any]
    items: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    stored: list[list[str]] = field(default_factory=list[list[str]])
    sessions: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    @property
    def is_window(self) -> bool:
        return self.names.get("window", "scope" in self.names and "conversation" not in self.names)

    @property
    def owner(self) -> tuple[str, ...]:
        return tuple(self.names.get(name, "") for name in ("scope", "principal", "conversation"))


class World:
    """Two processes with one ledger, and their clients."""

    def __init__(self, path: Path, figures: Counter[str]) -> None:
        self.engines = [nexus.open(ledger=path, model="gpt-4o") for _ in range(2)]
        self.conversations = [Conversation(names) for names in NAMES[:2]]
        self.owners: dict[int | str, tuple[str, ...]] = {}
        self.figures = figures
        self.calls = 0

    def step(self, step: Step) -> None:
        talk, text = self.conversations[step.who % len(self.conversations)], (*WORDS, *LONG)[step.text]
        users = [index for index, item in enumerate(talk.items) if item["role"] == "user"]
        place = users[step.text % len(users)] if users else 0
        match step.action:
            case "new" | "import" | "long import" | "folder import":
                talk = Conversation(NAMES[step.who % len(NAMES)])
                if step.action == "import":
                    words = [WORDS[(step.text + n) % len(WORDS)] for n in range(2 * (step.answer % 3))]
                    talk.items = [{"role": role, "content": word} for role, word in zip(ROLES * 2, words, strict=False)]
                elif step.action == "long import":
                    talk.items = [{"role": "user", "content": LONG[0]}, {"role": "assistant", "content": WORDS[0]}]
                elif step.action == "folder import":
                    words = [f"{FOLDER}{self.calls}", LONG[0], WORDS[step.text % len(WORDS)], LONG[1]]
                    talk.items = [{"role": role, "content": word} for role, word in zip(ROLES * 2, words, strict=True)]
                self.conversations.append(talk)
            case "slide" if len(users) > 1:
                del talk.items[: users[1]]
            case "edit" if users:
                talk.items[place]["content"] = WORDS[step.answer % len(WORDS)]
            case "folder" | "folder rewind" if users:
                if step.action == "folder rewind" and len(users) > 1:
                    del talk.items[users[-1] :]
                talk.items[0] = {"role": "user", "content": f"{FOLDER}{self.calls}"}
            case "remove" if len(users) > 1 and place != users[-1]:
                del talk.items[place : users[users.index(place) + 1]]
            case "retry" if talk.items and "tool_calls" not in talk.items[-1] and talk.items[-2]["role"] == "user":
                text = talk.items[-2]["content"]
                del talk.items[-2:]
            case _:
                pass
        self.call(talk, text, step)

    def call(self, talk: Conversation, text: str, step: Step) -> None:
        """Add the event, judge the context, and record the reply."""
        nx = self.engines[step.engine]
        before = [*talk.items]
        waiting = talk.items[-1].get("tool_calls", []) if talk.items else []
        talk.items += [{"role": "tool", "tool_call_id": call["id"], "content": text} for call in waiting]
        talk.items += [] if waiting else [{"role": "user", "content": text}]
        ctx, front = self.context(nx, talk)
        if step.action == "no answer":
            talk.items = before
            return
        reply = self.reply(step.answer)
        if step.action == "parallel":
            other = self.engines[not step.engine]
            other_ctx, _ = self.context(other, talk)
            self.record(other, other_ctx, talk, front, {"role": "assistant", "content": "other"})
        self.record(nx, ctx, talk, front, reply)
        talk.items.append(reply)
        again = {"choices": [{"message": reply, "finish_reason": "stop"}]}
        assert nx.record(ctx, again).added == 0, "same reply again: something was stored"

    def reply(self, number: int) -> dict[str, Any]:
        self.calls += 1
        if number < len(WORDS) + len(LONG):
            return {"role": "assistant", "content": (*WORDS, *LONG)[number]}
        call_id = f"{CALLS[number % len(CALLS)]}{'f' * self.calls if number == 10 else ''}"
        call = {"id": call_id, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    def context(self, nx: nexus.Engine, talk: Conversation) -> tuple[nexus.AssembledContext, list[str]]:
        """Return the context of a list and what is put back before it."""
        ctx = nx.mirror(talk.items, budget=None, **talk.names)
        seen, own = lines(ctx.to_openai()["messages"]), lines(talk.items)
        front = seen[: len(seen) - len(own)]
        assert seen[len(front) :] == own, f"list differs from the client's: {seen} in place of {own}"
        assert ctx.mirrored is not None and ctx.mirrored.restored_count == len(front)
        state: Any = ctx.mirrored.state
        if state.place.leaves:
            is_own = state.session in talk.sessions
            others = (other for other in self.conversations if other.owner == talk.owner)
            rows = [other.sessions[state.session] for other in others if state.session in other.sessions]
            if not talk.sessions:  # never seen before: all but the first message is what that session has
                is_own = any([*row[1:]] == own[1 : len(row)] for row in rows)
            is_own = is_own or any(is_moved(row, own) for row in rows)
            assert is_own, f"session of another conversation: {own} in {state.session}"
            self.figures["lists with another first message"] += 1
        if front:
            assert talk.is_window, f"list that is no window: {front} was put before it"
            assert any(row[: len(front) + 3] == seen[: len(front) + 3] for row in talk.stored), f"other words: {front}"
            self.figures["windows with earlier messages"] += 1
        return ctx, front

    def record(self, nx: nexus.Engine, ctx: Any, talk: Conversation, front: list[str], reply: dict[str, Any]) -> None:
        committed = nx.record(ctx, {"choices": [{"message": reply, "finish_reason": "stop"}]})
        talk.stored.append([*front, *lines([*talk.items, reply])])
        session = nx.ledger.store.labels_of(committed.thread)
        talk.sessions |= dict.fromkeys(session, talk.stored[-1])
        for part in (*session, *(part.thread for part in nx.ledger.store.path(committed.thread))):
            owner = self.owners.setdefault(part, talk.owner)
            assert owner == talk.owner, f"session of two owners: {owner} and {talk.owner}"


ROLES = ("user", "assistant")


def lines(items: Sequence[dict[str, Any]]) -> list[str]:
    """Messages as texts without ids."""
    calls = [[call["function"]["name"] for call in item.get("tool_calls", [])] for item in items]
    return [
        json.dumps([item["role"], (item.get("content") or "").strip(), names])
        for item, names in zip(items, calls, strict=True)
    ]


def is_moved(stored: Sequence[str], own: Sequence[str]) -> bool:
    """Return True if a list has a session's newest reply and repeats one of its long messages behind it, as aider does."""
    if stored[-1] not in own:
        return False
    behind = own[own.index(stored[-1]) + 1 :]
    return any(line in behind for line in stored[:-1] if len(line) > LONG_LINE)


def run(steps: Sequence[Step], figures: Counter[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "ledger.db", figures)
        try:
            for step in steps:
                world.step(step)
        finally:
            for nx in world.engines:
                nx.close()


@pytest.mark.parametrize("examples", [60, pytest.param(1_000, marks=pytest.mark.slow)])
def test_no_list_shows_words_of_another_user_or_conversation(
    examples: int, record_property: Callable[[str, object], None]
) -> None:
    figures = Counter[str]()

    @settings(max_examples=examples)
    @given(steps=st.lists(STEPS, min_size=4, max_size=40))
    def holds(steps: list[Step]) -> None:
        run(steps, figures)

    holds()
    assert figures["windows with earlier messages"]
    assert figures["lists with another first message"]
    record_property("figures", {f"law of lists: {name}": count for name, count in figures.items()})


SECRET = Step("go on", 0, 1, 3)
"""Words of the first conversation that no other has in front."""
SHORT = (SECRET, Step("go on", 0, 0, 1), Step("go on", 0, 2, 3))
FOLDER_TALK = (Step("go on", 0, 0, 4), Step("folder", 0, 1, 5))
"""A conversation whose first message is a folder's listing."""
MUTANTS = (
    Mutant(
        "short messages identify a session",
        "nexus.engine.mirror.keys:_identity", "<= LONG_CHARS", "< 0",
        ("other words",), (*SHORT, Step("import", 0, 0, 2)),
    ),
    Mutant(
        "two messages are an overlap",
        "nexus.engine.mirror:CallerLists._as_window", "< LEAST_OVERLAP", "< 2",
        ("other words",), (SECRET, Step("go on", 0, 4, 0), Step("long import", 0, 2)),
    ),
    Mutant(
        "principal is left out of the key",
        "nexus.engine.engine:Engine.mirror", "request.settings.principal", '""',
        ("two owners",), (Step("new", 1, 0, 0), Step("new", 2, 0, 0)),
    ),
    Mutant(
        "conversation is left out of the key",
        "nexus.engine.engine:Engine.mirror", "principal, conversation)", 'principal, "")',
        ("two owners",), (Step("new", 6, 0, 0), Step("new", 7, 0, 0)),
    ),
    Mutant(
        "stored text is used in place of the client's",
        "nexus.engine.mirror.keys:content_hash", "content.append(text)", "content.append(text[:2])",
        ("differs from the client's",), (Step("new", 9, 0, 3), Step("edit", 2, 0, 1)),
    ),
    Mutant(
        "every list is a window",
        "nexus.engine.mirror:CallerLists.place", "if is_window and", "if",
        ("no window",), (Step("new", 9, 0, 3), Step("go on", 2, 1, 4), Step("go on", 2, 2, 3), Step("slide", 2, 3, 0)),
    ),
    Mutant(
        "messages after the first one are not compared",
        "nexus.engine.mirror.moved:MovedLists._differs_in_first", "_chain_key(stored[1:]) != _chain_key(ours[1:])", "False",
        ("another conversation",), (*FOLDER_TALK, Step("folder import", 0, 3)),
    ),
    Mutant(
        "other sessions with the same long message do not matter",
        "nexus.engine.mirror.moved:MovedLists._differs_in_first", "not any(any(self._store.labels_of(other)) for other in others)", "True",
        ("another conversation",),
        (*FOLDER_TALK, Step("go on", 0, 2, 6), Step("new", 0, 0, 4), Step("folder", 2, 1, 5), Step("folder rewind", 0, 0, 0)),
    ),
    Mutant(
        "sessions of other users are candidates",
        "nexus.engine.mirror.moved:MovedLists._differs_in_first", "not self._has_root(scope, thread, stored[0])", "False",
        ("another conversation", "two owners"), (*FOLDER_TALK, Step("new", 1, 0, 4), Step("folder import", 1, 1)),
    ),
)  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_fault_in_placing_is_found_by_the_law(mutant: Mutant) -> None:
    steps: Any = mutant.example
    run(steps, Counter())
    with broken_by(mutant), pytest.raises(AssertionError) as found:
        run(steps, Counter())
    assert any(law in str(found.value) for law in mutant.laws), str(found.value)
