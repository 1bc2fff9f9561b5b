"""Facts proposed for memory from real sessions without a model: how many per file, and each with its source.

Half of the data is for development: Claude Code sessions with odd numbers, and lines with odd numbers of the other files. The
other half is held out. Whether a fact is right is read by a person in the list that the command prints.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.report import Cell, Outcome, Table
from benchmarks.sessions import data_folder, session_files
from nexus.interop.detect import read
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Message, TokenSize, user
from nexus.workspace.memory.proposals import Proposal, propose_by_rule

COMMAND = "python -m benchmarks consolidation"
DATA = (
    "Claude Code: 10 sessions; LoCoMo: 10 conversations, each speaker as the user; tau-bench airline: 200 conversations"
)
_NOTES = (
    "messages: texts that a user typed. facts: proposed in each session. distinct: without repeats in other sessions.",
    "Development: odd Claude Code sessions, and lines 1, 3, 5, … of the other files. Held out: the others.",
)


def run() -> Outcome:
    """Return the counts by file and half, and all proposals with their sources. Raises NotRun without the data."""
    counts: list[tuple[Cell, ...]] = []
    listed: list[tuple[Cell, ...]] = []
    for half in ("development", "held out"):
        for file, sessions in (
            ("Claude Code", _claude_code(half)),
            ("LoCoMo", _locomo(half)),
            ("tau-bench", _tau(half)),
        ):
            found = [(messages, propose_by_rule(_rows(messages), name)) for name, messages in sessions]
            facts = [fact for _, proposals in found for fact in proposals]
            distinct = newest_texts(facts)
            counts.append(
                (file, half, len(found), sum(len(messages) for messages, _ in found), len(facts), len(distinct))
            )
            listed += [_row(half, fact) for fact in distinct]
    columns = ("file", "half", "sessions", "messages", "facts", "distinct")
    details = ("half", "session", "entry", "kind", "fact", "source")
    return Outcome(
        (
            Table("Facts proposed without a model", COMMAND, DATA, columns, tuple(counts), _NOTES),
            Table("Proposed facts with their sources", COMMAND, DATA, details, tuple(listed), detail=True),
        )
    )


def newest_texts(facts: list[Proposal]) -> list[Proposal]:
    """Return the proposals without repeats of a text."""
    return list({fact.text.casefold(): fact for fact in reversed(facts)}.values())[::-1]


def _row(half: str, fact: Proposal) -> tuple[Cell, ...]:
    source = fact.sources[0]
    return half, source.session, source.entry, fact.kind, fact.text, source.quotation


def _rows(messages: list[Message]) -> list[StoredMessage]:
    return [StoredMessage(MessageRef(at, 0), message, TokenSize(0, 0, 0)) for at, message in enumerate(messages, 1)]


def _claude_code(half: str) -> Iterator[tuple[str, list[Message]]]:
    for path in session_files():
        if (int(path.stem[-2:]) % 2 == 1) == (half == "development"):
            steps = next(iter(read(path))).steps
            messages = [message for step in steps for message in step.messages]
            yield path.stem, [message for message in messages if message.role == "user"]


def _locomo(half: str) -> Iterator[tuple[str, list[Message]]]:
    for number, line in _lines(data_folder() / "locomo.jsonl", half):
        for speaker in ("user", "assistant"):
            yield f"locomo {number} {speaker}", _said(line, speaker)


def _tau(half: str) -> Iterator[tuple[str, list[Message]]]:
    for number, line in _lines(data_folder() / "tau_airline.jsonl", half):
        yield f"tau {number}", _said(line, "user")


def _said(line: dict[str, Any], role: str) -> list[Message]:
    return [user(message["content"]) for message in line["messages"] if message["role"] == role and message["content"]]


def _lines(path: Path, half: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number, from 1, and the value of each line of a half."""
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if (number % 2 == 1) == (half == "development"):
            yield number, msgspec.json.decode(line)
