"""What extraction finds: one line of text that should outlive the messages it stood in."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.types.ledger_entries import Place

Kind: TypeAlias = Literal[
    "constraint", "preference", "fact", "decision", "done", "open", "file", "command", "identifier", "error", "recent"
]


class Finding(Struct, frozen=True):
    """One thing to keep: a whole sentence, a path, a command with its outcome.

    `weight` is 0 to 100: how much is lost without it. A place of seq 0 is a line of the summary before. `asked` marks the
    newest request and unanswered questions, which a later summary finds anew or leaves out.
    """

    kind: Kind
    text: str
    place: Place
    weight: int
    asked: bool = False
