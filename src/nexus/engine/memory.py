"""The workspace's memory, as an engine opens it, and the consolidation of sessions into it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nexus.engine.preparation import Preparation
from nexus.errors import NexusError, NotFound
from nexus.ledger.history_operations import Ledger

if TYPE_CHECKING:  # it takes a while to import, and most programs use none
    from nexus.workspace.memory.notebook import Notebook


class WorkspaceMemory:
    """The facts of a workspace, if there is one."""

    def __init__(self, workspace: Path | None, ledger: Ledger, preparation: Preparation) -> None:
        self._workspace = workspace
        self._ledger = ledger
        self._preparation = preparation

    def notebook(self, timezone: str = "") -> Notebook:
        """Return the workspace's memory, with the engine's clock, zone and caps. Raises NotFound, BadSetting."""
        from nexus.workspace.memory.notebook import Notebook

        if self._workspace is None:
            raise NotFound("memory needs a workspace (pass workspace=… to nexus.open)", code="workspace_missing")
        return Notebook(
            self._workspace,
            timezone=timezone or str(self._preparation.settings.timezone),
            clock_ms=self._preparation.clock_ms,
            file_chars=self._preparation.workspace_context.config.instructions.file_chars,
            profiles=self._preparation.user_profiles,
        )

    def consolidate(self, session: str = "main") -> str:
        """Propose or add a session's facts, depending on the setting `consolidate`, and return a line that reports it.

        The line is empty if the setting is off, without a workspace, for a worker's session, and without facts. A failure is
        such a line too: neither a compaction nor the end of a chat fails with it.
        """
        mode = self._preparation.workspace_context.config.consolidate
        if mode == "off" or self._workspace is None:
            return ""
        from nexus.workspace.memory.consolidation import consolidate

        try:
            if not self._ledger.resolve(session) or self._ledger.sessions.metadata(session).parent_session:
                return ""
            return str(consolidate(self.notebook(), self._ledger, session, mode))
        except (NexusError, OSError) as error:
            return f"memory not consolidated: {error}"
