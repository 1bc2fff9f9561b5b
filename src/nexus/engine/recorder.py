"""Storing replies: with the cut and manifest of their context, in one transaction, and never lost once they are paid."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nexus.assembly.record import build_commit, calibration_key, new_session_metadata, update_calibration
from nexus.context import AssembledContext
from nexus.engine.late_replies import commit_patiently, late_base, record_unrecorded, try_store_late
from nexus.engine.mirror import CallerLists, PlacedList
from nexus.engine.preparation import Preparation
from nexus.errors import HeadMoved, IdempotencyConflict, LateReply, LedgerError, TurnSuperseded, UnreadableFile
from nexus.ledger.history_operations import Ledger
from nexus.ledger.unrecorded_replies import UnrecordedReplies, UnrecordedReply, is_of_storage
from nexus.providers.server_edits import has_compaction
from nexus.types.ledger_entries import Commit, Committed
from nexus.types.request import AgentResult

if TYPE_CHECKING:
    from nexus.ledger.lease import SessionLease


class Recorder:
    """Stores replies, and calibrates token counts by their usage.

    Attributes:
        unrecorded: Replies that the ledger could not store yet (`nexus.ledger.unrecorded_replies`).
    """

    def __init__(
        self, ledger: Ledger, preparation: Preparation, mirror: CallerLists, unrecorded: UnrecordedReplies
    ) -> None:
        self.unrecorded = unrecorded
        self._ledger = ledger
        self._preparation = preparation
        self._mirror = mirror

    def record(
        self, ctx: AssembledContext, result: AgentResult, reply: object = None, lease: SessionLease | None = None
    ) -> Committed:
        """Record a reply that `read_reply` has read; see `Engine.record`. `reply`: as received, for errors.

        The same commit ends the lease, unless more is to be written under it.
        """
        if not isinstance(ctx, AssembledContext):
            raise UnreadableFile(
                f"context is {type(ctx).__name__} (pass the one that `assemble` returned)", code="bad_context"
            )
        now_ms = self._preparation.clock_ms()
        commit = build_commit(ctx, result, self._preparation.counter, now_ms)
        mirrored = ctx.mirrored
        pins_compaction = mirrored is None and any(map(has_compaction, result.messages))
        if lease is not None and not pins_compaction:
            commit = replace(commit, lease=lease.end())
        reply = result if reply is None else reply
        try:
            if mirrored is not None and isinstance(mirrored.state, PlacedList):
                committed = self._mirror.record(mirrored.state, commit)
            else:
                committed = self._commit(ctx, commit, reply)
        except LedgerError as error:
            if is_of_storage(error):
                error.keep_reply(reply, error.kept_in)
            raise
        if lease is not None:
            lease.note(committed, commit.lease)
        if committed.added and pins_compaction:
            self._pin_compaction(ctx.session_label, committed)
        if committed.added and ctx.cut is not None:
            self._preparation.windows.keep_after(ctx, ctx.cut, committed.thread)
        if committed.added and result.usage.input_tokens:
            self._calibrate(ctx, result, now_ms)
        self.record_waiting()  # an earlier try may have left this reply there
        return committed

    def _calibrate(self, ctx: AssembledContext, result: AgentResult, now_ms: int) -> None:
        """Learn from the reported usage, unless the settings say otherwise."""
        if ctx.mirrored is not None and ctx.mirrored.reserve:
            return  # usage includes what the caller added to the request, and nothing tells how much of the reserve it was
        if not self._preparation.settings.calibrate or not ctx.provenance.settings.calibrate:
            return
        model = ctx.accounting.model_info
        counter = ctx.provenance.manifest.counter
        with suppress(LedgerError):  # the reply is stored; the next one calibrates
            stored = partial(self._preparation.calibration, model, counter)
            if updated := update_calibration(ctx, result, stored, now_ms):
                self._ledger.store.calibrate(model.provider, calibration_key(model, counter), updated)

    def _pin_compaction(self, session: str, committed: Committed) -> None:
        """Pin the provider's own compaction in a recorded reply, because it replaces everything before it."""
        first = committed.head - committed.added
        entries = self._ledger.store.entries(committed.thread, first, committed.head)
        rows = (row for entry in entries for row in entry.rows)
        with suppress(LedgerError):  # the reply is stored
            for row in rows:
                if row.message.role == "assistant" and has_compaction(row.message):
                    self._ledger.pin(session, row.ref, "the provider's compaction")

    def _commit(self, ctx: AssembledContext, commit: Commit, reply: object) -> Committed:
        """Store a reply. If the ledger cannot store it now, a file and the error contain it."""
        label = ctx.session_label
        metadata = None
        store = self._ledger.store
        try:
            metadata = new_session_metadata(ctx, store)
            return commit_patiently(self._ledger, label, commit, metadata)
        except (TurnSuperseded, HeadMoved, IdempotencyConflict) as error:
            if commit.turn is None:
                raise
            base = late_base(ctx, commit)
            stored_as = try_store_late(self._ledger, label, commit.turn.turn, base, commit)
            raise LateReply(error, commit.turn.turn, reply, stored_as) from error
        except LedgerError as error:
            if not is_of_storage(error) or error.code == "ledger_gone":  # another ledger has its place
                raise
            turn = commit.turn.turn if commit.turn is not None else 0
            principal = ctx.provenance.settings.principal
            waiting = (label, turn, late_base(ctx, commit), replace(commit, lease=None), metadata, principal)
            error.kept_in = self.unrecorded.add(UnrecordedReply(store.tenant, *waiting))
            raise

    def record_waiting(self) -> int:
        """Record the replies that the ledger could not store before; return how many. It is done before each turn."""
        return self.unrecorded.record_all(partial(record_unrecorded, self._ledger))
