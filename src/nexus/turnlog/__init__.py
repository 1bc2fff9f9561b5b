"""Turn logs of document 001: one entry for each message or tool call, as JSON and for the console.

`entries` and `write` make them, `message_format` shows them to a model, `reader`, `check` and `live` are for files.
`registration` adds the format, its profile, source and reader to the core's tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexus.types.registry import lazy_names

if TYPE_CHECKING:
    from nexus.turnlog.live import TurnLog
    from nexus.turnlog.reader import console_lines, log_text, read, violations
    from nexus.turnlog.threads import thread_tools

__all__ = [
    "TurnLog",
    "console_lines",
    "log_text",
    "read",
    "thread_tools",
    "violations",
]

if not TYPE_CHECKING:  # type checkers then report names that do not exist
    __getattr__ = lazy_names(
        __name__,
        {
            "nexus.turnlog.live": "TurnLog",
            "nexus.turnlog.reader": "console_lines log_text read violations",
            "nexus.turnlog.threads": "thread_tools",
        },
    )


def __dir__() -> list[str]:
    return list(__all__)
