"""The log of document 004's sessions: a ledger in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from nexus.compat.nexus3.context.logger import LedgerLogger
from nexus.errors import BadSetting
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.store import LedgerStore

__all__ = ["LogConfig", "SessionLogger", "open_log"]

LEDGER_FILE = "ledger.db"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Folder of a log, which is created if it is missing, and the label of the session in it."""

    base_dir: str | Path = Path(".nexus3/logs")
    session: str = "main"


def open_log(folder: str | Path) -> SqliteLedger:
    """Open the ledger of a folder, and create both. Raises BadSetting, LedgerError."""
    path = Path(folder).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(f"log folder {path} not created: {error.strerror} (use another folder)") from error
    return SqliteLedger(str(path / LEDGER_FILE))


class SessionLogger(LedgerLogger):
    """Log of one session that an agent runs. Close it, or use it in `with`.

    Args:
        config: Folder and session.
        store: The open ledger of the folder, if several sessions share it. Its opener closes it.
    """

    def __init__(self, config: LogConfig | None = None, *, store: LedgerStore | None = None) -> None:
        self.config = config or LogConfig()
        self._is_shared = store is not None
        super().__init__(store or open_log(self.config.base_dir), self.config.session, for_agent=True)

    def close(self) -> None:
        """Close the ledger, unless others share it."""
        if not self._is_shared:
            self.ledger.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
