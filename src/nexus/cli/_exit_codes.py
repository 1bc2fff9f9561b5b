"""Exit codes of the command line, by error. Documented in docs/errors.md and docs/cli.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexus import errors
from nexus.cli._exit_numbers import (
    LEDGER_ERROR,
    LIMIT_REACHED,
    MODEL_FAILED,
    OTHER_ERROR,
    OVER_BUDGET,
    STOPPED,
    UNREADABLE,
    WRONG_INPUT,
)
from nexus.errors import NexusError

if TYPE_CHECKING:
    from nexus.types.stream_events import StreamEnd, StreamError

_CLASSES: tuple[tuple[type[NexusError], int], ...] = (
    (errors.BudgetTooSmall, OVER_BUDGET),
    (errors.ContextOverflow, OVER_BUDGET),
    (errors.BadConfig, WRONG_INPUT),
    (errors.BadEvent, WRONG_INPUT),
    (errors.BadFact, WRONG_INPUT),
    (errors.BadReference, WRONG_INPUT),
    (errors.BadSetting, WRONG_INPUT),
    (errors.NoCredential, WRONG_INPUT),
    (errors.NoSuchSession, WRONG_INPUT),
    (errors.NotAllowed, WRONG_INPUT),
    (errors.NotFound, WRONG_INPUT),
    (errors.PackageMissing, WRONG_INPUT),
    (errors.BadReply, UNREADABLE),
    (errors.BadTool, UNREADABLE),
    (errors.OverCap, UNREADABLE),
    (errors.UnreadableFile, UNREADABLE),
    (errors.LedgerError, LEDGER_ERROR),
    (errors.ModelCallFailed, MODEL_FAILED),
    (errors.LimitReached, LIMIT_REACHED),
)
"""Exit codes by class, subclasses before their bases: the first that matches decides."""

_ERROR_CODES = {
    "bad_arguments": WRONG_INPUT,
    "bad_credential": WRONG_INPUT,
    "bad_policy": UNREADABLE,
    "bad_profile": UNREADABLE,
    "credentials_damaged": UNREADABLE,
    "forks_depend": WRONG_INPUT,
    "unknown_tool": WRONG_INPUT,
    "workspace_missing": UNREADABLE,
}
"""Exit codes of errors that differ from others of their class."""


def exit_code(error: NexusError) -> int:
    """Return the exit code of an error."""
    if error.code in _ERROR_CODES:
        return _ERROR_CODES[error.code]
    for kind, code in _CLASSES:
        if isinstance(error, kind):
            return code
    return OTHER_ERROR


def outcome_code(end: StreamEnd | StreamError | None) -> int:
    """Return the exit code of a turn by its last event."""
    from nexus.types.stream_events import StreamEnd

    if isinstance(end, StreamEnd):
        return 0
    kind = end.kind if end is not None else "aborted"
    return {"aborted": STOPPED, "limit": LIMIT_REACHED, "overflow": OVER_BUDGET}.get(kind, MODEL_FAILED)
