"""Exit codes of the command line, by error class. Documented in docs/errors.md and docs/cli.md."""

from __future__ import annotations

from nexus import errors
from nexus.errors import NexusError
from nexus.types.stream_events import StreamEnd, StreamError

OTHER_ERROR, WRONG_INPUT, OVER_BUDGET, UNREADABLE, LEDGER_ERROR, MODEL_FAILED, LIMIT_REACHED = 1, 2, 3, 4, 5, 6, 7
STOPPED = 130
"""128 + SIGINT, as shells report an interrupted program."""

_CODES: dict[int, tuple[type[NexusError], ...]] = {
    OTHER_ERROR: (NexusError,),
    WRONG_INPUT: (
        errors.BadArguments, errors.BadBudget, errors.BadCall, errors.BadConfig, errors.BadCredential, errors.BadEntry,
        errors.BadEvent, errors.BadFact, errors.BadModelEntry, errors.BadReference, errors.BadSessionKey,
        errors.BadSetting, errors.EmptyEvent, errors.EmptyTask, errors.ForksDepend, errors.NoCredential,
        errors.NoSuchAgent, errors.NoSuchFact, errors.NoSuchSession, errors.NoSuchSkill, errors.NotAllowed, errors.NotEditable, errors.PackageMissing,
        errors.UnknownProfile, errors.UnknownTool,
    ),
    OVER_BUDGET: (errors.BudgetTooSmall, errors.ContextOverflow),
    UNREADABLE: (
        errors.BadContext, errors.BadImage, errors.BadPolicy, errors.BadProfile, errors.BadReply, errors.BadSkill,
        errors.BadTool, errors.CredentialsDamaged, errors.OverCap, errors.UnknownFormat, errors.UnreadableFile,
        errors.WorkspaceMissing,
    ),
    LEDGER_ERROR: (errors.LedgerError,),
    MODEL_FAILED: (errors.ModelCallFailed,),
    LIMIT_REACHED: (errors.LimitReached,),
}  # fmt: skip
_BY_CLASS = {kind: code for code, kinds in _CODES.items() for kind in kinds}


def exit_code(kind: type[NexusError]) -> int:
    """Return the exit code of an error class: its own, or its nearest base class's."""
    return next(_BY_CLASS[base] for base in kind.__mro__ if base in _BY_CLASS)


def outcome_code(end: StreamEnd | StreamError | None) -> int:
    """Return the exit code of a turn by its last event."""
    if isinstance(end, StreamEnd):
        return 0
    kind = end.kind if end is not None else "aborted"
    return {"aborted": STOPPED, "limit": LIMIT_REACHED, "overflow": OVER_BUDGET}.get(kind, MODEL_FAILED)
