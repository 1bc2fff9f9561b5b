"""The console view of a turn log: what each kind of entry says, and message references where they are asked for."""

from __future__ import annotations

from typing import Any

from nexus.render.console import PLAIN
from nexus.turnlog.console import console_lines
from nexus.types.ledger_entries import Entry, EntryKind, MessageRef, StoredMessage
from nexus.types.message import TokenSize, assistant, user


def entry(at: int, kind: EntryKind, *texts: str, **body: Any) -> Entry:
    messages = [(user if number % 2 == 0 else assistant)(text) for number, text in enumerate(texts)]
    rows = tuple(
        StoredMessage(MessageRef(at, number), message, TokenSize(1, 1, 1)) for number, message in enumerate(messages)
    )
    return Entry(at, kind, 1, 0, body, rows, b"")


def shown(*entries: Entry, numbered: bool = False) -> list[str]:
    return [line for line in console_lines(entries, signs=PLAIN, numbered=numbered) if line]


SAID = entry(1, "messages", "Hello", "Hi.")
COMPACTED = entry(2, "compaction", covers_from=1, covers_to=1, first_kept=2, summary="A greeting.")


def test_message_reference_is_shown_only_if_numbered() -> None:
    assert shown(SAID) == ["User <@user> [Turn 0]", "> Hello", "Assistant [Turn 1]", "postMessage:", '   "Hi."']
    numbered = [line for line in shown(SAID, numbered=True) if "Turn" in line]
    assert numbered == ["User <@user> [Turn 0, entry 1.0]", "Assistant [Turn 1, entry 1.1]"]


def test_undo_and_redo_name_their_target() -> None:
    marks = (entry(3, "undone", of=2), entry(4, "undone", of=3))
    assert shown(COMPACTED, *marks)[2:] == [
        "── the compaction at entry 2 was undone ──",
        "── the undo at entry 3 was reverted ──",
    ]


def test_undo_of_hidden_entry_names_the_entry() -> None:
    assert shown(entry(9, "undone", of=2)) == ["── entry 2 was undone ──"]


def test_pins_name_their_message_and_reason() -> None:
    marks = (entry(2, "pin", seq=1, ord=0, reason="a\x1b"), entry(3, "unpin", seq=1, ord=0))
    assert shown(*marks) == ["── message 1.0 was pinned: a\\x1b ──", "── message 1.0 was unpinned ──"]


def test_lost_entry_is_shown_as_lost() -> None:
    assert shown(entry(4, "lost")) == ["── entry 4 was damaged; its content is lost ──"]


def test_clear_failure_and_compaction_are_described() -> None:
    assert shown(COMPACTED, entry(3, "clear"), entry(4, "failed", error="no network")) == [
        "── compacted: a summary replaces entries 1 to 1 ──",
        "> A greeting.",
        "── the conversation was cleared here ──",
        "── turn 1 failed: no network ──",
    ]
    assert shown(COMPACTED, numbered=True)[0] == "── entry 2: compacted: a summary replaces entries 1 to 1 ──"
