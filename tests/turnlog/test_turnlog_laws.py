"""Laws of the turn log: a session's log becomes the same messages again, and a valid log is written as it was read."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import nexus
from nexus.engine import Engine
from nexus.interop.importing import import_transcript
from nexus.ledger.sqlite import SqliteLedger
from nexus.turnlog.json_text import canonical
from nexus.turnlog.reader import log_text, read, violations
from nexus.types.ledger_entries import Commit, Entry, NewEntry, SizedMessage
from nexus.types.message import Message, Part, Text, TokenSize, ToolCall
from support.hostile import HISTORIES, TEXTS

BIG = st.integers(-(1 << 63) + 1, (1 << 63) - 1)
TIMES = st.one_of(st.just(0), st.integers(1_600_000_000_000, 1_600_000_000_050), BIG)
COMPACTION = {"covers_from": 1, "type": "summary", "summary": "What was said.\n\ud800"}


def messages_of(entries: Sequence[Entry]) -> list[Message]:
    return [row.message for entry in entries for row in entry.rows]


def kinds_of(entries: Sequence[Entry]) -> list[str]:
    return [entry.kind for entry in entries if entry.kind in ("compaction", "clear")]


def stored(session: list[NewEntry]) -> list[Entry]:
    """The entries as a ledger gives them back."""
    ledger = SqliteLedger()
    for entry in session:
        ledger.commit("given", Commit((entry,)))
    return list(ledger.entries(1)) if session else []


@contextmanager
def imported(text: str, folder: Path) -> Generator[Engine]:
    """A ledger into which a turn log's text was imported as session `log`."""
    file = folder / "log.json"
    file.write_text(text, "utf-8")
    with nexus.open(ledger=SqliteLedger()) as nx:
        for transcript in read(file):
            import_transcript(nx, transcript, "log")
        yield nx


def imitating(part: Part) -> st.SearchStrategy[Part]:
    """The part itself, or one that looks like something of the printed form: a reason, or the time before a text."""
    if isinstance(part, ToolCall):
        reason = TEXTS.map(lambda text: replace(part, arguments=json.dumps({"reasoning": text, "a": 1})))
        return st.just(part) | reason
    if isinstance(part, Text):
        moment = "Current time: 2025-12-10T08:00:00.000Z\nTimezone: UTC\n\n"
        return st.sampled_from([part, part, Text(moment + part.text)])
    return st.just(part)


@st.composite
def sessions(draw: st.DrawFn) -> list[NewEntry]:
    """Entries of a session: hostile messages in appends of any size, with marks between them, at any times."""
    found: list[NewEntry] = []
    history = draw(HISTORIES)
    while history:
        size = draw(st.integers(1, len(history)))
        some = [
            Message(
                m.role,
                tuple(draw(imitating(part)) for part in m.parts),
                m.id,
                draw(TIMES),
                draw(TEXTS),
                draw(TEXTS),
                m.model,
                m.meta,
            )
            for m in history[:size]
        ]
        body: dict[str, Any] = draw(st.sampled_from([{}, {"principal": "telegram:4\n2"}, {"turnlog": {"entry": "[]"}}]))
        rows = tuple(SizedMessage(message, TokenSize(1, 1, 1)) for message in some)
        found.append(NewEntry("messages", rows, body, draw(TIMES), draw(st.booleans())))
        history = history[size:]
        if draw(st.integers(0, 3)) == 0:
            found.append(NewEntry("clear"))
        if draw(st.integers(0, 3)) == 0:
            kept = draw(st.integers(2, len(found) + 2))
            body = {**COMPACTION, "covers_to": kept - 1, "first_kept": kept, "trigger": draw(TEXTS)}
            found.append(NewEntry("compaction", body=body))
    return found


@settings(max_examples=40, deadline=None)
@given(sessions())
def test_session_round_trips_through_a_valid_log(
    tmp_path_factory: pytest.TempPathFactory, session: list[NewEntry]
) -> None:
    """Document 001, "Implementation Requirements": all of them, for any session."""
    folder = tmp_path_factory.getbasetemp()
    said = stored(session)
    text = log_text(said)
    assert [one for one in violations(text) if one.level == "error"] == []
    if not said:
        assert text == "[]\n"
        return
    with imported(text, folder) as nx:
        again = nx.ledger.entries("log")
        assert messages_of(again) == messages_of(said)
        assert kinds_of(again) == kinds_of(said)
        assert log_text(again) == text


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["postMessage", "getThreadHistory", "finishRequest", "x\ny", "é"])
PARAMETERS = st.dictionaries(st.sampled_from(["a", "arguments", "path", "é", "", "nexus"]), VALUES, max_size=3)
PARAMETERS |= st.fixed_dictionaries({"arguments": st.fixed_dictionaries({"reasoning": TEXTS})})
STAMPS = st.sampled_from(["Z", ".5Z", ".000Z", ".123456Z", ".1234567Z", "+00:00", "", ",25Z", "-00:00"])
MORE = st.dictionaries(st.sampled_from(["note", "id", "index2"]), VALUES, max_size=1)
PART: st.SearchStrategy[Any] = st.sampled_from(
    [
        {"type": "text"},
        {"type": "thinking"},
        {"type": "tool_call", "id": "c"},
        {"type": "image"},
        7,
        {"type": "text", "text": "t"},
    ]
)
EXTRAS: st.SearchStrategy[Any] = st.one_of(
    VALUES,
    st.fixed_dictionaries(
        {},
        optional={
            "made": st.booleans(),
            "more": st.booleans(),
            "mark": st.sampled_from(["clear", "compaction", "x", 1]),
            "trigger": TEXTS,
            "kept_from": st.sampled_from([0, 1, 2, True, "1"]),
            "tokens_before": st.sampled_from([0, 1, -1, 1 << 70]),
            "parts": st.lists(PART, max_size=3) | VALUES,
            "id": TEXTS | st.just(3),
            "at_ms": st.sampled_from([0, 5, 1 << 80, "1"]),
            "results": st.just([{"role": "tool", "parts": [{"type": "tool_result", "call_id": "c"}]}]) | VALUES,
        },
    ),
)


@st.composite
def contents(draw: st.DrawFn, role: str) -> Any:
    """A valid content for a role, its members in any order."""
    if role == "system":
        return draw(TEXTS | st.dictionaries(TEXTS, VALUES, max_size=2))
    if role == "user":
        told = {"userid": draw(st.sampled_from(["<@U1>", "<@user>", "", "\n"])), "text": draw(TEXTS), **draw(MORE)}
    else:
        name = draw(NAMES)
        calls = draw(st.integers(0, 4)) > 0
        said = name == "postMessage" or not calls or draw(st.booleans())
        if not calls and draw(st.booleans()):
            return draw(TEXTS)
        call = {"toolCall": name} if calls else {}
        told = {**draw(PARAMETERS), **call, **({"text": draw(TEXTS)} if said else {})}
        if draw(st.booleans()):
            told["reasoning"] = draw(TEXTS)
    return dict(draw(st.permutations(list(told.items()))))


@st.composite
def logs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A valid log, as any program might write it: gaps in the indexes, times of all kinds, keys of its own."""
    index, turn, asked = draw(st.sampled_from([0, 0, 3])), 0, False
    found: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 6))):
        role = draw(st.sampled_from(["system", "user", "assistant"]))
        turn += role == "assistant" and asked
        asked = role == "user" or (asked and role != "assistant")
        at = f"2023-04-04T12:33:{draw(st.just(len(found))) + 10:02}{draw(STAMPS)}"
        told = {"index": index, "turn": turn, "timestamp": at, "role": role, "content": draw(contents(role))}
        if draw(st.integers(0, 2)) == 0:
            told["nexus"] = draw(EXTRAS)
        if draw(st.integers(0, 5)) == 0:
            told = dict(draw(st.permutations([*told.items(), *draw(MORE).items()])))
        found.append(told)
        index += draw(st.sampled_from([1, 1, 1, 2]))
    return found


@settings(max_examples=60, deadline=None)
@given(logs(), st.sampled_from([None, 2]), st.booleans())
def test_valid_log_round_trips_unchanged(
    tmp_path_factory: pytest.TempPathFactory, log: list[dict[str, Any]], indent: int | None, ascii_only: bool
) -> None:
    given_text = json.dumps(log, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace").decode()
    assert [one for one in violations(given_text) if one.level == "error"] == []
    with imported(given_text, tmp_path_factory.getbasetemp()) as nx:
        assert canonical(log_text(nx.ledger.entries("log"))) == canonical(given_text)


EDITS = st.lists(
    st.tuples(st.sampled_from(["drop", "text", "extra", "swap"]), st.integers(0, 30)), min_size=1, max_size=3
)


def edited(log: list[dict[str, Any]], edits: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """A log that somebody edited: entries taken out, texts changed, extra keys taken out or put elsewhere."""
    for edit, number in edits:
        at = number % len(log) if log else 0
        if edit == "drop":
            log = log[:at] + log[at + 1 :]
        elif edit == "text" and log:
            content = log[at]["content"]
            log[at]["content"] = "other" if isinstance(content, str) else {**content, "text": "other"}
        elif edit == "extra" and log:
            log[at].pop("nexus", None)
        elif log:
            log[at]["nexus"], log[0]["nexus"] = log[0].get("nexus", {}), log[at].get("nexus", {})
    turn, asked = 0, False
    for entry in log:
        turn += entry["role"] == "assistant" and asked
        asked = entry["role"] == "user" or (asked and entry["role"] != "assistant")
        entry["turn"] = turn
    return log


@settings(max_examples=40, deadline=None)
@given(sessions(), EDITS)
def test_edited_log_round_trips_unchanged(
    tmp_path_factory: pytest.TempPathFactory, session: list[NewEntry], edits: list[tuple[str, int]]
) -> None:
    log = edited(json.loads(log_text(stored(session))), edits)
    text = json.dumps(log)
    assert [one for one in violations(text) if one.level == "error"] == []
    if log:
        with imported(text, tmp_path_factory.getbasetemp()) as nx:
            assert canonical(log_text(nx.ledger.entries("log"))) == canonical(text)
