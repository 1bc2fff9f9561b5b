"""Turn logs (document 001): a conversation as one JSON array of numbered entries, written, read, checked and shown.

log_entries    the entries of a session, from its entries in the ledger
log_texts      the JSON file of entries, as the document prints it, piece by piece
log_text       the same as one text
strict_entries the entries without the extra key `nexus`, and an account of what that leaves out
read           a file as a transcript, to be imported
violations     what is wrong with a log's text, by the document's seven requirements
console_lines  the document's console display
entries_for    the entries of one message with its results; `entry_text` makes one JSON text of an entry
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from nexus.interop.turnlog_check import Violation, read_text, violations
from nexus.interop.turnlog_read import read
from nexus.render.turnlog.console import console_lines
from nexus.render.turnlog.entry import LogEntry, Position, Unit, entry_text
from nexus.render.turnlog.units import log_entries, log_texts, log_units, strict_entries
from nexus.render.turnlog.write import entries_for
from nexus.types.ledger_entries import Entry

__all__ = [
    "LogEntry",
    "Position",
    "Unit",
    "Violation",
    "console_lines",
    "entries_for",
    "entry_text",
    "log_entries",
    "log_text",
    "log_texts",
    "log_units",
    "read",
    "read_text",
    "strict_entries",
    "violations",
]


def log_text(entries: Iterable[Entry], undone: Collection[int] = ()) -> str:
    """A session's turn log as the text of a JSON file. `undone` are the seqs of compactions that were undone."""
    return "".join(log_texts(log_entries(entries, undone)))
