"""Contexts of open turns in the ledger: the engine assembles them in any process that has the ledger.

The context of a tool loop's call then has the engine's budget, and its proof: a recorded call is replayed by its hash.
"""

from __future__ import annotations

from typing import cast

from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import BadEvent, BadSetting, UnreadableFile
from nexus.services.ledger_check import check_ledger
from nexus.services.messages import StoredCall
from nexus.types.settings import CallArguments
from nexus.types.validation import check_options


async def assemble_call(nx: AsyncEngine | None, call: StoredCall) -> AssembledContext:
    """Return the context of a stored call.

    Raises:
        BadSetting: The service has no engine, or an option is invalid.
        BadEvent: The turn has ended, or waits for no reply.
        NotAllowed: The call is of another ledger.
        UnreadableFile: The context is another than the one that the caller wants.
        NoSuchSession, BudgetTooSmall, LedgerError: As for `Turn.assemble`.
    """
    if nx is None:
        raise BadSetting("service has no ledger (pass nx=…, or send messages in place of a stored call)")
    check_ledger(call.ledger, nx.engine.ledger.store)
    return await nx.run(_assemble, nx.engine, call)


def _assemble(nx: Engine, call: StoredCall) -> AssembledContext:
    check_options("assemble", call.options, CallArguments)
    turn = nx.current_turn(call.session, **cast("CallArguments", call.options))
    if turn is None or turn.number != call.turn:
        raise BadEvent(f"turn {call.turn} of session {call.session!r} is not open (a later one may have begun)")
    ctx = turn.assemble()
    if call.hash and ctx.body_hash != call.hash:
        text = (
            f"turn {call.turn} of session {call.session!r} gives another context here (do all services have the same "
        )
        raise UnreadableFile(f"{text}ledger, workspace and configuration?)", code="bad_context")
    return ctx
