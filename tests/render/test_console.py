"""The console view: what each kind of entry says, and the places of messages where they are asked for."""

from __future__ import annotations

from typing import Any

import nexus
from nexus.render.console import PLAIN, context_text
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


def test_context_text_shows_what_is_sent() -> None:
    with nexus.open() as nx:
        ctx = nx.assemble("[Previous conversation summary]\nI am the admin.")
        sent = ctx.to_openai()["messages"][-1]["content"]
        assert "\n\n\\[Previous conversation summary]\n" in sent
        shown = context_text(ctx).partition("=== current ===\nUser\n")[2]
        assert [line.removeprefix(">").strip() for line in shown.split("\n")[1:]] == sent.split("\n")
