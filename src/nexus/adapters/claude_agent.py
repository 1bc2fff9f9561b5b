"""Claude Agent SDK: a session store on a ledger, which imports each session while it grows.

    options = ClaudeAgentOptions(session_store=NexusSessionStore(nexus.open(ledger="ledger.db")), resume=session_id)

The SDK's program decides what its model sees. For a token budget, give it the address of `nexus proxy` too:
`env={"ANTHROPIC_BASE_URL": "http://127.0.0.1:8788"}`.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec
from claude_agent_sdk import SessionKey, SessionStore, SessionStoreEntry, fold_session_summary
from claude_agent_sdk.types import SessionListSubkeysKey, SessionStoreListEntry, SessionSummaryEntry

import nexus
from nexus.adapters.item_log import ItemLog
from nexus.interop import claude_code
from nexus.interop.importing import import_transcript
from nexus.interop.transcript import with_principal

LOG = logging.getLogger("nexus.adapters.claude_agent")

MAX_NAME_CHARS = 60
"""Characters of a transcript's name that are taken for its file: each may become four, and a name has at most 255."""


class NexusSessionStore(SessionStore):
    """Keeps transcripts as they are, and imports them as `nexus import` does.

    Args:
        nx: An engine.
        principal: Whose sessions these are. For several users make a store for each: none sees another's sessions.
    """

    def __init__(self, nx: nexus.Engine, *, principal: str = "") -> None:
        self.nx = nexus.AsyncEngine(nx)
        self.principal = principal
        self._log = ItemLog(nx.store, "claude-agent")
        self._ids = dict[tuple[str, ...], set[str]]()
        """Ids of the entries of each transcript that was appended to here."""

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Store entries of a transcript, those with a known id once, and import its session.

        Raises LedgerError if they cannot be stored. A fault of the import is logged: the next one repeats it.
        """
        await self.nx.run(self._append, self._path(key), entries)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the entries of a transcript; None if there is none."""
        return await self.nx.run(self._log.read, self._path(key)) or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project, with the times of their last change."""
        lists = await self.nx.run(self._log.lists, (self.principal, project_key))
        main = [info for info in lists if not info.path[-1]]
        return [SessionStoreListEntry(session_id=info.path[2], mtime=info.updated_ms) for info in main]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the SDK's own summary of each session of a project."""
        summaries = list[SessionSummaryEntry]()
        for session in await self.list_sessions(project_key):
            key = SessionKey(project_key=project_key, session_id=session["session_id"])
            summary = fold_session_summary(None, key, await self.load(key) or [])
            summaries.append({**summary, "mtime": session["mtime"]})
        return summaries

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the transcripts of a session's sub-agents."""
        lists = await self.nx.run(self._log.lists, (self.principal, key["project_key"], key["session_id"]))
        return [info.path[-1] for info in lists if info.path[-1]]

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; a session's with those of its sub-agents. What was imported stays until it is erased."""
        path = self._path(key)
        chosen = path if path[-1] else path[:-1]
        await self.nx.run(self._log.delete, chosen)
        self._ids = {other: ids for other, ids in self._ids.items() if other[: len(chosen)] != chosen}

    def _path(self, key: SessionKey) -> tuple[str, ...]:
        return self.principal, key["project_key"], key["session_id"], key.get("subpath", "")

    def _append(self, path: tuple[str, ...], entries: Sequence[SessionStoreEntry]) -> None:
        stored_ids = self._ids.get(path)
        if stored_ids is None:
            stored_ids = {entry["uuid"] for entry in self._log.read(path) if "uuid" in entry}
        new = list[SessionStoreEntry]()
        ids = {*stored_ids}
        for entry in entries:
            uuid = entry.get("uuid")
            if uuid in ids:
                continue
            new.append(entry)
            if uuid is not None:
                ids.add(uuid)
        self._log.append(path, new, self.principal)
        self._ids[path] = ids
        try:
            self._import(path)
        except (nexus.NexusError, OSError) as error:
            LOG.warning("session %s not imported: %s", path[2], error)

    def _import(self, path: tuple[str, ...]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            name = (path[3] or path[2]).rpartition("/")[2][:MAX_NAME_CHARS]
            file = Path(folder, f"{quote(name, safe='', errors='surrogatepass')}.jsonl")
            file.write_bytes(b"".join(msgspec.json.encode(entry) + b"\n" for entry in self._log.read(path)))
            for transcript in claude_code.read(file):
                import_transcript(self.nx.engine, with_principal(transcript, self.principal))
