"""Document 003's MemoryStore: long-term memory and the history log of a workspace, for the agent's context."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nexus.types.sanitize import sanitize_text
from nexus.workspace.memory.notebook import MemoryMatch, Notebook
from nexus.workspace.sources.file_blocks import SYSTEM_HEADING


class MemoryStore:
    """MEMORY.md and HISTORY.md of a workspace, read anew by each method. `notebook` has what else can be done with them.

    `timezone` is the user's, an IANA name (UTC if empty); `clock_ms` gives Unix time in milliseconds. Raises
    WorkspaceMissing, BadSetting; the methods UnreadableFile, those that write MemoryBusy too.
    """

    def __init__(self, workspace: str | Path, *, timezone: str = "", clock_ms: Callable[[], int] | None = None) -> None:
        self.notebook = Notebook(workspace, timezone=timezone, clock_ms=clock_ms)

    def read_long_term(self) -> str:
        """MEMORY.md, whole; "" if it is not there. Bytes that are no text show as U+FFFD."""
        return sanitize_text(self.notebook.text())

    def write_long_term(self, text: str) -> None:
        """Puts a text in the place of MEMORY.md. Facts that it no longer has go to the log, so that none is lost."""
        self.notebook.write(text)

    def append_history(self, entry: str) -> None:
        """Adds an entry with the present time to HISTORY.md. Raises BadFact; SecretFound for what looks like a secret."""
        self.notebook.append(entry)

    def search(self, query: str, limit: int = 20) -> list[MemoryMatch]:
        """Facts and entries of the log that have the words: with all of them first, then the newest."""
        return self.notebook.search(query, limit)

    def get_memory_context(self) -> str:
        """MEMORY.md as it stands in a system prompt: under a heading, within the cap; "" if nothing is there yet."""
        found, _ = self.notebook.display_text()
        return f"{SYSTEM_HEADING}\n\n{found.text}" if found else ""
