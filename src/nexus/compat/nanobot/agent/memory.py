"""Document 003's MemoryStore: long-term memory and history log of a workspace, for the agent's context."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nexus.types.sanitize import sanitize_text
from nexus.workspace.memory.notebook import MemoryMatch, Notebook
from nexus.workspace.prompts import without_template_comments
from nexus.workspace.sources.memory import SYSTEM_HEADING

__all__ = ["MemoryStore"]


class MemoryStore:
    """MEMORY.md and HISTORY.md of a workspace, read again by each method. `notebook` has further operations.

    `timezone` is the user's, an IANA name (UTC if empty); `clock_ms` returns milliseconds since 1970. Raises
    NotFound, BadSetting. The methods raise UnreadableFile, and those that write also MemoryBusy.
    """

    def __init__(self, workspace: str | Path, *, timezone: str = "", clock_ms: Callable[[], int] | None = None) -> None:
        self.notebook = Notebook(workspace, timezone=timezone, clock_ms=clock_ms)

    def read_long_term(self) -> str:
        """Return MEMORY.md, whole but without the template's comments; "" if it is missing. Undecodable bytes become U+FFFD."""
        return without_template_comments(sanitize_text(self.notebook.text()))

    def write_long_term(self, text: str) -> None:
        """Replace MEMORY.md. Facts that the new text lacks are moved to the log."""
        self.notebook.write(text)

    def append_history(self, entry: str) -> None:
        """Add an entry with the current time to HISTORY.md.

        Raises BadFact, and BadFact for text that resembles a secret.
        """
        self.notebook.append(entry)

    def search(self, query: str, limit: int = 20) -> list[MemoryMatch]:
        """Return facts and log entries that contain the words: those with all words first, then the newest."""
        return self.notebook.search(query, limit)

    def get_memory_context(self) -> str:
        """Return MEMORY.md as in a system prompt: under a heading, within the size cap; "" if it is empty."""
        file, _ = self.notebook.display_text()
        if file:
            return f"{SYSTEM_HEADING}\n\n{file.text}"
        return ""
